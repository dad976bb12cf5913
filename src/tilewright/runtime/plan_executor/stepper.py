"""A plan step by step: each step is a list of commands of its own, over buffers that stay.

For looking at a program, not for running it: times of single steps, tensors right after they were
written (later steps may use their bytes again).  Made by `PlanExecutor.stepper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast, final

import numpy as np

from tilewright.base.symbolic import evaluate
from tilewright.runtime import native
from tilewright.runtime.plan_executor.binding import bind_steps
from tilewright.runtime.plan_executor.record_steps import Resources
from tilewright.runtime.plan_executor.tensors import Array, as_bits


@final
class PlanStepper:
    """The steps of one call.

    Args:
        resources: what the plan runs on.
        dims: the values of its dimensions.
        inputs: its inputs, dense and of the right types; not copied.

    Thread-safety: one thread at a time.
    """

    def __init__(
        self, resources: Resources, dims: Sequence[int], inputs: Sequence[Array]
    ) -> None:
        self.plan = resources.plan
        self._sizes: dict[str, int] = {
            dim.name: value for dim, value in zip(self.plan.dims, dims, strict=True)
        }
        whole, lists = bind_steps(resources, dims)
        outputs = [
            as_bits(np.zeros(shape, dtype.numpy), dtype)
            for dtype, shape in whole.output_types
        ]
        heap = resources.heap or native.Heap()
        buffers = [*inputs, *outputs, *resources.constants, *whole.scratch(heap)]
        self._buffers: Sequence[memoryview] = cast("Sequence[memoryview]", buffers)
        self._places: tuple[tuple[int, int], ...] = whole.places
        self._calls: tuple[Callable[[], object], ...] = tuple(
            partial(commands.run, resources.pool, self._buffers, heap) for commands in lists
        )

    def call(self, step: int) -> Callable[[], object]:
        """What runs one step; those before must have run."""
        return self._calls[step]

    def calls(self) -> Iterator[tuple[int, Callable[[], object]]]:
        """The steps in the order in which they run, and what runs each."""
        return iter(enumerate(self._calls))

    def tensor(self, entry: int) -> Array:
        """The memory of an entry, as it is now."""
        found = self.plan.entries[entry]
        slot, start = self._places[found.storage]
        shape = tuple(evaluate(dim, self._sizes) for dim in found.shape)
        offset = start + evaluate(found.offset_bytes, self._sizes)
        buffer: object = self._buffers[slot]
        if isinstance(buffer, np.ndarray):  # a memoryview of nothing cannot be cast
            flat = buffer.reshape(-1).view(np.uint8).data
        else:
            flat = memoryview(self._buffers[slot]).cast("B")
        return np.ndarray(shape, found.dtype.numpy, flat, offset)
