"""Sizes that no axis of an input has by itself: `8 * h` is the height of an image, and `h` is computed from it.

Each such axis gets a symbol of its own, the size behind it is bound to what follows from that, and the input is the
same tensor of its own shape.  A call whose axis is no such multiple fails.  Called by the importer for what a user
gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.formulas import bind_number
from tilewright.compiler.graph.schema import TensorType


@final
class InputSizes:
    """Which axes of inputs need a symbol of their own, and what follows from them.

    Args:
        shapes: of all inputs, by name.
        numbers: the inputs that are sizes; an axis may follow from these in any way.
    """

    def __init__(
        self, shapes: Mapping[str, Sequence[Dim]], numbers: Iterable[Dim] = ()
    ) -> None:
        bare = {name for shape in shapes.values() for dim in shape for name in _bare(dim)}
        self._known: set[str] = bare  # names of sizes that something says already
        taken = {
            s.name
            for shape in shapes.values()
            for dim in shape
            for s in symbolic.symbols(dim)
        }
        given = {s.name for number in numbers for s in symbolic.symbols(number)}
        self._own: dict[tuple[str, int], Dim] = {}
        self._solved: dict[Dim, Dim] = {}
        for name, shape in shapes.items():
            for axis, dim in enumerate(shape):
                unknown = [s for s in symbolic.symbols(dim) if s.name not in bare]
                if len(unknown) == 1 and (found := _line(dim, unknown[0])) is not None:
                    factor, rest = found
                    own = _symbol(_free(f"{name}_{axis}", taken), dim)
                    self._own[name, axis] = own
                    size = symbolic.floordiv(own - rest, factor)
                    self._solved[Expr.of_atom(unknown[0])] = size
                    bare.add(unknown[0].name)
                elif unknown and {s.name for s in unknown} <= given:
                    self._own[name, axis] = _symbol(_free(f"{name}_{axis}", taken), dim)

    def declared(self, name: str, type_: TensorType) -> TensorType:
        """The type of an input as a call has to see it."""
        axes = enumerate(type_.shape)
        shape = tuple(self._own.get((name, axis), dim) for axis, dim in axes)
        return type_.with_shape(shape)

    def bind(self, e: NodeMaker) -> None:
        """Compute the sizes, in the order in which they follow from each other."""
        for size, value in self._solved.items():
            e.bind_sizes(e.dims((value,)), (size,))

    def bind_number(self, e: NodeMaker, x: Tensor, number: Dim) -> None:
        """Let sizes know a whole number that a call gives; where an axis says what it is, the two have to agree."""
        named = {s.name for s in symbolic.symbols(number)}
        if isinstance(number, int) or named <= self._known:
            control.agree(e, control.read_sizes(e, e.reshape(x, (1,)), "number")[0], number)
        else:
            bind_number(e, x, number)
            self._known |= named

    def stated(self, e: NodeMaker, x: Tensor, type_: TensorType) -> Tensor:
        """An input as of its own shape."""
        for own, dim in zip(x.shape, type_.shape, strict=True):
            e.assume(dim, own)
        return e.reshape(x, type_.shape)


def _bare(dim: Dim) -> Iterable[str]:
    return [s.name for s in symbolic.symbols(dim) if dim == Expr.of_atom(s)]


def _line(dim: Dim, symbol: Symbol) -> tuple[int, Dim] | None:
    """`factor * symbol + rest`, if a size is that."""
    found = symbolic.linear(dim, symbol.name)
    if found is None or not isinstance(found[0], int) or found[0] < 1:
        return None
    return found[0], found[1]


def _free(name: str, taken: set[str]) -> str:
    """A name that no size has, also none that a user gave; it is taken from here on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _symbol(name: str, dim: Dim) -> Dim:
    low, high = symbolic.bounds(dim)
    return symbolic.symbol(name, max(low or 0, 0), high)
