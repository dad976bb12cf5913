"""What torch decided of sizes while it traced a program, which each call must keep.

A branch of Python that asks sizes (`if x.shape[1] != y.shape[0]`) is traced as the example has it, and torch keeps the
condition beside the graph as an expression of Python: `L['x'].size()[1] != L['y'].size()[0]`.  It is read here, never run.
Called by `load`, before operators are taken apart: another trace asks more.

Source: `torch.export.ExportedProgram.module`, which asserts them.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.base import symbolic
from tilewright.base.errors import UserError
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.torch.contiguous_copies import writes_in_place
from tilewright.compiler.frontends.torch.program import Formula, Relation
from tilewright.compiler.frontends.torch.sizes import (
    binary_logarithm,
    environment_of,
    folded,
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A condition on sizes.

    Attributes:
        text: as torch has it, cut short.
        expression: the same, read.
        paths: of each path in it that leads to an input which one it is.
        is_operators: whether an operator asked for it, not the program.
    """

    text: str
    expression: ast.expr
    paths: Mapping[str, int]
    is_operators: bool

    def __str__(self) -> str:
        return self.text


_ONE_OF_MANY: Final = re.compile(r"(.+)_(\d+)")


def guards_of(exported: Any) -> tuple[Guard, ...]:
    """The conditions that calls of an exported program must keep.

    Not those by which an operator only learned how its elements lie: our rows infer that by themselves. Of a program
    from a file nobody knows who asked, so its calls keep all, as torch has it.

    Raises: UnsupportedError for what is no expression.
    """
    texts: list[object] = getattr(exported, "_guards_code", [])
    if not texts:
        return ()
    paths, writes = _paths(exported), writes_in_place(exported)
    askers = itertools.chain(_askers(exported), itertools.repeat(""))
    found: list[Guard] = []
    for text, asker in zip(texts, askers, strict=False):
        try:
            expression = ast.parse(str(text), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UnsupportedError(
                f"a condition on sizes cannot be read: {error}"
            ) from error
        asked = is_within_torch(asker, *COMPOSITES, *LAYOUTS)
        if not (asked and _is_of_places(expression, writes=writes)):
            found.append(Guard(_shortened(str(text)), expression, paths, asked))
    return tuple(found)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_of_places(expression: ast.expr, *, writes: bool) -> bool:
    """Whether what an operator asked so says nothing but where elements lie, and which sizes its own code takes.

    That a size is one of 0, 1 or more; that it is within another, to which rows keep by themselves; that two sizes differ,
    on which it depends whether a result is a view: which nobody can tell unless something writes in place.
    """
    if not isinstance(expression, ast.Compare) or len(expression.ops) != 1:
        return isinstance(expression, ast.BoolOp) and all(
            _is_of_places(part, writes=writes) for part in expression.values
        )
    if isinstance(expression.ops[0], ast.NotEq):
        sides = (expression.left, *expression.comparators)
        is_divided = any(isinstance(part, ast.Mod) for part in ast.walk(expression))
        is_few = any(isinstance(s, ast.Constant) and s.value in (0, 1) for s in sides)
        return not is_divided and (is_few or not writes)
    return isinstance(expression.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _askers(exported: Any) -> list[str]:
    """Of each condition which file asked for it; nothing for a program from a file."""
    environment = environment_of(exported.graph.nodes)
    if environment is None:
        return []
    constant = border.load("torch._dynamo.source").ConstantSource
    known = {
        symbol: sources
        for symbol, sources in environment.var_to_sources.items()
        if not any(isinstance(source, constant) for source in sources)
    }
    return [
        getattr(guard.sloc.framework_loc, "filename", "")
        for guard in environment.guards
        if guard.expr.free_symbols <= known.keys()
        and not any(_is_of_weights(known[s]) for s in guard.expr.free_symbols)
    ]


def _is_of_weights(sources: Sequence[Any]) -> bool:
    """Whether torch names a size by a tensor of the module; it keeps no condition on it."""
    return "L['self']" in str(sources[0].name if sources else "")


@functools.cache
def is_within_torch(file: str, *rooms: tuple[str, ...]) -> bool:
    """Whether a file lies in one of these rooms of torch's folder."""
    parts = PurePath(file).parts
    within = parts[len(parts) - parts[::-1].index("torch") :] if "torch" in parts else ()
    return any(within[: len(room)] == room for room in rooms)


def is_on_the_way(file: str) -> bool:
    """Whether in a file of code a question on sizes only passes, which somebody else asks."""
    return file.startswith("<") or is_within_torch(file, *_ON_THE_WAY)


SHAPES: Final = ("fx", "experimental", "symbolic_shapes.py")
TRUTHS: Final = ("__init__.py",)
_ON_THE_WAY: Final = (
    SHAPES, TRUTHS, ("fx", "experimental", "recording.py"), ("fx", "experimental", "sym_node.py"),
)  # fmt: skip
COMPOSITES: Final = (("_decomp",), ("_ops.py",), ("_refs",))
"""Where torch writes operators in others, which it runs to tell types, too."""
LAYOUTS: Final = (
    ("_dynamo", "guards.py"), ("_dynamo", "utils.py"), ("_export", "non_strict_utils.py"), ("_meta_registrations.py",),
    ("_prims_common",), ("_subclasses",), ("fx", "experimental", "proxy_tensor.py"),
)  # fmt: skip
"""Where torch runs operators on tensors that have no elements."""
_LONGEST: Final = 120


def _paths(exported: Any) -> dict[str, int]:
    """Of each input of a call how conditions name it, and its position."""
    pytree: Any = border.load("torch.utils._pytree")
    spec = exported.call_spec.in_spec
    args, kwargs = pytree.tree_unflatten(range(spec.num_leaves), spec)
    signature = exported.module_call_graph[0].signature
    names: Sequence[str] = (signature and signature.forward_arg_names) or ()
    found = {f"L['flat_args'][{position}]": position for position in range(spec.num_leaves)}
    given = dict(zip(names, args, strict=False)) | kwargs
    for name, value in given.items():
        many = _ONE_OF_MANY.fullmatch(name)
        for path, position in pytree.tree_leaves_with_path(value):
            found[f"L[{name!r}]{pytree.keystr(path)}"] = position
            if many and many[1] not in given:
                found[f"L[{many[1]!r}][{many[2]}]{pytree.keystr(path)}"] = position
    return found


def condition(guard: Guard, shapes: Sequence[Sequence[Dim]]) -> Dim | Relation:
    """What a guard says of the shapes of the inputs.  Raises: UnsupportedError for what our sizes have no word for."""
    try:
        found = _read(guard.expression, lambda path: shapes[guard.paths[path]])
        if isinstance(found, float | Formula):
            raise TypeError("a real number is no condition")
    except (KeyError, IndexError, TypeError, RecursionError, UserError):
        raise UnsupportedError(
            f"torch decided by '{guard.text}', for which sizes have no words",
            hint="leave this size out of dynamic_shapes, or decide by torch.cond",
        ) from None
    return found


def _read(node: ast.expr, shape_of: Callable[[str], Sequence[Dim]]) -> Any:
    """A size, or a relation of sizes.  Raises: KeyError for what is none."""

    def read(*parts: ast.expr) -> list[Any]:
        return [_read(part, shape_of) for part in parts]

    match node:
        case ast.Constant(value=int(value) | float(value)):
            return value
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=path, attr="size"), args=[]),
            slice=ast.Constant(value=int(axis)),
        ):
            return shape_of(ast.unparse(path))[axis]
        case ast.Subscript():  # a number that a call is given
            return shape_of(ast.unparse(node))[0]
        case ast.Compare(left=left, ops=ops, comparators=rest):
            sides = read(left, *rest)
            parts = tuple(
                Relation(_WORDS[type(op)], pair)
                for op, pair in zip(ops, itertools.pairwise(sides), strict=True)
            )
            return parts[0] if len(parts) == 1 else Relation("logical_and", parts)
        case ast.BoolOp(op=op, values=values):
            return Relation(_WORDS[type(op)], tuple(read(*values)))
        case ast.UnaryOp(op=op, operand=part):
            return _UNARY[type(op)](*read(part))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](*read(left, right))
        case ast.Call(
            func=ast.Name(id=name) | ast.Attribute(attr=name), args=parts, keywords=[]
        ):
            return _FUNCTIONS[name](*read(*parts))
        case _:
            raise KeyError(type(node).__name__)


