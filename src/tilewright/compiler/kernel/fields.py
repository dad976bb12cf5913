"""What the fields of a node hold: operands, indices, a buffer, a body; and the walks that follow from it.

The types in the classes of `ir` say it: a field of type `Expression` is an operand, `tuple[Dim, ...]`
are indices.  Nothing here names a kind of node, so a new one is walked, rewritten and searched from the
start; one with a field of a type that is not in the table below is refused when this module is loaded.
What a node means is not known here.  Called by whatever looks at kernels as trees.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar, final, get_args

from tilewright.base import symbolic
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel.ir import Body, Buffer, Expression, For, If, Statement

Node = Expression | Statement
NodeT = TypeVar("NodeT", bound=Node)


class Role(enum.Enum):
    """What a field holds."""

    OPERAND = "an expression"
    OPTIONAL = "an expression or None"
    OPERANDS = "expressions"
    INDEX = "an index or extent"
    INDICES = "indices"
    BUFFER = "a buffer"
    VARIABLE = "the variable of a loop"
    BODY = "statements"
    DATA = "what rewriting never changes"


_ROLES: Final = {
    "Expression": Role.OPERAND,
    "Expression | None": Role.OPTIONAL,
    "tuple[Expression, ...]": Role.OPERANDS,
    "Dim": Role.INDEX,
    "tuple[Dim, ...]": Role.INDICES,
    "Buffer": Role.BUFFER,
    "Symbol": Role.VARIABLE,
    "Body": Role.BODY,
    **dict.fromkeys(
        (
            "str",
            "int",
            "float",
            "bool",
            "DType",
            "LoopKind",
            "Function",
            "Instruction",
            "tuple[int, ...]",
        ),
        Role.DATA,
    ),
}


def _roles(kind: type[Any]) -> dict[str, Role]:
    """The fields of a class with their roles, in order."""
    found: dict[str, Role] = {}
    for name, type_ in kind.__annotations__.items():
        role = _ROLES.get(str(type_))
        if role is None:
            raise InternalError(
                f"{kind.__name__}.{name} is of type '{type_}', expected one of "
                f"{', '.join(_ROLES)}"
            )
        found[name] = role
    return found


_OF_EXPRESSIONS: Final = (Role.OPERAND, Role.OPTIONAL, Role.OPERANDS)
_OF_INDICES: Final = frozenset({Role.INDEX, Role.INDICES})


@final
class Fields:
    """The fields of one class of nodes; `rebuilt` is the image of a node that a mutator makes of those of its fields."""

    __slots__ = ("data", "dims", "has_dims", "kind", "operands", "read", "rebuilt", "roles")

    def __init__(self, kind: type[Any]) -> None:
        self.kind: type[Any] = kind
        self.roles: dict[str, Role] = _roles(kind)
        names = list(self.roles)
        self.read: Callable[[Any], tuple[Any, ...]] = _reader(names)
        self.rebuilt: Callable[[Mutator, Any], Any] = _rebuilder(kind, self.roles)
        self.operands: Callable[[Any], tuple[Expression, ...]] = self._reader_of(
            _OF_EXPRESSIONS
        )
        self.dims: Callable[[Any], tuple[Dim, ...]] = self._reader_of(_OF_INDICES)
        self.has_dims: bool = not _OF_INDICES.isdisjoint(self.roles.values())
        self.data: tuple[str, ...] = tuple(n for n in names if self.roles[n] is Role.DATA)

    def _reader_of(self, roles: Collection[Role]) -> Callable[[Any], tuple[Any, ...]]:
        """Reads the fields of these roles as one flat tuple, without Nones."""
        names = [name for name, role in self.roles.items() if role in roles]
        plain = (Role.OPERAND, Role.INDEX)
        if all(self.roles[name] in plain for name in names):
            return _reader(names)
        if len(names) == 1 and self.roles[names[0]] is not Role.OPTIONAL:
            return attrgetter(names[0])
        if len(names) == 1:
            return _reader_of_optional(names[0])
        many = [self.roles[name] in (Role.OPERANDS, Role.INDICES) for name in names]
        read = _reader(names)

        def flat(node: Any) -> tuple[Any, ...]:
            found: list[Any] = []
            for value, is_many in zip(read(node), many, strict=True):
                if is_many:
                    found.extend(value)
                elif value is not None:
                    found.append(value)
            return tuple(found)

        return flat


def _nothing(_: Any) -> tuple[Any, ...]:
    return ()


def _reader_of_optional(name: str) -> Callable[[Any], tuple[Any, ...]]:
    """Reads a field that may be None as a tuple: most loads have no mask."""
    read = attrgetter(name)

    def one_or_none(node: Any) -> tuple[Any, ...]:
        value = read(node)
        return () if value is None else (value,)

    return one_or_none


def _reader(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads these fields as a tuple, whatever their number."""
    if not names:
        return _nothing
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda node: (read(node),)


