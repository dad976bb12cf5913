"""Modules of six releases of IREE give here the bits that their own release's runtime gave.

The archives and what each release's `iree-run-module` printed are checked in, so this needs nothing
installed: IREE's own newest runtime accepts modules of two releases only.
"""

from __future__ import annotations

import functools
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from conformance.interop.agreement import OURS, Verdict, first_difference
from conformance.interop.evidence import record
from conformance.interop.toolchain import Answer
from tilewright.base.host import describe
from tilewright.runtime.bytecode_machine import BytecodeMachine

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"
RELEASES = ("3.0.0", "3.4.0", "3.9.0", "3.10.0", "3.11.0", "3.13.0")
RECORDED = np.load(ARCHIVES / "iree-vmvx_results.npz")
SUITE = "releases"


@functools.cache
def perceptrons() -> dict[str, bytes]:
    """The input, and of each release the archive and the output."""
    with tarfile.open(ARCHIVES / "iree-mlp_cpu_generic.tar.xz") as bundle:
        members = [(m.name, bundle.extractfile(m)) for m in bundle.getmembers()]
        return {name: data.read() for name, data in members if data is not None}


def array(name: str) -> np.ndarray:
    return np.load(io.BytesIO(perceptrons()[name]))


def check(
    release: str, program: str, archive: Path, inputs: list[object], wanted: np.ndarray
) -> None:
    for device in OURS:
        got = BytecodeMachine.from_file(archive, device).function()(*inputs)
        difference = first_difference(got[:1], Answer((wanted,)))
        verdict = Verdict("different" if difference else "equal", difference)
        record(SUITE, f"{release} {program}", verdict, archive)
        assert difference == ""


@pytest.mark.thinned(3)
@pytest.mark.skipif(describe().arch != "x86_64", reason="the archives hold x86-64 code")
@pytest.mark.parametrize("release", RELEASES)
def test_a_perceptron_for_llvm_cpu(release: str, tmp_path: Path) -> None:
    archive = tmp_path / f"{release}.vmfb"
    archive.write_bytes(perceptrons()[archive.name])
    check(release, "llvm-cpu mlp", archive, [array("x.npy")], array(f"{release}.npy"))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("program", "inputs", "output"),
    [
        ("add", ["add_a", "add_b"], "add"),
        ("ctrl", ["ctrl_x", 5], "ctrl_5"),
        ("ctrl", ["ctrl_x", 2], "ctrl_2"),
        ("dd", ["dd_x", 100], "dd"),
    ],
)
def test_programs_for_vmvx(
    release: str, program: str, inputs: list[object], output: str
) -> None:
    given = [RECORDED[v] if isinstance(v, str) else v for v in inputs]
    archive = ARCHIVES / f"iree-{release}-{program}_vmvx.vmfb"
    check(release, f"vmvx {program}", archive, given, RECORDED[output])
