"""An exported program of PyTorch as data: inputs, operations in order, outputs.

What `reader` makes of a graph module and `importer` walks.  Nothing here knows torch: types, sizes and
weights are ours, and an operation is the name of its overload with every argument by its name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.graph.schema import Array, TensorType


@final
@dataclass(frozen=True, slots=True)
class Ref:
    """The value of an input or an operation, by name."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class Opaque:
    """An argument that no row looks into: a layout, a device, a generator, a type that is not ours."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Relation:
    """Whether something holds of sizes that a call decides, or of elements.

    Attributes:
        op: of the graph IR: `less`, `equal`, `logical_and` and their like.
        parts: what it compares, or combines.
    """

    op: str
    parts: tuple[Part, ...]


@final
@dataclass(frozen=True, slots=True)
class Formula:
    """A real number that follows from sizes that a call decides or from elements, computed in f64 as Python computes it.

    Attributes:
        op: of the graph IR: `mul`, `div`, `sqrt` and their like.
        parts: its operands, in order; a reference is a tensor of one element.
    """

    op: str
    parts: tuple[Dim | float | Formula | Ref, ...]


Part = Dim | float | Formula | Relation | Ref
"""What a condition compares, or combines."""


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """A condition on sizes that held for the example.

    Attributes:
        text: as Python has it, in the words of the module.
        holds: the same, to be computed.
        remedy: what helps a call for which it does not hold.
    """

    text: str
    holds: Relation
    remedy: str


@final
@dataclass(frozen=True, slots=True)
class Rounded:
    """A size that is a real number, rounded: half of the height of an image, 1.7 times its width.

    Attributes:
        size: the symbol that others know it by.
        formula: the number, rounded.
        needs: the sizes that it follows from.
    """

    size: Dim
    formula: Formula
    needs: tuple[Dim, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A graph that an operation runs: a branch, a trip of a loop.  It sees nothing but what it is given.

    Attributes:
        name: what the module calls it.
        parameters: the names of what it is given; a number has a size.
        constants: weights that stand in it.
        operations: in order.
        results: what it returns.
    """

    name: str
    parameters: tuple[tuple[str, Dim | None], ...]
    constants: tuple[Input, ...]
    operations: tuple[Operation, ...]
    results: tuple[Argument, ...]


Argument = (
    Ref
    | Dim
    | float
    | complex
    | bool
    | str
    | DType
    | Opaque
    | Relation
    | Formula
    | Body
    | None
    | Sequence["Argument"]
)


Number = int | float | bool


def computed_number(value: Argument, element: Array) -> Number | None:
    """The number of Python that stands among results where a call computed `element`; None: it is a tensor."""
    if isinstance(value, Expr):
        return int(element)
    if isinstance(value, Formula):
        return float(element)
    return bool(element) if isinstance(value, Relation) else None


def is_computed(value: Argument) -> bool:
    """Whether a result is computed by calls, not known without one."""
    return isinstance(value, Ref | Expr | Formula | Relation)


class Role(enum.Enum):
    """Where the elements of an input come from."""

    USER = "user"  # the call
    STATE = "state"  # what the last call left
    WEIGHT = "weight"  # the model


@final
@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One input of the graph module.

    Attributes:
        name: of its value.
        role: where its elements come from.
        type: None for what is no tensor.
        array: the elements of a weight, or of a state before the first call.
        reason: why it cannot be compiled; empty if it can.
        target: what the module calls a weight or a state.
        is_complex: `type` is that of its two parts.
        number: what sizes know it by, where it is a whole number and no tensor.
    """

    name: str
    role: Role
    type: TensorType | None
    array: Array | None = None
    reason: str = ""
    target: str = ""
    is_complex: bool = False
    number: Dim | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One call of an operator.

    Attributes:
        name: of its value.
        target: the overload, `aten.add.Tensor`.
        arguments: by the names of the operator's schema, defaults included.
        results: types; None for a result that is no tensor.
        is_list: the operator gives several values, which others take apart by position.
        place: where in the program of the user it stands; empty if unknown.
        reason: why it cannot be compiled, whatever the rows say; empty if nothing is known.
        remedy: what helps where there is a reason.
        complex_results: positions of results whose types are those of their two parts.
        numbers: results that are numbers, as the sizes that others know them by.
    """

    name: str
    target: str
    arguments: Mapping[str, Argument]
    results: tuple[TensorType | None, ...]
    is_list: bool = False
    place: str = ""
    reason: str = ""
    complex_results: frozenset[int] = frozenset()
    numbers: Mapping[int, Dim] = field(default_factory=dict[int, Dim])
    remedy: str = ""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """One output of the graph module.

    Attributes:
        value: a reference, or a number that is known (or follows from sizes).
        state: the name of the input whose elements these are in the next call; empty for what a user gets.
        written: the name of the argument that these are written to.
        is_complex: it is two tensors.
    """

    value: Argument
    state: str = ""
    written: str = ""
    is_complex: bool = False


@final
@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All of it.

    Attributes:
        counter: the name of the state that counts calls, where random numbers are drawn; else empty.
        rounded: sizes that have to be computed, each behind those that it follows from.
        decisions: what torch decided by the example, which calls must keep.
    """

    name: str
    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]
    reasons: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    dims: Mapping[str, Dim] = field(default_factory=dict[str, Dim])
    counter: str = ""
    rounded: tuple[Rounded, ...] = ()
    decisions: tuple[Decision, ...] = ()
