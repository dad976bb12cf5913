"""The cases of ONNX's BackendTest that are not expected to pass, and why: pattern of names -> reason.

Read by the test that runs the suite, which checks it both ways.
"""

from __future__ import annotations

RANDOM = "random numbers, of which the specification leaves open which come"
NO_TENSORS = "values of control flow that are no tensors, where data decides"

EXCLUDED = {
    "test_affine_grid_3d_align_corners*": "the rank of a result depends on data",
    "test_bernoulli*": RANDOM,
    "test_gradient_of_*": "gradients are not derived",
    "test_if_opt": NO_TENSORS,
    "test_image_decoder_*": "image files are decoded before the model",
    "test_loop11": "a loop whose results have sizes that data decides",
    "test_loop13_seq": NO_TENSORS,
    "test_loop16_seq_none": NO_TENSORS,
    "test_not_[234]d": "the model states opset 1",
    "test_training_dropout": RANDOM,
    "test_training_dropout_default*": RANDOM,
    "test_training_dropout_mask": RANDOM,
}
# Recorded outputs with more noise than the suite allows, a unit of f16 or of f32 near zero: not judged.
NOISY = (
    "test_attention_4d_causal_fp16*",
    "test_dft_inverse*",
    "test_sequence_model8",
)
