"""The rows of all families, found by the name of the overload.

The one place that lists the families.  Called by the importer for every operator, and by `export` to know
what stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import tilewright.compiler.frontends.torch.complex_numbers as complex_numbers
from tilewright.base.errors import InternalError
from tilewright.compiler.frontends.torch.activations import ROWS as ACTIVATIONS
from tilewright.compiler.frontends.torch.assertions import ROWS as ASSERTIONS
from tilewright.compiler.frontends.torch.attention import ROWS as ATTENTION
from tilewright.compiler.frontends.torch.contraction import ROWS as CONTRACTION
from tilewright.compiler.frontends.torch.convolution import ROWS as CONVOLUTION
from tilewright.compiler.frontends.torch.counted import ROWS as COUNTED
from tilewright.compiler.frontends.torch.creation import ROWS as CREATION
from tilewright.compiler.frontends.torch.elementwise import ROWS as ELEMENTWISE
from tilewright.compiler.frontends.torch.functions import ROWS as FUNCTIONS
from tilewright.compiler.frontends.torch.indexing import ROWS as INDEXING
from tilewright.compiler.frontends.torch.linear_algebra import ROWS as LINEAR_ALGEBRA
from tilewright.compiler.frontends.torch.movement import ROWS as MOVEMENT
from tilewright.compiler.frontends.torch.normalization import ROWS as NORMALIZATION
from tilewright.compiler.frontends.torch.pooling import ROWS as POOLING
from tilewright.compiler.frontends.torch.quantization import ROWS as QUANTIZATION
from tilewright.compiler.frontends.torch.random_numbers import ROWS as RANDOM_NUMBERS
from tilewright.compiler.frontends.torch.recurrent import ROWS as RECURRENT
from tilewright.compiler.frontends.torch.reduction import ROWS as REDUCTION
from tilewright.compiler.frontends.torch.row import Row
from tilewright.compiler.frontends.torch.selection import ROWS as SELECTION
from tilewright.compiler.frontends.torch.special import ROWS as SPECIAL
from tilewright.compiler.frontends.torch.splits import ROWS as SPLITS
from tilewright.compiler.frontends.torch.vision import ROWS as VISION

_FAMILIES: Final[tuple[tuple[Row, ...], ...]] = (
    ACTIVATIONS,
    ASSERTIONS,
    ATTENTION,
    CONTRACTION,
    CONVOLUTION,
    COUNTED,
    CREATION,
    ELEMENTWISE,
    FUNCTIONS,
    INDEXING,
    LINEAR_ALGEBRA,
    MOVEMENT,
    NORMALIZATION,
    POOLING,
    QUANTIZATION,
    RANDOM_NUMBERS,
    RECURRENT,
    REDUCTION,
    SELECTION,
    SPECIAL,
    SPLITS,
    VISION,
)


def _index(families: Iterable[Iterable[Row]]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for entry in (entry for rows in families for entry in rows):
        for name in entry.names:
            if name in found:
                raise InternalError(f"operator '{name}' has two rows")
            found[name] = entry
    return found


_ROWS: Final = _index(_FAMILIES)
_NAMES: Final = frozenset(_ROWS) | complex_numbers.NAMES


def find(name: str) -> Row | None:
    """The row of an overload, or None."""
    return _ROWS.get(name)


def names() -> frozenset[str]:
    """The overloads with a row."""
    return _NAMES
