"""What torch decided of sizes while it traced a program, which each call must keep.

A branch of Python that asks sizes (`if x.shape[1] != y.shape[0]`) is traced as the example has it, and torch keeps the
condition beside the graph as an expression of Python: `L['x'].size()[1] != L['y'].size()[0]`.  It is read here, never run.
Called by `load`, before operators are taken apart: another trace asks more.

Source: `torch.export.ExportedProgram.module`, which asserts them.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.torch.program import Relation

Guard = tuple[ast.expr, dict[str, int]]
"""A condition, and of each path in it that leads to an input which one it is."""

_ONE_OF_MANY: Final = re.compile(r"(.+)_(\d+)")


def guards_of(exported: Any) -> tuple[Guard, ...]:
    """The conditions that calls of an exported program must keep.

    Not those that an operator asked for to know how its elements lie: our rows infer shapes by themselves.  Of a program
    from a file nobody knows who asked, so its calls keep all, as torch has it.

    Raises: UnsupportedError for what is no expression.
    """
    texts: list[str] = getattr(exported, "_guards_code", [])
    if not texts:
        return ()
    paths = dict(_paths(exported))
    askers = itertools.chain(_askers(exported), itertools.repeat(""))
    kept = [
        text for text, asker in zip(texts, askers, strict=False) if not _is_operators(asker)
    ]
    try:
        return tuple((ast.parse(text, mode="eval").body, paths) for text in kept)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnsupportedError(f"a condition on sizes cannot be read: {error}") from error


def _askers(exported: Any) -> list[str]:
    """Of each condition which file asked for it; nothing for a program from a file."""
    sizes = [
        size.node
        for node in exported.graph.nodes
        if node.op == "placeholder"
        for size in getattr(node.meta.get("val"), "shape", ())
        if not isinstance(size, int)
    ]
    if not sizes:
        return []
    environment = sizes[0].shape_env
    constant = border.load("torch._dynamo.source").ConstantSource
    given = {
        symbol
        for symbol, sources in environment.var_to_sources.items()
        if not any(isinstance(source, constant) for source in sources)
    }
    return [
        getattr(guard.sloc.framework_loc, "filename", "")
        for guard in environment.guards
        if guard.expr.free_symbols <= given
    ]


def _is_operators(file: str) -> bool:
    parts = PurePath(file).parts
    within = parts[len(parts) - parts[::-1].index("torch") :] if "torch" in parts else ()
    return any(within[: len(room)] == room for room in _OPERATORS)


_OPERATORS: Final = (
    ("_decomp",), ("_dynamo", "utils.py"), ("_export", "non_strict_utils.py"),
    ("_meta_registrations.py",), ("_ops.py",), ("_prims_common",), ("_refs",), ("_subclasses",),
    ("fx", "experimental", "proxy_tensor.py"),
)  # fmt: skip
"""Where torch runs operators on tensors that have no elements, within its own folder."""


def _paths(exported: Any) -> Iterator[tuple[str, int]]:
    """Of each input of a call how conditions name it, and its position."""
    pytree: Any = border.load("torch.utils._pytree")
    spec = exported.call_spec.in_spec
    args, kwargs = pytree.tree_unflatten(range(spec.num_leaves), spec)
    signature = exported.module_call_graph[0].signature
    names: Sequence[str] = (signature and signature.forward_arg_names) or ()
    for position in range(spec.num_leaves):
        yield f"L['flat_args'][{position}]", position
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        for path, position in pytree.tree_leaves_with_path(value):
            yield f"L[{name!r}]{pytree.keystr(path)}", position
            if many := _ONE_OF_MANY.fullmatch(name):
                yield f"L[{many[1]!r}][{many[2]}]{pytree.keystr(path)}", position


def condition(guard: Guard, shapes: Sequence[Sequence[Dim]]) -> Dim | Relation:
    """What a guard says of the shapes of the inputs.  Raises: UnsupportedError for what our sizes have no word for."""
    expression, paths = guard
    try:
        return _read(expression, lambda path: shapes[paths[path]])
    except (KeyError, IndexError, RecursionError, ZeroDivisionError):
        text = ast.unparse(expression)
        raise UnsupportedError(f"the condition '{text}' is not supported") from None


def _read(node: ast.expr, shape_of: Callable[[str], Sequence[Dim]]) -> Any:
    """A size, or a relation of sizes.  Raises: KeyError for what is none."""

    def read(*parts: ast.expr) -> list[Any]:
        return [_read(part, shape_of) for part in parts]

    match node:
        case ast.Constant(value=int(value)):
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
        case ast.Call(func=ast.Name(id=name), args=parts):
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
_ARITHMETIC: Final[dict[type[ast.AST], Callable[..., Dim]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: symbolic.floordiv,
    ast.Mod: symbolic.mod,
}
_FUNCTIONS: Final[dict[str, Callable[..., Dim]]] = {
    "max": symbolic.maximum, "Max": symbolic.maximum, "min": symbolic.minimum, "Min": symbolic.minimum,
}  # fmt: skip
