"""A call whose arrays were checked once: what remains of a call that is made for every word of a text.

Made by `executor.prepare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast, final

from tilewright.runtime import native
from tilewright.runtime.plan_executor.binding import BoundPlan
from tilewright.runtime.plan_executor.flow import FlowRunner
from tilewright.runtime.plan_executor.tensors import Array


@final
class PreparedCall:
    """Runs one recorded plan on the same arrays.

    Ownership: keeps the arrays alive.  Thread-safety: calls of one object are the caller's to order, for they
    write the same outputs.
    """

    def __init__(
        self,
        bound: BoundPlan,
        pool: native.Pool | None,
        heap: native.Heap,
        buffers: Sequence[memoryview],
        outputs: tuple[Array, ...],
    ) -> None:
        self._bound: BoundPlan = bound
        self._pool: native.Pool | None = pool
        self._heap: native.Heap = heap
        self._buffers: Sequence[memoryview] = buffers
        self.outputs: Final[tuple[Array, ...]] = outputs

    def __call__(self) -> tuple[Array, ...]:
        """Run on what the inputs hold now; the outputs, which are the same arrays each time.

        Raises: InputError for an index of the data that is out of range; DeviceError naming the kernel that failed.
        """
        scratch = self._bound.scratch(self._heap)
        buffers = cast("Sequence[memoryview]", [*self._buffers, *scratch])
        try:
            self._bound.commands.run(self._pool, buffers, self._heap)
        except native.KernelError as error:
            raise error.for_user from error
        return self.outputs


@final
class PreparedFlow:
    """Runs one plan whose sizes data decides on the same arrays.

    Attributes:
        outputs: the arrays that are the same in each call; None for a result of which data decides the size.

    Ownership: keeps the arrays alive.  Thread-safety: as `PreparedCall`.
    """

    def __init__(
        self,
        flow: FlowRunner,
        dims: Mapping[str, int],
        inputs: Sequence[Array],
        outputs: Sequence[Array | None],
    ) -> None:
        self._flow: FlowRunner = flow
        self._dims: dict[str, int] = dict(dims)
        self._inputs: Sequence[Array] = inputs
        self.outputs: Final[tuple[Array | None, ...]] = tuple(outputs)

    def __call__(self) -> tuple[Array, ...]:
        """Run on what the inputs hold now; a result that is not among `outputs` is a fresh array.

        Raises: InputError for an index or a size of the data that is out of range, or an output of another size;
            DeviceError naming the kernel that failed.
        """
        try:
            return self._flow.run(dict(self._dims), self._inputs, self.outputs)
        except native.KernelError as error:
            raise error.for_user from error
