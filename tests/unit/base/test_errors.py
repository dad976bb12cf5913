"""The error tree: one base, the drawn shape, one way to print."""

from __future__ import annotations

import inspect

import pytest

from tilewright.base import errors
from tilewright.base.errors import (
    DeviceError,
    InternalError,
    TilewrightError,
    UserError,
)

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass)]


def test_every_class_of_the_module_is_in_the_tree_that_its_docstring_draws() -> None:
    assert all(issubclass(c, TilewrightError) for c in CLASSES)
    drawing = errors.__doc__ or ""
    assert all(c.__name__ in drawing for c in CLASSES)


@pytest.mark.parametrize(
    ("location", "hint", "text"),
    [
        (None, None, "what happened"),
        ("m.onnx", None, "m.onnx: what happened"),
        (None, "try this", "what happened\nhint: try this"),
        ("m.onnx", "try this", "m.onnx: what happened\nhint: try this"),
    ],
)
@pytest.mark.parametrize("kind", [c for c in CLASSES if c is not InternalError])
def test_a_message_prints_location_then_text_then_hint(
    kind: type[TilewrightError], location: str | None, hint: str | None, text: str
) -> None:
    error = kind("what happened", location=location, hint=hint)
    assert str(error) == text
    assert error.message == "what happened"
    assert error.args == ("what happened",)


def test_a_location_may_be_added_on_the_way_up() -> None:
    error = UserError("what happened")
    error.location = "m.onnx"
    assert str(error) == "m.onnx: what happened"


def test_a_device_error_carries_its_status_code() -> None:
    assert DeviceError("lost").code == 2
    assert DeviceError("lost", code=14).code == 14


def test_only_errors_of_the_user_are_user_errors() -> None:
    assert not issubclass(DeviceError, UserError)
    assert not issubclass(InternalError, UserError)


def test_the_words_of_a_condition_are_those_at_the_end_of_its_place() -> None:
    mark = errors.DOES_NOT_HOLD
    told = errors.size_error(0, 1, 1, f"node 'a' (x{mark}, y){mark}")
    assert str(told) == f"node 'a' (x{mark}, y): does not hold for this call"
    size = errors.size_error(0, 1, 1, f"node 'a{mark}'")
    assert str(size) == f"node 'a{mark}': the data gives size 0, expected at least 1"
