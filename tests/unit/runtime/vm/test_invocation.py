"""Begun calls suspend at `yield` and at waits, are resumed, awaited, and stepped through."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from tilewright.base.errors import DeviceError
from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.bytecode.drafts import Edge
from tilewright.formats.vmfb import ModuleBuilder
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule
from tilewright.runtime.vm.ref import Instance


class Gate:
    """Something to wait for that counts who waits."""

    def __init__(self) -> None:
        self.is_open = False
        self.waits = 0

    def wait(self) -> None:
        self.waits += 1
        self.is_open = True

    def __await__(self) -> Generator[Any, None, None]:
        self.waits += 1
        while not self.is_open:
            yield from asyncio.sleep(0).__await__()


def yielding() -> ModuleBuilder:
    """`f(x)` yields twice, in itself and in a function that it calls."""
    module = ModuleBuilder("m")
    inner = module.function("0i_i", export="inner")
    after = inner.block()
    inner.emit("yield", Edge(after))
    inner.place(after)
    inner.return_(inner.emit("add.i32", inner.arguments[0], inner.constant("i32", 1)))
    outer = module.function("0i_i", export="f")
    after = outer.block()
    outer.emit("yield", Edge(after))
    outer.place(after)
    outer.return_(*outer.call(module.ordinal_of(inner), outer.arguments, ["i32"]))
    return module


def waiting(gate: Gate) -> Context:
    """`f()` calls `host.wait`, which would block while the gate is shut, and adds 1."""
    module = ModuleBuilder("m")
    build: FunctionBuilder = module.function("0v_i", export="f")
    callee = module.import_("host.wait", "0i_i")
    (result,) = build.call_yieldable(callee, [build.constant("i32", 6)], ["i32"])
    build.return_(build.emit("add.i32", result, build.constant("i32", 1)))
    row = NativeFunction(
        "wait",
        ("0i_i",),
        lambda value: value * 7,
        waits=lambda value: None if gate.is_open or value != 6 else gate,
    )
    host = NativeModule("host", (row,))
    return Context([host, BytecodeModule(module.finish(), Instance())])


def begun(module: ModuleBuilder, *arguments: object) -> Any:
    context = Context([BytecodeModule(module.finish(), Instance())])
    return context.begin("m.f", *arguments)


def test_a_call_runs_from_yield_to_yield() -> None:
    call = begun(yielding(), 4)
    assert [frame.name for frame in call.frames] == ["m.f"]
    assert not call.resume()
    assert [frame.name for frame in call.frames] == ["m.f"]
    assert not call.resume()
    assert [frame.name for frame in call.frames] == ["m.f", "m.inner"]
    with pytest.raises(DeviceError, match="the call is not done"):
        _ = call.results
    assert call.resume()
    assert call.results == (5,)
    with pytest.raises(DeviceError, match="the call is done"):
        call.step()


def test_a_wait_suspends_and_is_made_when_it_is_over() -> None:
    gate = Gate()
    call = waiting(gate).begin("m.f")
    assert not call.resume()
    assert call.waits_for is gate
    assert gate.waits == 0
    assert call.resume()
    assert gate.waits == 1
    assert call.results == (43,)


def test_a_wait_that_is_over_does_not_suspend() -> None:
    gate = Gate()
    gate.is_open = True
    call = waiting(gate).begin("m.f")
    assert call.resume()
    assert call.results == (43,)


def test_calls_that_nobody_suspends_give_the_same() -> None:
    assert waiting(Gate()).lookup("m.f")() == 43
    context = Context([BytecodeModule(yielding().finish(), Instance())])
    assert context.lookup("m.f")(4) == context.begin("m.f", 4).run()[0] == 5


def test_awaited_calls_take_turns() -> None:
    async def both() -> list[tuple[object, ...]]:
        gate = Gate()

        async def opens() -> tuple[object, ...]:
            gate.is_open = True
            return ()

        first, second = waiting(gate).begin("m.f"), begun(yielding(), 1)
        return list(await asyncio.gather(_of(first), _of(second), opens()))

    async def _of(call: Any) -> tuple[object, ...]:
        return await call

    assert asyncio.run(both()) == [(43,), (2,), ()]


def test_steps_show_where_a_call_is_and_what_it_holds() -> None:
    call = begun(yielding(), 4)
    shown = []
    while not call.is_done:
        shown.append(call.frames[-1].text)
        call.step()
    assert [line.partition(" ")[0] for line in shown] == [
        "vm.yield", "%i0", "%i1", "vm.yield", "%i0", "vm.return", "vm.return",
    ]  # fmt: skip
    assert call.results == (5,)


def test_a_failure_names_all_functions_that_run() -> None:
    module = ModuleBuilder("m")
    inner = module.function("0v_v", export="inner")
    inner.fail(inner.constant("i32", 9), "not ready")
    outer = module.function("0v_v", export="f")
    outer.call(module.ordinal_of(inner), [])
    outer.return_()
    call = begun(module)
    with pytest.raises(DeviceError, match="not ready") as caught:
        call.run()
    notes = caught.value.__notes__
    assert notes[0].startswith("  at m.inner +0x")
    assert notes[1].startswith("  at m.f +0x")
    assert call.frames == []
    assert not call.is_done


def test_endless_recursion_is_an_error() -> None:
    module = ModuleBuilder("m")
    build = module.function("0v_v", export="f")
    build.call(module.ordinal_of(build), [])
    build.return_()
    with pytest.raises(DeviceError, match="deeper than"):
        begun(module).run()


def test_native_functions_cannot_be_begun() -> None:
    host = NativeModule("host", (NativeFunction("f", ("0v_v",), print),))
    with pytest.raises(DeviceError, match=r"'host.f' is not bytecode"):
        Context([host]).begin("host.f")
    with pytest.raises(DeviceError, match=r"no function 'host.g'"):
        Context([host]).begin("host.g")
