"""The rows of all families, found by domain, op type and opset.

The one place that lists the families.  Called by the importer for every node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilewright.base.errors import InternalError
from tilewright.compiler.frontends.onnx.attention import ROWS as ATTENTION
from tilewright.compiler.frontends.onnx.beam_search import ROWS as BEAM_SEARCH
from tilewright.compiler.frontends.onnx.block_quantization import ROWS as BLOCK_QUANTIZATION
from tilewright.compiler.frontends.onnx.branches import ROWS as BRANCHES
from tilewright.compiler.frontends.onnx.classical import ROWS as CLASSICAL
from tilewright.compiler.frontends.onnx.classical import TEXT_ROWS as CLASSICAL_TEXT
from tilewright.compiler.frontends.onnx.contraction import ROWS as CONTRACTION
from tilewright.compiler.frontends.onnx.control import ROWS as CONTROL
from tilewright.compiler.frontends.onnx.convolution import ROWS as CONVOLUTION
from tilewright.compiler.frontends.onnx.elementwise import ROWS as ELEMENTWISE
from tilewright.compiler.frontends.onnx.experimental import ROWS as EXPERIMENTAL
from tilewright.compiler.frontends.onnx.expert_routers import ROWS as EXPERT_ROUTERS
from tilewright.compiler.frontends.onnx.experts import ROWS as EXPERTS
from tilewright.compiler.frontends.onnx.fused import ROWS as FUSED
from tilewright.compiler.frontends.onnx.generation import ROWS as GENERATION
from tilewright.compiler.frontends.onnx.grouped_attention import ROWS as GROUPED_ATTENTION
from tilewright.compiler.frontends.onnx.hashing import ROWS as HASHING
from tilewright.compiler.frontends.onnx.hyper_connections import ROWS as HYPER_CONNECTIONS
from tilewright.compiler.frontends.onnx.linear_attention import ROWS as LINEAR_ATTENTION
from tilewright.compiler.frontends.onnx.linear_quantized import ROWS as LINEAR_QUANTIZED
from tilewright.compiler.frontends.onnx.masked_pooling import ROWS as MASKED_POOLING
from tilewright.compiler.frontends.onnx.moved_strings import ROWS as MOVED_TEXT
from tilewright.compiler.frontends.onnx.movement import ROWS as MOVEMENT
from tilewright.compiler.frontends.onnx.normalization import ROWS as NORMALIZATION
from tilewright.compiler.frontends.onnx.packed_sequences import ROWS as PACKED_SEQUENCES
from tilewright.compiler.frontends.onnx.quantization import ROWS as QUANTIZATION
from tilewright.compiler.frontends.onnx.ragged_sequences import ROWS as RAGGED_SEQUENCES
from tilewright.compiler.frontends.onnx.random_numbers import ROWS as RANDOM_NUMBERS
from tilewright.compiler.frontends.onnx.recurrent import ROWS as RECURRENT
from tilewright.compiler.frontends.onnx.reduction import ROWS as REDUCTION
from tilewright.compiler.frontends.onnx.regions_of_interest import (
    ROWS as REGIONS_OF_INTEREST,
)
from tilewright.compiler.frontends.onnx.relative_positions import ROWS as RELATIVE_POSITIONS
from tilewright.compiler.frontends.onnx.resize import ROWS as RESIZE
from tilewright.compiler.frontends.onnx.row import Row
from tilewright.compiler.frontends.onnx.sampling import ROWS as SAMPLING
from tilewright.compiler.frontends.onnx.selection import ROWS as SELECTION
from tilewright.compiler.frontends.onnx.sequences import ROWS as SEQUENCES
from tilewright.compiler.frontends.onnx.shapes import ROWS as SHAPES
from tilewright.compiler.frontends.onnx.signal import ROWS as SIGNAL
from tilewright.compiler.frontends.onnx.sparse_attention import ROWS as SPARSE_ATTENTION
from tilewright.compiler.frontends.onnx.strings import TEXT_ROWS
from tilewright.compiler.frontends.onnx.support_vectors import ROWS as SUPPORT_VECTORS
from tilewright.compiler.frontends.onnx.time_warping import ROWS as TIME_WARPING
from tilewright.compiler.frontends.onnx.tokenizer import TEXT_ROWS as TOKENIZER
from tilewright.compiler.frontends.onnx.training import ROWS as TRAINING
from tilewright.compiler.frontends.onnx.trees import ROWS as TREES
from tilewright.compiler.frontends.onnx.word_embeddings import ROWS as WORD_EMBEDDINGS

_FAMILIES: Final[tuple[tuple[Row, ...], ...]] = (
    ATTENTION,
    BLOCK_QUANTIZATION,
    CLASSICAL,
    CONTRACTION,
    BEAM_SEARCH,
    BRANCHES,
    CONTROL,
    CONVOLUTION,
    ELEMENTWISE,
    EXPERIMENTAL,
    EXPERTS,
    EXPERT_ROUTERS,
    FUSED,
    GENERATION,
    GROUPED_ATTENTION,
    HASHING,
    HYPER_CONNECTIONS,
    LINEAR_ATTENTION,
    LINEAR_QUANTIZED,
    MASKED_POOLING,
    MOVEMENT,
    NORMALIZATION,
    PACKED_SEQUENCES,
    QUANTIZATION,
    RAGGED_SEQUENCES,
    RANDOM_NUMBERS,
    RECURRENT,
    REDUCTION,
    REGIONS_OF_INTEREST,
    RELATIVE_POSITIONS,
    RESIZE,
    SAMPLING,
    SELECTION,
    SEQUENCES,
    SHAPES,
    SIGNAL,
    SPARSE_ATTENTION,
    SUPPORT_VECTORS,
    TIME_WARPING,
    TRAINING,
    TREES,
    WORD_EMBEDDINGS,
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


# What an op means where an operand is text or a map.
_TEXT_ROWS: Final = index((TEXT_ROWS, MOVED_TEXT, CLASSICAL_TEXT, TOKENIZER))


def find(domain: str, name: str, opset: int, *, of_text: bool = False) -> Row | None:
    """The row for an op type at this opset, or None; `of_text` for operands that the host holds."""
    key = (domain, name)
    for entry in (*(_TEXT_ROWS.get(key, ()) if of_text else ()), *_ROWS.get(key, ())):
        if entry.since <= opset and (entry.until is None or opset <= entry.until):
            return entry
    return None


def versions(domain: str, name: str) -> tuple[Row, ...]:
    """All rows of an op type, whatever their opsets and operands."""
    key = (domain, name)
    return (*_ROWS.get(key, ()), *_TEXT_ROWS.get(key, ()))


def names(domain: str) -> tuple[str, ...]:
    """The op types with a row in `domain`."""
    found = {n for d, n in (*_ROWS, *_TEXT_ROWS) if d == domain}
    return tuple(sorted(found))
