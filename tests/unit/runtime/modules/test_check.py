"""The `check` module: what holds, what does not, and IREE's compiled tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.modules.check import create_check_module

ARCHIVE = Path(__file__).parents[3] / "golden" / "archives" / "iree-3.13.0-check_cpu.vmfb"


def test_compiled_tests_pass_and_fail() -> None:
    machine = BytecodeMachine("local-sync", modules=[create_check_module()])
    machine.load(ARCHIVE.read_bytes())
    machine.invoke("ok")
    with pytest.raises(
        DeviceError, match=r"1 of 3 elements differ, first at \[2\]: got 3, expected 4"
    ):
        machine.invoke("bad")
    with pytest.raises(DeviceError, match=r"only nonzero elements, got i32\[3\] 1 0 3"):
        machine.invoke("scalars")


def test_a_listener_hears_all_and_the_program_goes_on() -> None:
    heard: list[str] = []
    machine = BytecodeMachine("local-sync", modules=[create_check_module(heard.append)])
    machine.load(ARCHIVE.read_bytes())
    machine.invoke("bad")
    machine.invoke("scalars")
    assert len(heard) == 2


def expect(name: str, *arrays: object) -> list[str]:
    heard: list[str] = []
    machine = BytecodeMachine("local-sync")
    state = create_check_module(heard.append).create_state()
    function = state.lookup(name, None)
    assert function is not None
    numbers = [a for a in arrays if isinstance(a, float | int)]
    views = [machine.to_view(a) for a in arrays if isinstance(a, np.ndarray)]
    function(*([machine.device] if views else []), *views, *numbers)
    return heard


NAN, INF = np.float32(np.nan), np.float32(np.inf)


@pytest.mark.parametrize(
    ("name", "arguments", "holds"),
    [
        ("expect_true", (7,), True),
        ("expect_true", (0,), False),
        ("expect_false", (0,), True),
        ("expect_false", (-1,), False),
        ("expect_all_true", (np.ones((3, 1), np.int8),), True),
        ("expect_all_true", (np.ones((0, 2), np.float64),), True),
        ("expect_all_true", (np.array([1.5, 0]),), False),
        ("expect_eq", (np.array([NAN, 1]), np.array([NAN, 1])), True),
        ("expect_eq", (np.array([0.0]), np.array([-0.0])), False),
        ("expect_eq", (np.array(3), np.array(3)), True),
        ("expect_eq", (np.array([3]), np.array(3)), False),
        ("expect_eq", (np.array([3], np.int32), np.array([3], np.uint32)), True),
        ("expect_eq", (np.array([3], np.int32), np.array([3], np.float32)), False),
        ("expect_almost_eq", (np.array([NAN, INF]), np.array([NAN, INF]), 0.0, 0.0), True),
        ("expect_almost_eq", (np.array([INF]), np.array([-INF]), 1.0, 1.0), False),
        ("expect_almost_eq", (np.array([1.0]), np.array([1.05]), 0.0, 0.1), True),
        ("expect_almost_eq", (np.array([1.0]), np.array([1.05]), 0.01, 0.0), False),
        ("expect_almost_eq", (np.float16([1, 2]), np.float16([1, 2.001]), 0.01, 0.0), True),
    ],
)
def test_each_expectation(name: str, arguments: tuple[object, ...], *, holds: bool) -> None:
    assert bool(expect(name, *arguments)) is not holds