def fields_of(node: Node | type[Node]) -> Fields:
    """What the fields of a node, or of a class of nodes, hold."""
    return _FIELDS[node if isinstance(node, type) else type(node)]


def payloads(dim: Dim) -> Iterator[Expression]:
    """The expressions inside the opaque atoms of `dim`."""
    for atom in symbolic.opaques(dim):
        if isinstance(atom.payload, Expression):
            yield atom.payload


def parts(value: Node) -> tuple[Expression, ...]:
    """The expressions directly below a node, inside its indices too; not those in the body of a statement."""
    fields = _FIELDS[type(value)]
    below = fields.operands(value)
    if not fields.has_dims:
        return below
    for dim in fields.dims(value):
        if not isinstance(dim, int) and dim.opaques:
            below = (*below, *payloads(dim))
    return below


def children(value: Expression) -> tuple[Expression, ...]:
    """The direct operands of an expression (a load's mask, not its indices)."""
    return _FIELDS[type(value)].operands(value)


def dims_of(node: Node) -> tuple[Dim, ...]:
    """The indices and extents that stand directly in a node."""
    return _FIELDS[type(node)].dims(node)


def operands_first(
    roots: Iterable[Expression],
    below: Callable[[Expression], Sequence[Expression]],
    is_done: Callable[[Expression], bool] | None = None,
) -> Iterator[Expression]:
    """Every expression in and below `roots`, operands before what uses them, each once.

    What is done when its turn comes is left out, and what only it has below.
    """
    seen: set[int] = set()
    stack = [(root, False) for root in reversed([*roots])]
    while stack:
        value, ready = stack.pop()
        place = id(value)
        if place in seen or (is_done is not None and is_done(value)):
            continue
        held = () if ready else below(value)
        if held:
            stack.append((value, True))
            stack.extend([(part, False) for part in reversed(held)])
        else:
            seen.add(place)
            yield value


def repeated(
    roots: Iterable[Expression], below: Callable[[Expression], Iterable[Expression]]
) -> dict[int, Expression]:
    """By id, the expressions under `roots` that are met more than once; `below` says what is under one."""
    seen: set[int] = set()
    found: dict[int, Expression] = {}
    stack = list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen:
            found[id(value)] = value
            continue
        seen.add(id(value))
        stack.extend(below(value))
    return found


def operands_of(statement: Statement) -> tuple[Expression, ...]:
    """The expressions that stand directly in a statement, not those inside its indices or body."""
    return _FIELDS[type(statement)].operands(statement)


def with_children(value: Expression, parts: Sequence[Expression]) -> Expression:
    """`value` with other operands, in the order of `children`."""
    fields = _FIELDS[type(value)]
    images = list(fields.read(value))
    taken = 0
    for place, role in enumerate(fields.roles.values()):
        if role is Role.OPERAND or (role is Role.OPTIONAL and images[place] is not None):
            images[place] = parts[taken]
            taken += 1
        elif role is Role.OPERANDS:
            end = taken + len(images[place])
            images[place] = tuple(parts[taken:end])
            taken = end
    return fields.kind(*images)


def with_inner(statement: For | If, body: Body) -> For | If:
    """The same loop or conditional around another body."""
    match statement:
        case For():
            return For(
                statement.var, statement.extent, body, statement.kind, statement.reduction
            )
        case If():
            return If(statement.condition, body)


