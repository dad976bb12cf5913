"""Artifacts whose weights lie in a file beside them, and which others may share."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal
from unittest import mock

import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from tilewright.base.errors import ArchiveError, UserError
from tilewright.formats.artifact import MANIFEST_ATTRIBUTE, extract
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.loaders import outside_weights
from tilewright.runtime.loaders.module_file import Care
from tilewright.runtime.loaders.outside_weights import compare_weights, map_weights

X = np.random.default_rng(0).standard_normal((5, 20), np.float32)


@pytest.fixture(scope="module")
def model() -> tw.Model:
    return tw.compile(small_models.mlp())


def mapped_ranges(path: Path) -> list[tuple[int, int]]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    ends = (line.split()[0].split("-") for line in lines if line.endswith(str(path)))
    return [(int(begin, 16), int(end, 16)) for begin, end in ends]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("suffix", [".irpa", ".safetensors", ".params"])
@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_every_engine_runs_with_weights_of_every_format(
    model: tw.Model, tmp_path: Path, suffix: str, engine: Literal["plan", "vm"]
) -> None:
    model.save(tmp_path / "net.vmfb", weights=tmp_path / f"w{suffix}")
    session = tw.load(tmp_path / "net.vmfb", engine=engine)
    np.testing.assert_array_equal(session(X), model(X))


def test_a_library_takes_no_file_whose_weights_lie_anywhere(
    model: tw.Model, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"'\.params' aligns none") as caught:
        model.export_library(tmp_path / "net.so", weights=tmp_path / "w.params")
    assert ".irpa .safetensors" in str(caught.value)
    assert not (tmp_path / "w.params").exists()


def test_weights_may_be_elsewhere_and_are_then_given(
    model: tw.Model, tmp_path: Path
) -> None:
    (tmp_path / "weights").mkdir()
    weights = tmp_path / "weights" / "w.irpa"
    model.save(tmp_path / "net.vmfb", weights=weights)
    with pytest.raises(ArchiveError, match=r"the weights are in 'w\.irpa'") as caught:
        tw.load(tmp_path / "net.vmfb")
    assert "--parameters" in str(caught.value)
    session = tw.load(tmp_path / "net.vmfb", parameters=[str(weights)])
    np.testing.assert_array_equal(session(X), model(X))


@pytest.mark.parametrize("care", ["mapped", "copy"])
@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_an_equals_sign_in_a_folder_is_no_scope(
    model: tw.Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: Literal["plan", "vm"],
    care: str,
) -> None:
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    model.save(folder / "net.vmfb", weights=folder / "w.irpa")
    monkeypatch.chdir(tmp_path)
    copy = care == "copy"
    for place in (folder / "net.vmfb", Path("lr=0.1", "net.vmfb")):
        found = tw.load(place, engine=engine, copy=copy)
        np.testing.assert_array_equal(found(X), model(X))
    for given in (folder / "w.irpa", "=lr=0.1/w.irpa"):
        found = tw.load(folder / "net.vmfb", parameters=[given], engine=engine, copy=copy)
        np.testing.assert_array_equal(found(X), model(X))


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_weights_of_a_scope_are_not_those_of_an_artifact(
    model: tw.Model, tmp_path: Path, engine: Literal["plan", "vm"]
) -> None:
    model.save(tmp_path / "net.vmfb", weights=tmp_path / "w.irpa")
    scoped = f"model={tmp_path / 'w.irpa'}"
    with pytest.raises(tw.TilewrightError, match="without a scope") as caught:
        tw.load(tmp_path / "net.vmfb", parameters=[scoped], engine=engine)
    assert "==" not in str(caught.value)


BATCHES = (8, 16)  # rows enough that every machine packs the weights of both alike


@pytest.mark.slow
def test_two_artifacts_share_a_file_that_neither_copies(tmp_path: Path) -> None:
    weights = tmp_path / "w.irpa"
    sizes: set[int] = set()
    for batch in BATCHES:
        shared = tw.compile(small_models.mlp(batch))
        shared.save(tmp_path / f"{batch}.vmfb", weights=weights)
        sizes.add(weights.stat().st_size)
    assert len(sizes) == 1
    for batch in BATCHES:
        session = tw.load(tmp_path / f"{batch}.vmfb")
        assert session.artifact is not None
        ranges = mapped_ranges(weights)
        for constant in session.artifact.constants:
            address = np.frombuffer(constant, np.uint8).ctypes.data
            assert any(begin <= address < end for begin, end in ranges)
        x = np.resize(X, (batch, X.shape[1]))
        np.testing.assert_array_equal(session(x), tw.compile(small_models.mlp(batch))(x))


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_an_archive_that_is_loaded_by_a_link_finds_its_weights(
    model: tw.Model, tmp_path: Path, engine: Literal["plan", "vm"]
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "net.vmfb"
    model.save(tmp_path / "real" / "net.vmfb", weights=tmp_path / "real" / "w.irpa")
    link.symlink_to(tmp_path / "real" / "net.vmfb")
    np.testing.assert_array_equal(tw.load(link, engine=engine)(X[:5]), model(X[:5]))
    (tmp_path / "real" / "w.irpa").rename(link.with_name("w.irpa"))
    np.testing.assert_array_equal(tw.load(link, engine=engine)(X[:5]), model(X[:5]))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_weights_do_not_go_into_a_pipe(model: tw.Model, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.irpa")
    with pytest.raises(UserError, match="is a device or a pipe, expected a file"):
        model.save(tmp_path / "net.vmfb", weights=tmp_path / "pipe.irpa")


def test_another_file_is_refused_with_what_it_lacks(
    model: tw.Model, tmp_path: Path
) -> None:
    model.save(tmp_path / "net.vmfb", weights=tmp_path / "w.irpa")
    other = tw.compile(small_models.mlp(seed=1))
    other.save(tmp_path / "other.vmfb", weights=tmp_path / "other.irpa")
    (tmp_path / "empty.irpa").write_bytes(b"")
    with pytest.raises(ArchiveError):
        tw.load(tmp_path / "net.vmfb", parameters=[str(tmp_path / "empty.irpa")])
    (tmp_path / "w.irpa").write_bytes((tmp_path / "net.vmfb").read_bytes())
    with pytest.raises(ArchiveError):
        tw.load(tmp_path / "net.vmfb")


@pytest.mark.parametrize("name", ["../w.irpa", "/etc/passwd", "a/b", "", "..", "..\\w"])
def test_a_name_with_a_folder_is_refused(
    model: tw.Model, tmp_path: Path, name: str
) -> None:
    model.save(tmp_path / "net.vmfb", weights=tmp_path / "w.irpa")
    module = read_archive((tmp_path / "net.vmfb").read_bytes(), "net.vmfb")
    manifest = json.loads(module.attributes[MANIFEST_ATTRIBUTE])
    manifest["weights"]["file"] = name
    attributes = {**module.attributes, MANIFEST_ATTRIBUTE: json.dumps(manifest)}
    with pytest.raises(ArchiveError, match="no name of a file of weights"):
        extract(replace(module, attributes=attributes))


def test_the_model_itself_is_not_overwritten(tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "net.onnx"
    onnx.save(small_models.mlp(), path)
    (tmp_path / "w.irpa").symlink_to(path)
    with pytest.raises(UserError, match="is an input"):
        tw.compile(path).save(tmp_path / "net.vmfb", weights=tmp_path / "w.irpa")


def other_model() -> tw.Model:
    """Of the same form, with other weights."""
    onnx = small_models.mlp()
    for weight in onnx.graph.initializer:
        weight.raw_data = bytes(byte ^ 1 for byte in weight.raw_data)
    return tw.compile(onnx)


@pytest.mark.parametrize("suffix", [".irpa", ".safetensors", ".params"])
def test_weights_of_another_model_are_found_where_that_is_asked_for(
    model: tw.Model, tmp_path: Path, suffix: str
) -> None:
    own, other = tmp_path / f"own{suffix}", tmp_path / f"other{suffix}"
    archive = tmp_path / "net.vmfb"
    model.save(archive, weights=own)
    other_model().save(tmp_path / "other.vmfb", weights=other)
    for verify, copy in ((True, False), (False, True), (True, True)):
        session = tw.load(archive, verify=verify, copy=copy)
        np.testing.assert_array_equal(session(X), model(X))
        with pytest.raises(ArchiveError, match="not the one that the archive was written"):
            tw.load(archive, verify=verify, copy=copy, parameters=[str(other)])
    with pytest.raises(ArchiveError, match="not the one that the archive was written"):
        tw.load(archive, verify=True, parameters=[str(other)], engine="vm")
    # Weights may be exchanged: that is what their file is for.
    exchanged = tw.load(archive, parameters=[str(other)])
    np.testing.assert_array_equal(exchanged(X), other_model()(X))


def test_copied_weights_do_not_depend_on_their_file(
    model: tw.Model, tmp_path: Path
) -> None:
    weights = tmp_path / "w.irpa"
    model.save(tmp_path / "net.vmfb", weights=weights)
    session = tw.load(tmp_path / "net.vmfb", copy=True)
    assert not mapped_ranges(weights)
    with weights.open("r+b") as file:
        file.write(bytes(weights.stat().st_size))
    np.testing.assert_array_equal(session(X), model(X))
    with pytest.raises(ArchiveError):
        tw.load(tmp_path / "net.vmfb")


def test_archives_without_checksums_of_their_weights_load(
    model: tw.Model, tmp_path: Path
) -> None:
    model.save(tmp_path / "net.vmfb", weights=tmp_path / "w.irpa")
    module = read_archive((tmp_path / "net.vmfb").read_bytes())
    manifest = json.loads(module.attributes[MANIFEST_ATTRIBUTE])
    assert len(manifest["weights"].pop("crc32")) == len(manifest["weights"]["names"])
    attributes = {**module.attributes, MANIFEST_ATTRIBUTE: json.dumps(manifest)}
    found = extract(replace(module, attributes=attributes)).weights
    assert found is not None
    assert found.checksums is None
    for care, problem in ((Care(copy=True), ""), (Care(verify=True), "no checksums")):
        with pytest.raises(ArchiveError, match=problem) if problem else nullcontext():
            map_weights(found, [str(tmp_path / "w.irpa")], care=care)
        with pytest.raises(ArchiveError, match=problem) if problem else nullcontext():
            compare_weights(found, [str(tmp_path / "w.irpa")], optional=not care.verify)


@pytest.mark.parametrize("odd", ["a", None, True, 1.0, -1, 1 << 32, [1]])
def test_a_checksum_that_can_be_none_is_refused(
    model: tw.Model, tmp_path: Path, odd: object
) -> None:
    model.save(tmp_path / "net.vmfb", weights=tmp_path / "w.irpa")
    module = read_archive((tmp_path / "net.vmfb").read_bytes())
    manifest = json.loads(module.attributes[MANIFEST_ATTRIBUTE])
    kept = manifest["weights"]["crc32"]
    for listed in ([*kept[:-1], odd], odd, kept[:-1], [*kept, kept[0]]):
        manifest["weights"]["crc32"] = listed
        attributes = {**module.attributes, MANIFEST_ATTRIBUTE: json.dumps(manifest)}
        with pytest.raises(ArchiveError, match="malformed manifest"):
            extract(replace(module, attributes=attributes))


@pytest.mark.parametrize("suffix", [".irpa", ".params"])
def test_weights_that_the_virtual_machine_maps_are_compared_where_they_are(
    model: tw.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    archive, weights = tmp_path / "net.vmfb", tmp_path / f"w{suffix}"
    model.save(archive, weights=weights)
    for name in ("read_memory", "_aligned_copy"):
        monkeypatch.setattr(outside_weights, name, mock.Mock(side_effect=MemoryError))
    for verify, copy in ((True, False), (False, True), (True, True)):
        session = tw.load(archive, engine="vm", verify=verify, copy=copy)
        np.testing.assert_array_equal(session(X), model(X))
    other = tmp_path / f"other{suffix}"
    other_model().save(tmp_path / "other.vmfb", weights=other)
    weights.write_bytes(other.read_bytes())
    with pytest.raises(ArchiveError, match="not the one that the archive was written"):
        tw.load(archive, engine="vm", copy=True)
