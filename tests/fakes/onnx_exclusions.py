"""The cases of ONNX's BackendTest that are not expected to pass, and why: pattern of names -> reason.

Read by the test that runs the suite, which checks it both ways.
"""

from __future__ import annotations

RANDOM = "random numbers, of which the specification leaves open which come"

EXCLUDED = {
    "test_bernoulli*": RANDOM,
    "test_gradient_of_*": "gradients are not derived",
    "test_image_decoder_*": "image files are decoded before the model",
    "test_loop16_seq_none": "the suite does not compare sequences with scalars",
    "test_training_dropout": RANDOM,
    "test_training_dropout_default*": RANDOM,
    "test_training_dropout_mask": RANDOM,
}
# Recorded outputs with more noise than the suite allows, a unit of f16 or of f32 near zero: not judged.
NOISY = (
    "test_attention_4d_causal_fp16*",
    "test_dft_inverse*",
)

GPU = "a kernel for GPUs alone: onnxruntime computes it on no CPU, so there is nothing to hold results against"
SEARCH = (
    "a search with the model as its body: compile the decoder alone, and search around it"
)
FOREIGN = "code that was compiled for another accelerator, in a node"
RARE = "no exporter or optimizer that we know writes it"
PACKED = "weights packed for one library of kernels"
SPECULATION = "bookkeeping of a server that decodes speculatively"

# Schemas of onnxruntime's own domain that have no row, and why; the test holds it against onnxruntime, both ways.
CONTRIBUTED = {
    "AttnLSTM": RARE,
    "BifurcationDetector": SPECULATION,
    "BitmaskBiasDropout": GPU,
    "BitmaskDropout": GPU,
    "ConvStateReplay": GPU,
    "DecoderAttention": GPU,
    "DecoderMaskedSelfAttention": GPU,
    "DequantizeBFP": GPU,
    "DequantizeWithOrder": GPU,
    "DynamicSparseAttention": GPU,
    "EPContext": FOREIGN,
    "GatedDeltaNetStateReplay": GPU,
    "GatherPacked": PACKED,
    "GemmFloat8": GPU,
    "HyperConnectionLowRankMix": GPU,
    "LongformerAttention": GPU,
    "Mamba2Verify": GPU,
    "MatMulBlockQuantizedFp4Weight": GPU,
    "MatMulBlockQuantizedFp8Weight": GPU,
    "MatMulFpQ4": PACKED,
    "MatMulNBitsMlp": GPU,
    "MatMulNBitsQLoRA": GPU,
    "MatMulNBitsQkv": GPU,
    "MatMulPacked": GPU,
    "MoEPacked": GPU,
    "NGramHashMapping": RARE,
    "PackedSparseAttentionIndexer": GPU,
    "PackedSparseAttentionIndexerMerge": GPU,
    "PagedAttention": GPU,
    "QOrderedAttention": GPU,
    "QOrderedGelu": GPU,
    "QOrderedLayerNormalization": GPU,
    "QOrderedLongformerAttention": GPU,
    "QOrderedMatMul": GPU,
    "QuantizeBFP": GPU,
    "QuantizeWithOrder": GPU,
    "RMSNormRotary": GPU,
    "RouterGateUpProj": GPU,
    "SampleOp": "an example of how onnxruntime is extended",
    "Snpe": FOREIGN,
    "SparseAttentionIndexer": GPU,
    "SparsePagedAttention": GPU,
    "SparseToDenseMatMul": "its operand is a sparse tensor, which the graph has not",
    "SpeculativePrefixCommit": GPU,
    "VarlenNGramHashMapping": RARE,
    "WhisperBeamSearch": SEARCH,
}
