"""All ops: the families' rows in one table, found by name.

The one place that lists the families; a duplicate name is an error naming both.  Called at the
borders (front ends, parsers, builders), never inside passes, which ask the schema they hold.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.graph.schema import OpSchema
from tilewright.compiler.ops import (
    activations,
    attention,
    block_products,
    classical,
    complex_linear_algebra,
    contract,
    contraction,
    control,
    convolution,
    elementwise,
    functions,
    indexing,
    linear_algebra,
    linear_transforms,
    local_response,
    movement,
    padding,
    pooling,
    quantization,
    reductions,
    resize,
    rows,
    scatter,
    selection,
    suppression,
    vision,
    winograd,
)
from tilewright.compiler.ops.declaration import OpDecl

_FAMILIES: Final[dict[str, tuple[OpDecl, ...]]] = {
    "elementwise": elementwise.OPS,
    "functions": functions.OPS,
    "activations": activations.OPS,
    "reductions": reductions.OPS,
    "rows": rows.OPS,
    "local_response": local_response.OPS,
    "attention": attention.OPS,
    "contraction": contraction.OPS,
    "block_products": block_products.OPS,
    "convolution": convolution.OPS,
    "contract": contract.OPS,
    "winograd": winograd.OPS,
    "pooling": pooling.OPS,
    "movement": movement.OPS,
    "padding": padding.OPS,
    "indexing": indexing.OPS,
    "scatter": scatter.OPS,
    "selection": selection.OPS,
    "resize": resize.OPS,
    "quantization": quantization.OPS,
    "linear_transforms": linear_transforms.OPS,
    "linear_algebra": linear_algebra.OPS,
    "complex_linear_algebra": complex_linear_algebra.OPS,
    "suppression": suppression.OPS,
    "vision": vision.OPS,
    "classical": classical.OPS,
    "control": control.OPS,
}


def _table(families: dict[str, tuple[OpDecl, ...]]) -> dict[str, OpDecl]:
    table: dict[str, OpDecl] = {}
    owner: dict[str, str] = {}
    for family, declared in families.items():
        for row in declared:
            if row.name in table:
                raise InternalError(
                    f"op '{row.name}' is declared by '{owner[row.name]}' and by '{family}'"
                )
            table[row.name] = row
            owner[row.name] = family
    return table


_TABLE: Final = _table(_FAMILIES)


def find(name: str) -> OpDecl | None:
    """The declaration of `name`, or None."""
    return _TABLE.get(name)


def lookup(name: str) -> OpDecl:
    """The declaration of `name`.

    Raises: ModelError with the closest names when there is none.
    """
    found = _TABLE.get(name)
    if found is None:
        close = difflib.get_close_matches(name, _TABLE, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else None
        raise ModelError(f"there is no op '{name}'", hint=hint)
    return found


def schema(name: str) -> OpSchema:
    """The schema of `name`.  Raises: ModelError when there is no such op."""
    return lookup(name).schema


def all_ops() -> tuple[OpDecl, ...]:
    """Every declaration, by family in order of declaration."""
    return tuple(_TABLE.values())


def families() -> Iterable[tuple[str, tuple[OpDecl, ...]]]:
    """Family name and rows, for the reference pages."""
    return _FAMILIES.items()
