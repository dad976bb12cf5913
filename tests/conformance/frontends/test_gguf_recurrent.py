"""Architectures that sum up a text in states, against the classes of transformers that define them, with the weights of one file.

Where files differ from the classes (decays by their logarithms, networks in one tensor), `_state` says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fakes.language_models import Form
from fakes.recurrent_models import (
    GROUPS,
    HEADS,
    INNER,
    RANK,
    SIZE,
    TAPS,
    RecurrentReference,
    recurrent_forms,
)
from tilewright.formats.gguf import dequantize, read_gguf

pytestmark = [pytest.mark.needs_torch, pytest.mark.slow]
TOKENS = [int(t) for t in np.random.default_rng(0).integers(0, 80, 23)]
ALONE = {
    "hidden_size": 64, "state_size": SIZE, "conv_kernel": TAPS, "expand": 2, "use_bias": False, "use_conv_bias": True,
    "layer_norm_epsilon": 1e-5, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip
SPACE = {
    "mamba_n_heads": HEADS, "mamba_n_groups": GROUPS, "mamba_d_state": SIZE, "mamba_d_head": INNER // HEADS,
    "mamba_d_conv": TAPS, "mamba_expand": 2, "mamba_d_ssm": INNER,
}  # fmt: skip
DECODER = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
    "attn_implementation": "eager", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "max_position_embeddings": 64,
}  # fmt: skip
GRANITE = {
    **DECODER, **SPACE, "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0, "attention_multiplier": 0.2,
    "shared_intermediate_size": 96, "num_local_experts": 0, "tie_word_embeddings": True,
}  # fmt: skip
FALCON = {
    **DECODER, **SPACE, "num_hidden_layers": 2, "intermediate_size": 96, "mamba_norm_before_gate": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mamba": ("Mamba", "backbone", {**ALONE, "num_hidden_layers": 2, "time_step_rank": RANK}),
    "mamba of falcons": (
        "FalconMamba", "backbone", {**ALONE, "num_hidden_layers": 1, "time_step_rank": RANK, "mixer_rms_eps": 1e-6},
    ),
    "mamba2": (
        "Mamba2", "backbone",
        {**ALONE, "num_hidden_layers": 2, "num_heads": HEADS, "head_dim": INNER // HEADS, "n_groups": GROUPS,
         "tie_word_embeddings": True},
    ),
    "falcon-h1": ("FalconH1", "model", {**FALCON, "mamba_rms_norm": False}),
    "falcon-h1 of norms": ("FalconH1", "model", {**FALCON, "mamba_rms_norm": True, "tie_word_embeddings": True}),
    "granitehybrid": ("GraniteMoeHybrid", "model", GRANITE),
    "granitehybrid of experts": (
        "GraniteMoeHybrid", "model",
        {**GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 96, "shared_intermediate_size": 48},
    ),
    "nemotron_h": (
        "NemotronH", "model",
        {**DECODER, "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"],
         "intermediate_size": 96, "ssm_state_size": SIZE, "mamba_num_heads": HEADS, "mamba_head_dim": INNER // HEADS,
         "n_groups": GROUPS, "conv_kernel": TAPS, "layer_norm_epsilon": 1e-5},
    ),
    "qwen3next": (
        "Qwen3Next", "model",
        {**DECODER, "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
         "linear_conv_kernel_dim": TAPS, "linear_key_head_dim": SIZE, "linear_value_head_dim": INNER // HEADS,
         "linear_num_key_heads": GROUPS, "linear_num_value_heads": HEADS, "num_experts": 4, "num_experts_per_tok": 2,
         "moe_intermediate_size": 96, "shared_expert_intermediate_size": 48, "tie_word_embeddings": True,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
}  # fmt: skip
ENDS = {
    "ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_x": "x_proj", "ssm_out": "out_proj", "ssm_norm": "norm",
    "attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj",
    "ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj",
}  # fmt: skip
QWEN = {
    "attn_qkv": "in_proj_qkv", "attn_gate": "in_proj_z", "ssm_ba": "in_proj_ba", "ffn_gate_inp": "gate",
    "ffn_gate_inp_shexp": "shared_expert_gate", "attn_q_norm": "q_norm", "attn_k_norm": "k_norm",
    **{f"ffn_{n}_shexp": f"shared_expert.{n}_proj" for n in ("gate", "up", "down")},
    **{f"ffn_{n}_exps": f"experts.{n}_proj" for n in ("gate", "up", "down")},
}  # fmt: skip
NORMS = {
    "backbone": {"attn_norm": "norm"},
    "model": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
}
OUTSIDE = {
    "Mamba": ("embeddings", "norm_f"), "FalconMamba": ("embeddings", "norm_f"), "Mamba2": ("embeddings", "norm_f"),
    "NemotronH": ("embeddings", "norm_f"), "FalconH1": ("embed_tokens", "final_layernorm"),
    "GraniteMoeHybrid": ("embed_tokens", "norm"), "Qwen3Next": ("embed_tokens", "norm"),
}  # fmt: skip


def _room(family: str, kind: str) -> str:
    """Where a class has a tensor of a layer."""
    if family in ("Mamba", "FalconMamba", "Mamba2", "NemotronH"):
        return "mixer."
    if family == "Qwen3Next":
        if kind.startswith("ffn"):
            return "mlp."
        is_linear = kind.startswith("ssm") or kind in ("attn_qkv", "attn_gate")
        return "linear_attn." if is_linear else "self_attn."
    if kind.startswith("ssm"):
        return "mamba."
    return "self_attn." if kind.startswith("attn") else "feed_forward."


def _layer_tensor(
    family: str, kind: str, end: str, array: np.ndarray
) -> tuple[str, np.ndarray]:
    room = _room(family, kind)
    if kind == "ssm_a":
        logarithms = np.log(-array)
        is_row = family in ("Mamba", "FalconMamba")
        return f"{room}A_log", logarithms if is_row else logarithms.reshape(-1)
    if kind == "ssm_d":
        return f"{room}D", array.reshape(-1)
    if kind == "ssm_dt":
        is_row = family in ("Mamba", "FalconMamba")
        return (f"{room}dt_proj.{end}" if is_row else f"{room}dt_bias"), array
    if family == "Qwen3Next" and kind in QWEN:
        name = QWEN[kind]
        array = array[None] if kind == "ffn_gate_inp_shexp" else array
        return f"{room}{name}" if kind.endswith("_exps") else f"{room}{name}.{end}", array
    if kind == "ssm_conv1d" and end == "weight":
        array = array[:, None]
    if kind == "ssm_norm":
        array = array.reshape(-1)
    return f"{room}{ENDS[kind]}.{end}", array


def _state(form: Form, family: str, base: str) -> dict[str, np.ndarray]:
    """The tensors of the file under the names of the class."""
    file, found = read_gguf(form.data()), {}
    embedding, last = OUTSIDE[family]
    networks: dict[str, dict[str, np.ndarray]] = {}
    norms = {"attn_norm": "norm"} if family == "NemotronH" else NORMS[base]
    if family == "Qwen3Next":
        norms = {
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
        }
    if family == "FalconH1":
        norms = {"attn_norm": "input_layernorm", "ffn_norm": "pre_ff_layernorm"}
    for name, tensor in file.tensors.items():
        array = dequantize(file, tensor).astype(np.float32)
        parts = name.split(".")
        outside = {
            "token_embd.weight": f"{base}.{embedding}.weight",
            "output_norm.weight": f"{base}.{last}.weight",
            "output.weight": "lm_head.weight",
        }
        if name in outside:
            found[outside[name]] = array
            continue
        layer, kind, end = f"{base}.layers.{parts[1]}.", parts[2], parts[-1]
        if kind in norms:
            found[f"{layer}{norms[kind]}.weight"] = array
        elif family == "GraniteMoeHybrid" and kind.startswith("ffn"):
            networks.setdefault(layer, {})[kind] = array
        else:
            own, array = _layer_tensor(family, kind, end, array)
            found[f"{layer}{own}"] = array
    if family == "Qwen3Next":
        return _qwen(found)
    return found | _granite_networks(networks)


def _qwen(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Norms have 1 added in files; queries, keys, values and gates stand group by group in the class."""
    for name in [n for n in found if "norm." in n and "linear_attn" not in n]:
        found[name] = found[name] - 1
    for name in [n for n in found if n.endswith("in_proj_qkv.weight")]:
        qkv, gate = found.pop(name), found.pop(name.replace("qkv", "z"))
        sizes = [GROUPS * SIZE, 2 * GROUPS * SIZE]
        parts = [t.reshape(GROUPS, -1, 64) for t in (*np.split(qkv, sizes), gate)]
        both = np.concatenate(parts, 1).reshape(-1, 64)
        found[name.replace("in_proj_qkv", "in_proj_qkvz")] = both
    for name in [n for n in found if n.endswith("experts.gate_proj")]:
        place = name.removesuffix("gate_proj")
        gate, up = found.pop(name), found.pop(f"{place}up_proj")
        found[f"{place}gate_up_proj"] = np.concatenate([gate, up], 1)
    return found


