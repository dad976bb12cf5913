from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes.language_models import Form, Reference
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.gguf import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.formats.gguf import dequantize, read_gguf

TOKENS = [3, 17, 0, 79, 5, 44, 44, 8, 61, 20, 33]
ROOM = 24


def _step(
    model: tw.Model,
    caches: Mapping[str, np.ndarray],
    tokens: Sequence[int],
    before: int,
    slack: int = 0,
) -> np.ndarray:
    inputs = {
        "tokens": np.array([tokens]),
        "position": np.array([before]),
        "span": np.zeros(min(ROOM, before + len(tokens) + slack), np.bool_),
        **caches,
    }
    outputs = {f"new_{name}": array for name, array in caches.items()}
    return model.run(inputs, outputs)["logits"][0]


def _caches(model: tw.Model, room: int = ROOM) -> dict[str, np.ndarray]:
    return {
        spec.name: np.zeros((1, spec.shape[1], room, spec.shape[3]), np.float32)
        for spec in model.inputs[3:]
    }


def _check(form: Form, **options: Any) -> None:
    """A prompt, one token after the other, then a part of two tokens: each as the reference has it."""
    model = tw.compile(form.data())
    reference = Reference(form, **options)
    caches = _caches(model)
    for start, stop, slack in ((0, 7, 0), (7, 8, 5), (8, 9, 0), (9, 11, 9)):
        found = _step(model, caches, TOKENS[start:stop], start, slack)
        expected = reference.logits(TOKENS[:stop])
        scale = np.abs(expected).max()
        assert np.abs(found - expected).max() < 2e-5 * scale, (start, stop)


@pytest.mark.slow
def test_a_llama_of_floats_computes_what_the_papers_say() -> None:
    _check(Form(tied=False))


MORE = {
    "q4_1": (Form(kinds={"weight": "Q4_1", "token_embd.weight": "Q8_0"}), {}),
    "q4_0": (Form(kinds={"weight": "Q4_0"}, tied=False), {}),
    "mixed": (Form(kinds={"weight": "Q5_1", "attn_v.weight": "Q8_0", "ffn_down.weight": "F16"}), {}),
    "halves": (Form(kinds={"weight": "BF16"}), {}),
    "k": (
        Form(width=256, size=64, inner=256,
             kinds={"weight": "Q4_K", "attn_v.weight": "Q6_K", "ffn_down.weight": "Q6_K",
                    "token_embd.weight": "Q6_K"}),
        {},
    ),
    "small k": (
        Form(width=256, size=64, inner=256, layers=1,
             kinds={"weight": "Q3_K", "ffn_down.weight": "Q2_K", "attn_output.weight": "Q5_K"}),
        {},
    ),
    "uneven": (
        Form(width=256, size=64, inner=256, layers=1,
             kinds={"weight": "IQ4_NL", "attn_v.weight": "MXFP4", "ffn_down.weight": "IQ4_XS",
                    "attn_output.weight": "TQ2_0"}),
        {},
    ),
    "looked up": (
        Form(width=256, size=64, inner=256, layers=1,
             kinds={"weight": "IQ2_S", "attn_v.weight": "IQ1_M", "ffn_down.weight": "IQ3_S",
                    "attn_output.weight": "IQ2_XXS", "attn_k.weight": "IQ1_S", "ffn_up.weight": "IQ3_XXS",
                    "attn_q.weight": "IQ2_XS"}),
        {},
    ),
    "few values": (
        Form(width=256, size=64, inner=256, layers=1,
             kinds={"weight": "NVFP4", "attn_v.weight": "Q1_0", "ffn_down.weight": "Q2_0",
                    "attn_output.weight": "TQ1_0"}),
        {},
    ),
    "one head": (Form(heads=1, shared=1, layers=1), {}),
    "long context": (
        Form(more={"rope_freqs.weight": np.linspace(1, 8, 8)}, metadata={"llama.rope.freq_base": 5e5}),
        {"divisors": np.linspace(1, 8, 8), "base": 5e5},
    ),
    "linear": (
        Form(metadata={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}),
        {"divisors": np.full(8, 4.0)},
    ),
    "qwen2": (Form("qwen2", biases=True, kinds={"weight": "Q8_0"}), {"neighbours": False}),
    "qwen3": (Form("qwen3", head_norms=True), {"neighbours": False}),
    "phi3": (
        Form("phi3", fused=True, metadata={"phi3.attention.sliding_window": 4}),
        {"neighbours": False, "windows": (4, 4)},
    ),
    "chatglm": (Form("chatglm", fused=True, biases=True, kinds={"weight": "Q8_0"}), {}),
    "mixtral": (Form(experts=4, kinds={"exps.weight": "Q4_0"}), {}),
    "mixtral of old": (Form(experts=3, apart=True, layers=1), {}),
    "qwen2moe": (
        Form("qwen2moe", biases=True, experts=5, chosen=3, shared_inner=32, kinds={"exps.weight": "Q8_0"}),
        {"neighbours": False, "shares_add_up": False},
    ),
    "qwen3moe": (Form("qwen3moe", head_norms=True, experts=4, chosen=1, layers=1), {"neighbours": False}),
    "gemma": (Form("gemma"), {"neighbours": False, "gelu": True, "embedding_scale": 8.0}),
    "gemma2": (
        Form("gemma2", post_norms=True, layers=3,
             metadata={"gemma2.attention.sliding_window": 4, "gemma2.attn_logit_softcapping": 0.5,
                       "gemma2.final_logit_softcapping": 0.3}),
        {"neighbours": False, "gelu": True, "embedding_scale": 8.0, "windows": (4, 0, 4),
         "attention_cap": 0.5, "final_cap": 0.3},
    ),
    "gemma3": (
        Form("gemma3", post_norms=True, head_norms=True, layers=7,
             metadata={"gemma3.attention.sliding_window": 3, "gemma3.rope.freq_base": 1e6}),
        {"neighbours": False, "gelu": True, "embedding_scale": 8.0, "base": 1e6,
         "local_base": 1e4, "windows": (3, 3, 3, 3, 3, 0, 3)},
    ),
    "gemma3 of other windows": (
        Form("gemma3", post_norms=True, head_norms=True,
             metadata={"gemma3.attention.sliding_window": 3, "gemma3.rope.freq_base": 1e6,
                       "gemma3.attention.sliding_window_pattern": 0, "gemma3.rope.freq_base_swa": 500.0}),
        {"neighbours": False, "gelu": True, "embedding_scale": 8.0, "base": 1e6,
         "local_base": 500.0, "windows": (3, 3)},
    ),
}  # fmt: skip


