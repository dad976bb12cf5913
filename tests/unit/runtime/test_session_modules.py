"""Sessions of several modules: who imports from whom, and what functions are called."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.sessions import check, inputs, opened
from tilewright.base.errors import (
    ArchiveError,
    DeviceError,
    UserError,
)
from tilewright.base.status import StatusCode

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"


LIBRARY, CALLER, TOP = (
    ARCHIVES / f"iree-3.13.0-{name}_vmvx.vmfb" for name in ("library", "caller", "top")
)


@pytest.mark.parametrize("bytecode", [None, "translate", "interpret"])
def test_modules_import_from_those_before_and_share_their_state(
    bytecode: str | None,
) -> None:
    session = tw.load(TOP, libraries=[LIBRARY, str(CALLER)], bytecode=bytecode)
    assert session.engine == "vm"
    x = np.arange(5, dtype=np.float32)
    once = x * x + x
    for call in (1, 2, 3):
        y, count = session(x)
        np.testing.assert_array_equal(y, once * once + once)
        np.testing.assert_array_equal(count, [2 * call])


def test_functions_of_libraries_are_called_by_their_full_name() -> None:
    x = np.arange(5, dtype=np.float32)
    load = functools.partial(tw.load, CALLER, libraries=[LIBRARY], untrusted=True)
    np.testing.assert_array_equal(load(function="run")(x), x * x + x)
    np.testing.assert_array_equal(load(function="caller.run")(x), x * x + x)
    np.testing.assert_array_equal(load(function="library.square")(x), x * x)
    # Both modules have one of that name: the last one's is taken.
    np.testing.assert_array_equal(load(function="called")(x), x)
    with pytest.raises(UserError, match=r"has 2 functions.*\n.*caller.run, caller.called$"):
        load()
    with pytest.raises(UserError, match=r"no function 'library.cube'"):
        load(function="library.cube")


def test_libraries_come_before_those_that_import_from_them() -> None:
    with pytest.raises(DeviceError, match="module 'library' is missing") as caught:
        tw.load(CALLER, function="run")
    assert caught.value.hint == "register it before the modules that depend on it"
    with pytest.raises(DeviceError, match="module 'library' is missing"):
        tw.load(LIBRARY, libraries=[CALLER], function="square")
    with pytest.raises(DeviceError, match="there is a module 'library' already") as caught:
        tw.load(LIBRARY, libraries=[LIBRARY], function="square")
    assert caught.value.code == StatusCode.ALREADY_EXISTS
    assert caught.value.location == str(LIBRARY)
    with pytest.raises(
        ArchiveError, match=r"^/no/such: cannot read the file: No such file"
    ):
        tw.load(LIBRARY, libraries=["/no/such"], function="square")


def test_what_asks_for_bytecode_takes_the_virtual_machine(path: Path) -> None:
    for options in ({"bytecode": "interpret"}, {"libraries": [LIBRARY]}):
        session = opened(path, **options)
        assert session.engine == "vm"
        check(session(*inputs(4)), *inputs(4))
        with pytest.raises(UserError, match="a plan runs no bytecode"):
            opened(path, "plan", **options)
    square = opened(path, libraries=[LIBRARY], function="library.square")
    assert [dtype.name for _, dtype, _ in square.inputs] == ["f32"]
    x = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(square(x), x * x)