def _granite_networks(
    networks: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Gates and values are one tensor."""
    found: dict[str, np.ndarray] = {}
    for layer, own in networks.items():
        shared = "_shexp" if "ffn_gate_shexp" in own else ""
        both = [own[f"ffn_{n}{shared}"] for n in ("gate", "up")]
        found[f"{layer}shared_mlp.input_linear.weight"] = np.concatenate(both)
        found[f"{layer}shared_mlp.output_linear.weight"] = own[f"ffn_down{shared}"]
        if shared:
            place = f"{layer}block_sparse_moe."
            both = [own[f"ffn_{n}_exps"] for n in ("gate", "up")]
            found[f"{place}experts.gate_up_proj"] = np.concatenate(both, 1)
            found[f"{place}experts.down_proj"] = own["ffn_down_exps"]
            found[f"{place}router.weight"] = own["ffn_gate_inp"]
    return found


def _logits(form: Form, family: str, base: str, config: Mapping[str, Any]) -> np.ndarray:
    torch, transformers = (pytest.importorskip(m) for m in ("torch", "transformers"))
    made = getattr(transformers, f"{family}Config")(vocab_size=form.vocabulary, **config)
    model = getattr(transformers, f"{family}ForCausalLM")(made)
    state = _state(form, family, base)
    given = {n: torch.tensor(np.ascontiguousarray(a)) for n, a in state.items()}
    loaded = model.load_state_dict(given, strict=False)
    assert not loaded.unexpected_keys
    assert all("lm_head" in key for key in loaded.missing_keys), loaded.missing_keys
    model.tie_weights()
    with torch.no_grad():
        return model.eval()(torch.tensor([TOKENS])).logits[0, -1].numpy()


@pytest.mark.parametrize("name", CASES)
def test_the_reference_computes_what_transformers_does(name: str) -> None:
    """The front end is held against the reference (`tests/unit/compiler/frontends/gguf/test_state_spaces`)."""
    form = recurrent_forms()[name]
    expected = _logits(form, *CASES[name])
    found = RecurrentReference(form).logits(TOKENS)
    assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max()
