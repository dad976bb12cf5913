"""One operator as its row sees it: arguments by name, what torch says of the results, the maker of nodes.

Every argument that is asked for is noted; the importer refuses the operator for those that nobody asked
for.  Made by the importer, read by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit.complex_parts import Complex
from tilewright.compiler.frontends.kit.draws import Draws
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.formulas import (
    bind_number,
    condition_of,
    number_of,
)
from tilewright.compiler.frontends.torch.program import (
    Argument,
    Formula,
    Opaque,
    Operation,
    Ref,
    Relation,
)
from tilewright.compiler.frontends.torch.sizes import of_data
from tilewright.compiler.graph.schema import TensorType

Number = bool | int | float


def _type_of(number: Number) -> DType:
    """The type of a number as torch has one beside tensors."""
    if isinstance(number, bool):
        return dtypes.bool_
    return dtypes.i64 if isinstance(number, int) else dtypes.f64


@final
class Call:
    """One operator.

    Args:
        operation: as the program has it.
        maker: writes nodes.
        find: the tensor of a reference.
        hold: the tensor of a reference, or the parts of a complex one; None: all are real.
        draws: random numbers; None where a program cannot count its calls.
    """

    __slots__ = ("_draws", "_find", "_hold", "maker", "operation", "read")

    def __init__(
        self,
        operation: Operation,
        maker: NodeMaker,
        find: Callable[[Ref], Tensor],
        draws: Draws | None = None,
        hold: Callable[[Ref], Tensor | Complex] | None = None,
    ) -> None:
        self.operation: Operation = operation
        self.maker: NodeMaker = maker
        self._find: Callable[[Ref], Tensor] = find
        self._draws: Draws | None = draws
        self._hold: Callable[[Ref], Tensor | Complex] = hold or find
        self.read: set[str] = set()

    @property
    def draws(self) -> Draws:
        """Random numbers.  Raises: UnsupportedError where every call would draw the same."""
        if self._draws is None:
            raise UnsupportedError("random numbers are not supported here")
        return self._draws

    @property
    def can_draw(self) -> bool:
        """Whether the program counts its calls, and so may draw random numbers."""
        return self._draws is not None

    # --- results

    def result(self, index: int = 0) -> TensorType:
        """What torch says of a result.  Raises: UnsupportedError for what is no tensor."""
        types = self.operation.results
        found = types[index] if index < len(types) else None
        if found is None:
            raise UnsupportedError("a result that is no tensor is not supported")
        return found

    def dtype(self, index: int = 0) -> DType:
        """The element type of a result."""
        return self.result(index).dtype

    def shape(self, index: int = 0) -> tuple[Dim, ...]:
        """The shape of a result."""
        return self.result(index).shape

    # --- arguments

    def argument(self, name: str) -> Argument:
        """An argument as the program has it; None where it is not given."""
        self.read.add(name)
        return self.operation.arguments.get(name)

    def has(self, name: str) -> bool:
        """Whether an argument is given and not None."""
        return self.argument(name) is not None

    def tensor(self, name: str = "self") -> Tensor:
        """A tensor.  Raises: ModelError for what is none."""
        found = self.optional(name)
        if found is None:
            raise ModelError(f"argument '{name}' is missing")
        return found

    def optional(self, name: str) -> Tensor | None:
        """A tensor, or None."""
        found = self.argument(name)
        if found is None:
            return None
        if isinstance(found, bool | int | float):
            return self.maker.scalar(found, _type_of(found))  # as vectorized programs have
        made = self._decided(found)
        if made is None:
            raise ModelError(f"argument '{name}' is no tensor")
        return made

    def _decided(self, found: Argument) -> Tensor | None:
        """What calls decide, a tensor or a number, as a tensor; None for what is known."""
        match found:
            case Ref():
                return self._find(found)
            case Expr():
                return self.maker.dim(found)
            case Formula():
                return number_of(self.maker, found, self._find)
            case Relation():
                return self.condition(found)
            case _:
                return None

    def held(self, name: str = "self") -> Tensor | Complex:
        """A tensor, or the parts of a complex one."""
        found = self.argument(name)
        if not isinstance(found, Ref):
            raise UnsupportedError(f"argument '{name}' is no tensor")
        return self._hold(found)

    def hold(self, reference: Ref) -> Tensor | Complex:
        """The tensor of a reference, or the parts of a complex one."""
        return self._hold(reference)

    def is_complex(self, index: int = 0) -> bool:
        """Whether a result is complex; its type is that of the parts."""
        return index in self.operation.complex_results

    def tensors(self, name: str) -> list[Tensor]:
        """A list of tensors, all there."""
        found = [tensor for tensor in self.optional_tensors(name) if tensor is not None]
        if len(found) != len(self.optional_tensors(name)):
            raise ModelError(f"argument '{name}' lacks a tensor")
        return found

    def optional_tensors(self, name: str) -> list[Tensor | None]:
        """A list of tensors, some of them None."""
        return [
            self._find(item) if isinstance(item, Ref) else None for item in self._list(name)
        ]

    def number(self, name: str, default: Number | None = None) -> Number:
        """A number that is known.  Raises: ModelError if there is none and no default."""
        found = self.argument(name)
        if found is None and default is not None:
            return default
        if isinstance(found, Expr | Formula):
            raise UnsupportedError(
                f"argument '{name}' depends on a number that a call decides"
            )
        if isinstance(found, bool | int | float):
            return found
        if isinstance(found, complex):
            raise UnsupportedError("complex numbers are not supported")
        tensor = self._find(found) if isinstance(found, Ref) else None
        known = None if tensor is None else tensor.array
        if known is None or known.size != 1:
            if tensor is not None:
                self.maker.need(tensor)
            raise UnsupportedError(f"argument '{name}' is no number that is known")
        return float(known.reshape(()).item())

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        return int(self.number(name, default))

    def size(self, name: str, default: Dim | None = None) -> Dim:
        """A size, which may follow from a call."""
        found = self.argument(name)
        if found is None and default is not None:
            return default
        if isinstance(found, Expr):
            return found
        return self.integer(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A truth value."""
        return bool(self.number(name, default))

    def text(self, name: str, default: str = "") -> str:
        """A word."""
        found = self.argument(name)
        return found if isinstance(found, str) else default

    def sizes(self, name: str, default: Sequence[Dim] = ()) -> tuple[Dim, ...]:
        """A list of sizes; a single one is a list."""
        found = self.argument(name)
        if found is None:
            return tuple(default)
        if isinstance(found, Expr | int):
            return (found,)
        items = self._list(name)
        sizes = tuple(item for item in items if isinstance(item, Expr | int))
        if len(sizes) != len(items):
            raise UnsupportedError(f"argument '{name}' is no list of sizes that are known")
        return sizes

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """A list of whole numbers that are known."""
        sizes = self.sizes(name, default)
        found = tuple(size for size in sizes if isinstance(size, int))
        if len(found) != len(sizes):
            raise UnsupportedError(
                f"argument '{name}' depends on a number that a call decides"
            )
        return found

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers that are known; empty where it is not given."""
        items = self._list(name) if self.has(name) else ()
        found = tuple(float(item) for item in items if isinstance(item, int | float))
        if len(found) != len(items):
            raise UnsupportedError(
                f"argument '{name}' is no list of numbers that are known"
            )
        return found

    def element_type(self, name: str = "dtype") -> DType | None:
        """An element type, of complex results that of their parts; None where it is not given.

        Raises: UnsupportedError for one that is not ours.
        """
        found = self.argument(name)
        if isinstance(found, Opaque) and self.is_complex():
            return self.dtype()
        if isinstance(found, Opaque):
            raise UnsupportedError(f"elements of type {found.text} are not supported")
        return found if isinstance(found, DType) else None

    def _list(self, name: str) -> Sequence[Argument]:
        found = self.argument(name)
        if not isinstance(found, tuple):
            raise ModelError(f"argument '{name}' is no list")
        return found

    # --- sizes that data decides

    def data_size(self, index: int = 0) -> Dim:
        """The one size of a result that only data decides, which the row binds."""
        found = of_data(self.shape(index))
        if len(found) != 1:
            raise UnsupportedError("the size of the result does not depend on data alone")
        return found[0]

    def bind(self, values: Tensor, size: Dim) -> None:
        """Let a size that data decides be an element."""
        bind_number(self.maker, values, size)

    # --- operands of arithmetic

    def condition(self, relation: Relation) -> Tensor:
        """What holds of sizes and elements, as a truth value."""
        return condition_of(self.maker, relation, self._find)

    def is_number(self, name: str) -> bool:
        """Whether an operand is a number, not a tensor."""
        found = self.argument(name)
        return found is not None and not isinstance(found, Ref)

    def operand(self, name: str, dtype: DType) -> Tensor:
        """A tensor or a number as a tensor of this type."""
        found = self._decided(self.argument(name))
        if found is None:
            return self.maker.scalar(self.number(name), dtype)
        return self.maker.cast(found, dtype)

    def widened(self, *names: str) -> DType:
        """What arithmetic happens in: f32 for halves beside a number, else the type of the result."""
        dtype = self.dtype()
        if dtype in dtypes.HALVES and any(map(self.is_number, names)):
            return dtypes.f32
        return dtype

    # --- ops, spelled short

    def op(self, name: str, *operands: Tensor | None, **attributes: object) -> Tensor:
        """A node of one result (see `NodeMaker.op`)."""
        return self.maker.op(name, *operands, **attributes)

    def finish(self, x: Tensor) -> Tensor:
        """`x` as the element type of the first result."""
        return self.maker.cast(x, self.dtype())
