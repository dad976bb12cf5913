"""Real models exported in every form: the bits of a session, from programs that have no Tilewright."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from fakes.cross_machines import cross_compiler, emulator
from fakes.foreign_libraries import exports_of_macho, exports_of_pe
from tilewright.api.model import Model
from tilewright.runtime.library import cc

RUN_BY_TVM_FFI = """
import sys, numpy as np, tvm_ffi
library, inputs, outputs = sys.argv[1:]
given = np.load(inputs)
results = tvm_ffi.load_module(library)["main"](*(given[name] for name in given.files))
results = [results] if isinstance(results, tvm_ffi.Tensor) else list(results)
np.savez(outputs, *(np.from_dlpack(one) for one in results))
assert not any(name.startswith("tilewright") for name in sys.modules)
"""
MODELS = Path(__file__).parents[2] / "build" / "models"
Arrays = Mapping[str, np.ndarray]


def run_library(path: Path, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    """Call a shared library through tvm-ffi, in a process without Tilewright."""
    np.savez(folder / "inputs.npz", **inputs)
    words = [str(path), str(folder / "inputs.npz"), str(folder / "outputs.npz")]
    subprocess.run([sys.executable, "-c", RUN_BY_TVM_FFI, *words], check=True)
    found = np.load(folder / "outputs.npz")
    return [found[name] for name in found.files]


def run_program(
    command: list[str], inputs: Arrays, count: int, folder: Path
) -> list[np.ndarray]:
    """Run a program that a model was made."""
    words: list[str] = []
    for name, array in inputs.items():
        np.save(folder / f"in_{len(words)}.npy", np.ascontiguousarray(array))
        words.append(f"--input={name}=@{folder / f'in_{len(words)}.npy'}")
    words += [f"--output=@{folder / f'out_{index}.npy'}" for index in range(count)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [np.load(folder / f"out_{index}.npy") for index in range(count)]


def through_so(model: Model, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    model.export_library(folder / "net.so")
    return run_library(folder / "net.so", inputs, folder)


def through_tar(model: Model, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    model.export_library(folder / "net.tar")
    with tarfile.open(folder / "net.tar") as archive:
        archive.extractall(folder / "tar", filter="data")
    objects = [str(path) for path in sorted((folder / "tar").iterdir())]
    cc.create_shared(str(folder / "tar.so"), objects, options=["-pthread"])
    return run_library(folder / "tar.so", inputs, folder)


def through_object(model: Model, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    model.export_library(folder / "net.o")
    cc.create_shared(str(folder / "o.so"), [str(folder / "net.o")], options=["-pthread"])
    return run_library(folder / "o.so", inputs, folder)


def through_archive(model: Model, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    model.export_library(folder / "net.a")
    whole = ["-Wl,--whole-archive", str(folder / "net.a"), "-Wl,--no-whole-archive"]
    cc.create_shared(str(folder / "a.so"), whole, options=["-pthread"])
    return run_library(folder / "a.so", inputs, folder)


def through_sources(model: Model, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    model.export_library(folder / "net.c")
    command = (folder / "net.c").read_text().splitlines()[0].removeprefix("// ")
    words = command.replace("app.c", "-shared -fPIC -o c.so")
    subprocess.run(words, shell=True, check=True, cwd=folder)
    return run_library(folder / "c.so", inputs, folder)


def through_program(model: Model, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    model.export_library(folder / "net")
    return run_program([str(folder / "net")], inputs, len(model.outputs), folder)


def through_weights_beside(model: Model, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    model.export_library(folder / "net.so", weights=folder / "net.irpa")
    assert (folder / "net.so").stat().st_size < 8 << 20
    return run_library(folder / "net.so", inputs, folder)


FORMS: Mapping[str, Callable[[Model, Arrays, Path], list[np.ndarray]]] = {
    "so": through_so,
    "tar": through_tar,
    "o": through_object,
    "a": through_archive,
    "c": through_sources,
    "program": through_program,
    "weights": through_weights_beside,
}
SLOW_MODELS = (
    "mlp_b64", "mobilenetv2", "resnet50", "minilm_l6", "bert_base_dynamic", "whisper_tiny_encoder",
)  # fmt: skip


def check_bits(outputs: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def results_of(model: Model, inputs: Arrays) -> list[np.ndarray]:
    found = model(**inputs)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["so", "program"])
def test_a_small_model_gives_the_same_bits_in_every_form(form: str, tmp_path: Path) -> None:
    model = tw.compile(small_models.scale_and_shift())
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(4, 3) - 5,
              "scale": np.array([1, -2, 3], np.float32)}  # fmt: skip
    check_bits(FORMS[form](model, inputs, tmp_path), results_of(model, inputs))


@pytest.mark.sampled(25)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SLOW_MODELS)
def test_a_model_gives_the_same_bits_in_every_form(
    name: str, form: str, tmp_path: Path
) -> None:
    path = MODELS / f"{name}.onnx"
    model = tw.compile(path)
    given = np.load(path.with_name(f"{name}.inputs.npz"))
    inputs = {spec.name: given[spec.name] for spec in model.inputs}
    check_bits(FORMS[form](model, inputs, tmp_path), results_of(model, inputs))


# --- other machines ------------------------------------------------------------------------------


def check_elsewhere(name: str, target: str, folder: Path, cc: str, *options: str) -> None:
    """A program for another architecture, run under qemu, computes what a session here does."""
    path = MODELS / f"{name}.onnx"
    given = np.load(path.with_name(f"{name}.inputs.npz"))
    model = tw.compile(path)
    inputs = {spec.name: given[spec.name] for spec in model.inputs}
    compiled = tw.compile(path, target=target)
    compiled.export_library(folder / "net", cc=cc, options=[*options])
    command = [*emulator(target), str(folder / "net")]
    outputs = run_program(command, inputs, len(compiled.outputs), folder)
    for got, want in zip(outputs, results_of(model, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("target", ["aarch64", "riscv64"])
@pytest.mark.parametrize("name", ["mlp_b64", "mobilenetv2", "minilm_l6"])
def test_models_run_on_other_architectures(name: str, target: str, tmp_path: Path) -> None:
    check_elsewhere(name, target, tmp_path, shlex.join(cross_compiler(target)))


@pytest.mark.nightly  # the C library that is linked statically is compiled first
@pytest.mark.parametrize("target", ["aarch64", "riscv64"])
def test_programs_for_other_architectures_need_no_loader(
    target: str, tmp_path: Path
) -> None:
    pytest.importorskip("ziglang")
    zig = f"{sys.executable} -m ziglang cc -target {target}-linux-musl"
    check_elsewhere("mlp_b64", target, tmp_path, zig, "-static")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("target", "form", "exports"),
    [
        ("x86_64-windows -mcpu=x86-64-v3", "net.dll", exports_of_pe),
        ("aarch64-macos -mcpu=apple-m1", "net.dylib", exports_of_macho),
    ],
)
def test_libraries_of_other_systems_export_what_they_should(
    target: str, form: str, exports: Callable[[bytes], set[str]], tmp_path: Path
) -> None:
    pytest.importorskip("ziglang")
    tw.compile(small_models.mlp(), target=target).export_library(tmp_path / form)
    found = exports((tmp_path / form).read_bytes())
    wanted = {"net_create", "net_run", "net_destroy", "tilewright_model", "__tvm_ffi_main"}
    assert wanted <= found
    assert not any(name.startswith(("tw_", "net_tw_")) for name in found)


@pytest.mark.nightly
def test_a_program_for_windows_is_one(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    model = tw.compile(small_models.mlp(), target="x86_64-windows")
    model.export_library(tmp_path / "net.exe")
    assert (tmp_path / "net.exe").read_bytes()[:2] == b"MZ"