class Mutator:
    """Rebuilds nodes from the images of what they hold; a subclass says what those are.

    As it is, everything stays the same.  An expression that holds the same parts is the same node.

    Attributes:
        buffers: those that others take the place of.
    """

    __slots__ = ("buffers",)

    def __init__(self, buffers: Mapping[Buffer, Buffer] | None = None) -> None:
        self.buffers: Mapping[Buffer, Buffer] = buffers or {}

    def expression(self, value: Expression) -> Expression:
        """The image of an operand."""
        return self.rebuilt(value)

    def dim(self, dim: Dim) -> Dim:
        """The image of an index or extent."""
        return dim

    def variable(self, var: Symbol) -> Symbol:
        """The image of a loop's variable."""
        return var

    def statement(self, statement: Statement) -> Sequence[Statement]:
        """What takes the place of a statement."""
        return (self.rebuilt(statement),)

    def body(self, body: Sequence[Statement]) -> Body:
        """The image of a body."""
        return tuple([new for old in body for new in self.statement(old)])

    def rebuilt(self, node: NodeT) -> NodeT:
        """`node` with the images of what it holds."""
        return _FIELDS[type(node)].rebuilt(self, node)


def _rebuilder(kind: type[Any], roles: Mapping[str, Role]) -> Callable[[Mutator, Any], Any]:
    """`Mutator.rebuilt` for one class, from source: nothing of the compiler is called more often."""
    images = _IMAGES if kind in get_args(Expression) else _IMAGES_OF_STATEMENTS
    held = [name for name, role in roles.items() if role in images]
    lines = ["def rebuilt(mutator, node):", *(f"    {x} = node.{x}" for x in held)]
    lines += [f"    new_{x} = {images[roles[x]].format(x)}" for x in held]
    same = " and ".join(f"new_{x} is {x}" for x in held) or "True"
    given = ", ".join(f"new_{x}" if x in held else f"node.{x}" for x in roles)
    lines.append(f"    return node if {same} else _kind({given})")
    names: dict[str, Any] = {
        "_kind": kind,
        "_operands": _operands,
        "_index": _index,
        "_indices": _indices,
        "_indices_of_statement": _indices_of_statement,
    }
    exec("\n".join(lines), names)
    return names["rebuilt"]


def _operands(mutator: Mutator, part: tuple[Expression, ...]) -> tuple[Expression, ...]:
    images = tuple([mutator.expression(x) for x in part])
    return part if all(map(operator.is_, images, part)) else images


def _index(mutator: Mutator, part: Dim) -> Dim:
    image = mutator.dim(part)
    return part if _is_same(image, part) else image


def _indices(mutator: Mutator, part: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if len(part) == 1:
        image = mutator.dim(part[0])
        return part if image is part[0] or _is_same(image, part[0]) else (image,)
    images = tuple([mutator.dim(x) for x in part])
    if all(map(operator.is_, images, part)) or all(map(_is_same, images, part)):
        return part
    return images


def _indices_of_statement(mutator: Mutator, part: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if len(part) == 1:
        image = mutator.dim(part[0])
        return part if image is part[0] else (image,)
    images = tuple([mutator.dim(x) for x in part])
    return part if all(map(operator.is_, images, part)) else images


def _is_same(new: Dim, old: Dim) -> bool:
    """Whether an index stayed as it was.

    One with loads inside must be the same object: equality goes by its text, which a buffer shares
    with one of the same name that takes its place.
    """
    return new is old or (new == old and not symbolic.opaques(new))


_IMAGES: Final[Mapping[Role, str]] = {
    Role.OPERAND: "mutator.expression({0})",
    Role.OPTIONAL: "None if {0} is None else mutator.expression({0})",
    Role.OPERANDS: "_operands(mutator, {0})",
    Role.INDEX: "_index(mutator, {0})",
    Role.INDICES: "_indices(mutator, {0})",
    Role.BUFFER: "mutator.buffers.get({0}, {0}) if mutator.buffers else {0}",
    Role.VARIABLE: "mutator.variable({0})",
    Role.BODY: "mutator.body({0})",
}
"""The image of a field, as source: what is not here is plain data."""
# Expressions are shared, so one whose indices are equal stays; equal symbols may have other bounds, which
# statements take over.
_IMAGES_OF_STATEMENTS: Final[Mapping[Role, str]] = {
    **_IMAGES,
    Role.INDEX: "mutator.dim({0})",
    Role.INDICES: "_indices_of_statement(mutator, {0})",
}
_FIELDS: Final[dict[type[Any], Fields]] = {
    kind: Fields(kind) for kind in (*get_args(Expression), *get_args(Statement))
}
REBUILDERS: Final[dict[type[Any], Callable[[Mutator, Any], Any]]] = {
    kind: fields.rebuilt for kind, fields in _FIELDS.items()
}
"""`Mutator.rebuilt` by class, for what asks for the image of every node."""
