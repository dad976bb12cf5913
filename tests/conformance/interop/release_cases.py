"""Every release of IREE since April 2024, the programs that each compiles, and where its tools lie.

What it is: tables, and `compile_program`/`check_program`, which the tests of releases and
`record_releases` call.  A release's tools are its unpacked wheels in build/envs/iree-<release>.
What it is not: results; the release's own runtime says what is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from conformance.interop.agreement import (
    CALLS,
    OURS,
    Outcome,
    Verdict,
    first_difference,
)
from conformance.interop.program_cases import floats, integers
from conformance.interop.toolchain import (
    ROOT,
    Answer,
    Built,
    digest,
    make,
    run_module,
    write,
)
from fakes.placed_arrays import placed
from tilewright.runtime.bytecode_machine import BytecodeMachine

PROGRAMS: Final = Path(__file__).with_name("release_programs")
ENVIRONMENTS: Final = ROOT / "build" / "envs"
CACHE: Final = ROOT / "build" / "iree-modules"

RELEASES: Final = (
    "20240410.859", "20240621.931", "20240724.964", "20240828.999", "20241104.1068",
    "2.9.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0", "3.7.1",
    "3.8.0", "3.9.0", "3.10.0", "3.11.0", "3.12.0", "3.13.0",
)  # fmt: skip
"""The stable releases on the package index, oldest first; `iree-base-*` from 2.9.0 on."""

RUNTIMES: Final = {"3.7.1": "3.7.0"}
"""Where the runtime has another version than the compiler."""

_CPU: Final = ("--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=generic")
_VMVX: Final = ("--iree-hal-target-backends=vmvx",)
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "llvm-cpu": _CPU,
    "llvm-cpu async": (*_CPU, "--iree-execution-model=async-external"),
    "vmvx": _VMVX,
    "vmvx microkernels": (
        *_VMVX,
        "--iree-vmvx-enable-microkernels",
        "--iree-opt-data-tiling",
    ),
    "vmvx inline": (
        "--iree-hal-target-backends=vmvx",
        "--iree-execution-model=inline-dynamic",
    ),
    "llvm-cpu inline": (*_CPU, "--iree-execution-model=inline-dynamic"),
}
"""How a program is compiled."""

CASES: Final[Mapping[str, tuple[object, ...]]] = {
    "elementwise": (floats(5, 7), floats(5, 7, seed=2)),
    "matmul": (floats(9, 33), floats(33, 17, seed=2), floats(9, 17, seed=3)),
    "convolution": (floats(1, 8, 9, 3), floats(3, 3, 3, 5, seed=2)),
    "dynamic": (floats(6, 11), floats(11, 5, seed=2)),
    "control_flow": (np.array([0.001, -1, np.nan], np.float32), 100.0, 1),
    "outputs": (floats(6, 4) * 9, 12),
    "half": (floats(4, 16, dtype=np.float16), floats(16, 8, dtype=np.float16, seed=2)),
    "bytes": (
        integers(5, 24, dtype=np.int8),
        integers(24, 6, dtype=np.int8, seed=2),
    ),
    "state": (floats(4),),
    "gather": (floats(6, 3), np.array([5, 0, 3, 3], np.int32)),
}
"""Inputs of each program's `main`."""

SUMS_OF_THE_PROCESSOR: Final = frozenset({"vmvx microkernels"})
"""Ways to compile whose f32 sums IREE's runtime adds up in an order that depends on the processor."""

TOLERANCE: Final = 1e-6

STATEFUL: Final = frozenset({"state"})
"""Programs whose second call gives something else."""


def environment(release: str) -> Path:
    """Where the tools of a release are, if they are."""
    return ENVIRONMENTS / f"iree-{release}"


def is_here(release: str) -> bool:
    """Whether the tools of a release are installed."""
    return (environment(release) / "site" / "iree").is_dir()


def _tool(release: str, name: str) -> str:
    site = environment(release) / "site" / "iree"
    folder = (
        "compiler/_mlir_libs" if name in ("iree-compile", "iree-lld") else "_runtime_libs"
    )
    return str(site / folder / name)


def compile_program(release: str, name: str, column: str) -> Built:
    """Compile a program with a release, unless that was done before."""
    source, flags = PROGRAMS / f"{name}.mlir", COLUMNS[column]
    folder = CACHE / release
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{digest(source.read_bytes(), *flags)}"
    module, refusal = folder / f"{stem}.vmfb", folder / f"{stem}.refused"
    if refusal.exists():
        return Built(module, refusal.read_text(encoding="utf-8"))
    if not module.exists():
        command = [_tool(release, "iree-compile"), *flags]
        command.append(str(source.relative_to(ROOT)))  # modules and messages repeat it
        error = make(command, module)
        if error:
            write(refusal, error)
            return Built(module, error)
    return Built(module)


def answer(release: str, name: str, module: Path, folder: Path) -> Answer:
    """What the release's own runtime gives for the program's inputs."""
    opened = BytecodeMachine.from_file(module, "local-sync").function()
    return run_module(
        module,
        CASES[name],
        opened.result_banks,
        folder,
        function=opened.name.partition(".")[2],
        tool=_tool(release, "iree-run-module"),
    )


def check_program(release: str, name: str, column: str, folder: Path) -> Verdict:
    """Compile, run with the release's runtime and here on each device, and compare the bits."""
    built = compile_program(release, name, column)
    if built.error:
        return Verdict("refused", built.error)
    try:
        theirs = answer(release, name, built.path, folder)
        if theirs.error:
            return Verdict("not run by IREE", theirs.error)
        return compare_with(theirs, name, column, built.path)
    except Exception as error:  # whatever it is, it is a finding
        return Verdict("failed here", f"{type(error).__name__}: {error}")


def compare_with(
    theirs: Answer, name: str, column: str, module: Path, calls: int = CALLS
) -> Verdict:
    """Run a module of a program here, on each device again and again, against an answer."""
    outcome: Outcome = "equal"
    given = [placed(v) if isinstance(v, np.ndarray) else v for v in CASES[name]]
    for device in OURS:
        called = BytecodeMachine.from_file(module, device).function()
        for index in range(1 if name in STATEFUL else calls):
            ours = called(*given)
            difference = first_difference(ours, theirs)
            if difference and column in SUMS_OF_THE_PROCESSOR and _is_close(ours, theirs):
                outcome = "close"
            elif difference:
                return Verdict("different", f"{device}, call {index}: {difference}")
    return Verdict(outcome)


def _is_close(ours: Sequence[object], theirs: Answer) -> bool:
    return len(ours) == len(theirs.results) and all(
        np.allclose(mine, other, rtol=TOLERANCE, atol=TOLERANCE)
        for mine, other in zip(ours, theirs.results, strict=True)
    )
