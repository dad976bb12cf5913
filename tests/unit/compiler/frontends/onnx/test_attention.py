"""Attention in the forms of onnxruntime that have a kernel there: bytes, decoders, masks of keys."""

import numpy as np
import onnx
import pytest

from fakes import onnx_models
from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError, UserError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(41)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("mask", ["none", "keys", "lengths", "ends and begins"])
def test_attention_of_bytes(causal: int, weights: type, past: int, mask: str) -> None:
    batch, rows, hidden, heads = 2, 4, 8, 2
    info = np.iinfo(weights)
    # Weights have seven bits: onnxruntime adds pairs of products in 16 bits, which saturate.
    x = RNG.integers(0, 256, (batch, rows, 5), dtype=np.uint8)
    w = RNG.integers(info.min // 2, info.max // 2, (5, 3 * hidden)).astype(weights)
    masks = {
        "none": None,
        "keys": RNG.integers(0, 2, (batch, past + rows)).astype(np.int32) | (np.arange(past + rows) == past),
        "lengths": np.array([past + 2, past + rows], np.int32),
        "ends and begins": np.array([past + 2, past + rows, 1, 0], np.int32),
    }  # fmt: skip
    arrays: list[np.ndarray | None] = [
        x, w, floats(3 * hidden), np.array([0.02], np.float32), np.array([0.03], np.float32),
        masks[mask], np.array([117], np.uint8), np.array([4], weights),
    ]  # fmt: skip
    if past:
        arrays.append(floats(2, batch, heads, past, hidden // heads))
    agrees(
        "QAttention", arrays, outputs=2, num_heads=heads, unidirectional=causal,
        constants=[1, 3, 4, 6, 7], atol=1e-3, rtol=1e-3,
    )  # fmt: skip


def test_weights_of_bytes_may_have_a_scale_per_column() -> None:
    x = RNG.integers(0, 256, (1, 3, 4), dtype=np.uint8)
    w = RNG.integers(-60, 60, (4, 24)).astype(np.int8)
    scales = RNG.uniform(0.01, 0.03, 24).astype(np.float32)
    arrays = [
        x, w, floats(24), np.array([0.02], np.float32), scales, None, np.array([9], np.uint8),
        RNG.integers(-5, 5, 24).astype(np.int8),
    ]  # fmt: skip
    constants = [1, 3, 4, 6, 7]
    agrees("QAttention", arrays, num_heads=2, constants=constants, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_decoder_attends_to_its_past_and_itself(has_mask: bool, has_bias: bool) -> None:
    runtime = pytest.importorskip("onnxruntime")
    batch, heads, size, past, room = 2, 2, 4, 5, 9
    q, k, v = (floats(batch, 1, heads * size) for _ in range(3))
    mask = np.array([[1, 1, 0, 1, 1, 1], [1] * 6], np.int32) if has_mask else None
    old = [floats(batch, heads, room, size) for _ in range(2)]
    bias = floats(3 * heads * size) if has_bias else None
    scores = floats(1, heads, 1, past + 1)
    length = np.array([past], np.int32)
    rest = [mask, scores, *old, length, None, None, bias]
    arrays = [q, k, v, *rest]
    options = {"outputs": 3, "num_heads": heads, "past_present_share_buffer": 1}
    model = onnx_models.one_node(
        "DecoderMaskedMultiHeadAttention", arrays, domain="com.microsoft", **options
    )
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    # onnxruntime wants the caches of the outputs where those of the inputs are.
    binding = session.io_binding()
    caches = [runtime.OrtValue.ortvalue_from_numpy(x.copy()) for x in old]
    for name, array in feeds.items():
        place = {"x5": 0, "x6": 1}.get(name)
        held = (
            caches[place]
            if place is not None
            else runtime.OrtValue.ortvalue_from_numpy(array)
        )
        binding.bind_ortvalue_input(name, held)
    binding.bind_output("y0")
    for name, cache in zip(("y1", "y2"), caches, strict=True):
        binding.bind_ortvalue_output(name, cache)
    session.run_with_iobinding(binding)
    expected = [x.numpy() for x in binding.get_outputs()]
    found = evaluate(load(model), [*feeds.values()])
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-5)
    side_by_side = [np.concatenate([q, k, v], 2), None, None, *rest]
    packed = ours("DecoderMaskedMultiHeadAttention", side_by_side, **options)
    for actual, wanted in zip(packed, found, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_a_decoder_attends_to_an_encoder() -> None:
    q, k, v = floats(2, 1, 8), floats(2, 2, 7, 4), floats(2, 2, 7, 4)
    agrees("DecoderMaskedMultiHeadAttention", [q, k, v], num_heads=2)


@pytest.mark.parametrize("past", [0, 3, 6])
def test_a_decoder_writes_its_row_into_a_cache_with_room(past: int) -> None:
    batch, heads, size, room = 2, 2, 4, 7
    q, k, v = (floats(batch, 1, heads * size) for _ in range(3))
    old = [floats(batch, heads, room, size) for _ in range(2)]
    for constants in ((), (7,)):
        arrays = [q, k, v, None, None, *old, np.array([past], np.int32)]
        found, *caches = ours(
            "DecoderMaskedMultiHeadAttention", arrays, outputs=3, num_heads=heads,
            past_present_share_buffer=1, constants=constants,
        )  # fmt: skip
        plain, *longer = ours(
            "DecoderMaskedMultiHeadAttention",
            [q, k, v, None, None, *(x[:, :, :past] for x in old)],
            outputs=3, num_heads=heads,
        )  # fmt: skip
        np.testing.assert_allclose(found, plain, atol=1e-6)
        for cache, long, before in zip(caches, longer, old, strict=True):
            np.testing.assert_array_equal(cache[:, :, : past + 1], long)
            np.testing.assert_array_equal(cache[:, :, past + 1 :], before[:, :, past + 1 :])


def test_beams_are_refused_by_name() -> None:
    q, k, v = (floats(1, 1, 8) for _ in range(3))
    width = np.array([2], np.int32)
    arrays = [q, k, v, None, None, None, None, None, width]
    with pytest.raises(ModelError, match="beam_width"):
        ours("DecoderMaskedMultiHeadAttention", arrays, num_heads=2)


def test_a_number_for_masked_keys_may_stand_beside_no_mask() -> None:
    q, k = floats(2, 3, 8), floats(2, 5, 8)
    agrees("MultiHeadAttention", [q, k, k], num_heads=2, mask_filter_value=-100.0)


@pytest.mark.parametrize("size", ["2", "m", "n"])
def test_lengths_of_keys_are_as_many_as_the_batch_whatever_their_size_is_called(
    size: str,
) -> None:
    """One that is stated, and one of another name, is that of the batch, or the call is refused."""
    text = f"""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    graph (float[n, 3, 4] x, float[4, 24] w, int32[{size}] m) => (float[n, 3, 8] y) {{
        y = com.microsoft.Attention<num_heads = 2>(x, w, , m)
    }}"""
    model = onnx.parser.parse_model(text)
    x, w, lengths = floats(2, 3, 4), floats(4, 24), np.array([1, 3], np.int32)
    (found,) = evaluate(load(model), [x, w, lengths])
    wanted = ours("Attention", [x, w, None, lengths], num_heads=2)
    np.testing.assert_allclose(found, wanted[0], atol=1e-6)
    with pytest.raises(UserError):
        evaluate(load(model), [floats(3, 3, 4), w, lengths])


@pytest.mark.parametrize("causal", [0, 1])
def test_scores_with_their_masks_are_an_output(causal: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.parse(f"""graph (float[2, 4, 8] q, float[2, 4, 8] k, float[2, 4, 8] v, int32[2, 4] m,
        float[1, 2, 4, 4] a) => (float[2, 4, 8] y, float[2, 2, 4, 4] s) {{
        y, , , s = com.microsoft.MultiHeadAttention<num_heads = 2, unidirectional = {causal}>(q, k, v, , m, a)
    }}""")
    mask = np.array([[1, 1, 0, 1], [1, 1, 1, 1]], np.int32)
    arrays = [*(floats(2, 4, 8) for _ in range(3)), mask, floats(1, 2, 4, 4)]
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, dict(zip("qkvma", arrays, strict=True)))
    for one, other in zip(evaluate(load(model), arrays), wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("constants", [(), (6,)])
@pytest.mark.parametrize(("past", "rows"), [(3, 1), (0, 4), (2, 3), (6, 1)])
def test_attention_writes_its_rows_into_a_cache_with_room(
    past: int, rows: int, constants: tuple[int, ...]
) -> None:
    """onnxruntime shares caches on GPUs alone: the node over the rows that are there says what is right."""
    batch, heads, size, room = 2, 2, 4, 7
    x, w, b = floats(batch, rows, 5), floats(5, 24), floats(24)
    old, length = floats(2, batch, heads, room, size), np.array([past], np.int32)
    options = {"outputs": 2, "num_heads": heads, "unidirectional": 1}
    found, cache = ours(
        "Attention", [x, w, b, None, old, None, length],
        past_present_share_buffer=1, constants=constants, **options,
    )  # fmt: skip
    held = old[:, :, :, :past] if past else None
    plain, longer = ours("Attention", [x, w, b, None, held], **options)
    total = past + rows
    np.testing.assert_allclose(found, plain, atol=1e-5)
    np.testing.assert_allclose(cache[:, :, :, :total], longer, atol=1e-6)
    np.testing.assert_array_equal(cache[:, :, :, total:], old[:, :, :, total:])


@pytest.mark.parametrize("constants", [(), (6,)])
def test_a_length_below_0_is_no_place_from_the_end_of_a_cache(
    constants: tuple[int, ...],
) -> None:
    arrays = [
        floats(1, 1, 5), floats(5, 24), floats(24), None, floats(2, 1, 2, 7, 4), None,
        np.array([-1], np.int32),
    ]  # fmt: skip
    with pytest.raises(UserError, match="-1, expected at least 0"):
        ours(
            "Attention", arrays,
            outputs=2, num_heads=2, past_present_share_buffer=1, constants=constants,
        )  # fmt: skip


@pytest.mark.parametrize("constants", [(), (7,)])
def test_neither_is_that_of_a_decoder(constants: tuple[int, ...]) -> None:
    caches = [floats(1, 2, 7, 4) for _ in range(2)]
    row, length = floats(1, 1, 8), np.array([-1], np.int32)
    with pytest.raises(UserError, match="-1, expected at least 0"):
        ours(
            "DecoderMaskedMultiHeadAttention", [row, row, row, None, None, *caches, length],
            outputs=3, num_heads=2, past_present_share_buffer=1, constants=constants,
        )  # fmt: skip


def test_a_shared_cache_whose_length_nobody_says_is_refused() -> None:
    arrays = [floats(1, 1, 5), floats(5, 24), floats(24), None, floats(2, 1, 2, 7, 4)]
    with pytest.raises(ModelError, match="operand 7 is missing"):
        ours("Attention", arrays, num_heads=2, past_present_share_buffer=1)
