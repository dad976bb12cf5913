"""Calls that repeat themselves are recorded once and replayed natively.

A function whose bytecode can only look at the shapes of its inputs submits the same kernels for
the same shapes every time; nothing of the bytecode has to run again then.  What it may do is found
by reading it (`vm.effects`); what it did do is listened to on the device (`hal.local.call_listener`)
during the second call with the same shapes.  A call that does anything else runs as before.
"""

from __future__ import annotations

import enum
import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.errors import UserError
from tilewright.runtime import native
from tilewright.runtime.hal.buffer_view import Array, BufferView
from tilewright.runtime.hal.local.call_listener import CallListener
from tilewright.runtime.hal.local.heap_storage import ALIGNMENT_BYTES, HeapStorage
from tilewright.runtime.hal.local.local_device import LocalDevice
from tilewright.runtime.recorder import CallRecorder, raise_failure
from tilewright.runtime.vm.effects import Effects

Key = tuple[tuple[tuple[int, ...], np.dtype[np.generic]], ...]
Replay = Callable[..., list[object]]

RECORDED_LIMIT: Final = 16
# What depends on nothing but shapes and on what does not change after `__init`; and what a device
# is told, which is listened to: a call that loads from a buffer is not replayed.
_REPEATABLE_IMPORTS: Final = frozenset(
    {
        "hal.allocator.allocate", "hal.buffer.allocation.discard", "hal.buffer.allocation.is_terminal",
        "hal.buffer.allocation.preserve", "hal.buffer.assert", "hal.buffer.length",
        "hal.buffer.load", "hal.buffer.subspan", "hal.buffer_view.assert", "hal.buffer_view.buffer",
        "hal.buffer_view.create", "hal.buffer_view.dim", "hal.buffer_view.element_type",
        "hal.buffer_view.encoding_type", "hal.buffer_view.rank",
        "hal.command_buffer.begin_debug_group", "hal.command_buffer.copy_buffer",
        "hal.command_buffer.create", "hal.command_buffer.dispatch",
        "hal.command_buffer.end_debug_group", "hal.command_buffer.execution_barrier",
        "hal.command_buffer.fill_buffer", "hal.command_buffer.finalize",
        "hal.command_buffer.update_buffer", "hal.device.allocator", "hal.device.query.i64",
        "hal.device.queue.alloca", "hal.device.queue.barrier", "hal.device.queue.copy",
        "hal.device.queue.dealloca", "hal.device.queue.execute",
        "hal.device.queue.execute.indirect", "hal.device.queue.fill", "hal.device.queue.flush",
        "hal.device.queue.update", "hal.devices.count", "hal.devices.get",
        "hal.executable.lookup.function", "hal.fence.await", "hal.fence.create",
        "hal.fence.join", "hal.fence.signal", "tilewright.check_indices",
    }
)  # fmt: skip
_CHANGING_OPCODES: Final = (
    "global.store.", "list.set.", "list.resize", "list.reserve", "buffer.store.", "buffer.fill.",
    "buffer.copy", "trace", "print", "break", "cond_break",
)  # fmt: skip


def is_repeatable(effects: Effects) -> bool:
    """Whether a function does the same for the same shapes, as far as its code can tell."""
    return effects.imports <= _REPEATABLE_IMPORTS and not any(
        opcode.startswith(_CHANGING_OPCODES) for opcode in effects.opcodes
    )


def changes_globals(effects: Effects) -> bool:
    """Whether a function stores globals that others may read."""
    return any(opcode.startswith("global.store.") for opcode in effects.opcodes)


@final
class _Seen(enum.Enum):
    """What is known of shapes whose calls are not replayed."""

    ONCE = "the next call is recorded"
    IN_VAIN = "calls cannot be replayed and run as before"


