"""Conditions on sizes in words for users: as Python has them, with places of shapes for sizes that have no names.

Called by `reader`, for errors of calls that do not keep what the example of a program decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.frontends.torch.program import Formula, Part, Relation

Places = Mapping[str, Dim]
"""Of the name of a size, what texts call it."""


def places_of(shapes: Iterable[tuple[str, Sequence[Dim]]], named: Iterable[str]) -> Places:
    """What texts call the sizes of inputs that have no name: where each is found first.

    Args:
        shapes: of each input its name and its shape.
        named: the names of sizes that the user gave.
    """
    known, found = set(named), dict[str, Dim]()
    for name, shape in shapes:
        for axis, size in enumerate(shape):
            atom = symbolic.only_atom(size)
            if isinstance(atom, Symbol) and atom.name not in known:
                found.setdefault(atom.name, symbolic.symbol(f"{name}.shape[{axis}]", 0))
    return found


def text_of(part: Part, places: Places) -> str:
    """A condition, or what one compares, as Python has it."""
    if isinstance(part, Expr):
        return str(symbolic.substitute(part, places))
    if not isinstance(part, Relation | Formula):
        return str(part)
    parts = [text_of(each, places) for each in part.parts]
    sign = _SIGNS.get(part.op)
    if sign is None or len(parts) == 1:
        return f"{_WORDS.get(part.op, part.op)}({', '.join(parts)})"
    return f" {sign} ".join(
        f"({text})" if _needs_brackets(each, part) else text
        for each, text in zip(part.parts, parts, strict=True)
    )


def _needs_brackets(inner: object, outer: Relation | Formula) -> bool:
    """Whether a part would be read otherwise: numbers stand without brackets in what compares them."""
    if not isinstance(inner, Relation | Formula) or inner.op not in _SIGNS:
        return False
    is_compared = isinstance(inner, Formula) and isinstance(outer, Relation)
    return not is_compared and len(inner.parts) > 1


_SIGNS: Final = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "logical_and": "and", "logical_or": "or", "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**",
}  # fmt: skip
_WORDS: Final = {"logical_not": "not "}
