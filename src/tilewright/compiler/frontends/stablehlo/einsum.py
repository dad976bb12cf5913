"""Rows for products that are written as letters: `ij,jk->ik`.

Source: StableHLO, "einsum", "unary_einsum", which are to be removed; numpy, "einsum", for the letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.contraction import contracted
from tilewright.compiler.frontends.stablehlo.held import Held, dims_of, on_parts
from tilewright.compiler.frontends.stablehlo.row import Row, row

_REST: Final = "..."
# Letters of their own for the axes that dots stand for, the last of them first.
_DOTTED: Final = "0123456789"


def _labels(call: Call, count: int) -> tuple[list[str], str]:
    """A letter for every axis of every operand, and of the result.  Raises: ModelError where they do not fit."""
    text = call.text("einsum_config").replace(" ", "")
    before, arrow, after = text.partition("->")
    given = before.split(",")
    if not arrow or len(given) != count:
        raise ModelError(f"'{text}' is none of {count} operands")
    ranks = [len(dims_of(held)) for held in call.operands]
    pairs = list(zip(given, ranks, strict=True))
    found = [
        labels.replace(_REST, _letters(_dotted(labels, rank))) for labels, rank in pairs
    ]
    dotted = max(_dotted(labels, rank) for labels, rank in pairs)
    result = after.replace(_REST, _letters(dotted))
    if any(len(labels) != rank for labels, rank in zip(found, ranks, strict=True)):
        raise ModelError(f"'{text}' does not fit operands of {ranks} dimensions")
    if len(set(result)) != len(result) or not set(result) <= set("".join(found)):
        raise ModelError(f"the result of '{text}' has letters of its own, or twice")
    if any(len(set(labels)) != len(labels) for labels in found):
        raise UnsupportedError(f"diagonals, as in '{text}', are not supported")
    return found, result


def _dotted(labels: str, rank: int) -> int:
    """How many axes its dots stand for."""
    return max(rank - len(labels.replace(_REST, "")), 0) if _REST in labels else 0


def _letters(count: int) -> str:
    return _DOTTED[:count][::-1]


def _einsum(call: Call) -> Held:
    (left, right), result = _labels(call, 2)
    sums = [
        _summed(call, call.held(i), labels, (right, left)[i] + result)
        for i, labels in enumerate((left, right))
    ]
    (x, left), (y, right) = sums
    batch = [label for label in left if label in right and label in result]
    inner = [label for label in left if label in right and label not in result]
    of_left, of_right = (
        (tuple(labels.index(n) for n in batch), tuple(labels.index(n) for n in inner))
        for labels in (left, right)
    )
    found = contracted(call, x, y, of_left, of_right)
    rest = [label for label in (*left, *right) if label not in (*batch, *inner)]
    return _ordered(call, found, [*batch, *rest], result)


def _unary_einsum(call: Call) -> Held:
    (labels,), result = _labels(call, 1)
    x, left = _summed(call, call.held(0), labels, result)
    return _ordered(call, x, left, result)


def _summed(call: Call, held: Held, labels: str, kept: str) -> tuple[Held, str]:
    """The sum over axes that nobody else has."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in kept)
    if not axes:
        return held, labels
    e = call.maker
    rest = "".join(label for label in labels if label in kept)
    total = on_parts(lambda x: e.op("reduce_sum", x, axes=axes, keepdims=False), held)
    return total, rest


def _ordered(call: Call, held: Held, labels: Sequence[str], result: str) -> Held:
    order = [list(labels).index(label) for label in result]
    return on_parts(lambda x: call.maker.transpose(x, order), held)


ROWS: Final[tuple[Row, ...]] = (
    row("einsum", _einsum, ignores=("precision_config",)),
    row("unary_einsum", _unary_einsum),
)
