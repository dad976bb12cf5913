"""Files of strangers, each trying something: they end within their limits, in words.

What it is: one hostile archive per way to take steps, bytes or time, loaded as users load files that
they do not trust.
What it is not: how steps are counted (`unit/base/test_budget.py`), damaged files (`fuzz`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import vmvx_kernels
from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.bytecode.drafts import Edge, Register
from tilewright.formats.vmfb import Export, ModuleBuilder, ModuleDef, archive_bytes
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.drivers import registry
from tilewright.runtime.session import Session

LIMITS = tw.Limits(max_steps=2_000_000, max_bytes=64 << 20, timeout_s=0.5)
COUNTED = replace(LIMITS, timeout_s=60)  # by steps or bytes, however busy the machine is
SLACK_S = 30  # of processor time; what is tried here took minutes, or for ever

Fill = Callable[[ModuleBuilder, FunctionBuilder], None]


def module_of(fill: Fill, signature: str = "0v_v") -> ModuleDef:
    """A module whose function `f` does what `fill` writes."""
    module = ModuleBuilder("stranger")
    build = module.function(signature, export="f")
    fill(module, build)
    build.return_()
    return module.finish()


def session_of(module: ModuleDef, limits: tw.Limits | None = LIMITS) -> Session:
    return Session.from_bytes(archive_bytes(module), untrusted=True, limits=limits)


def refused(module: ModuleDef, limit: str, limits: tw.Limits = LIMITS) -> tw.LimitError:
    """The error of a call, which must come soon and name the limit."""
    session = session_of(module, limits)
    begin = time.process_time()
    with pytest.raises(tw.LimitError) as caught:
        session()
    assert time.process_time() - begin < SLACK_S
    assert caught.value.limit == limit
    assert f"limits=Limits({limit}=...)" in str(caught.value)
    return caught.value


def loop(build: FunctionBuilder, fill: Callable[[], object]) -> None:
    """Repeat for ever; what stands behind is never reached."""
    head, done = build.block(), build.block()
    build.branch(head)
    build.place(head)
    fill()
    never = build.emit("cmp.nz.i64", build.constant("i64", 0))
    build.branch_if(never, done, head)
    build.place(done)


def device(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    get = module.import_("hal.devices.get", "0i_r")
    return build.call(get, [build.constant("i32", 0)], ["ref"])[0]


# --- steps and time ---------------------------------------------------------------------------------


def test_an_endless_loop_ends_without_any_limits_of_the_caller() -> None:
    module = module_of(lambda m, b: loop(b, lambda: None))
    session = session_of(module, None)
    machine = session.executor.machine  # type: ignore[attr-defined]
    assert machine.budget.limits == tw.Limits()
    limits = tw.Limits()
    assert None not in (limits.max_steps, limits.max_bytes, limits.timeout_s)


def test_an_endless_loop_ends_by_steps_or_by_time() -> None:
    module = module_of(lambda m, b: loop(b, lambda: None))
    refused(module, "max_steps", COUNTED)
    refused(module, "timeout_s", replace(LIMITS, max_steps=None))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("engine", ["translate", "interpret"])
def test_a_module_that_never_stops_initialising_does_not_load(engine: str) -> None:
    module = ModuleBuilder("stranger")
    build = module.function("0v_v", export="__init")
    loop(build, lambda: None)
    build.return_()
    data = archive_bytes(module.finish())
    with pytest.raises(tw.LimitError, match="more than 2000000 steps"):
        Session.from_bytes(data, untrusted=True, limits=COUNTED, bytecode=engine)  # type: ignore[arg-type]


def test_a_fence_that_nobody_signals_is_waited_for_until_the_time_is_over() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        create = module.import_("hal.fence.create", "0rI_r")
        await_ = module.import_("hal.fence.await", "0iICrD_i")
        zero = build.constant("i64", 0)
        (fence,) = build.call(create, [device(module, build), zero], ["ref"])
        build.call_variadic(await_, [build.constant("i32", -1), zero, [(fence,)]], ["i32"])

    refused(module_of(fill), "timeout_s")


@pytest.mark.slow
def test_a_begun_call_that_waits_for_ever_ends_on_the_event_loop() -> None:
    module = ModuleBuilder("stranger")
    build = module.function("0v_v", export="f")
    head, done = build.block(), build.block()
    build.branch(head)
    build.place(head)
    build.emit("yield", Edge(head))
    build.place(done)
    build.return_()
    machine = BytecodeMachine(untrusted=True, limits=replace(LIMITS, max_steps=None))
    machine.load_module(module.finish())

    async def run() -> object:
        return await machine.context.begin("stranger.f")

    with pytest.raises(tw.LimitError, match=r"more than 0\.5 seconds"):
        asyncio.run(run())


@pytest.mark.slow
def test_a_begun_call_that_awaits_a_fence_for_ever_ends_on_the_event_loop() -> None:
    module = ModuleBuilder("stranger")
    build = module.function("0v_v", export="f")
    create = module.import_("hal.fence.create", "0rI_r")
    await_ = module.import_("hal.fence.await", "0iICrD_i")
    zero = build.constant("i64", 0)
    (fence,) = build.call(create, [device(module, build), zero], ["ref"])
    build.call_yieldable(await_, [build.constant("i32", -1), zero, [(fence,)]], ["i32"])
    build.return_()
    machine = BytecodeMachine(untrusted=True, limits=LIMITS)
    machine.load_module(module.finish())

    async def run() -> object:
        return await machine.context.begin("stranger.f")

    with pytest.raises(tw.LimitError, match=r"more than 0\.5 seconds"):
        asyncio.run(run())


def splitting() -> ModuleDef:
    """Opens the default group as the first of two, and splits it."""

    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        create = module.import_("hal.channel.create", "0rIIrrii_r")
        split = module.import_("hal.channel.split", "0riiI_r")
        zero, null = build.constant("i64", 0), build.emit("const.ref.zero")
        one, two = build.constant("i32", 0), build.constant("i32", 2)
        arguments = [device(module, build), zero, zero, null, null, one, two]
        (channel,) = build.call(create, arguments, ["ref"])
        build.call(split, [channel, one, one, zero], ["ref"])

    return module_of(fill)


@pytest.mark.slow
def test_a_channel_that_nobody_else_splits_is_waited_for_until_the_time_is_over() -> None:
    refused(splitting(), "timeout_s")


@pytest.mark.slow
def test_a_channel_of_a_stranger_meets_nobody_of_other_sessions() -> None:
    partner = registry.create_device("local-sync").create_channel(1, 2)
    waiting = threading.Thread(target=swallow, args=(lambda: partner.split(0, 0),))
    waiting.start()
    try:
        refused(splitting(), "timeout_s")
        assert waiting.is_alive()
    finally:
        partner.fail(RuntimeError("the test is over"))
        waiting.join(SLACK_S)


def swallow(work: Callable[[], object]) -> None:
    with contextlib.suppress(tw.DeviceError):
        work()


def test_a_channel_of_two_billion_participants_is_refused() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        create = module.import_("hal.channel.create", "0rIIrrii_r")
        zero, null = build.constant("i64", 0), build.emit("const.ref.zero")
        rank, count = build.constant("i32", 0), build.constant("i32", 2**31 - 1)
        arguments = [device(module, build), zero, zero, null, null, rank, count]
        build.call(create, arguments, ["ref"])

    with pytest.raises(tw.DeviceError, match="rank 0 of a channel with 2147483647"):
        session_of(module_of(fill))()


def test_libraries_that_call_each_other_twice_share_one_budget(tmp_path: Path) -> None:
    """Thirty archives, each of which calls a function of the one before twice: 2**30 calls."""
    files: list[Path] = []
    for number in range(30):
        module = ModuleBuilder(f"m{number}")
        build = module.function("0v_v", export="f")
        if number:
            before = module.import_(f"m{number - 1}.f", "0v_v")
            build.call(before, [], [])
            build.call(before, [], [])
        build.return_()
        files.append(tmp_path / f"m{number}.vmfb")
        files[-1].write_bytes(archive_bytes(module.finish()))
    limits = replace(COUNTED, max_steps=20_000)
    session = tw.load(files[-1], untrusted=True, libraries=files[:-1], limits=limits)
    with pytest.raises(tw.LimitError, match="more than 20000 steps"):
        session()


# --- bytes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [3 * 10**9, 1 << 62])
def test_a_large_buffer_is_refused_before_it_is_there(length: int) -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        alignment = build.constant("i32", 16)
        build.emit("buffer.alloc", build.constant("i64", length), alignment)

    limits = replace(COUNTED, max_steps=None)
    refused(module_of(fill), "max_bytes", limits)


def test_a_large_list_is_refused_before_it_is_there() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        made = build.emit("list.alloc", module.type("i32"), build.constant("i32", 0))
        build.emit("list.resize", made, build.constant("i32", 2**28))

    refused(module_of(fill), "max_bytes", replace(COUNTED, max_steps=None))


def test_device_memory_counts_while_it_is_held_and_no_longer() -> None:
    """A million bytes in every turn: dropped at once, or all kept in a list."""

    def fill(module: ModuleBuilder, build: FunctionBuilder, *, keeps: bool) -> None:
        allocator = module.import_("hal.device.allocator", "0r_r")
        allocate = module.import_("hal.allocator.allocate", "0rIiiI_r")
        (heap,) = build.call(allocator, [device(module, build)], ["ref"])
        zero, size = build.constant("i64", 0), build.constant("i64", 10**6)
        kind, usage = build.constant("i32", 48), build.constant("i32", 3075)
        made = build.emit(
            "list.alloc", module.type("!hal.buffer"), build.constant("i32", 0)
        )
        build.emit("list.resize", made, build.constant("i32", 200))
        for index in range(200):
            (buffer,) = build.call(allocate, [heap, zero, kind, usage, size], ["ref"])
            if keeps:
                build.emit("list.set.ref", made, build.constant("i32", index), buffer)
            else:
                build.emit("discard.refs", [buffer])

    session_of(module_of(lambda m, b: fill(m, b, keeps=False)), COUNTED)()
    error = refused(module_of(lambda m, b: fill(m, b, keeps=True)), "max_bytes", COUNTED)
    assert error.allowed == 64 << 20


def test_memory_of_globals_counts() -> None:
    module = ModuleBuilder("stranger")
    build = module.function("0v_v", export="f")
    build.return_()
    module.global_word("i32")
    made = module.finish()
    large = replace(made, state=replace(made.state, global_bytes=1 << 26))
    with pytest.raises(tw.LimitError, match="more than 67108864 are not allowed"):
        session_of(large)


# --- loading ----------------------------------------------------------------------------------------


def large_body(size: int) -> ModuleDef:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        for number in range(size):
            build.emit("add.i32", build.constant("i32", number), build.constant("i32", 1))

    return module_of(fill)


def test_functions_may_not_share_their_code() -> None:
    """500 functions over one body of 180 KB took minutes and 1.3 GB to decode."""
    made = large_body(50)
    shared = replace(made, functions=made.functions * 500, signatures=made.signatures * 500)
    with pytest.raises(tw.ArchiveError, match="functions 0 and 1 share bytes of code"):
        session_of(shared)


@pytest.mark.slow
def test_loading_takes_time_as_the_file_is_long() -> None:
    """40 000 exports of 8 000 functions: their product was looked at."""
    module = ModuleBuilder("stranger")
    module.function("0v_v").return_()
    made = module.finish()
    code = bytes(made.bytecode) + bytes(-len(made.bytecode) % 8)
    functions = tuple(
        replace(made.functions[0], offset=len(code) * n) for n in range(8_000)
    )
    exports = tuple(Export(name=f"f{n}", function=n % 8_000) for n in range(40_000))
    many = replace(
        made,
        functions=functions,
        signatures=made.signatures * 8_000,
        bytecode=code * 8_000,
        exports=exports,
    )
    limits = replace(COUNTED, timeout_s=8)
    session = Session.from_bytes(
        archive_bytes(many), untrusted=True, function="f7", limits=limits
    )
    assert session() == ()


def test_names_that_do_not_exist_are_not_compared_with_all_that_do() -> None:
    module = ModuleBuilder("stranger")
    module.function("0v_v", export="f").return_()
    made = module.finish()
    exports = [Export(name="a" * 5_000 + str(n), function=0) for n in range(400)]
    data = archive_bytes(replace(made, exports=(*made.exports, *exports)))
    with pytest.raises(tw.TilewrightError, match="no function"):
        Session.from_bytes(data, untrusted=True, function="b" * 5_000, limits=LIMITS)


# --- the device -------------------------------------------------------------------------------------


def test_a_command_buffer_without_end_is_refused() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        create = module.import_("hal.command_buffer.create", "0riiIi_r")
        barrier = module.import_("hal.command_buffer.execution_barrier", "0riiI_v")
        zero, affinity = build.constant("i32", 0), build.constant("i64", -1)
        kind = build.constant("i32", 3)
        arguments = [device(module, build), zero, kind, affinity, zero]
        (commands,) = build.call(create, arguments, ["ref"])
        zero64 = build.constant("i64", 0)
        loop(build, lambda: build.call(barrier, [commands, zero, zero, zero64], []))

    limits = replace(LIMITS, max_bytes=8 << 20, timeout_s=30)
    refused(module_of(fill), "max_bytes", limits)


@pytest.mark.slow
def test_copies_recorded_a_thousand_times_end_between_two_of_them() -> None:
    """64 MB are filled again and again by one command buffer."""

    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        allocator = module.import_("hal.device.allocator", "0r_r")
        allocate = module.import_("hal.allocator.allocate", "0rIiiI_r")
        create = module.import_("hal.command_buffer.create", "0riiIi_r")
        record = module.import_("hal.command_buffer.fill_buffer", "0rrIIiIiI_v")
        finalize = module.import_("hal.command_buffer.finalize", "0r_v")
        execute = module.import_("hal.device.queue.execute", "0rIrrrI_v")
        local = device(module, build)
        (heap,) = build.call(allocator, [local], ["ref"])
        zero, size = build.constant("i64", 0), build.constant("i64", 32 << 20)
        kind, usage = build.constant("i32", 48), build.constant("i32", 3075)
        (buffer,) = build.call(allocate, [heap, zero, kind, usage, size], ["ref"])
        none, any_ = build.constant("i32", 0), build.constant("i64", -1)
        (commands,) = build.call(
            create, [local, none, build.constant("i32", 3), any_, none], ["ref"]
        )
        width = build.constant("i32", 1)
        for _ in range(2000):
            build.call(record, [commands, buffer, zero, size, none, zero, width, zero], [])
        build.call(finalize, [commands], [])
        null = build.emit("const.ref.zero")
        build.call(execute, [local, any_, null, null, commands, zero], [])

    refused(module_of(fill), "timeout_s", replace(LIMITS, max_steps=None, timeout_s=0.1))


@pytest.mark.parametrize("shape", [[1] * 100, [1] * 300, [0, 1 << 62]])
def test_shapes_that_no_array_has_are_refused_in_words(shape: list[int]) -> None:
    module = ModuleBuilder("stranger")
    build = module.function("0v_r", export="f")
    allocator = module.import_("hal.device.allocator", "0r_r")
    allocate = module.import_("hal.allocator.allocate", "0rIiiI_r")
    create = module.import_("hal.buffer_view.create", "0rIIiiCID_r")
    (heap,) = build.call(allocator, [device(module, build)], ["ref"])
    zero, size = build.constant("i64", 0), build.constant("i64", 64)
    kind, usage = build.constant("i32", 48), build.constant("i32", 3075)
    (buffer,) = build.call(allocate, [heap, zero, kind, usage, size], ["ref"])
    f32, dense = build.constant("i32", 0x21000020), build.constant("i32", 1)
    dims = [(build.constant("i64", dim),) for dim in shape]
    (view,) = build.call_variadic(create, [buffer, zero, size, f32, dense, dims], ["ref"])
    build.return_(view)
    with pytest.raises(tw.DeviceError, match=r"no array can be f32|a shape of rank 300"):
        session_of(module.finish())()


def test_ops_of_the_host_are_off() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        host = module.import_("tilewright.host_call", "0rCrIIDCrIIDCID_v", optional=True)
        text = build.emit("const.ref.rodata", module.text('{"operand_count": 400000000}'))
        build.call_variadic(host, [text, [], [], []], [])

    called: list[str] = []
    data = archive_bytes(module_of(fill))
    session = Session.from_bytes(
        data, untrusted=True, host_function=lambda op, *_: called.append(op) or ()
    )
    with pytest.raises(
        tw.DeviceError, match=r"'tilewright\.host_call' is not there"
    ) as caught:
        session()
    assert "not trusted get no functions of the host" in str(caught.value)
    assert not called


def test_a_kernel_of_a_stranger_is_charged_to_the_call_that_dispatched_it() -> None:
    module = ModuleBuilder("stranger")
    build = module.function("0v_v", export="f")
    make = module.import_("hal.executable.create", "0rIrrr_r")
    create = module.import_("hal.command_buffer.create", "0riiIi_r")
    dispatch = module.import_("hal.command_buffer.dispatch", "0rrIiiiICiDCiirIID_v")
    finalize = module.import_("hal.command_buffer.finalize", "0r_v")
    execute = module.import_("hal.device.queue.execute", "0rIrrrI_v")
    local, any_ = device(module, build), build.constant("i64", -1)
    format_ = build.emit("const.ref.rodata", module.text(vmvx_kernels.FORMAT))
    data = build.emit("const.ref.rodata", module.rodata(vmvx_kernels.executable()))
    null, zero = build.emit("const.ref.zero"), build.constant("i64", 0)
    (kernels,) = build.call(make, [local, any_, format_, data, null], ["ref"])
    none, one = build.constant("i32", 0), build.constant("i32", 1)
    (commands,) = build.call(
        create, [local, none, build.constant("i32", 3), any_, none], ["ref"]
    )
    forever = build.constant("i64", 3)
    build.call_variadic(
        dispatch, [commands, kernels, forever, one, one, one, zero, [], []], []
    )
    build.call(finalize, [commands], [])
    build.call(execute, [local, any_, null, null, commands, zero], [])
    build.return_()
    refused(module.finish(), "max_steps", COUNTED)


def test_limits_of_a_plan_are_refused_because_nothing_would_watch_them(
    tmp_path: Path,
) -> None:
    import onnx
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "g", [values[0]], [values[1]]
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    tw.compile(tmp_path / "m.onnx").save(tmp_path / "m.vmfb")
    with pytest.raises(tw.UserError, match="a plan is machine code, which no limits hold"):
        tw.load(tmp_path / "m.vmfb", limits=LIMITS)
    session = tw.load(
        tmp_path / "m.vmfb", engine="vm", limits=replace(LIMITS, timeout_s=60)
    )
    assert session(np.ones(4, np.float32)).tolist() == [-1.0] * 4  # type: ignore[union-attr]
