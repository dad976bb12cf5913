"""ONNX's cases as IREE's compiler sees them: model -> import -> archive, kept in a folder.

What it is: the collection that the conformance tests of each executable format share; every case
is compiled once per target and release of the compiler.  Called by the tests and scripts beside.
What it is not: a list of what must pass; a case that IREE itself refuses says so in `refusal`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.interop.toolchain import (
    ROOT,
    digest,
    import_model,
    make,
    program,
    release,
    write,
)
from fakes import onnx_suite

CACHE = ROOT / "build" / "iree-onnx-cases"
OTHER_KINDS = ("simple", "pytorch-operator", "pytorch-converted")
OPSET_FOR_OLD = 17  # the importer knows operators of old opsets in their new form only
_LOCAL = "--iree-hal-target-device=local"


@dataclass(frozen=True)
class Target:
    """What to compile for."""

    name: str
    flags: tuple[str, ...]
    f64_flags: tuple[str, ...] = ()  # more of them for cases that compute with doubles


VMVX = Target("vmvx", (_LOCAL, "--iree-hal-local-target-device-backends=vmvx"))
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
    def inputs(self) -> list[list[object]]:
        """Of each recorded data set."""
        return [list(case.inputs.values()) for case in _data_sets(self.name)]


@functools.cache
def names(kinds: tuple[str, ...] = ("node",)) -> tuple[str, ...]:
    """Cases with nothing but numeric tensors; training and expanded duplicates left out."""
    return tuple(
        name
        for kind in kinds
        for name in onnx_suite.names(kind)
        if "_expanded" not in name
        and not name.startswith(("test_adagrad", "test_adam", "test_momentum"))
        and onnx_suite.is_tensors_only(kind, name)
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


# --- making ---------------------------------------------------------------------------------------


@functools.cache
def _kinds() -> dict[str, str]:
    return {name: kind for kind in onnx_suite.KINDS for name in onnx_suite.names(kind)}


def _data_sets(name: str) -> list[onnx_suite.Case]:
    return onnx_suite.cases(_kinds()[name], name)


def _has_doubles(name: str) -> bool:
    case = _data_sets(name)[0]
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
            opset = 0 if _kinds()[name] == "node" else OPSET_FOR_OLD
            write(source, import_model(_data_sets(name)[0].model, opset))
        except ValueError as error:
            write(refusal, str(error))
            return refusal
    return source
