"""The rows of all families, found by the name of the operation.

The one place that lists the families.  Called by the importer for every operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.base.errors import InternalError
from tilewright.compiler.frontends.stablehlo.bits import ROWS as BITS
from tilewright.compiler.frontends.stablehlo.chlo_broadcasts import (
    ROWS as CHLO_BROADCASTS,
)
from tilewright.compiler.frontends.stablehlo.collectives import ROWS as COLLECTIVES
from tilewright.compiler.frontends.stablehlo.contraction import ROWS as CONTRACTION
from tilewright.compiler.frontends.stablehlo.control import ROWS as CONTROL
from tilewright.compiler.frontends.stablehlo.custom_calls import ROWS as CUSTOM_CALLS
from tilewright.compiler.frontends.stablehlo.dynamic import ROWS as DYNAMIC
from tilewright.compiler.frontends.stablehlo.einsum import ROWS as EINSUM
from tilewright.compiler.frontends.stablehlo.elementwise import ROWS as ELEMENTWISE
from tilewright.compiler.frontends.stablehlo.indexing import ROWS as INDEXING
from tilewright.compiler.frontends.stablehlo.linear_algebra import (
    ROWS as LINEAR_ALGEBRA,
)
from tilewright.compiler.frontends.stablehlo.movement import ROWS as MOVEMENT
from tilewright.compiler.frontends.stablehlo.normalization import ROWS as NORMALIZATION
from tilewright.compiler.frontends.stablehlo.quantized import ROWS as QUANTIZED
from tilewright.compiler.frontends.stablehlo.random_bits import ROWS as RANDOM_BITS
from tilewright.compiler.frontends.stablehlo.reduction import ROWS as REDUCTION
from tilewright.compiler.frontends.stablehlo.row import Row
from tilewright.compiler.frontends.stablehlo.scattering import ROWS as SCATTERING
from tilewright.compiler.frontends.stablehlo.sharding import ROWS as SHARDING
from tilewright.compiler.frontends.stablehlo.sorting import ROWS as SORTING
from tilewright.compiler.frontends.stablehlo.special_functions import (
    ROWS as SPECIAL_FUNCTIONS,
)
from tilewright.compiler.frontends.stablehlo.transforms import ROWS as TRANSFORMS
from tilewright.compiler.frontends.stablehlo.windows import ROWS as WINDOWS

_FAMILIES: Final[tuple[tuple[Row, ...], ...]] = (
    BITS,
    CONTRACTION,
    CONTROL,
    CHLO_BROADCASTS,
    CUSTOM_CALLS,
    DYNAMIC,
    EINSUM,
    ELEMENTWISE,
    INDEXING,
    LINEAR_ALGEBRA,
    MOVEMENT,
    NORMALIZATION,
    REDUCTION,
    COLLECTIVES,
    QUANTIZED,
    RANDOM_BITS,
    SCATTERING,
    SHARDING,
    SORTING,
    SPECIAL_FUNCTIONS,
    TRANSFORMS,
    WINDOWS,
)


def _index(families: Iterable[Iterable[Row]]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for entry in (entry for rows in families for entry in rows):
        if entry.name in found:
            raise InternalError(f"operation '{entry.name}' has two rows")
        found[entry.name] = entry
    return found


_ROWS: Final = _index(_FAMILIES)


def find(name: str) -> Row | None:
    """The row of an operation, or None."""
    return _ROWS.get(name)


def names() -> tuple[str, ...]:
    """The operations with a row."""
    return tuple(sorted(_ROWS))
