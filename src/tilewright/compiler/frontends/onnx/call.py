"""One ONNX node as a row sees it: operands, attributes, opset, and a node maker to answer with.

Guards stand here: a missing operand, a shape that must be known, an attribute of the wrong type.
Not a table (see `table`); made by the importer for every node, read by the row that owns the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, final

from onnx import GraphProto, NodeProto, TensorProto

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim, Expr
from tilewright.base.text import identifier
from tilewright.compiler.frontends.kit.assumptions import Equality
from tilewright.compiler.frontends.kit.control import read_sizes
from tilewright.compiler.frontends.kit.draws import Draws
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import SkipNodeError, UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attributes import AttributeReader, text_of
from tilewright.compiler.frontends.onnx.host import HostFunction, HostProgram
from tilewright.compiler.frontends.onnx.tensors import BytesOutside, to_array, to_text
from tilewright.compiler.frontends.onnx.values import (
    Held,
    HostValue,
    Nothing,
    TensorSequence,
)
from tilewright.compiler.graph.contents import Contents, Ratio, known
from tilewright.compiler.graph.ir import Location
from tilewright.compiler.graph.schema import Array, TensorType
from tilewright.compiler.ops.shapes import element_count, normal_axis

T = TypeVar("T")
KNOWN: Final = (
    "make it a constant of the model, or give the inputs that decide it with input_values; "
    "tilewright.onnx_backend compiles for the values of a call"
)
FIXED_SIZE: Final = "give the size when compiling: input_shapes={'NAME': (1, 64, ...)}"
_MAX_FAILURES: Final = 4
# Imports a subgraph of the current node with these inputs; returns its outputs.
Inline = Callable[[GraphProto, Sequence[Held]], list[Held]]
# The sizes that the model states of a value, None for each of which it says nothing.
StatedShape = Callable[[str], Sequence[Dim | None]]


@final
class Checkpoint:
    """Goes back to where an import was: what subgraphs reported and assumed meanwhile is forgotten.

    Args:
        assumptions: of the node maker.
        lists: what is appended to while a subgraph is imported.
    """

    __slots__ = ("_assumptions", "_lists")

    def __init__(self, assumptions: dict[Equality, Location], *lists: list[Any]) -> None:
        self._assumptions: dict[Equality, Location] = assumptions
        self._lists: tuple[list[Any], ...] = lists

    def __call__(self) -> Callable[[], None]:
        """Remember this moment.  Returns: what goes back to it."""
        counts = [len(each) for each in self._lists]
        assumed = len(self._assumptions)

        def undo() -> None:
            for each, count in zip(self._lists, counts, strict=True):
                del each[count:]
            for pair in list(self._assumptions)[assumed:]:
                del self._assumptions[pair]

        return undo

    def problems(self) -> list[list[Any]]:
        """What the lists hold now."""
        return [list(each) for each in self._lists]

    def restore(self, held: list[list[Any]]) -> None:
        """Let the lists hold that again."""
        for each, items in zip(self._lists, held, strict=True):
            each[:] = items


@final
class FailedBodies:
    """Which bodies of loops could not be written out, and how often.

    Where the second way to read a body is tried at every level of a nest, each level doubles how often the innermost
    one is read.  What failed a few times is therefore not tried again.
    """

    def __init__(self) -> None:
        # The graphs are kept: a number that is free again would be another one's.
        self._counts: dict[int, tuple[GraphProto, int]] = {}

    def note(self, body: GraphProto) -> None:
        """Count one more time."""
        self._counts[id(body)] = (body, self._count(body) + 1)

    def is_worth_trying(self, body: GraphProto) -> bool:
        """Whether other values around it may still make a difference."""
        return self._count(body) < _MAX_FAILURES

    def _count(self, body: GraphProto) -> int:
        return self._counts.get(id(body), (body, 0))[1]


@final
@record(frozen=False)
class Call:
    """An application of a foreign op."""

    node: NodeProto
    opset: int
    inputs: Sequence[Held | None]
    attributes: AttributeReader
    maker: NodeMaker
    host: HostProgram
    draws: Draws
    storage: BytesOutside
    inline: Inline
    stated_shape: StatedShape
    checkpoint: Checkpoint
    failed_bodies: FailedBodies
    output_count: int = 1
    sizes: dict[int, Contents] = field(default_factory=dict[int, Contents])

    # --- operands

    def held(self, index: int) -> Held | None:
        """Operand `index`, of any kind; None when absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def optional(self, index: int) -> Tensor | None:
        """Tensor operand `index`, or None when it is left out.

        Raises: ModelError when it is a sequence or an empty optional.
        """
        held = self.held(index)
        if held is None or isinstance(held, Tensor):
            return held
        if isinstance(held, HostValue):
            raise UnsupportedError(
                f"operand {index + 1} is made on the host, not by a kernel"
            )
        raise ModelError(f"operand {index + 1} is not a tensor")

    def tensor(self, index: int) -> Tensor:
        """Tensor operand `index`.  Raises: ModelError when it is missing."""
        held = self.optional(index)
        if held is None:
            raise ModelError(f"operand {index + 1} is missing")
        return held

    def tensors(self) -> list[Tensor]:
        """All operands, all of them tensors and at least one."""
        found = [self.tensor(i) for i in range(len(self.inputs))]
        if not found:
            raise ModelError("operand 1 is missing")
        return found

    def sequence(self, index: int) -> TensorSequence:
        """Sequence operand `index`.  Raises: ModelError when it is something else."""
        held = self.held(index)
        if not isinstance(held, TensorSequence):
            raise ModelError(f"operand {index + 1} is not a sequence")
        return held

    def is_nothing(self, index: int) -> bool:
        """Whether operand `index` is absent or an empty optional."""
        return self.held(index) is None or isinstance(self.held(index), Nothing)

    def wants(self, index: int) -> bool:
        """Whether the model uses output `index`."""
        return index < len(self.node.output) and bool(self.node.output[index])

    def stated_size(self, index: int, axis: int) -> Dim | None:
        """The size of an axis of output `index` as the model states it; None where it does not."""
        name = text_of(self.node.output[index]) if self.wants(index) else ""
        shape = self.stated_shape(name)
        return shape[axis] if axis < len(shape) else None

    # --- what the host does

    def on_host(
        self,
        function: HostFunction,
        results: Sequence[TensorType | tuple[Dim, ...] | None],
    ) -> list[Held]:
        """The results of a Python function of all operands (see `HostProgram.apply`)."""
        return self.host.apply(self.maker, function, self.inputs, results)

    def is_text(self, index: int) -> bool:
        """Whether operand `index` is a tensor of strings, or something else that the host holds."""
        return isinstance(self.held(index), HostValue)

    def shape(self, index: int) -> tuple[Dim, ...]:
        """The shape of a tensor or of strings.  Raises: UnsupportedError where only a call knows it."""
        held = self.held(index)
        shape = held.shape if isinstance(held, HostValue | Tensor) else None
        if shape is None:
            raise UnsupportedError(f"the shape of operand {index + 1} depends on data")
        return shape

    # --- what is known of operands

    def contents(self, index: int, subject: str) -> Contents:
        """The elements of a small operand that shapes depend on.

        Raises: UnsupportedError when they are only known while the model runs.
        """
        if index in self.sizes:
            return self.sizes[index]
        tensor = self.tensor(index)
        found = self.maker.contents(tensor)
        if found is None:
            self.maker.need(tensor)
            raise UnsupportedError(
                f"{subject} depends on data: operand {index + 1} is computed",
                hint=KNOWN,
            )
        return found

    def is_known(self, *indices: int) -> bool:
        """Whether the elements of small operands are known, those that are left out included."""
        given = [self.optional(i) for i in indices]
        return all(t is None or self.maker.contents(t) is not None for t in given)

    def sized(self, index: int, subject: str, low: int = 0) -> tuple[Dim, ...]:
        """An integer operand as sizes; what only the data of a call decides is read from it, at least `low`.

        The first that asks for an operand says how small its sizes may be.
        """
        tensor = self.tensor(index)
        if index not in self.sizes and self.maker.contents(tensor) is None:
            stem = identifier(subject.removeprefix("the "))
            held = read_sizes(self.maker, tensor, stem, low=low)
            shape = tuple(d for d in tensor.shape if isinstance(d, int))
            self.sizes[index] = known(dtypes.i64, held, shape)
        return self.dims(index, subject)

    def one_size(self, index: int, subject: str, low: int = 0) -> Dim:
        """An integer operand of one element as a size, at least `low`."""
        tensor = self.tensor(index)
        count = element_count(tensor.shape)
        if isinstance(count, int) and count != 1:
            raise ModelError(f"{subject} has {count} elements, expected 1")
        if not isinstance(count, int):
            # Exporters declare the one element as a vector of any length.
            one = self.maker.reshape(tensor, (1,))
            self.inputs = [*self.inputs[:index], one, *self.inputs[index + 1 :]]
        (found,) = self.sized(index, subject, low)
        if isinstance(found, int) and found < low:
            raise ModelError(f"{subject} is {found}, expected at least {low}")
        return found

    def dims(self, index: int, subject: str) -> tuple[Dim, ...]:
        """An integer operand as dimensions, flattened."""
        found: list[Dim] = []
        for item in self.contents(index, subject).elements.flat:
            whole = item.integer if isinstance(item, Ratio) else item
            if not isinstance(whole, int | Expr):
                raise UnsupportedError(f"{subject} is not a whole number")
            found.append(int(whole) if isinstance(whole, bool) else whole)
        return tuple(found)

    def numbers(self, index: int, subject: str) -> tuple[int, ...]:
        """An integer operand as plain numbers, flattened."""
        found = self.dims(index, subject)
        if not all(isinstance(d, int) for d in found):
            raise UnsupportedError(f"{subject} depends on a dynamic dimension")
        return tuple(int(d) for d in found if isinstance(d, int))

    def number(self, index: int, subject: str) -> int:
        """An integer operand of one element as a plain number."""
        found = self.numbers(index, subject)
        if len(found) != 1:
            raise ModelError(f"{subject} has {len(found)} elements, expected 1")
        return found[0]

    def array(self, index: int, subject: str) -> Array:
        """A constant operand.  Raises: UnsupportedError when it is computed."""
        tensor = self.tensor(index)
        if tensor.stand_in:
            raise SkipNodeError("an input is unknown")
        if tensor.array is None:
            self.maker.need(tensor)
            raise UnsupportedError(
                f"{subject} is not constant: operand {index + 1} is computed",
                hint=KNOWN,
            )
        return tensor.array

    # --- attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An int attribute.  Raises: ModelError when required and absent."""
        value = self.attributes.integer(name)
        return self._or(name, value, default)

    def float(self, name: str, default: float | None = None) -> float:
        """A float attribute."""
        return self._or(name, self.attributes.float(name), default)

    def string(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        return self._or(name, self.attributes.string(name), default)

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """A string attribute with a fixed set of values."""
        value = self.string(name, default)
        if value not in known:
            raise UnsupportedError(
                f"attribute '{name}' is '{value}', expected one of {' '.join(known)}"
            )
        return value

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of ints."""
        return tuple(self._or(name, self.attributes.integers(name), default))

    def flag(self, name: str, default: bool = False) -> bool:
        """An int attribute that means yes or no."""
        return bool(self.integer(name, int(default)))

    def axis(self, rank: int, default: int | None = None, name: str = "axis") -> int:
        """An axis attribute counted from the front."""
        return normal_axis(self.integer(name, default), rank)

    def array_attribute(self, name: str) -> Array | None:
        """A tensor attribute."""
        proto = self.attributes.tensor(name)
        return None if proto is None else to_array(proto, self.storage)

    def text_or_array(self, tensor: TensorProto) -> Array:
        """The elements of a tensor attribute, which may be strings."""
        is_text = tensor.data_type == TensorProto.STRING
        return to_text(tensor) if is_text else to_array(tensor, self.storage)

    def graph(self, name: str) -> GraphProto:
        """A subgraph attribute."""
        return self._or(name, self.attributes.graph(name), None)

    def _or(self, name: str, value: T | None, default: T | None) -> T:
        if value is not None:
            return value
        if default is None:
            raise ModelError(f"attribute '{name}' is missing")
        return default
