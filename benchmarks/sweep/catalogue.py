"""All cases of the op sweep, and which operators of the front end have none.

What it is: the tables put together; names are unique.
What it is not: a table.
Who calls it: ``op_sweep.py``, its worker and the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sweep import contractions, convolutions, elementwise, heads, movement, rows
from sweep.case import Case

TABLES: Final = (
    convolutions.cases,
    contractions.cases,
    elementwise.cases,
    movement.cases,
    rows.cases,
    heads.cases,
)
FOLDED: Final = "computed while importing: no kernel, no time"
FLOW: Final = "control flow: what it takes is its body"
TWIN: Final = "the operator of this name in the default domain is timed"
HOST: Final = "strings are the host's: no kernel"
# operator → why no case times it; the tests hold this against the front end's table
BETWEEN: Final = "an operator of floats between conversions of bytes, which have cases"
WITHOUT_CASE: Final = {
    "BitCast": "the same bits by another name: nothing is computed",
    "ConcatFromSequence": FOLDED,
    "Constant": FOLDED,
    "DequantizeLinear (com.microsoft)": TWIN,
    "Dropout": FOLDED,
    "GatherBlockQuantized (com.microsoft)": "rows of the table that MatMulNBits multiplies by",
    "GroupQueryAttention (com.microsoft)": "a decoder's, whose cache has no use in one call",
    "If": FLOW,
    "LayerNormalization (com.microsoft)": TWIN,
    "Loop": FLOW,
    "Optional": FOLDED,
    "OptionalGetElement": FOLDED,
    "OptionalHasElement": FOLDED,
    "QGemm (com.microsoft)": "QLinearMatMul with an addend",
    "QLinearAdd (com.microsoft)": BETWEEN,
    "QLinearConcat (com.microsoft)": BETWEEN,
    "QLinearGlobalAveragePool (com.microsoft)": BETWEEN,
    "QLinearLeakyRelu (com.microsoft)": BETWEEN,
    "QLinearMul (com.microsoft)": BETWEEN,
    "QLinearSigmoid (com.microsoft)": BETWEEN,
    "QLinearSoftmax (com.microsoft)": BETWEEN,
    "QuantizeLinear (com.microsoft)": TWIN,
    "RegexFullMatch": HOST,
    "Scan": FLOW,
    "Scatter": "the old name of ScatterElements",
    "SequenceAt": FOLDED,
    "SequenceConstruct": FOLDED,
    "SequenceEmpty": FOLDED,
    "SequenceErase": FOLDED,
    "SequenceInsert": FOLDED,
    "SequenceLength": FOLDED,
    "SequenceMap": FLOW,
    "SimplifiedLayerNormalization (com.microsoft)": TWIN,
    "SplitToSequence": FOLDED,
    "StringConcat": HOST,
    "StringNormalizer": HOST,
    "StringSplit": HOST,
    "TfIdfVectorizer": "counted on the host: no kernel",
}


def all_cases() -> dict[str, Case]:
    """Return the cases by name.  Raises: ValueError when two have one name."""
    found: dict[str, Case] = {}
    for case in generate():
        if case.name in found:
            raise ValueError(f"two cases are called {case.name!r}")
        found[case.name] = case
    return found


def generate() -> Iterator[Case]:
    """Yield the cases of all tables in order."""
    for table in TABLES:
        yield from table()
