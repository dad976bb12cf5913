"""What artifacts say of where they come from and what is in them."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.command_line import tilewright
from fakes.small_models import mlp, save, scale_and_shift
from tilewright.base import knobs
from tilewright.base.dtypes import f32
from tilewright.base.errors import UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.version import VERSION
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.packaging.provenance import (
    FileStamp,
    Origin,
    digest_of_array,
    tools,
)
from tilewright.formats.artifact import (
    BILL_ATTRIBUTE,
    BILL_SYMBOL,
    PROVENANCE_ATTRIBUTE,
    PROVENANCE_SYMBOL,
    extract,
)
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import read_archive


def documents(model: tw.Model, folder: Path) -> tuple[dict, dict]:
    """Provenance and bill of materials of the saved model."""
    path = folder / "model.vmfb"
    model.save(path)
    attributes = read_archive(path.read_bytes()).attributes
    return tuple(json.loads(attributes[n]) for n in (PROVENANCE_ATTRIBUTE, BILL_ATTRIBUTE))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_file_is_named_by_its_content_alone(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "some name.onnx")
    found, _ = documents(tw.compile(str(path), levels=("v2", "v3"), opt_level=1), tmp_path)
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    build = found["predicate"]["buildDefinition"]
    assert build["resolvedDependencies"] == [
        {"name": "model", "digest": {"sha256": sha256(path.read_bytes())}}
    ]
    said = build["externalParameters"]
    assert said["source"] == "onnx file"
    assert said["targets"] == ["x86_64 -mcpu=x86-64-v2", "x86_64 -mcpu=x86-64-v3"]
    assert said["opt_level"] == 1
    assert "input_shapes" not in said
    assert "metadata" not in found["predicate"]["runDetails"]
    versions = found["predicate"]["runDetails"]["builder"]["version"]
    assert versions["tilewright"] == VERSION
    assert versions["llvmlite"].startswith("0.")
    assert "some name" not in json.dumps(found)
    assert str(tmp_path) not in json.dumps(found)


def test_options_that_decide_are_told(tmp_path: Path) -> None:
    value = np.ones(3, np.float32)
    model = tw.compile(
        scale_and_shift(),
        input_shapes={"x": (np.int64(4), 3)},
        input_values={"scale": value},
        check_indices=False,
        threads=3,
    )
    found, _ = documents(model, tmp_path)
    said = found["predicate"]["buildDefinition"]["externalParameters"]
    assert said["source"] == "onnx.ModelProto"
    assert said["input_shapes"] == {"x": [4, 3]}
    assert said["input_values"] == {"scale": digest_of_array(value)}
    assert said["check_indices"] is False
    assert said["threads"] == 3
    assert "jobs" not in said


def test_bytes_and_graphs_say_what_they_are(tmp_path: Path) -> None:
    data = mlp().SerializeToString()
    found, _ = documents(tw.compile(data), tmp_path)
    build = found["predicate"]["buildDefinition"]
    assert build["externalParameters"]["source"] == "onnx bytes"
    assert build["resolvedDependencies"][0]["digest"] == {"sha256": sha256(data)}
    builder = GraphBuilder()
    x = builder.input("x", TensorType(f32, (2,)))
    builder.output("y", builder.add(x, x))
    found, bill = documents(tw.compile(builder.graph), tmp_path)
    build = found["predicate"]["buildDefinition"]
    assert build["externalParameters"]["source"] == "graph"
    assert build["resolvedDependencies"] == [{"name": "model"}]
    assert [part["name"] for part in bill["components"]] == [
        f"code for {build['externalParameters']['targets'][0]}"
    ]


def test_the_bill_has_every_part_with_its_digest(tmp_path: Path) -> None:
    _, bill = documents(tw.compile(mlp(), levels=("v2", "v3")), tmp_path)
    artifact = extract(read_archive((tmp_path / "model.vmfb").read_bytes()))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == (
        "CycloneDX",
        "1.6",
        1,
    )
    digests = {p["name"]: p["hashes"][0]["content"] for p in bill["components"]}
    wanted = {f"code for {v.target}": sha256(bytes(v.image)) for v in artifact.variants}
    weights = b"".join(bytes(view_bytes(c)) for c in artifact.constants)
    assert digests == {**wanted, "weights": sha256(weights)}
    tools = {t["name"]: t["version"] for t in bill["metadata"]["tools"]["components"]}
    assert tools["tilewright"] == VERSION
    assert bill["dependencies"][0]["dependsOn"] == list(digests)


def test_a_file_that_is_another_by_now_has_no_digest(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "model.onnx")
    model = tw.compile(str(path))
    path.write_bytes(path.read_bytes() + b"\0")
    found, _ = documents(model, tmp_path)
    inputs = found["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert inputs == [{"name": "model"}]
    path.unlink()
    assert FileStamp("model", path, 1, 1).digest() == ""


def test_weights_beside_a_model_are_named_as_the_model_names_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    files = [tmp_path / "net.onnx", tmp_path / "deep" / "weights.bin"]
    for index, path in enumerate(files):
        path.write_bytes(bytes([index]))
    origin = Origin.of(str(files[0]), files, {})
    assert [f.name for f in origin.files] == ["model", "deep/weights.bin"]
    assert [f.digest() for f in origin.files] == [sha256(b"\0"), sha256(b"\1")]


def test_a_time_is_written_only_where_one_is_given(tmp_path: Path) -> None:
    model = tw.compile(mlp())
    seen: list[bytes] = []
    for epoch in ("", "1700000000", "1700000000", "1700000001"):
        with knobs.override(source_date_epoch=epoch):
            found, bill = documents(model, tmp_path)
        seen.append((tmp_path / "model.vmfb").read_bytes())
        when = found["predicate"]["runDetails"].get("metadata", {}).get("finishedOn")
        assert when == bill["metadata"].get("timestamp")
        if epoch == "1700000000":
            assert when == "2023-11-14T22:13:20Z"
    assert seen[1] == seen[2]
    assert len(set(seen)) == 3


@pytest.mark.parametrize(("text", "wanted"), [("", None), (" 12 ", 12), ("0", 0)])
def test_the_epoch_is_seconds_or_nothing(text: str, wanted: int | None) -> None:
    with knobs.override(source_date_epoch=text):
        assert knobs.SOURCE_DATE_EPOCH.get() == wanted


def test_an_epoch_that_is_none_is_refused() -> None:
    with (
        knobs.override(source_date_epoch="yesterday"),
        pytest.raises(UserError, match="seconds since 1970"),
    ):
        knobs.SOURCE_DATE_EPOCH.get()


def test_digests_of_arrays_see_type_shape_and_elements() -> None:
    arrays = (
        np.zeros(4, np.float32),
        np.zeros(4, np.int32),
        np.zeros((2, 2), np.float32),
        np.ones(4, np.float32),
    )
    assert len({digest_of_array(a) for a in arrays}) == len(arrays)


@pytest.mark.slow
def test_an_exported_library_has_both_as_texts(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    path = save(mlp(), tmp_path / "model.onnx")
    tw.build(str(path)).export_library(tmp_path / "net.so")
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    found, bill = (
        json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, name))))
        for name in (PROVENANCE_SYMBOL, BILL_SYMBOL)
    )
    inputs = found["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert inputs[0]["digest"] == {"sha256": sha256(path.read_bytes())}
    parts = [part["name"] for part in bill["components"]]
    assert parts[1:] == ["weights", "tilewright core"]
    for level, document in (("provenance", found), ("sbom", bill)):
        shown = tilewright("inspect", tmp_path / "net.so", f"--output={level}")
        assert json.loads(shown.out) == document, shown.err


def test_no_fork_comes_between_while_versions_of_tools_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Newer Pythons import more there, and a child would find their locks taken for ever."""
    held: list[bool] = []

    def version(_: str) -> str:
        held.append(LATE_IMPORTS._is_owned())  # pyright: ignore[reportAttributeAccessIssue]
        return "1.2"

    tools.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(importlib.metadata, "version", version)
        for _ in range(2):  # two documents of each artifact name them
            assert tools() == {"tilewright": VERSION, "llvmlite": "1.2"}
    tools.cache_clear()
    assert held == [True]
