"""JSON that means one thing."""

from __future__ import annotations

import math

import pytest

from tilewright.base.json_text import read_json, what_is_wrong


def test_what_is_read_is_what_the_standard_library_reads() -> None:
    assert read_json(b'{"a": [1, {"b": null}], "c": "\\u00e9"}') == {
        "a": [1, {"b": None}],
        "c": "é",
    }
    assert read_json("NaN") != read_json("NaN")
    assert read_json("[-Infinity]", str) == ["-Infinity"]
    assert read_json("1e999") == math.inf


@pytest.mark.parametrize(
    "text", ['{"k": 1, "k": 1}', '[{"x": {"k": 1, "y": 2, "k": 3}}]', r'{"k": 1, "\u006b": 2}']
)  # fmt: skip
def test_a_key_that_stands_twice_in_one_object_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ValueError, match="key 'k' stands twice in one object"):
        read_json(text)


def test_one_key_in_several_objects_is_no_key_twice() -> None:
    assert read_json('[{"k": 1}, {"k": {"k": 2}}]') == [{"k": 1}, {"k": {"k": 2}}]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("grid"), "there is no 'grid'"),
        (IndexError("list index out of range"), "a value is of another kind than expected"),
        (
            TypeError("'int' object is not iterable"),
            "a value is of another kind than expected",
        ),
        (
            ValueError("not enough values to unpack (expected 3, got 2)"),
            "a row has another number of values (expected 3, got 2)",
        ),
        (
            ValueError("too many values to unpack (expected 2)"),
            "a row has another number of values (expected 2)",
        ),
        (ValueError("first line\nsecond"), "first line"),
        (ValueError("x" * 201), "x" * 200),
        (KeyError("x" * 201), "there is no '" + "x" * 199),
        (ValueError("'quick' is not a valid Outcome"), "'quick' is not a valid Outcome"),
        (ValueError(), "a value is of another kind than expected"),
        (RecursionError("maximum recursion depth exceeded"), "it nests too deeply"),
    ],
)
def test_what_a_reader_ran_into_is_said_in_words(error: Exception, text: str) -> None:
    assert what_is_wrong(error) == text
