"""Archives: what virtual machines load, what sessions choose among, whole files only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.compiler.packaging.archive import save_archive
from tilewright.compiler.packaging.parts import make_artifact
from tilewright.formats.artifact import extract
from tilewright.formats.vmfb import read_archive, verify_module
from tilewright.runtime.session import Session
from tilewright.runtime.session_options import HostOptions, PlanOptions


@pytest.fixture(scope="module")
def model() -> tw.Model:
    return tw.compile(mlp(), target="x86_64", levels=["v3", "v2"])


def test_the_artifact_has_a_variant_per_target_and_one_set_of_constants(
    model: tw.Model,
) -> None:
    parts = model.compiled.parts
    artifact = make_artifact(parts, {"graph": "text"})
    assert [v.target for v in artifact.variants] == [str(p.target) for p in parts]
    assert [v.image for v in artifact.variants] == [p.image for p in parts]
    arrays = [s.array for s in parts[0].program.storages if s.array is not None]
    assert [bytes(c) for c in artifact.constants] == [a.tobytes() for a in arrays]
    assert dict(artifact.sources) == {"graph": "text"}


def test_constants_are_not_copied(model: tw.Model) -> None:
    artifact = make_artifact(model.compiled.parts)
    arrays = [
        s.array for s in model.compiled.parts[0].program.storages if s.array is not None
    ]
    assert arrays
    for constant, array in zip(artifact.constants, arrays, strict=True):
        assert np.shares_memory(np.frombuffer(constant, np.uint8), array)


def test_virtual_machines_get_the_best_code_that_can_run(
    model: tw.Model, tmp_path: Path
) -> None:
    parts = model.compiled.parts
    path = tmp_path / "m.vmfb"
    save_archive(parts, make_artifact(parts), path)
    module = read_archive(path.read_bytes(), "m")
    verify_module(module)
    assert [bytes(r.data) for r in module.rodata[:2]] == [p.image for p in parts]
    host = Target.host()
    x = np.random.default_rng(0).standard_normal((5, 20), np.float32)
    for part in parts:
        if not part.target.runs_on(host):
            continue
        alone = Session(make_artifact([part]), PlanOptions(host=HostOptions(threads=1)))
        device = f"local-sync://?machine={part.target}"
        session = tw.load(path, engine="vm", device=device)
        assert session.variant is not None
        assert session.variant.target == str(part.target)
        np.testing.assert_array_equal(session(x), alone(x))


def test_a_module_for_one_cpu_asks_no_questions(tmp_path: Path) -> None:
    tw.compile(mlp(), target="x86_64").save(tmp_path / "m.vmfb")
    module = read_archive((tmp_path / "m.vmfb").read_bytes(), "m")
    assert "hal.device.query.i64" not in {i.name for i in module.imports}
    assert len(module.functions) == 3


def test_what_is_saved_is_what_was_made(model: tw.Model, tmp_path: Path) -> None:
    parts = model.compiled.parts
    made = make_artifact(parts, {"graph": "text"})
    size = save_archive(parts, made, tmp_path / "m.vmfb")
    assert (tmp_path / "m.vmfb").stat().st_size == size
    again = extract(read_archive((tmp_path / "m.vmfb").read_bytes(), "m"))
    assert [v.plan for v in again.variants] == [v.plan for v in made.variants]
    assert [bytes(c) for c in again.constants] == [bytes(c) for c in made.constants]
    assert [p.name for p in tmp_path.iterdir()] == ["m.vmfb"]


def test_a_file_that_cannot_be_written_is_named(model: tw.Model, tmp_path: Path) -> None:
    path = tmp_path / "none" / "m.vmfb"
    with pytest.raises(UserError) as caught:
        save_archive(model.compiled.parts, make_artifact(model.compiled.parts), path)
    assert str(caught.value) == f"{path.parent}: no such folder"
