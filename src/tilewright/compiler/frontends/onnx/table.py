"""The rows of all families, found by domain, op type and opset.

The one place that lists the families.  Called by the importer for every node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.base.errors import InternalError
from tilewright.compiler.frontends.onnx import (
    attention,
    contraction,
    control,
    convolution,
    elementwise,
    movement,
    normalization,
    quantization,
    recurrent,
    reduction,
    resize,
    sampling,
    sequences,
    shapes,
    signal,
)
from tilewright.compiler.frontends.onnx.row import Row

_FAMILIES: Final[tuple[tuple[Row, ...], ...]] = (
    attention.ROWS,
    contraction.ROWS,
    control.ROWS,
    convolution.ROWS,
    elementwise.ROWS,
    movement.ROWS,
    normalization.ROWS,
    quantization.ROWS,
    recurrent.ROWS,
    reduction.ROWS,
    resize.ROWS,
    sampling.ROWS,
    sequences.ROWS,
    shapes.ROWS,
    signal.ROWS,
)


def index(families: Iterable[Iterable[Row]]) -> dict[tuple[str, str], list[Row]]:
    """Rows by domain and op type.  Raises: InternalError when two claim the same opset."""
    found: dict[tuple[str, str], list[Row]] = {}
    for rows in families:
        for entry in rows:
            others = found.setdefault((entry.domain, entry.name), [])
            if any(_overlap(entry, other) for other in others):
                raise InternalError(f"ONNX op '{entry.name}' has two rows for one opset")
            others.append(entry)
    return found


def _overlap(one: Row, other: Row) -> bool:
    latest = max(one.since, other.since)
    return all(r.until is None or latest <= r.until for r in (one, other))


_ROWS: Final = index(_FAMILIES)


def find(domain: str, name: str, opset: int) -> Row | None:
    """The row for an op type at this opset, or None."""
    for entry in _ROWS.get((domain, name), ()):
        if entry.since <= opset and (entry.until is None or opset <= entry.until):
            return entry
    return None


def names(domain: str) -> tuple[str, ...]:
    """The op types with a row in `domain`."""
    return tuple(sorted(n for d, n in _ROWS if d == domain))
