"""Sequences of several lengths one after another, beside onnxruntime's CPU kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes import onnx_models
from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(17)
BOUNDS = np.array([0, 3, 4, 9], np.int32)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# --- the convolution


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("taps", "dilation"), [(4, 1), (3, 2), (1, 1), (6, 1)])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_a_convolution_looks_back_into_its_own_sequence(
    taps: int, dilation: int, activation: str
) -> None:
    state = floats(3, 5, (taps - 1) * dilation)
    arrays = [floats(9, 5), floats(5, 1, taps), BOUNDS, floats(5), state]
    if not state.size:
        # onnxruntime takes no empty state: nothing is carried.
        (found, last) = ours(
            "VarlenCausalConvWithState", arrays, outputs=2, activation=activation
        )
        wanted = arrays[0] * arrays[1][:, 0, 0] + arrays[3]
        wanted = wanted / (1 + np.exp(-wanted)) if activation == "silu" else wanted
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        assert last.shape == (3, 5, 0)
        return
    options = {"activation": activation, "dilation": dilation, "outputs": 2}
    agrees("VarlenCausalConvWithState", arrays, **options)
    arrays[3] = None
    agrees("VarlenCausalConvWithState", arrays, **options)


def test_the_first_tokens_of_sequences_are_given_out() -> None:
    arrays = [
        floats(9, 5), floats(5, 1, 4), BOUNDS, None, floats(3, 5, 3), np.array([2, 4, -1], np.int32)
    ]  # fmt: skip
    found = ours("VarlenCausalConvWithState", arrays, outputs=3, state_update_capacity=3)[2]
    wanted = np.zeros((3, 3, 5), np.float32)
    wanted[0, :2], wanted[1, 0] = arrays[0][:2], arrays[0][3]
    np.testing.assert_array_equal(found, wanted)


def test_tokens_may_change_the_weights() -> None:
    x, weight, state = floats(9, 4), floats(4, 1, 2), floats(3, 4, 1)
    deltas, mask = floats(9, 3, 2), floats(9, 1)
    arrays = [x, weight, BOUNDS, None, state, None, deltas, mask]
    found = ours(
        "VarlenCausalConvWithState", arrays, outputs=2, delta_offset=1, group_size=2
    )[0]
    previous = np.concatenate([x[:1], x[:-1]])
    previous[BOUNDS[:-1]] = state[:, :, 0]
    now, before = (
        weight[:, 0, i] + np.repeat(deltas[:, j], 2, 1) for i, j in ((1, 1), (0, 2))
    )
    np.testing.assert_allclose(
        found, x * now + previous * before * mask, rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ModelError, match="two, next to each other"):
        ours("VarlenCausalConvWithState", [*arrays[:3], floats(4), *arrays[4:]], outputs=2)


# --- the state


def state_operands(
    rule: str = "gated_delta", *, vector: bool = False, shape: tuple[int, ...] = (9,)
) -> list[np.ndarray | None]:
    heads, shared, depth, width = 4, 2, 5, 3
    key = floats(*shape, shared, depth)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    decay = -np.abs(floats(*shape, heads, *([depth] if vector else [])))
    beta = RNG.uniform(0, 1, (*shape, heads)).astype(np.float32)
    return [
        floats(*shape, shared, depth),
        key,
        floats(*shape, heads, width),
        BOUNDS if shape == (9,) else None,
        decay if "gated" in rule else None,
        beta if "delta" in rule else None,
        floats(3, heads, width, depth),
    ]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_every_rule_of_a_state(rule: str) -> None:
    agrees("GatedDeltaNet", state_operands(rule), outputs=2, update_rule=rule)
    even = state_operands(rule, shape=(3, 4))
    agrees("GatedDeltaNet", even, outputs=2, update_rule=rule, scale=0.7)


def test_a_decay_of_every_element_of_a_key() -> None:
    agrees("GatedDeltaNet", state_operands(vector=True), outputs=2)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["softplus", "qwen", "sigmoid", "kda"])
def test_gates_are_computed_from_projections(kind: str) -> None:
    arrays = [*state_operands(), floats(4), floats(4)]
    options = {"gate_activation": kind, "beta_activation": "sigmoid", "qk_l2_norm": 1}
    agrees("GatedDeltaNet", arrays, outputs=2, **options)
    vector = [*state_operands(vector=True), floats(4), floats(4, 5)]
    agrees("GatedDeltaNet", vector, outputs=2, **options, gate_lower_bound=-2.0)


def test_heads_may_be_packed() -> None:
    q, k, v, *rest = state_operands()
    packed = np.concatenate([x.reshape(9, -1) for x in (q, k, v)], axis=1)
    agrees("GatedDeltaNet", [packed, None, None, *rest], outputs=2)
    with pytest.raises(ModelError, match="'initial_state' is missing"):
        ours("GatedDeltaNet", [packed, None, None, *rest[:3]], outputs=2)


def test_the_first_transitions_are_given_out() -> None:
    counts = np.array([2, 5, 3], np.int32)
    arrays = [*state_operands(), None, None, counts]
    runtime = pytest.importorskip("onnxruntime")
    options = {"outputs": 3, "state_update_capacity": 3}
    model = onnx_models.one_node("GatedDeltaNet", arrays, domain="com.microsoft", **options)
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    wanted = runtime.InferenceSession(model.SerializeToString()).run(None, feeds)[2]
    found = ours("GatedDeltaNet", arrays, **options)[2]
    assert found.shape == wanted.shape
    for b, count in enumerate((2, 1, 3)):
        begin = 0
        for size in (4, 10, 12):
            part = slice(begin, begin + count * size)
            np.testing.assert_allclose(
                found[b, part], wanted[b, part], rtol=1e-5, atol=1e-5
            )
            begin += 3 * size
    off = [*arrays, np.array([0], np.int32)]
    assert not ours("GatedDeltaNet", off, **options)[2].any()


@pytest.mark.slow
def test_sequences_of_other_lengths_need_no_other_code() -> None:
    text = """graph (float[T,2,5] q, float[T,2,5] k, float[T,4,3] v, int32[N] bounds, float[T,4] g,
      float[T,4] b, float[B,4,3,5] s) => (float[T,4,3] y, float[B,4,3,5] z) {
      y, z = com.microsoft.GatedDeltaNet (q, k, v, bounds, g, b, s)
    }"""
    model = tilewright.compile(onnx_models.parse(text))
    arrays = state_operands()
    for bounds in (BOUNDS, np.array([0, 1, 2, 9], np.int32)):
        arrays[3] = bounds
        for one, other in zip(
            model(*arrays), ours("GatedDeltaNet", arrays, outputs=2), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_sequences_without_a_token_give_out_nothing() -> None:
    """What is given out has room for tokens that there are not."""
    text = """graph (float[0,5] x, float[5,1,4] w, int32[4] bounds, float[3,5,3] s, int32[3] n)
      => (float[0,5] y, float[3,5,3] z, float[3,2,5] u) {
      y, z, u = com.microsoft.VarlenCausalConvWithState<state_update_capacity = 2> (x, w, bounds, , s, n)
    }"""
    state, none = floats(3, 5, 3), np.zeros(4, np.int32)
    arrays = [floats(0, 5), floats(5, 1, 4), none, state, np.array([1, 2, 0], np.int32)]
    _, after, update = tilewright.compile(onnx_models.parse(text))(*arrays)
    np.testing.assert_array_equal(after, state)
    assert not update.any()
    q, v, g = (f"float[0,{sizes}]" for sizes in ("2,5", "4,3", "4"))
    text = f"""graph ({q} q, {q} k, {v} v, int32[4] bounds, {g} g, {g} b, float[3,4,3,5] s, int32[3] n)
      => ({v} y, float[3,4,3,5] z, float[3,M] u) {{
      y, z, u = com.microsoft.GatedDeltaNet<state_update_capacity = 2> (q, k, v, bounds, g, b, s, , , n)
    }}"""
    q, v, g, state = floats(0, 2, 5), floats(0, 4, 3), floats(0, 4), floats(3, 4, 3, 5)
    model = tilewright.compile(onnx_models.parse(text))
    _, after, update = model(q, q, v, none, g, g, state, np.zeros(3, np.int32))
    np.testing.assert_array_equal(after, state)
    assert np.isfinite(update).all()
