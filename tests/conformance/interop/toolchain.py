"""IREE's own tools, as the interop tests use them: a compiler with a cache, a runtime as judge.

What it is: functions around `iree-compile` and `iree-run-module` of the extra `interop`; what was
compiled stays in build/iree-modules, keyed by source, flags, release and CPU.
What it is not: a test, or anything that knows what is compiled (`onnx_cases`, `test_programs`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import pytest

from tilewright.base.host import describe
from tilewright.runtime.hal.element_type import (
    bit_count,
    element_type_name,
    element_type_of,
    pack,
)

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / "build" / "iree-modules"
LLVM_CPU = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)
COMPILE_SECONDS = 3600
RUN_SECONDS = 300

_TYPE_NAMES = {"bool": "i1", "f8e4m3fn": "f8E4M3FN", "f8e5m2": "f8E5M2"}


@dataclass(frozen=True)
class Built:
    """A compiled module; or, if `error` says something, what the compiler refused."""

    path: Path
    error: str = ""


@dataclass(frozen=True)
class Answer:
    """What a run gave: arrays, raw bytes of types that .npy lacks, numbers as they are printed."""

    results: tuple[np.ndarray | bytes | str, ...] = ()
    error: str = ""


def is_available() -> bool:
    """Whether IREE's compiler and runtime are installed."""
    found = (importlib.util.find_spec(f"iree.{m}") for m in ("compiler", "runtime"))
    return importlib.util.find_spec("iree") is not None and all(found)


needs_iree = pytest.mark.skipif(
    not is_available(), reason="IREE is not installed (extra 'interop')"
)


def release() -> str:
    """Of the installed compiler."""
    return importlib.metadata.version("iree-base-compiler")


def program(name: str) -> str:
    """One of IREE's, in the environment that runs the tests."""
    beside = Path(sys.executable).with_name(name)
    if importlib.util.find_spec("iree.compiler") is None:
        return str(beside)
    # The compiler itself: what lies beside the interpreter is a script that starts it.
    from iree.compiler.tools import binaries

    try:
        return binaries.find_tool(name)
    except ValueError:
        return str(beside)


def digest(*words: str | bytes) -> str:
    """A name for files that depend on `words`."""
    data = b"\0".join(w.encode() if isinstance(w, str) else w for w in words)
    return hashlib.sha256(data).hexdigest()[:16]


# --- making -----------------------------------------------------------------------------------------


