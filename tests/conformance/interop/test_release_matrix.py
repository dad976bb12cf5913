"""Programs compiled by every release of IREE since April 2024 give here what that release gives.

The modules of three releases of 2024 are checked in with what their runtimes gave, so those tests
need nothing.  The others take the releases whose tools are in build/envs
(`record_releases.py fetch`).
"""

from __future__ import annotations

import functools
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from conformance.interop.agreement import CALLS
from conformance.interop.evidence import record
from conformance.interop.release_cases import (
    CASES,
    COLUMNS,
    RELEASES,
    check_program,
    compare_with,
    compile_program,
    is_here,
)
from conformance.interop.toolchain import Answer
from tilewright.base.host import describe
from tilewright.formats.vmfb import read_archive

ARCHIVE = Path(__file__).resolve().parents[2] / "golden" / "archives" / "iree-2024.tar.xz"
SUITE = "release-matrix"


@functools.cache
def packed() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE) as bundle:
        members = [(m.name, bundle.extractfile(m)) for m in bundle.getmembers()]
        return {name: data.read() for name, data in members if data is not None}


PACKED = sorted(
    {n.removesuffix(".vmfb").rpartition("/")[0] for n in packed() if n.endswith(".vmfb")}
)


OLDEST = RELEASES[0]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(g, marks=() if g.startswith(OLDEST) else pytest.mark.slow)
        for g in PACKED
    ],
)
def test_modules_of_2024_give_the_bits_that_their_runtime_gave(
    group: str, tmp_path: Path
) -> None:
    column = group.partition("/")[2]
    if "llvm-cpu" in column and describe().arch != "x86_64":
        pytest.skip("the archives hold x86-64 code")
    calls = 1 if "vmvx" in column else CALLS  # interpreted: nothing is recorded
    names = [name for name in CASES if f"{group}/{name}.vmfb" in packed()]
    assert len(names) >= 7
    for name in names:
        archive = tmp_path / f"{name}.vmfb"
        archive.write_bytes(packed()[f"{group}/{name}.vmfb"])
        results = np.load(io.BytesIO(packed()[f"{group}/{name}.npz"]))
        wanted = Answer(tuple(_wanted(results[f"result{i}"]) for i in range(len(results))))
        verdict = compare_with(wanted, name, column, archive, calls)
        assert verdict.outcome in ("equal", "close"), f"{name}: {verdict.detail}"


def _wanted(result: np.ndarray) -> np.ndarray | str:
    return str(result) if result.dtype.kind == "U" else result


def test_the_oldest_modules_are_of_the_generation_with_pipeline_layouts() -> None:
    data = packed()["20240410.859/llvm-cpu/matmul.vmfb"]
    module = read_archive(data)
    assert [(d.name, d.minimum_version) for d in module.dependencies] == [("hal", 2)]
    assert {
        "hal.descriptor_set_layout.create",
        "hal.pipeline_layout.create",
        "hal.executable.create",
        "hal.command_buffer.push_descriptor_set",
        "hal.command_buffer.dispatch",
    } <= {item.name for item in module.imports}
    assert {"!hal.descriptor_set_layout", "!hal.pipeline_layout"} <= set(module.types)
    dynamic = read_archive(packed()["20240410.859/llvm-cpu/dynamic.vmfb"])
    assert "hal.command_buffer.push_constants" in {i.name for i in dynamic.imports}


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("release", RELEASES)
def test_every_program_gives_the_bits_that_its_release_gives(
    release: str, column: str, tmp_path: Path
) -> None:
    if not is_here(release):
        pytest.skip("not fetched: see record_releases.py")
    for name in CASES:
        verdict = check_program(release, name, column, tmp_path)
        built = compile_program(release, name, column)
        archive = None if built.error else built.path
        record(SUITE, f"{release} {column} {name}", verdict, archive)
        assert verdict.outcome not in ("different", "failed here"), (
            f"{name}: {verdict.detail}"
        )
