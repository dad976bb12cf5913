"""Patterns over the graph: ops with operands, constants, anything, and predicates.

    x, w = wildcard(), is_const()
    dense = is_op("add")(is_op("matmul")(x, w), wildcard()).optional(is_op("relu"))

A pattern describes the value that its last op makes.  The same pattern object in two places stands for
the same value.  Operands of commutative ops match in either order.  Not a rewriter (`passes.rewriting`).

Source: the words are those of TVM's data-flow patterns, `python/tvm/relax/dpl/pattern.py`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar, final

from tilewright.base import dtypes
from tilewright.base.errors import TilewrightError, UserError
from tilewright.base.options import wrong
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.compare import attributes_equal
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.ops import catalogue

Bindings: TypeAlias = Mapping["Pattern", Value]
Ways: TypeAlias = Iterator[tuple[frozenset[Node], Bindings]]
"""Ways to fit: the nodes that ops of a pattern stand for, and what its parts stand for."""
Predicate: TypeAlias = Callable[[Value], bool]
Asked = TypeVar("Asked")


@final
@record(eq=False)
class Match:
    """Where a pattern fits.

    Attributes:
        root: the value that the pattern describes.
        nodes: those that ops of the pattern stand for; constants are not among them.
        bound: what each part of the pattern stands for.
    """

    root: Value
    nodes: frozenset[Node]
    bound: Bindings

    def __getitem__(self, pattern: Pattern) -> Value:
        """The value that a part of the pattern stands for."""
        return self.bound[pattern]


class Pattern(abc.ABC):
    """A description of a value; identity matters."""

    def __or__(self, other: Pattern) -> Pattern:
        """Either of the two, this one first."""
        return Either((self, other))

    def where(self, predicate: Predicate) -> Pattern:
        """The same, for values of which the predicate is true."""
        return Restricted(self, predicate)

    def has_dtype(self, name: str) -> Pattern:
        """The same, for elements of a type (`f32`)."""
        dtype = dtypes.parse(name)
        return self.where(lambda value: value.type.dtype is dtype)

    def has_shape(self, shape: Sequence[int | str | None]) -> Pattern:
        """The same, for a shape; None and names stand for any size."""
        return self.where(lambda value: _shape_fits(value.type.shape, shape))

    def has_attr(self, attributes: Mapping[str, object]) -> Pattern:
        """The same, for values that an op with these attributes makes."""
        return self.where(lambda value: _attributes_fit(value.node, attributes))

    def optional(self, around: Callable[[Pattern], Pattern]) -> Pattern:
        """This value with one more op around it, or without: `dense.optional(is_op("relu"))`."""
        return around(self) | self

    def match(self, value: Value) -> Match | None:
        """The first way in which the pattern fits, or None."""
        return next(self.all_matches(value), None)

    def all_matches(self, value: Value) -> Iterator[Match]:
        """Every way in which the pattern fits: operands of commutative ops in either order."""
        for nodes, bound in self.matches(value, {}):
            yield Match(value, nodes, bound)

    def matches(self, value: Value, bound: Bindings) -> Ways:
        """Every way to fit, given what parts stand for already."""
        if self in bound:
            if bound[self] is value:
                yield frozenset(), bound
            return
        yield from self.fit(value, {**bound, self: value})

    @abc.abstractmethod
    def fit(self, value: Value, bound: Bindings) -> Ways:
        """Every way in which `value` fits, this pattern being bound to it."""


@final
class Anything(Pattern):
    """Any value, which is not part of the match."""

    def fit(self, value: Value, bound: Bindings) -> Ways:
        """Always."""
        del value
        yield frozenset(), bound


@final
class Constant(Pattern):
    """A value that is known when compiling."""

    def fit(self, value: Value, bound: Bindings) -> Ways:
        """A constant's."""
        if value.node is not None and value.node.has(Trait.CONSTANT):
            yield frozenset(), bound