def make(command: Sequence[str], target: Path, seconds_limit: int = 300) -> str:
    """Run a command at the root that writes `target` where `-o` says; what it says when it fails."""
    draft = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}.draft")
    try:
        done = subprocess.run(
            [*command, "-o", str(draft)],
            capture_output=True,
            text=True,
            timeout=seconds_limit,
            check=False,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        return f"no result after {seconds_limit} s"
    if done.returncode:
        draft.unlink(missing_ok=True)
        return done.stderr[:2000] or f"exit status {done.returncode}"
    draft.replace(target)
    return ""


def write(path: Path, data: str | bytes) -> None:
    """Whole or not at all, whoever else does the same."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.draft")
    draft.write_bytes(data.encode() if isinstance(data, str) else data)
    draft.replace(path)


def import_model(model: onnx.ModelProto, opset_version: int = 0) -> str:
    """An ONNX model as text of the compiler's dialects, as `iree-import-onnx` does it.

    Args:
        model: as loaded.
        opset_version: older models are brought up to this one first, where ONNX can do that.

    Raises: ValueError with what the importer says.
    """
    from iree.compiler.extras import onnx_importer
    from iree.compiler.ir import Context

    try:
        if opset_version > model.opset_import[0].version:
            model = _newer(model, opset_version)
        onnx.checker.check_model(model)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        with Context() as context, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of models that keep custom domains
            info = onnx_importer.ModelInfo(inferred)
            module = info.create_module(context=context).operation
            onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
            module.verify()
            return module.get_asm(assume_verified=True)
    except Exception as error:  # the importer's own kinds, MLIR's, ONNX's
        raise ValueError(f"{type(error).__name__}: {error}"[:2000]) from error


def _newer(model: onnx.ModelProto, opset_version: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, opset_version)
    except (
        RuntimeError
    ):  # of an operator that the converter does not know, or no longer exists
        return model


def compile_text(text: str, flags: Sequence[str]) -> Built:
    """Compile MLIR text, unless that was done before."""
    return _compile(digest(text), flags, lambda: text)


def compile_model(path: Path, flags: Sequence[str], opset_version: int = 0) -> Built:
    """Import and compile an ONNX file, unless that was done before."""
    key = digest(path.read_bytes(), *([str(opset_version)] if opset_version else []))
    return _compile(key, flags, lambda: import_model(onnx.load(path), opset_version))


def _compile(key: str, flags: Sequence[str], read: Callable[[], str]) -> Built:
    folder = CACHE / release()
    stem = f"{key}-{digest(describe().cpu, *flags)}"
    module, refusal = folder / f"{stem}.vmfb", folder / f"{stem}.refused"
    if module.exists():
        return Built(module)
    if refusal.exists():
        return Built(module, refusal.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source = Path(scratch, "source.mlir")
        try:
            source.write_text(read(), encoding="utf-8")
            command = [program("iree-compile"), *flags, str(source)]
            error = make(command, module, COMPILE_SECONDS)
        except ValueError as refused:
            error = str(refused)
    if error:
        write(refusal, error)
    return Built(module, error)


# --- running ----------------------------------------------------------------------------------------


def run_module(
    module: Path,
    inputs: Sequence[object],
    banks: Sequence[str],
    folder: Path,
    *,
    function: str = "",
    device: str = "local-sync",
    flags: Sequence[str] = (),
    libraries: Sequence[Path] = (),
    tool: str = "",
) -> Answer:
    """Run a function under `iree-run-module`.

    Args:
        module: the archive.
        inputs: arrays and numbers.
        banks: of each result: `ref`, or a number's type.
        folder: for the files that go in and come out.
        function: its name; not needed where there is one alone.
        device: URI of IREE's device.
        flags: further ones.
        libraries: archives that are loaded before.
        tool: the program; default: that of the environment.
    """
    modules = [f"--module={path}" for path in (*libraries, module)]
    command = [tool or program("iree-run-module"), *modules, f"--device={device}"]
    command += [f"--function={function}"] if function else []
    command += [f"--input={_input(v, i, folder)}" for i, v in enumerate(inputs)]
    command += flags
    for suffix in ("npy", "bin"):  # numpy has no file form for bf16 and the like
        files = [folder / f"output{i}.{suffix}" for i in range(len(banks))]
        outputs = [
            f"--output=@{path}" if bank == "ref" else "--output=-"
            for path, bank in zip(files, banks, strict=True)
        ]
        done = subprocess.run(
            [*command, *outputs], capture_output=True, timeout=RUN_SECONDS, check=False
        )
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode == 0:
            printed = re.findall(r"^\w+=(\S+)$", done.stdout.decode(), re.MULTILINE)
            numbers = iter(printed)
            return Answer(
                tuple(
                    _output(path) if bank == "ref" else next(numbers)
                    for path, bank in zip(files, banks, strict=True)
                )
            )
        if "numpy" not in said:
            break
    return Answer(error=said.replace("\n", " ")[-300:] or f"exit code {done.returncode}")


def call_again(module: Path, inputs: Sequence[object], function: str, times: int) -> Answer:
    """Call a function under IREE's runtime and then `times` times more: what the last call gives.

    Args:
        module: the archive.
        inputs: arrays and numbers.
        function: the module's name and its own, with a dot between.
        times: as it says.
    """
    from iree import runtime

    config = runtime.Config("local-sync")
    loaded = runtime.VmModule.mmap(config.vm_instance, str(module))
    context = runtime.SystemContext(vm_modules=[loaded], config=config)
    called = context.modules[loaded.name][function.partition(".")[2]]
    for _ in range(times):
        called(*inputs)
    results = called(*inputs)
    many = results if isinstance(results, tuple | list) else (results,)
    return Answer(tuple(r.to_host() if hasattr(r, "to_host") else f"{r:g}" for r in many))


def _input(value: object, index: int, folder: Path) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)
    if np.iscomplexobj(value):  # a type that the grammar's shapes end before
        np.save(folder / f"input{index}.npy", value)
        return f"@{folder}/input{index}.npy"
    number = element_type_of(value.dtype)
    bits = bit_count(number)
    path = folder / f"input{index}.bin"
    path.write_bytes((value if bits >= 8 else pack(value, bits)).tobytes())
    dims = "".join(f"{extent}x" for extent in value.shape)
    name = element_type_name(number)
    return f"{dims}{_TYPE_NAMES.get(name, name.replace('u', 'i'))}=@{path}"


def _output(path: Path) -> np.ndarray | bytes:
    return np.load(path) if path.suffix == ".npy" else path.read_bytes()