@pytest.mark.sampled(14)
@pytest.mark.parametrize("case", MORE)
def test_models_of_other_forms_compute_what_the_papers_say(case: str) -> None:
    form, options = MORE[case]
    _check(form, **options)


AFTER = {"post_norms": True, "tied": False, "without": ("attn_norm", "ffn_norm")}
COMPILED = {
    "mpt": Form(
        "mpt", heads=6, shared=6, size=8, width=48, fused=True, gated=False,
        metadata={"mpt.attention.max_alibi_bias": 8.0, "mpt.attention.clamp_kqv": 0.3},
    ),
    "cohere2": Form(
        "cohere2", layers=4, without=("ffn_norm",),
        metadata={"cohere2.attention.sliding_window": 4, "cohere2.logit_scale": 0.25},
    ),
    "olmo2": Form(
        "olmo2", **AFTER, extra={"attn_q_norm.weight": (64,), "attn_k_norm.weight": (32,)}
    ),
    "command-r": Form(
        "command-r", without=("ffn_norm",),
        extra={"attn_q_norm.weight": (4, 16), "attn_k_norm.weight": (2, 16)},
    ),
    "mistral3": Form(
        "mistral3",
        metadata={
            "mistral3.attention.temperature_scale": 0.5, "mistral3.rope.scaling.type": "yarn",
            "mistral3.rope.scaling.factor": 16.0, "mistral3.rope.scaling.original_context_length": 4,
            "mistral3.rope.scaling.yarn_log_multiplier": 1.0,
        },
    ),
    "gpt-oss": Form(
        "gpt-oss", experts=4, biases=True, without=("ffn_norm",), kinds={"_exps.weight": "MXFP4"}, inner=64,
        metadata={"gpt-oss.attention.sliding_window": 4},
        extra={"post_attention_norm.weight": (64,), "attn_sinks.weight": (4,), "ffn_up_exps.bias": (4, 64)},
    ),
    "glm4moe": Form(
        "glm4moe", experts=8, without=("ffn_norm",),
        metadata={"glm4moe.expert_gating_func": 2, "glm4moe.expert_group_count": 4, "glm4moe.expert_group_used_count": 2,
                  "glm4moe.expert_weights_scale": 2.5, "glm4moe.expert_weights_norm": True},
        extra={"exp_probs_b.bias": (8,), "post_attention_norm.weight": (64,)},
    ),
    "llama4": Form(
        "llama4", layers=4, experts=4, shared_inner=96, without=("ffn_gate_inp_shexp",),
        metadata={"llama4.attention.sliding_window": 4, "llama4.attention.temperature_length": 3,
                  "llama4.attention.temperature_scale": 0.5},
    ),
    "gpt2": Form(
        "gpt2", fused=True, gated=False, norm_biases=True, dense_biases=True,
        more={"position_embd.weight": np.linspace(-1, 1, 64 * 64).reshape(64, 64)},
    ),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", COMPILED)
def test_what_is_compiled_computes_what_the_graph_means(case: str) -> None:
    """Graphs of these are held against transformers (`tests/conformance/frontends/test_gguf_architectures`)."""
    data = COMPILED[case].data()
    model, graph = tw.compile(data), load(data).graph
    caches = _caches(model)
    held = {name: array.copy() for name, array in caches.items()}
    for start, stop in ((0, 7), (7, 8), (8, 11)):
        inputs = {
            "tokens": np.array([TOKENS[start:stop]]),
            "position": np.array([start]),
            "span": np.zeros(stop, np.bool_),
        }
        outputs = dict(zip(graph.output_names, evaluate(graph, inputs | held), strict=True))
        expected = outputs.pop("logits")[0]
        held = {name.removeprefix("new_"): array for name, array in outputs.items()}
        found = _step(model, caches, TOKENS[start:stop], start)
        assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


def test_queries_keys_and_values_in_one_tensor_are_those_that_stand_apart() -> None:
    """Of an architecture that turns neighbours, whose columns are put in another order."""
    random, rows = np.random.default_rng(3), {"q": 64, "k": 32, "v": 32}
    apart = {
        f"blk.0.attn_{name}.weight": random.standard_normal((count, 64)) * 0.1
        for name, count in rows.items()
    }
    joined = {"blk.0.attn_qkv.weight": np.concatenate(list(apart.values()))}
    found: list[np.ndarray] = []
    for more in (apart, joined):
        form = Form(layers=1, without=("attn_q", "attn_k", "attn_v"), more=more)
        graph = load(form.data()).graph
        inputs: dict[str, np.ndarray] = {
            "tokens": np.array([TOKENS]),
            "position": np.array([0]),
            "span": np.zeros(len(TOKENS), np.bool_),
            "key_0": np.zeros((1, 2, ROOM, 16), np.float32),
            "value_0": np.zeros((1, 2, ROOM, 16), np.float32),
        }
        found.append(evaluate(graph, inputs)[0])
    assert np.abs(found[0] - found[1]).max() < 1e-6


def test_positions_of_parts_turn_columns_of_glm4_as_those_of_qwen2() -> None:
    found: list[np.ndarray] = []
    for architecture, sections in (("glm4", [4, 2, 2, 0]), ("glm4", 0), ("qwen2", 0)):
        metadata = {f"{architecture}.rope.dimension_sections": sections}
        graph = load(Form(architecture, layers=1, metadata=metadata).data()).graph
        inputs: dict[str, np.ndarray] = {
            "tokens": np.array([TOKENS]),
            "position": np.array([0]),
            "span": np.zeros(len(TOKENS), np.bool_),
            "key_0": np.zeros((1, 2, ROOM, 16), np.float32),
            "value_0": np.zeros((1, 2, ROOM, 16), np.float32),
        }
        found.append(evaluate(graph, inputs)[0])
    assert np.abs(found[0] - found[2]).max() == 0
    assert np.abs(found[1] - found[2]).max() > 1e-3


def _phi3(trained: int, turned: int) -> Form:
    """As files of models of Phi-3.5 and Phi-4 are written: with both sets of divisors, without a kind of scaling."""
    half = turned // 2
    return Form(
        "phi3",
        layers=1,
        fused=True,
        tied=False,
        more={
            "rope_factors_short.weight": np.linspace(1, 1.5, half),
            "rope_factors_long.weight": np.linspace(2, 40, half),
        },
        metadata={
            "phi3.rope.dimension_count": turned,
            "phi3.rope.scaling.original_context_length": trained,
            "phi3.rope.scaling.attn_factor": np.sqrt(
                1 + np.log(64 / trained) / np.log(trained)
            ).item(),
        },
    )


def _phi3_of_transformers(form: Form, trained: int, turned: int) -> np.ndarray:
    """The scores behind the last token."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    file = read_gguf(form.data())
    w = {
        n: torch.from_numpy(dequantize(file, t).astype(np.float32).copy())
        for n, t in file.tensors.items()
    }
    configuration = transformers.Phi3Config(
        vocab_size=form.vocabulary, hidden_size=form.width, intermediate_size=form.inner,
        num_hidden_layers=form.layers, num_attention_heads=form.heads,
        num_key_value_heads=form.shared, max_position_embeddings=64,
        original_max_position_embeddings=trained, pad_token_id=0,
        partial_rotary_factor=turned / form.size, tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0,
            "partial_rotary_factor": turned / form.size,
            "original_max_position_embeddings": trained,
            "short_factor": w.pop("rope_factors_short.weight").tolist(),
            "long_factor": w.pop("rope_factors_long.weight").tolist(),
        },
    )  # fmt: skip
    names = {
        "blk.": "model.layers.", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
        "ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm", "token_embd": "model.embed_tokens",
        "output_norm": "model.norm", "output.": "lm_head.",
    }  # fmt: skip
    state: dict[str, Any] = {}
    for name, array in w.items():
        own = name
        for old, new in names.items():
            own = (
                own.replace(old, new)
                if old != "output." or name == "output.weight"
                else own
            )
        state[own] = array
    model = transformers.Phi3ForCausalLM(configuration)
    model.load_state_dict(state)
    with torch.no_grad():
        return model.eval()(torch.tensor([TOKENS])).logits[0, -1].numpy()


@pytest.mark.needs_torch
@pytest.mark.parametrize(("trained", "turned"), [(8, 16), (8, 12), (32, 16)])
def test_divisors_for_near_and_far_are_those_of_transformers(
    trained: int, turned: int
) -> None:
    """A context of training's length that the tokens go beyond, and one that even the caches do not."""
    form = _phi3(trained, turned)
    expected = _phi3_of_transformers(form, trained, turned)
    for shapes in ({}, {"key_0": (1, 2, ROOM, 16)}):
        model = tw.compile(form.data(), input_shapes=shapes)
        caches = _caches(model)
        _step(model, caches, TOKENS[:6], 0)
        found = _step(model, caches, TOKENS[6:], 6)
        assert np.abs(found - expected).max() < 5e-5 * np.abs(expected).max()


@pytest.mark.slow
def test_the_room_of_a_call_says_which_divisors_count() -> None:
    form = _phi3(16, 16)
    factor = form.metadata["phi3.rope.scaling.attn_factor"]
    model = tw.compile(form.data())
    for room, kind in ((16, "short"), (17, "long")):
        found = _step(model, _caches(model, room), TOKENS, 0)
        divisors = form.more[f"rope_factors_{kind}.weight"]
        reference = Reference(
            form, neighbours=False, divisors=divisors, turned_scale=factor
        )
        expected = reference.logits(TOKENS)
        assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.slow
def test_a_step_of_fixed_sizes_is_the_same_step() -> None:
    form = Form(kinds={"weight": "Q4_1"})
    whole = tw.compile(form.data())
    single = tw.compile(
        form.data(), input_shapes={"tokens": (1, 1), "key_0": (1, 2, ROOM, 16)}
    )
    caches, own = _caches(whole), _caches(whole)
    for at, token in enumerate(TOKENS):
        expected = _step(whole, caches, [token], at)
        found = _step(single, own, [token], at, slack=at)
        assert np.abs(found - expected).max() < 1e-5


@pytest.mark.slow
def test_tokens_and_places_out_of_range_are_errors() -> None:
    model = tw.compile(Form(layers=1).data())
    with pytest.raises(InputError, match="out of range"):
        _step(model, _caches(model), [80], 0)
    with pytest.raises(InputError, match="out of range"):
        _step(model, _caches(model), [1, 2], ROOM - 1)


def test_shares_of_experts_that_nobody_wants_are_numbers() -> None:
    """Sigmoids of all experts are 0, and so is what they are divided by."""
    bias = {"blk.0.ffn_gate_inp.bias": np.full(4, -1e4, np.float32)}
    norms = {"attn_q_norm.weight": (64,), "attn_k_norm.weight": (32,)}
    form = Form("minimax-m2", layers=1, experts=4, extra=norms, more=bias)
    graph = load(form.data()).graph
    inputs = {
        value.name: np.zeros((1, value.type.shape[1], 8, value.type.shape[3]), np.float32)
        for value in graph.inputs[3:]
    }
    inputs |= {
        "tokens": np.array([[3, 1]]),
        "position": np.array([0]),
        "span": np.zeros(2, np.bool_),
    }
    assert np.isfinite(evaluate(graph, inputs)[0]).all()


def test_a_router_without_experts_is_named() -> None:
    form = Form(experts=2, layers=1, metadata={"llama.expert_count": 0})
    with pytest.raises(ModelError, match="has a router, the metadata no experts"):
        tw.compile(form.data())


BROKEN = {
    "missing tensor": (
        Form(tied=True),
        "blk.1.ffn_down.weight",
        "'blk.1.ffn_down.weight' is missing",
    ),
    "missing norm": (
        Form(tied=True),
        "output_norm.weight",
        "'output_norm.weight' is missing",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_tensors_that_are_missing_are_named(case: str) -> None:
    form, name, message = BROKEN[case]
    changed = name[:-1] + "?"
    data = form.data().replace(name.encode(), changed.encode())
    with pytest.raises(ModelError, match=message):
        tw.compile(data)


def test_tensors_of_another_shape_are_named() -> None:
    form = Form(metadata={"llama.attention.head_count_kv": 4})
    with pytest.raises(
        ModelError, match=r"'blk.0.attn_k.weight' is \[32, 64\], expected \[64, 64\]"
    ):
        tw.compile(form.data())