@final
class Op(Pattern):
    """What one of some ops makes; `operands` None: of any operands."""

    def __init__(
        self, names: tuple[str, ...], operands: tuple[Pattern, ...] | None = None
    ) -> None:
        self.names: tuple[str, ...] = names
        self.operands: tuple[Pattern, ...] | None = operands

    def __call__(self, *operands: Pattern) -> Op:
        """The same op with these operands, absent ones left out.

        Raises: UserError for an operand that is no pattern.
        """
        for operand in operands:
            if not isinstance(operand, Pattern):
                expected = "a pattern such as wildcard() or is_const()"
                raise wrong(f"an operand of {' or '.join(self.names)}", operand, expected)
        return Op(self.names, operands)

    def fit(self, value: Value, bound: Bindings) -> Ways:
        """The op's result, with operands that fit one after the other."""
        node = value.node
        if node is None or node.op not in self.names:
            return
        own = frozenset((node,))
        if self.operands is None:
            yield own, bound
            return
        for order in _orders(node):
            if len(order) == len(self.operands):
                for nodes, found in _fit_all(self.operands, order, bound):
                    yield own | nodes, found


@final
class Either(Pattern):
    """One of several."""

    def __init__(self, options: tuple[Pattern, ...]) -> None:
        self.options: tuple[Pattern, ...] = options

    def fit(self, value: Value, bound: Bindings) -> Ways:
        """In the order of the options."""
        for option in self.options:
            yield from option.matches(value, bound)


@final
class Restricted(Pattern):
    """What fits another pattern and a predicate."""

    def __init__(self, inner: Pattern, predicate: Predicate) -> None:
        self.inner: Pattern = inner
        self.predicate: Predicate = predicate

    def __call__(self, *operands: Pattern) -> Pattern:
        """The same restriction of an op with these operands."""
        if not isinstance(self.inner, Op | Restricted):
            raise TypeError("only an op takes operands")
        return Restricted(self.inner(*operands), self.predicate)

    def fit(self, value: Value, bound: Bindings) -> Ways:
        """Where the predicate is true."""
        if ask_user("a predicate of a pattern", self.predicate, value):
            yield from self.inner.matches(value, bound)


def ask_user(subject: str, function: Callable[[Asked], bool], about: Asked) -> bool:
    """What a function of a user says.  Raises: UserError for what it raises, which is no bug of ours."""
    try:
        return bool(function(about))
    except TilewrightError:
        raise
    except Exception as error:
        raise UserError(f"{subject} failed: {type(error).__name__}: {error}") from error


def is_op(*names: str) -> Op:
    """What an op makes: `is_op("matmul")(x, w)`; of several names any; uncalled with any operands.

    Raises: UserError for an op that there is not, and without a name.
    """
    if not names:
        raise UserError("is_op() names no op", hint="for any value: wildcard()")
    for name in names:
        catalogue.lookup(name)
    return Op(names)


def wildcard() -> Pattern:
    """Any value."""
    return Anything()


def is_const() -> Pattern:
    """A value that is known when compiling."""
    return Constant()


def _orders(node: Node) -> tuple[tuple[Value, ...], ...]:
    operands = node.present_operands
    if node.has(Trait.COMMUTATIVE) and len(operands) > 1:
        return operands, (operands[1], operands[0], *operands[2:])
    return (operands,)


def _fit_all(patterns: Sequence[Pattern], values: Sequence[Value], bound: Bindings) -> Ways:
    if not patterns:
        yield frozenset(), bound
        return
    for nodes, found in patterns[0].matches(values[0], bound):
        for more, all_found in _fit_all(patterns[1:], values[1:], found):
            yield nodes | more, all_found


def _shape_fits(shape: Sequence[Dim], wanted: Sequence[int | str | None]) -> bool:
    return len(shape) == len(wanted) and all(
        not isinstance(want, int) or want == dim
        for want, dim in zip(wanted, shape, strict=True)
    )


def _attributes_fit(node: Node | None, wanted: Mapping[str, object]) -> bool:
    return node is not None and all(
        name in node.attributes and attributes_equal(node.attributes[name], value)
        for name, value in wanted.items()
    )
