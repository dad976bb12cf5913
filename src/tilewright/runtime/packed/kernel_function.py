"""Kernels that are recorded instead of called: what a graph of them needs to run as one command list.

A packed function takes tensors and is called; a kernel of ours can do better, since its address, grid and
push constants follow from the shapes of its tensors.  A module that has such kernels overrides
`Module.find_kernel`; whoever builds a command list asks it before it asks for the packed function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast, final

from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, evaluate, symbols
from tilewright.runtime.recorder import Range, Recorder

_CONSTANT_LIMIT: Final = 1 << 32
TensorType = tuple[DType, tuple[Dim, ...]]


@final
@record
class TensorArgument:
    """A dense tensor that a command reads or writes: its type, and where it lies.

    `place` is (slot, byte offset, bytes) in the list that is recorded.
    """

    dtype: DType
    shape: tuple[int, ...]
    place: Range


class RecordableKernel(Protocol):
    """What `Module.find_kernel` gives."""

    def record(
        self,
        recorder: Recorder,
        arguments: Sequence[TensorArgument],
        *,
        barrier: bool = True,
    ) -> None:
        """Record a run of the kernel on these tensors, operands before results.

        Raises: InputError for tensors that do not fit.
        """
        ...


@final
@record
class KernelFunction:
    """A kernel of the executable ABI.

    `parameters` are the types of its tensors, operands before results; their sizes may be
    expressions, and every symbol must stand alone in one of them, so that shapes tell its value.  `grid` and
    `constants` (u32 push constants) are expressions of those symbols.  `address` is the function,
    `environment` the address of its environment (0: none of its own), `owner` keeps both.

    Thread-safety: immutable.
    """

    name: str
    address: int
    parameters: tuple[TensorType, ...]
    grid: tuple[Dim, Dim, Dim]
    constants: tuple[Dim, ...] = ()
    environment: int = 0
    local_memory_bytes: int = 0
    owner: object = None

    def record(
        self,
        recorder: Recorder,
        arguments: Sequence[TensorArgument],
        *,
        barrier: bool = True,
    ) -> None:
        """Record a dispatch.

        Raises: InputError for another number of tensors, another type or shape, or a size that
        does not fit 32 bits.
        """
        sizes = self._sizes(arguments)
        constants = tuple(evaluate(dim, sizes) for dim in self.constants)
        if any(not 0 <= value < _CONSTANT_LIMIT for value in constants):
            raise InputError(
                f"sizes are too large: {max(constants)}, expected less than {_CONSTANT_LIMIT}",
                location=self._where,
            )
        recorder.dispatch(
            self.address,
            [argument.place for argument in arguments],
            cast("tuple[int, int, int]", tuple(evaluate(dim, sizes) for dim in self.grid)),
            constants=constants,
            environment=self.environment,
            local_memory_bytes=self.local_memory_bytes,
            barrier=barrier,
            name=self.name,
        )
        recorder.keep(self.owner)

    @property
    def _where(self) -> str:
        return f"kernel '{self.name}'"

    def _sizes(self, arguments: Sequence[TensorArgument]) -> dict[str, int]:
        """The value of every symbol; every tensor has the type that it then must have."""
        if len(arguments) != len(self.parameters):
            raise InputError(
                f"got {len(arguments)} tensors, expected {len(self.parameters)}",
                location=self._where,
            )
        sizes: dict[str, int] = {}
        for (_, shape), argument in zip(self.parameters, arguments, strict=True):
            for dim, size in zip(shape, argument.shape, strict=False):
                if not isinstance(dim, int) and str(dim) in {s.name for s in symbols(dim)}:
                    sizes.setdefault(str(dim), size)
        for index, argument in enumerate(arguments):
            self._check(index, argument, sizes)
        return sizes

    def _check(
        self, index: int, argument: TensorArgument, sizes: Mapping[str, int]
    ) -> None:
        dtype, shape = self.parameters[index]
        fits = argument.dtype == dtype and len(argument.shape) == len(shape)
        if fits and argument.shape == tuple(evaluate(dim, sizes) for dim in shape):
            return
        raise InputError(
            f"tensor {index} is {argument.dtype}[{', '.join(map(str, argument.shape))}], "
            f"expected {dtype}[{', '.join(map(str, shape))}]",
            location=self._where,
        )