@final
class RecordedCalls:
    """The recordings of one function.

    Args:
        device: what its calls submit to.
        to_view: makes a buffer view of an array.
        call: calls the function with buffer views; its results.
        check: raises for arrays of shapes that the function does not take.
        copies_inputs: as the function may write to what it is called with, give it copies.

    Thread-safety: may be used from any thread.
    """

    def __init__(
        self,
        device: LocalDevice,
        to_view: Callable[[Array], BufferView],
        call: Callable[[Sequence[object]], Sequence[object]],
        check: Callable[[Sequence[Array]], None],
        *,
        copies_inputs: bool,
    ) -> None:
        self._device: LocalDevice = device
        self._to_view: Callable[[Array], BufferView] = to_view
        self._call: Callable[[Sequence[object]], Sequence[object]] = call
        self._check: Callable[[Sequence[Array]], None] = check
        self._copies_inputs: bool = copies_inputs
        self._replays: OrderedDict[Key, Replay | _Seen] = OrderedDict()
        self._latest: Replay | None = None

    @property
    def replay_count(self) -> int:
        """How many sets of shapes are replayed."""
        # A copy: other threads may record meanwhile.
        return sum(not isinstance(found, _Seen) for found in list(self._replays.values()))

    def __call__(self, inputs: Sequence[object]) -> list[object] | None:
        """The results, where the call is recorded or is recorded now; None to run it.

        Raises: DeviceError when a kernel fails.
        """
        if self._device.is_profiled:
            return None
        latest = self._latest
        if latest is not None:
            try:
                return latest(*inputs)
            except (TypeError, ValueError, BufferError):
                pass  # another shape, type or layout; or no array at all
        if any(value.__class__ is not np.ndarray for value in inputs):
            return None
        return self._by_key(cast("Sequence[Array]", inputs))

    def _by_key(self, inputs: Sequence[Array]) -> list[object] | None:
        key: Key = tuple((array.shape, array.dtype) for array in inputs)
        found = self._replays.get(key)
        if found is None:  # the first call may initialise what later ones reuse
            self._check(inputs)
            self._remember(key, _Seen.ONCE)
            return None
        if found is _Seen.ONCE:
            return self._record(key, inputs)
        if found is _Seen.IN_VAIN:
            return None
        self._latest = found
        try:
            return found(*inputs)
        except (TypeError, ValueError, BufferError):
            return None  # not contiguous: the machine brings it in order

    def _remember(self, key: Key, replay: Replay | _Seen) -> None:
        self._replays[key] = replay
        while len(self._replays) > RECORDED_LIMIT:
            self._replays.popitem(last=False)

    def _record(self, key: Key, inputs: Sequence[Array]) -> list[object] | None:
        if any(array.nbytes == 0 for array in inputs):
            return None
        views = [self._to_view(array) for array in inputs]
        with self._device.listen_to_call() as listener:
            if listener is None:
                return None
            results = self._call(views)
        replay = self._replay(listener, inputs, views, results)
        if replay is None:
            self._remember(key, _Seen.IN_VAIN)
        else:
            self._remember(key, replay)
            self._latest = replay
        return [r.to_numpy() if isinstance(r, BufferView) else r for r in results]

    def _replay(
        self,
        listener: CallListener,
        inputs: Sequence[Array],
        views: Sequence[BufferView],
        results: Sequence[object],
    ) -> Replay | None:
        """The recorded call as a function of arrays; None where it cannot be one."""
        outputs = [result for result in results if isinstance(result, BufferView)]
        if len(outputs) != len(results) or not outputs:
            return None
        if not all(listener.owns(view.buffer.storage) for view in outputs):
            return None
        try:
            formats = [_formats(array) for array in inputs]
            makers = [
                (view.shape, view.dtype.numpy, view.buffer.byte_offset) for view in outputs
            ]
        except (UserError, ValueError, BufferError):
            return None
        if any(view.element_type & 7 for view in outputs):
            return None
        call, heap = CallRecorder(), self._device.heap
        alignment = 1 if self._copies_inputs else ALIGNMENT_BYTES
        taken: list[tuple[HeapStorage, int]] = []
        for index, (array, view) in enumerate(zip(inputs, views, strict=True)):
            storage = cast("HeapStorage", view.buffer.storage)
            name, size = f"input{index}", storage.size_bytes
            slot = call.input(name, formats[index], array.shape, size, alignment)
            taken.append((storage, slot))
        storages = {id(view.buffer.storage): view.buffer.storage for view in outputs}
        given: list[tuple[HeapStorage, int]] = []
        for kept in storages.values():
            storage = cast("HeapStorage", kept)
            size = storage.size_bytes
            given.append((storage, call.output(functools.partial(heap.lease, size), size)))
        if not listener.record(call, taken, given, copies_inputs=self._copies_inputs):
            return None
        replayed = call.build(self._device.pool, heap).call
        order = list(storages)
        places = [order.index(id(view.buffer.storage)) for view in outputs]
        return _bind(replayed, places, makers, is_single=len(order) == 1)


def _formats(array: Array) -> str:
    """The formats of the buffer protocol that mean the array's type."""
    text = memoryview(cast("Any", array)).format
    return "l|q" if text in ("l", "q") else "L|Q" if text in ("L", "Q") else text


def _bind(
    call: native.RecordedCall,
    places: Sequence[int],
    makers: Sequence[tuple[tuple[int, ...], np.dtype[np.generic], int]],
    *,
    is_single: bool,
) -> Replay:
    """Replay the call and see its outputs as arrays, which keep their memory."""

    def replay(*inputs: object) -> list[object]:
        try:
            memory: Any = call(*cast("Any", inputs))
        except RuntimeError as error:
            raise_failure(error)
        blocks = (memory,) if is_single else memory
        return [
            np.ndarray(shape, dtype, blocks[place], offset)
            for place, (shape, dtype, offset) in zip(places, makers, strict=True)
        ]

    return replay