_WORDS: Final[dict[type[ast.AST], str]] = {
    ast.And: "logical_and", ast.Or: "logical_or", ast.Eq: "equal", ast.NotEq: "not_equal",
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
}  # fmt: skip
_UNARY: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Not: lambda part: Relation("logical_not", (part,)),
    ast.USub: lambda part: -part,
}


def _either(
    op: str, of_sizes: Callable[..., Dim] | None = None
) -> Callable[..., Dim | Formula]:
    """What sizes have a word for, or else an operator of real numbers."""

    def build(*parts: Any) -> Dim | Formula:
        if of_sizes is not None and all(isinstance(part, int | Expr) for part in parts):
            return of_sizes(*parts)
        return Formula(op, tuple(map(_number, parts)))

    return build


def _rounded(
    op: str, of_ratio: Callable[[Dim, Dim], Dim]
) -> Callable[[Any], Dim | Formula]:
    """A number rounded to a whole one: a ratio of sizes as a size."""

    def build(number: Any) -> Dim | Formula:
        match number:
            case int() | Expr():
                return number
            case Formula(op="div", parts=(int() | Expr() as left, int() | Expr() as right)):
                return of_ratio(left, right)
            case _:
                return Formula(op, (_number(number),))

    return build


def _number(part: Any) -> Dim | float | Formula:
    """What it is given.  Raises: TypeError for a truth value."""
    if not isinstance(part, int | float | Expr | Formula):
        raise TypeError("a condition is no number")
    return part


_ARITHMETIC: Final[dict[type[ast.AST], Callable[..., Dim | Formula]]] = {
    ast.Add: _either("add", lambda left, right: left + right),
    ast.Sub: _either("sub", lambda left, right: left - right),
    ast.Mult: _either("mul", lambda left, right: left * right),
    ast.Div: _either("div"),
    ast.Pow: _either("pow"),
    ast.FloorDiv: symbolic.floordiv,
    ast.Mod: symbolic.mod,
}
_FUNCTIONS: Final[dict[str, Callable[..., Dim | float | Formula]]] = {
    **dict.fromkeys(("max", "Max"), _either("max", folded(symbolic.maximum))),
    **dict.fromkeys(("min", "Min"), _either("min", folded(symbolic.minimum))),
    **dict.fromkeys(("sym_float", "float"), _number),
    "ceil": _rounded("ceil", symbolic.ceildiv),
    "floor": _rounded("floor", symbolic.floordiv),
    "sqrt": _either("sqrt"), "exp": _either("exp"), "log": _either("log"),
    "log2": lambda number: binary_logarithm(_number(number)),
}  # fmt: skip
