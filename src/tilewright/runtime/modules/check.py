"""The `check` module: programs that test themselves say what they expect.

What does not hold raises at once, or is told to a listener and the program goes on, as test
runners want it.

Source: IREE `check` dialect, `modules/check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.element_type import Array, same_element_type
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule

Listener = Callable[[str], object]
_PREVIEW: Final = 16


def create_check_module(listener: Listener | None = None) -> NativeModule:
    """The module.

    Args:
        listener: hears what does not hold; default: raise DeviceError (ABORTED).
    """
    report = listener or _raise

    def expect_true(value: int) -> None:
        if not value:
            report(f"expected {value} to be nonzero")

    def expect_false(value: int) -> None:
        if value:
            report(f"expected {value} to be zero")

    def expect_all_true(device: Device, view: BufferView) -> None:
        del device
        array = view.to_numpy()
        if not np.all(array):
            report(f"expected only nonzero elements, got {_text(view, array)}")

    def expect_eq(device: Device, left: BufferView, right: BufferView) -> None:
        del device
        problem = _shape_problem(left, right)
        if problem is None and left.to_numpy().tobytes() != right.to_numpy().tobytes():
            problem = _difference(left, right, _unequal)
        if problem is not None:
            report(problem)

    def expect_almost_eq(
        device: Device, left: BufferView, right: BufferView, atol: float, rtol: float
    ) -> None:
        del device
        problem = _shape_problem(left, right) or _difference(
            left, right, lambda a, b: _not_close(a, b, atol, rtol)
        )
        if problem is not None:
            report(f"{problem} (atol {atol:g}, rtol {rtol:g})")

    rows = (
        NativeFunction("expect_true", ("0i_v",), expect_true),
        NativeFunction("expect_false", ("0i_v",), expect_false),
        NativeFunction("expect_all_true", ("0rr_v",), expect_all_true, "device view"),
        NativeFunction("expect_eq", ("0rrr_v",), expect_eq, "device view view"),
        NativeFunction(
            "expect_almost_eq",
            ("0rrrff_v", "0rrrf_v"),
            lambda *arguments: expect_almost_eq(*arguments, *(0.0,) * (5 - len(arguments))),
            "device view view",
        ),
    )
    types: Mapping[str, type] = {"device": Device, "view": BufferView}
    return NativeModule("check", rows, types=types)


def _raise(problem: str) -> None:
    raise failure(StatusCode.ABORTED, problem)


def _shape_problem(left: BufferView, right: BufferView) -> str | None:
    if left.shape == right.shape and same_element_type(
        left.element_type, right.element_type
    ):
        return None
    return f"got {left.type_text}, expected {right.type_text}"


def _difference(
    left: BufferView, right: BufferView, differs: Callable[[Array, Array], Array]
) -> str | None:
    """Where two views of one shape differ first."""
    got, wanted = left.to_numpy(), right.to_numpy()
    places = np.argwhere(differs(got, wanted))
    if not len(places):
        return None
    first = tuple(int(i) for i in places[0])
    return (
        f"{len(places)} of {got.size} elements differ, first at {list(first)}: "
        f"got {got[first]}, expected {wanted[first]}"
    )


def _unequal(left: Array, right: Array) -> Array:
    """By their bits: -0 is not 0, equal NaNs are equal."""
    width = f"V{left.dtype.itemsize}"
    return np.asarray(left.view(width) != right.view(width))


def _not_close(left: Array, right: Array, atol: float, rtol: float) -> Array:
    a, b = left.astype(np.float64), right.astype(np.float64)
    return ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def _text(view: BufferView, array: Array) -> str:
    values = " ".join(str(value) for value in array.reshape(-1)[:_PREVIEW])
    return f"{view.type_text} {values}" + (" …" if array.size > _PREVIEW else "")
