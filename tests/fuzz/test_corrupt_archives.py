"""Damaged `.vmfb` files through the loader and both engines, region by region.

What a region holds decides what may come of it: a session that runs, or an `ArchiveError`.  Damaged
code never runs.  Each case happens in a process that may die of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

import tilewright as tw
from fakes import flow_models
from fakes.case_worker import CaseWorker
from fakes.damage import changed_bytes
from fakes.small_models import mlp, scale_and_shift
from tilewright.formats.artifact import extract
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import read_archive

REGIONS = ("tables", "bytecode", "plan", "constants", "image", "anywhere")
FEW, MANY = 6, 60
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "static": mlp,
    "dynamic": scale_and_shift,
    "flow": lambda: flow_models.models()["what_a_loop_carries_grows"].model,
}


@pytest.fixture(scope="module")
def worker() -> Iterator[CaseWorker]:
    with CaseWorker() as found:
        yield found


@pytest.fixture(scope="module", params=["static", "dynamic", "flow"])
def archive(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    path = tmp_path_factory.mktemp("corrupt") / "model.vmfb"
    tw.compile(MODELS[request.param]()).save(path)
    return path.read_bytes()


def regions(data: bytes) -> dict[str, tuple[int, int]]:
    """Where the parts of an archive lie, [start, end)."""
    module = read_archive(data)
    variant = extract(module).variants[0]

    def place(part: object) -> tuple[int, int]:
        content = bytes(view_bytes(part))  # pyright: ignore[reportArgumentType]
        start = data.index(content)
        return start, start + len(content)

    found = {"bytecode": place(module.bytecode), "image": place(variant.image)}
    (plan,) = (r.data for r in module.rodata if bytes(view_bytes(r.data))[:1] == b"{")
    constants = extract(module).constants
    found["plan"] = place(plan)
    found["constants"] = place(constants[0]) if constants else found["plan"]
    found["tables"] = (0, min(start for start, _ in found.values()))
    found["anywhere"] = (0, len(data))
    return found


@pytest.mark.thinned(9)
@pytest.mark.parametrize(
    "count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("region", REGIONS)
def test_a_damaged_archive_is_refused_or_runs(
    region: str, count: int, archive: bytes, worker: CaseWorker, tmp_path: Path
) -> None:
    start, end = regions(archive)[region]
    path = tmp_path / "model.vmfb"
    kinds = set()
    for seed in range(count):
        choose = random.Random(seed)
        data = changed_bytes(archive, choose, start, end)
        path.write_bytes(data)
        outcome = worker.ask("load", path, engine=choose.choice(("plan", "vm")))
        assert outcome.is_clean, f"seed {seed}: {outcome.kind}: {outcome.text}"
        if region == "image" and data != archive:
            assert outcome.kind == "refused", f"seed {seed}: damaged code ran"
        kinds.add(outcome.kind)
    assert kinds <= {"refused", "ran"}
    assert region != "tables" or "refused" in kinds


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_a_cut_archive_is_refused(
    engine: str, archive: bytes, worker: CaseWorker, tmp_path: Path
) -> None:
    path = tmp_path / "model.vmfb"
    for length in (0, 1, 4, 63, len(archive) // 3, len(archive) // 2):
        path.write_bytes(archive[:length])
        outcome = worker.ask("load", path, engine=engine)
        assert outcome.kind == "refused", f"{length} bytes: {outcome.text}"
