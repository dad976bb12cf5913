"""Weights in a file of their own: which are written, and what stays."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import UserError
from tilewright.compiler.packaging.weights_file import StoredWeights, storing_weights

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(5, dtype=np.int64)


def store_weights(path: Path, arrays: Mapping[str, Any], **options: Any) -> StoredWeights:
    """What stands there once what refers to it is written."""
    with storing_weights(path, arrays, **options) as stored:
        return stored


class _EndError(Exception):
    """Something else failed."""


@contextmanager
def ended_in_between(path: Path, arrays: Mapping[str, Any]) -> Generator[StoredWeights]:
    """What refers to the weights fails behind this block."""
    with suppress(_EndError), storing_weights(path, arrays) as stored:
        yield stored
        raise _EndError


@pytest.mark.parametrize("suffix", [".irpa", ".safetensors", ".params"])
def test_a_file_is_not_there_before_what_refers_to_it_is(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"w{suffix}"
    with ended_in_between(path, {"a": A}) as stored:
        assert bytes(stored.index.bytes_of(stored.entries[0])) == A.tobytes()
    assert list(tmp_path.iterdir()) == []
    with storing_weights(path, {"a": A}):
        assert not path.exists()
    assert store_weights(path, {"a": A}).names == ("a",)


def test_a_file_is_not_extended_for_what_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "w.irpa"
    store_weights(path, {"a": A})
    before = path.read_bytes()
    with ended_in_between(path, {"b": B}) as stored:
        assert set(stored.index.entries) == {"a", "b"}
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".irpa", ".safetensors", ".params"])
def test_weights_are_found_again_in_every_format(tmp_path: Path, suffix: str) -> None:
    stored = store_weights(tmp_path / f"w{suffix}", {"b": B, "a": A})
    assert stored.names == ("b", "a")
    found = [bytes(stored.index.bytes_of(entry)) for entry in stored.entries]
    assert found == [B.tobytes(), A.tobytes()]


@pytest.mark.parametrize("suffix", [".irpa", ".safetensors", ".params"])
def test_a_file_that_has_everything_stays_as_it_is(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"w{suffix}"
    store_weights(path, {"a": A, "b": B})
    before = path.stat()
    assert store_weights(path, {"b": B}).names == ("b",)
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_a_file_that_has_some_gets_the_others(tmp_path: Path) -> None:
    path = tmp_path / "w.irpa"
    store_weights(path, {"a": A})
    stored = store_weights(path, {"b": B})
    assert set(stored.index.entries) == {"a", "b"}
    assert bytes(stored.index.bytes_of(stored.index.entries["a"])) == A.tobytes()


def test_another_value_under_a_name_that_is_taken_gets_its_own(tmp_path: Path) -> None:
    path = tmp_path / "w.irpa"
    store_weights(path, {"a": A})
    assert store_weights(path, {"a": A + 1}).names == ("a.1",)
    assert store_weights(path, {"a": A + 1}).names == ("a.1",)
    assert store_weights(path, {"a": A}).names == ("a",)


def test_a_format_that_cannot_be_extended_says_so(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    store_weights(path, {"a": A})
    before = path.read_bytes()
    with pytest.raises(UserError, match="has other weights") as caught:
        store_weights(path, {"b": B})
    assert ".irpa" in str(caught.value)
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "w.irpa"
    path.write_bytes(b"a letter")
    with pytest.raises(UserError, match="is there already and holds no weights"):
        store_weights(path, {"a": A})
    assert path.read_bytes() == b"a letter"


def test_an_unknown_suffix_is_said_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file of weights is called '\.npz'") as caught:
        store_weights(tmp_path / "w.npz", {"a": A})
    assert ".irpa .safetensors .params" in str(caught.value)


def test_a_model_without_weights_has_no_file_of_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no weights to put there"):
        store_weights(tmp_path / "w.irpa", {})
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_there_under_another_name_are_not_written_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "w.irpa"
    store_weights(path, {"a": A, "b": B})
    before = path.read_bytes()
    found = store_weights(path, {"b": A, "c": B, "a": A})
    assert found.names == ("a", "b", "a")
    assert path.read_bytes() == before
