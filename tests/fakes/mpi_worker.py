"""One rank of a test: `mpiexec -n 3 python mpi_worker.py CASE` runs a case on real MPI.

Every case checks itself and prints `ok` behind its rank; what it prints besides is for messages.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.errors import DeviceError
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.collective import (
    ELEMENT_TYPES,
    REDUCING,
    CollectiveKind,
    CollectiveOp,
    Reduction,
)
from tilewright.runtime.hal.command_buffer import BufferBinding, BufferRef
from tilewright.runtime.hal.fence import Fence

KIND = CollectiveKind
SECONDS = 30_000_000_000
F32 = ELEMENT_TYPES[9]
SUM = CollectiveOp(KIND.ALL_REDUCE, F32, Reduction.SUM)
NOBODY = 0xFFFF
DEVICE = registry.create_device(
    os.environ.get("TILEWRIGHT_TEST_DEVICE", "local-sync://?collectives=mpi")
)
CHANNEL = DEVICE.create_channel()
RANK, COUNT = CHANNEL.rank, CHANNEL.count


def say(subject: object) -> None:
    """Print a line in one piece: launchers mix what ranks write."""
    os.write(1, f"{RANK}: {subject}\n".encode())


def memory(array: np.ndarray):
    buffer = DEVICE.allocator.allocate(0, 0, max(array.nbytes, 1))
    if array.nbytes:
        buffer.write(array.tobytes())
    return buffer


def submit(op, parameter, send, receive, elements, channel=CHANNEL) -> Fence:
    commands = DEVICE.create_command_buffer()
    commands.begin()
    commands.collective(
        channel, op, parameter, BufferRef(send), BufferRef(receive), elements
    )
    commands.end()
    done = Fence.at(DEVICE.create_semaphore(), 1)
    DEVICE.queue_execute(None, done, commands)
    return done


def run(op, parameter, sent, received, elements, channel=CHANNEL) -> np.ndarray:
    target = memory(received)
    submit(op, parameter, memory(sent), target, elements, channel).wait(SECONDS)
    return np.frombuffer(bytes(target.read())[: received.nbytes], op.dtype.numpy)


def values(dtype: DType, rank: int, count: int) -> np.ndarray:
    generator = np.random.default_rng((rank, count, ELEMENT_TYPES.index(dtype)))
    if dtype.numpy.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return generator.integers(info.min, info.max, count, dtype.numpy, endpoint=True)
    found = generator.standard_normal(count).astype(dtype.numpy)
    found[: count // 9] = np.inf
    return found


def reduced(dtype: DType, reduction: Reduction, parts: list[np.ndarray]) -> np.ndarray:
    narrow = dtype.bits == 16 and dtype.numpy.kind not in "iu"
    wide = [part.astype(np.float32) if narrow else part for part in parts]
    step = {
        Reduction.PRODUCT: np.multiply,
        Reduction.MINIMUM: np.minimum,
        Reduction.MAXIMUM: np.maximum,
    }.get(reduction, np.add)
    with np.errstate(all="ignore"):
        total = wide[0]
        for part in wide[1:]:
            total = step(total, part)
        if reduction is Reduction.AVERAGE:
            if total.dtype.kind == "f":
                total = total / total.dtype.type(len(parts))
            else:
                exact = [
                    int(abs(int(t)) // len(parts)) * (1 if t >= 0 else -1) for t in total
                ]
                total = np.array(exact, total.dtype)
        return total.astype(dtype.numpy)


def expected(op: CollectiveOp, parameter: int, sent: list[np.ndarray], before: np.ndarray):
    """What this rank has at the end."""
    match op.kind:
        case KIND.ALL_GATHER:
            return np.concatenate(sent)
        case KIND.ALL_REDUCE:
            return reduced(op.dtype, op.reduction, sent)
        case KIND.ALL_TO_ALL:
            return np.concatenate([np.split(part, COUNT)[RANK] for part in sent])
        case KIND.BROADCAST:
            return before if parameter == RANK else sent[parameter]
        case KIND.REDUCE:
            return reduced(op.dtype, op.reduction, sent) if parameter == RANK else before
        case KIND.REDUCE_SCATTER:
            return np.split(reduced(op.dtype, op.reduction, sent), COUNT)[RANK]
        case _:  # a shift around the ring
            return sent[(RANK - 1) % COUNT]


def check_everything() -> None:
    """Every kind, reduction, type, at odd sizes."""
    done = 0
    kinds = [kind for kind in KIND if kind not in (KIND.SEND, KIND.RECV)]
    for kind, dtype, size in itertools.product(kinds, ELEMENT_TYPES, (0, 1, 7, 1031)):
        reductions = list(Reduction)[1:] if kind in REDUCING else [Reduction.NONE]
        for reduction in reductions:
            op = CollectiveOp(kind, dtype, reduction)
            elements = size * COUNT if kind is KIND.ALL_TO_ALL else size
            parameter = size % COUNT
            if kind is KIND.SEND_RECV:
                parameter = (RANK + 1) % COUNT | (RANK - 1) % COUNT << 16
            length = elements * (COUNT if kind is KIND.REDUCE_SCATTER else 1)
            sent = [values(dtype, rank, length) for rank in range(COUNT)]
            before = np.full(
                elements * (COUNT if kind is KIND.ALL_GATHER else 1), 3, dtype.numpy
            )
            got = run(op, parameter, sent[RANK], before, elements)
            want = expected(op, parameter, sent, before)
            assert got.tobytes() == want.tobytes(), (str(op), size, got, want)
            done += 1
    assert done == 48 * (4 + 3 * 5)


def check_pairs() -> None:
    """Sends pair up with receives in order, whatever else is on its way."""
    data = [values(F32, i, 5 + i) for i in range(3)]
    fences, taken = [], []
    send, recv = CollectiveOp(KIND.SEND, F32), CollectiveOp(KIND.RECV, F32)
    if RANK == 0:
        fences = [submit(send, COUNT - 1, memory(x), None, len(x)) for x in data]
    total = run(SUM, 0, np.full(3, RANK, np.float32), np.zeros(3, np.float32), 3)
    if RANK == COUNT - 1:
        taken = [memory(np.zeros_like(x)) for x in data]
        fences = [
            submit(recv, 0, None, b, len(x)) for b, x in zip(taken, data, strict=True)
        ]
    for fence in fences:
        fence.wait(SECONDS)
    assert [b.read() for b in taken] == [x.tobytes() for x in data[: len(taken)]]
    assert (total == COUNT * (COUNT - 1) / 2).all()
    line = (RANK + 1 if RANK + 1 < COUNT else NOBODY) | (RANK - 1 if RANK else NOBODY) << 16
    op = CollectiveOp(KIND.SEND_RECV, F32)
    got = run(op, line, np.full(2, RANK, np.float32), np.ones(2, np.float32), 2)
    assert (got == max(RANK - 1, 0)).all()
    own = memory(np.zeros(2, np.float32))  # to oneself
    fences = [
        submit(send, RANK, memory(np.ones(2, np.float32)), None, 2),
        submit(recv, RANK, None, own, 2),
    ]
    for fence in fences:
        fence.wait(SECONDS)
    assert own.read() == np.ones(2, np.float32).tobytes()


def check_commands() -> None:
    """In place, on ranges of a binding table, with commands around, many times."""
    buffer = memory(np.full(8, RANK + 1.0, np.float32))
    ref = BufferRef(None, 8, 16, slot=0)
    commands = DEVICE.create_command_buffer(binding_capacity=1)
    commands.begin()
    commands.update_buffer(np.full(4, RANK * 10.0, np.float32).tobytes(), ref)
    for _ in range(2):
        commands.execution_barrier(16, 1)
        commands.collective(CHANNEL, SUM, 0, ref, ref, 4)
    commands.execution_barrier(16, 1)
    commands.fill_buffer(BufferRef(None, 8, 4, slot=0), b"\x00")
    commands.end()
    total = 10.0 * COUNT * COUNT * (COUNT - 1) / 2
    for _ in range(20):
        done = Fence.at(DEVICE.create_semaphore(), 1)
        DEVICE.queue_execute(None, done, commands, [BufferBinding(buffer)])
        done.wait(SECONDS)
        got = np.frombuffer(buffer.read(), np.float32)
        own = RANK + 1.0
        np.testing.assert_array_equal(got, [own, own, 0, total, total, total, own, own])


def check_split() -> None:
    """Groups of some ranks work, beside each other and from threads; asked again they are shared."""
    color, key = (0, -RANK) if RANK != 1 else (-1, 0)
    part = CHANNEL.split(color, key)
    assert (part is None) == (RANK == 1)
    for _ in range(3):
        assert CHANNEL.split(color, key) is part
    other = CHANNEL.split(RANK, 0)
    assert other is not None
    assert (other.rank, other.count) == (0, 1)
    others = [rank for rank in range(COUNT) if rank != 1]
    if part is not None:
        assert (part.rank, part.count) == (others[::-1].index(RANK), COUNT - 1)
    wrong: list[object] = []

    def work(channel: Channel, ranks: list[int]) -> None:
        for step in range(30):
            own = np.full(3, RANK + step, np.float32)
            got = run(SUM, 0, own, own, 3, channel)
            if not (got == sum(rank + step for rank in ranks)).all():
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(CHANNEL, list(range(COUNT))))]
    if part is not None:
        threads.append(threading.Thread(target=work, args=(part, others)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def expect_failure(op: CollectiveOp = SUM, elements: int = 4) -> None:
    """Print why a collective fails."""
    array = np.zeros(4, np.float32)
    try:
        run(op, 0, array, array, elements)
    except DeviceError as error:
        say(error)
    else:
        raise AssertionError("it should have failed")


def check_disagreement() -> None:
    """Ranks that differ are told; the next operation is fine."""
    product = CollectiveOp(KIND.ALL_REDUCE, F32, Reduction.PRODUCT)
    expect_failure(product if RANK == COUNT - 1 else SUM)
    expect_failure(SUM, 4 if RANK else 3)
    if RANK == 0:
        expect_failure()
    else:
        try:
            CHANNEL.split(0, 0)
        except DeviceError as error:
            say(error)
    crossed = CollectiveOp(KIND.SEND_RECV, F32)
    parameter = (RANK + 1) % COUNT | (RANK + 1) % COUNT << 16
    array = np.ones(4, np.float32)
    try:
        run(crossed, parameter, array, array, 4)
    except DeviceError as error:
        say(error)
    else:
        assert COUNT == 2
    if RANK < 2:  # one sends more than the other takes
        kind = KIND.RECV if RANK else KIND.SEND
        try:
            run(CollectiveOp(kind, F32), 1 - RANK, array, array, 2 + RANK)
        except DeviceError as error:
            say(error)
        else:
            raise AssertionError("it should have failed")
    assert (run(SUM, 0, array, array, 4) == COUNT).all()


def check_failure() -> None:
    """A rank that fails fails the others, for good."""
    if RANK == 1:
        CHANNEL.fail(ValueError("the disk is full"))
        time.sleep(0.2)
    for _ in range(2):
        expect_failure()


def check_leaving() -> None:
    """A rank that is done fails those who still wait for it."""
    if RANK == 1:
        return
    expect_failure()
    array = np.zeros(4, np.float32)
    try:
        run(CollectiveOp(KIND.RECV, F32), 1, array, array, 4)
    except DeviceError as error:
        say(error)


def check_exception() -> None:
    """A rank that ends by an exception does so, too."""
    if RANK == 1:
        raise ValueError("no such model")
    expect_failure()


class Listener:
    """Hears of a failure."""

    def __init__(self) -> None:
        self.heard = threading.Event()
        self.errors: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)
        self.heard.set()


def check_identifier() -> None:
    """Bytes of rank 0 get to all; failures are told to those who listen, without any operation."""
    group = DEVICE.channel_provider.open_group("", RANK, COUNT)
    for number in range(3):
        made = bytes([number, 0, 255]) * 42
        assert (
            group.identifier(RANK, lambda made=made: made if RANK == 0 else b"no") == made
        )
    listener, gone = Listener(), Listener()
    group.watch(weakref.WeakMethod(listener.failed))
    group.watch(weakref.WeakMethod(gone.failed))
    del gone
    run(SUM, 0, np.ones(2, np.float32), np.ones(2, np.float32), 2)
    if RANK == 0:
        CHANNEL.fail(ValueError("the GPU is gone"))
    assert listener.heard.wait(20)
    assert "the GPU is gone" in str(listener.errors)
    late = Listener()
    group.watch(weakref.WeakMethod(late.failed))
    assert late.heard.wait(20)
    assert len(listener.errors) == 1


def check_ranks() -> None:
    """A provider of some of the processes; ranks that MPI does not have."""
    try:
        DEVICE.create_channel(0, COUNT + 1)
    except DeviceError as error:
        say(error)
    named = DEVICE.create_channel(RANK, COUNT, "another group")
    array = np.ones(3, np.float32)
    assert (run(SUM, 0, array, array, 3, named) == COUNT).all()
    child = os.fork()
    if child == 0:
        try:
            run(SUM, 0, array, array, 3)
        except DeviceError as error:
            os._exit(17 if "forked" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17


def check_module() -> None:
    """A module of IREE's creates and splits its channel in every call."""
    machine = BytecodeMachine.from_file(sys.argv[2], device=DEVICE)
    for step in range(40):
        (total,) = machine.invoke("sum", np.full((3, 5), RANK + step, np.float32))
        assert (np.asarray(total) == 4 * step + 2 + RANK + step).all()
        (same,) = machine.invoke("alone", np.full(5, RANK + step, np.float32))
        assert (np.asarray(same) == RANK + step).all()


if __name__ == "__main__":
    globals()[f"check_{sys.argv[1]}"]()
    say("ok")
