from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import parameter_files
from fakes.language_models import pair
from tilewright.base.errors import ArchiveError, ModelError
from tilewright.compiler.frontends.gguf import files_of, read_model
from tilewright.formats.gguf import dequantize, file_names, read_gguf

NAMES = [f"model-{n}-of-00002.gguf" for n in ("00001", "00002")]


def _part(names: str, metadata: Mapping[str, Any], seed: int = 0) -> bytes:
    """A file of vectors of four numbers."""
    random = np.random.default_rng(seed)
    tensors = [
        (n, (4,), 0, random.standard_normal(4).astype(np.float32).tobytes()) for n in names
    ]
    return parameter_files.gguf(tensors, metadata=[pair(k, v) for k, v in metadata.items()])


def _said(number: Any, count: Any = 2, **more: Any) -> dict[str, Any]:
    return {"split.no": number, "split.count": count, **more}


def _written(folder: Path, *parts: bytes) -> Path:
    for name, data in zip(NAMES, parts, strict=False):
        (folder / name).write_bytes(data)
    return folder / NAMES[0]


def test_tensors_of_all_files_are_those_of_one_model(tmp_path: Path) -> None:
    first = _part("ab", _said(0, **{"general.name": "whole", "split.tensors.count": 3}))
    second = _part("c", _said(1), seed=1)
    file = read_model(_written(tmp_path, first, second))
    assert file.metadata["general.name"] == "whole"
    assert list(file.tensors) == ["a", "b", "c"]
    alone = read_gguf(second)
    found = dequantize(file, file.tensors["c"])
    assert np.array_equal(found, dequantize(alone, alone.tensors["c"]))
    assert [p.name for p in files_of(tmp_path / NAMES[0], file)] == NAMES


def test_a_first_file_may_have_no_tensors(tmp_path: Path) -> None:
    file = read_model(_written(tmp_path, _part("", _said(0)), _part("a", _said(1))))
    assert list(file.tensors) == ["a"]


def test_a_model_in_one_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(_part("a", {"split.no": 0, "split.count": 1}))
    file = read_model(tmp_path / "m.gguf")
    assert files_of(tmp_path / "m.gguf", file) == (tmp_path / "m.gguf",)


WRONG = {
    "twice": (("ab", _said(0)), ("b", _said(1)), "tensor 'b' stands twice"),
    "another number": (
        ("a", _said(0)),
        ("b", _said(2)),
        "it is file 2 of 2, expected 1 of 2",
    ),
    "several numbers": (
        ("a", _said(0)),
        ("b", _said([1, 1])),
        r"it is file \[1 1\] of 2, expected 1 of 2",
    ),
    "a truth": (("a", _said(0)), ("b", _said(True)), "it is file True of 2"),
    "several counts": (
        ("a", _said(0)),
        ("b", _said(1, [2, 2])),
        r"it is file 1 of \[2 2\]",
    ),
    "numbers of tensors": (
        ("a", _said(0, **{"split.tensors.count": [1, 2]})),
        ("b", _said(1)),
        r"2 tensors, expected \[1 2\]",
    ),
    "another model": (("a", _said(0)), ("b", {}), "it is file None of None"),
    "too few": (
        ("a", _said(0, **{"split.tensors.count": 5})),
        ("b", _said(1)),
        "2 files have 2 tensors, expected 5",
    ),
    "many": (
        ("a", _said(0, 70000)),
        ("b", _said(1)),
        "'split.count' is '70000', expected at most",
    ),
    "three": (("a", _said(0, 3)), ("b", _said(1)), "is one of 3 files"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_do_not_belong_together_are_errors(case: str, tmp_path: Path) -> None:
    *parts, message = WRONG[case]
    with pytest.raises(ArchiveError, match=message):
        read_model(_written(tmp_path, *(_part(*part) for part in parts)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="model-00002-of-00002"):
        read_model(_written(tmp_path, _part("a", _said(0))))


def test_another_file_than_the_first_says_which_is_meant() -> None:
    for name in ("model-00002-of-00003.gguf", "model.gguf", "<bytes>"):
        with pytest.raises(ArchiveError, match="NAME-00001-of-00003"):
            file_names(name, 3)
    with pytest.raises(ArchiveError, match="is one of 2 files"):
        read_model(_part("a", _said(0)))
