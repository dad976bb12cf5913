"""All cases of the op sweep, and which operators of the front end have none.

What it is: the tables put together; names are unique.
What it is not: a table.
Who calls it: ``op_sweep.py``, its worker and the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sweep import axes, contractions, convolutions, elementwise, heads, movement, rows
from sweep.case import Case

TABLES: Final = (
    convolutions.cases,
    contractions.cases,
    elementwise.cases,
    movement.cases,
    rows.cases,
    heads.cases,
    axes.cases,
)
FOLDED: Final = "computed while importing: no kernel, no time"
FLOW: Final = "control flow: what it takes is its body"
TWIN: Final = "the operator of this name in the default domain is timed"
HOST: Final = "strings are the host's: no kernel"
DRAWN: Final = "draws other numbers than onnxruntime does"
PARTS: Final = "imported as operators that have cases"
# operator → why no case times it; the tests hold this against the front end's table
BETWEEN: Final = "an operator of floats between conversions of bytes, which have cases"
WITHOUT_CASE: Final = {
    "Affine": PARTS,
    "Crop": PARTS,
    "EngramGate (com.microsoft)": PARTS,
    "HyperConnectionPostMix (com.microsoft)": PARTS,
    "HyperConnectionPreMix (com.microsoft)": PARTS,
    "ImageScaler": PARTS,
    "ParametricSoftplus": PARTS,
    "Scale": PARTS,
    "ScaledTanh": PARTS,
    "SparseAttention (com.microsoft)": PARTS,
    "VarlenCausalConvWithState (com.microsoft)": PARTS,
    "GatedDeltaNet (com.microsoft)": FLOW,
    "BeamSearch (com.microsoft)": FLOW,
    "GreedySearch (com.microsoft)": FLOW,
    "Sampling (com.microsoft)": DRAWN,
    "DynamicTimeWarping (com.microsoft)": FLOW,
    "MaxpoolWithMask (com.microsoft)": PARTS,
    "MoEGroupRouter (com.microsoft)": PARTS,
    "WordConvEmbedding (com.microsoft)": PARTS,
    "Bernoulli": DRAWN,
    "BiasAdd (com.microsoft)": PARTS,
    "BiasDropout (com.microsoft)": PARTS,
    "BiasSoftmax (com.microsoft)": PARTS,
    "BiasSplitGelu (com.microsoft)": PARTS,
    "BitCast": "the same bits by another name: nothing is computed",
    "BranchwiseRMSNorm (com.microsoft)": PARTS,
    "CDist (com.microsoft)": PARTS,
    "CausalConvWithState (com.microsoft)": PARTS,
    "ComplexMul (com.microsoft)": PARTS,
    "ComplexMulConj (com.microsoft)": PARTS,
    "ConcatFromSequence": FOLDED,
    "Constant": FOLDED,
    "ConvTransposeWithDynamicPads (com.microsoft)": PARTS,
    "DecoderMaskedMultiHeadAttention (com.microsoft)": PARTS,
    "CropAndResize (com.microsoft)": PARTS,
    "DequantizeLinear (com.microsoft)": TWIN,
    "Dropout": FOLDED,
    "DynamicQuantizeLSTM (com.microsoft)": PARTS,
    "ExpandDims (com.microsoft)": TWIN,
    "FusedGemm (com.microsoft)": PARTS,
    "FusedMatMulActivation (com.microsoft)": PARTS,
    "GatedAdd (com.microsoft)": PARTS,
    "GatedRMSNorm (com.microsoft)": PARTS,
    "GatedRelativePositionBias (com.microsoft)": PARTS,
    "GatherBlockQuantized (com.microsoft)": "rows of the table that MatMulNBits multiplies by",
    "GatherND (com.microsoft)": TWIN,
    "GemmFastGelu (com.microsoft)": PARTS,
    "GemmaRotaryEmbedding (com.microsoft)": PARTS,
    "GridSample (com.microsoft)": TWIN,
    "GroupNorm (com.microsoft)": PARTS,
    "GroupQueryAttention (com.microsoft)": "a decoder's, whose cache has no use in one call",
    "If": FLOW,
    "Inverse (com.microsoft)": "factors of matrices are the host's: no kernel",
    "Irfft (com.microsoft)": PARTS,
    "IsAllFinite (com.microsoft)": PARTS,
    "LayerNormalization (com.microsoft)": TWIN,
    "Loop": FLOW,
    "MRotaryEmbedding (com.microsoft)": PARTS,
    "LinearAttention (com.microsoft)": FLOW,
    "LinearAttentionGate (com.microsoft)": PARTS,
    "MatMulBnb4 (com.microsoft)": PARTS,
    "MurmurHash3 (com.microsoft)": PARTS,
    "MatMulInteger16 (com.microsoft)": PARTS,
    "MoE (com.microsoft)": PARTS,
    "MulInteger (com.microsoft)": PARTS,
    "Multinomial": DRAWN,
    "NGramRepeatBlock (com.microsoft)": PARTS,
    "NhwcConv (com.microsoft)": PARTS,
    "NhwcFusedConv (com.microsoft)": PARTS,
    "NhwcMaxPool (com.microsoft)": PARTS,
    "Optional": FOLDED,
    "OptionalGetElement": FOLDED,
    "OptionalHasElement": FOLDED,
    "PackedAttention (com.microsoft)": PARTS,
    "PackedMultiHeadAttention (com.microsoft)": PARTS,
    "Pad (com.microsoft)": TWIN,
    "QAttention (com.microsoft)": BETWEEN,
    "QEmbedLayerNormalization (com.microsoft)": BETWEEN,
    "QGemm (com.microsoft)": "QLinearMatMul with an addend",
    "QLinearAdd (com.microsoft)": BETWEEN,
    "QLinearAveragePool (com.microsoft)": BETWEEN,
    "QLinearConcat (com.microsoft)": BETWEEN,
    "QLinearConv (com.microsoft)": TWIN,
    "QLinearGlobalAveragePool (com.microsoft)": BETWEEN,
    "QLinearLeakyRelu (com.microsoft)": BETWEEN,
    "QLinearMul (com.microsoft)": BETWEEN,
    "QLinearReduceMean (com.microsoft)": BETWEEN,
    "QLinearSigmoid (com.microsoft)": BETWEEN,
    "QLinearSoftmax (com.microsoft)": BETWEEN,
    "QLinearWhere (com.microsoft)": BETWEEN,
    "QMoE (com.microsoft)": PARTS,
    "QuantizeLinear (com.microsoft)": TWIN,
    "RandomNormal": DRAWN,
    "RandomNormalLike": DRAWN,
    "RandomUniform": DRAWN,
    "RandomUniformLike": DRAWN,
    "Range (com.microsoft)": TWIN,
    "ReduceSumInteger (com.microsoft)": PARTS,
    "RegexFullMatch": HOST,
    "RelativePositionBias (com.microsoft)": PARTS,
    "RemovePadding (com.microsoft)": PARTS,
    "RestorePadding (com.microsoft)": PARTS,
    "Rfft (com.microsoft)": PARTS,
    "ScaledSiLU (com.microsoft)": PARTS,
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
    "SkipGroupNorm (com.microsoft)": PARTS,
    "SplitToSequence": FOLDED,
    "StringConcat": HOST,
    "StringNormalizer": HOST,
    "StringSplit": HOST,
    "SwiGLU (com.microsoft)": PARTS,
    "TfIdfVectorizer": "counted on the host: no kernel",
    "Tokenizer (com.microsoft)": HOST,
    "TorchEmbedding (com.microsoft)": PARTS,
    "TransposeMatMul (com.microsoft)": PARTS,
    "Trilu (com.microsoft)": TWIN,
    "UnfoldTensor (com.microsoft)": PARTS,
    "Unique (com.microsoft)": TWIN,
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
