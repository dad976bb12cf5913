"""Calls of modules that are not trusted end when their budget does."""

from __future__ import annotations

import _thread
import signal
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewright.base.budget import CURRENT, OBJECT_BYTES, Budget, Limits
from tilewright.base.errors import DeviceError, LimitError, UserError
from tilewright.formats.vmfb import ModuleBuilder
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.submission_queue import SubmissionQueue
from tilewright.runtime.hal.semaphore import Semaphore
from tilewright.runtime.vm.buffer import held_zeros
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.ref import Instance


def counting() -> ModuleBuilder:
    """`f(n)` counts down from n in a loop of four instructions."""
    module = ModuleBuilder("m")
    build = module.function("0I_I", export="f")
    head, body, done = build.block("i64"), build.block(), build.block()
    build.branch(head, build.arguments[0])
    (left,) = build.place(head)
    build.branch_if(build.emit("cmp.nz.i64", left), body, done)
    build.place(body)
    build.branch(head, build.emit("sub.i64", left, build.constant("i64", 1)))
    build.place(done)
    build.return_(left)
    return module


def load(module: ModuleBuilder, limits: Limits | None) -> Context:
    return Context([BytecodeModule(module.finish(), Instance(), limits=limits)])


def test_both_modes_count_the_same_steps() -> None:
    for n, steps in ((0, 5), (3, 17), (100, 405)):
        load(counting(), Limits(max_steps=steps)).lookup("m.f")(n)
        with pytest.raises(DeviceError, match=f"more than {steps - 1} steps.*EXHAUSTED"):
            load(counting(), Limits(max_steps=steps - 1)).lookup("m.f")(n)


def test_each_call_has_the_whole_budget() -> None:
    f = load(counting(), Limits(max_steps=1000)).lookup("m.f")
    for _ in range(5):
        assert f(100) == 0
    with pytest.raises(DeviceError, match="more than 1000 steps") as caught:
        f(1 << 60)
    assert caught.value.__notes__[0].startswith("  at m.f +0x")
    assert f(100) == 0


def test_endless_loops_end_at_the_deadline() -> None:
    f = load(counting(), Limits(timeout_s=0.5)).lookup("m.f")
    with pytest.raises(DeviceError, match="DEADLINE_EXCEEDED"):
        f(-1)
    assert f(5) == 0


def test_begun_calls_are_metered() -> None:
    call = load(counting(), Limits(max_steps=1000)).begin("m.f", -1)
    with pytest.raises(DeviceError, match="more than 1000 steps"):
        call.run()


@pytest.mark.parametrize(
    ("opcode", "length"),
    [("buffer.alloc", 1 << 36), ("list.resize", 1 << 27)],
)
def test_memory_is_charged_before_it_is_taken(opcode: str, length: int) -> None:
    module = ModuleBuilder("m")
    build = module.function("0v_v", export="f")
    if opcode == "buffer.alloc":
        build.emit(opcode, build.constant("i64", length), build.constant("i32", 16))
    else:
        made = build.emit("list.alloc", module.type("i32"), build.constant("i32", 0))
        build.emit(opcode, made, build.constant("i32", length))
    build.return_()
    with pytest.raises(DeviceError, match="more than 100000 steps"):
        load(module, Limits(max_steps=100_000)).lookup("m.f")()


def test_ctrl_c_ends_a_loop_and_leaves_the_module_usable() -> None:
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # background jobs ignore it
    f = load(counting(), Limits(timeout_s=30.0)).lookup("m.f")
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            f(-1)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert f(7) == 0


def test_trusted_code_counts_nothing() -> None:
    plain = BytecodeModule(counting().finish(), Instance(), mode="translate")
    metered = BytecodeModule(
        counting().finish(), Instance(), mode="translate", limits=Limits()
    )
    assert "A.left" not in plain.translated(0, frozenset()).source
    assert "A.left" in metered.translated(0, frozenset()).source
    assert CURRENT.account is None


def test_calls_at_the_same_time_have_their_own_steps() -> None:
    f = load(counting(), Limits(max_steps=100_000)).lookup("m.f")
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(f, [20_000] * 12)) == [0] * 12
        late = threads.submit(f, 30_000)
        with pytest.raises(LimitError, match="more than 100000 steps"):
            late.result()


def test_memory_is_held_until_the_last_view_of_it_dies() -> None:
    budget = Budget(Limits(max_bytes=10_000))
    memory = memoryview(held_zeros(budget, 5_000))
    assert budget.held_bytes == 5_000 + OBJECT_BYTES
    with pytest.raises(LimitError, match="wants 6024 bytes and holds 6024"):
        held_zeros(budget, 5_000)
    part = memory[10:20]
    del memory
    assert budget.held_bytes > 5_000
    del part
    assert budget.held_bytes == 0


def test_memory_of_an_operation_is_held_for_its_time() -> None:
    budget = Budget(Limits(max_bytes=100))
    with budget.transient(90), pytest.raises(LimitError):
        budget.take(20)
    assert budget.held_bytes == 0


def test_a_wait_ends_with_the_time_of_the_call_that_waits() -> None:
    semaphore = Semaphore()
    with (
        Budget(Limits(timeout_s=0.05)).call(),
        pytest.raises(LimitError, match=r"more than 0\.05 seconds"),
    ):
        semaphore.wait(1)


def test_work_that_is_deferred_is_charged_to_the_call_that_submitted_it() -> None:
    seen: list[object] = []
    semaphore, done = Semaphore(), Semaphore()
    queue = SubmissionQueue(has_thread=True)
    with Budget(Limits()).call() as account:
        queue.submit(
            Fence.at(semaphore, 1),
            Fence.at(done, 1),
            lambda: seen.append((threading.get_ident(), CURRENT.account)),
        )
    semaphore.signal(1)
    done.wait(1)
    ((thread, charged),) = seen
    assert thread != threading.get_ident()
    assert charged is account


@pytest.mark.parametrize("value", [-1, "many", float("nan")])
def test_limits_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(UserError, match=r"max_steps is .*, expected a number from 0 on"):
        Limits(max_steps=value)  # type: ignore[arg-type]


def test_what_is_no_limits_is_refused() -> None:
    with pytest.raises(UserError, match=r"limits are 5, expected tilewright\.Limits"):
        BytecodeModule(counting().finish(), Instance(), limits=5)  # type: ignore[arg-type]


def test_many_small_pieces_are_not_held_for_less_than_they_take() -> None:
    """Each is noted for the day when its owner dies; a stranger may have any number of them."""

    class Owner:
        """Anything that lives."""

    def keep_many(budget: Budget, owner: Owner) -> None:
        for _ in range(20_000):
            budget.keep(owner, 1)

    owner, budget = Owner(), Budget(Limits(max_bytes=1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="more than 1048576 are not allowed"):
            keep_many(budget, owner)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 2 << 20
    del owner
    assert budget.held_bytes == 0
