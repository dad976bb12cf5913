"""ONNX's node cases as IREE's compiler sees them: model -> import -> archive, kept in a folder.

What it is: the collection that the conformance tests of each executable format share; every case
is compiled once per target and release of the compiler.  Called by the tests and scripts beside.
What it is not: a list of what must pass; a case that IREE itself refuses says so in `refusal`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.interop.toolchain import (
    ROOT,
    digest,
    import_model,
    is_available,
    make,
    program,
    release,
    write,
)
from fakes import onnx_suite

__all__ = [
    "LLVM_CPU",
    "VMVX",
    "VMVX_MICROKERNELS",
    "CompiledCase",
    "Target",
    "compile_case",
    "compile_cases",
    "is_available",
    "names",
    "run_with_iree",
    "sample",
]

CACHE = ROOT / "build" / "iree-onnx-cases"
_LOCAL = "--iree-hal-target-device=local"


@dataclass(frozen=True)
class Target:
    """What to compile for."""

    name: str
    flags: tuple[str, ...]
    f64_flags: tuple[str, ...] = ()  # more of them for cases that compute with doubles


VMVX = Target("vmvx", (_LOCAL, "--iree-hal-local-target-device-backends=vmvx"))
VMVX_MICROKERNELS = Target(
    "vmvx-microkernels", (*VMVX.flags, "--iree-vmvx-enable-microkernels")
)
LLVM_CPU = Target(
    "llvm-cpu",
    (
        _LOCAL,
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=generic",
    ),
    ("--iree-input-demote-f64-to-f32=false",),
)


@dataclass(frozen=True)
class CompiledCase:
    """One case; `archive` is None where the importer or the compiler refuses it."""

    name: str
    archive: Path | None
    refusal: str

    @property
    def data_sets(self) -> list[onnx_suite.Case]:
        """Recorded inputs and outputs."""
        return onnx_suite.cases("node", self.name)


@functools.cache
def names() -> tuple[str, ...]:
    """Node cases with nothing but numeric tensors; training and expanded duplicates left out."""
    return tuple(
        name
        for name in onnx_suite.names("node")
        if "_expanded" not in name
        and not name.startswith(("test_adagrad", "test_adam", "test_momentum"))
        and all(case.is_tensors_only for case in onnx_suite.cases("node", name))
    )


def sample(every: Sequence[str], count: int) -> tuple[str, ...]:
    """`count` names spread evenly over all of them, the same on every machine."""
    step = max(len(every) / count, 1.0)
    return tuple(every[int(i * step)] for i in range(min(count, len(every))))


def compile_case(name: str, target: Target, cache: Path = CACHE) -> CompiledCase:
    """Import and compile one case, or find it in the cache."""
    folder = cache / release()
    source = _imported(name, folder / "source")
    flags = (*target.flags, *(target.f64_flags if _has_doubles(name) else ()))
    stem = folder / target.name / f"{name}-{digest(*flags)[:8]}"
    archive, refusal = stem.with_suffix(".vmfb"), stem.with_suffix(".refused")
    if source.suffix != ".mlir":
        return CompiledCase(name, None, source.read_text())
    if refusal.exists():
        return CompiledCase(name, None, refusal.read_text())
    if not archive.exists():
        stem.parent.mkdir(parents=True, exist_ok=True)
        command = [program("iree-compile"), *flags, str(source)]
        message = make(command, archive)
        if message:
            write(refusal, message)
            return CompiledCase(name, None, message)
    return CompiledCase(name, archive, "")


def compile_cases(
    every: Sequence[str], target: Target, cache: Path = CACHE, jobs: int = 0
) -> list[CompiledCase]:
    """Many at once, in the order of their names."""
    workers = jobs or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda name: compile_case(name, target, cache), every))


def run_with_iree(
    archive: Path, inputs: Sequence[np.ndarray], device: str
) -> list[np.ndarray]:
    """What IREE's own runtime computes.  Raises: RuntimeError, ValueError where it fails."""
    from iree import runtime

    config = runtime.Config(device)
    module = runtime.VmModule.mmap(config.vm_instance, str(archive))
    context = runtime.SystemContext(vm_modules=[module], config=config)
    functions = [n for n in module.function_names if not n.startswith("__")]
    plain = [n for n in functions if not n.endswith("$async")]
    results = context.modules[module.name][plain[0]](*inputs)
    many = results if isinstance(results, tuple | list) else (results,)
    return [np.array(r.to_host()) if hasattr(r, "to_host") else np.asarray(r) for r in many]


# --- making ---------------------------------------------------------------------------------------


def _has_doubles(name: str) -> bool:
    case = onnx_suite.cases("node", name)[0]
    values = (*case.inputs.values(), *case.outputs)
    return any(isinstance(v, np.ndarray) and v.dtype == np.float64 for v in values)


def _imported(name: str, folder: Path) -> Path:
    """The case as text of the compiler's dialects, or the importer's refusal."""
    source, refusal = folder / f"{name}.mlir", folder / f"{name}.refused"
    if refusal.exists():
        return refusal
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            write(source, import_model(onnx_suite.cases("node", name)[0].model))
        except ValueError as error:
            write(refusal, str(error))
            return refusal
    return source
