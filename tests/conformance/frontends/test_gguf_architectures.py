"""Architectures of language models against the classes of transformers that define them, with the weights of one file.

What is compared is what the graph computes, by the oracles of its operations: a prompt, and tokens behind it.  Where files differ from the
classes (the order of columns, projections in one, weights that are stored with something added), `_translated` says how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fakes.language_models import Form
from tilewright.compiler.frontends.gguf import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.formats.gguf import dequantize, read_gguf

pytestmark = [pytest.mark.needs_torch, pytest.mark.slow]
TOKENS = [3, 17, 0, 79, 5, 44, 44, 8, 61, 20, 33]
ROOM = 24
STANDARD = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "blk": "model.layers", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
BIASES = {"norm_biases": True, "dense_biases": True}
UNENDED = ("exp_probs_b", "attn_sinks")
PLAIN_FFN = {"gated": False}


@dataclass
class Case:
    """A family: its form, what its configuration says beside the sizes, and names that are others than those of most.

    `apart` says that files have columns 2i and 2i + 1 where the class has i and i + half; `joined` how projections stand
    in one: `heads` (queries, keys and values head by head) or as in the file; `interleaved` that gates and values of
    experts stand in turn, before what they multiply; `upright` only the last; `added` what files add to norms; `numbers` what layers of the class have
    as tensors and files as metadata.
    """

    form: Form
    config: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False
    joined: str = ""
    interleaved: bool = False
    upright: bool = False
    turned: bool = False
    added: float = 0.0
    numbers: Mapping[str, float | Sequence[float]] = field(default_factory=dict)


def _form(
    architecture: str, *, metadata: Mapping[str, Any] | None = None, **options: Any
) -> Form:
    keys = {f"{architecture}.{key}": value for key, value in (metadata or {}).items()}
    return Form(architecture, metadata=keys, layers=options.pop("layers", 2), **options)


GPT_NEOX = {
    "token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "lm_head",
    "blk": "gpt_neox.layers", "attn_qkv": "attention.query_key_value", "attn_output": "attention.dense",
    "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
}  # fmt: skip
FALCON = {
    "token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "blk": "transformer.h",
    "attn_qkv": "self_attention.query_key_value", "attn_output": "self_attention.dense",
    "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
GPT2 = {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
    "blk": "transformer.h", "attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip
MPT = {
    "token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "blk": "transformer.blocks",
    "attn_norm": "norm_1", "ffn_norm": "norm_2", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj",
    "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj",
}  # fmt: skip
POSITIONS = {
    "position_embd.weight": np.random.default_rng(1).standard_normal((64, 64)) * 0.1
}
ALL_HEADS = {"shared": 4, "fused": True}
AFTER = {"post_norms": True, "tied": False, "without": ("attn_norm", "ffn_norm")}
WHOLE_NORMS = {"extra": {"attn_q_norm.weight": (64,), "attn_k_norm.weight": (32,)}}
SHARED = {"shared_inner": 96, "without": ("ffn_gate_inp_shexp",)}
CHOSEN = {"expert_gating_func": 2, "expert_weights_scale": 2.5}
ROUTED = {
    "num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 0, "routed_scaling_factor": 2.5,
}  # fmt: skip
ROUTER = {
    "ffn_gate_inp": "mlp.gate", "exp_probs_b": "mlp.gate.e_score_correction_bias",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}  # fmt: skip
LATENT = {
    "tied": False, "experts": 8, **SHARED, "without": ("ffn_gate_inp_shexp", "attn_q", "attn_k", "attn_v"),
}  # fmt: skip
LATENT_SIZES = {
    "attention.head_count_kv": 1, "attention.kv_lora_rank": 20, "attention.key_length_mla": 24,
    "attention.value_length_mla": 12, "attention.key_length": 28, "attention.value_length": 20, "rope.dimension_count": 8,
    "leading_dense_block_count": 0, "expert_weights_scale": 2.5, "expert_group_count": 4, "expert_group_used_count": 2,
}  # fmt: skip
LATENT_TENSORS = {
    "attn_kv_a_mqa.weight": (28, 64), "attn_kv_a_norm.weight": (20,), "attn_output.weight": (64, 48),
}  # fmt: skip
LATENT_QUERIES = {
    "attn_q_a.weight": (24, 64),
    "attn_q_a_norm.weight": (24,),
    "attn_q_b.weight": (96, 24),
}
LATENT_PARTS = {"attn_k_b.weight": (4, 20, 16), "attn_v_b.weight": (4, 12, 20)}
LATENT_YARN = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 16.0, "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_log_multiplier": 0.07,
}  # fmt: skip
LATENT_NAMES = {
    **ROUTER, "attn_q_a": "self_attn.q_a_proj", "attn_q_b": "self_attn.q_b_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
}  # fmt: skip
LATENT_CONFIG = {
    **ROUTED, "num_key_value_heads": 4, "n_routed_experts": 8, "num_local_experts": 8, "n_shared_experts": 1, "n_group": 4,
    "topk_group": 2, "kv_lora_rank": 20, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
    "head_dim": 8, "mlp_layer_types": ["sparse", "sparse"], "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
MIXER = np.random.default_rng(2)
LFM2 = {
    "blk": "model.layers", "attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "token_embd_norm": "model.embedding_norm",
    "in_proj": "conv.in_proj", "conv": "conv.conv", "out_proj": "conv.out_proj", "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm", "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2", "ffn_gate_inp": "feed_forward.gate",
    "exp_probs_b": "feed_forward.expert_bias", "experts": "feed_forward.experts",
}  # fmt: skip
CONVOLVED = {
    "layers": 3, "without": ("attn_q", "attn_k", "attn_v", "attn_output", "output_norm"),
    "more": {
        "token_embd_norm.weight": np.linspace(0.5, 1.5, 64),
        "blk.1.attn_q.weight": MIXER.standard_normal((64, 64)) * 0.1, "blk.1.attn_k.weight": MIXER.standard_normal((32, 64)) * 0.1,
        "blk.1.attn_v.weight": MIXER.standard_normal((32, 64)) * 0.1, "blk.1.attn_output.weight": MIXER.standard_normal((64, 64)) * 0.1,
        "blk.1.attn_q_norm.weight": np.linspace(0.5, 1.5, 16), "blk.1.attn_k_norm.weight": np.linspace(0.7, 1.3, 16),
        **{f"blk.{i}.shortconv.{name}.weight": MIXER.standard_normal(shape) * 0.3
           for i in (0, 2) for name, shape in {"in_proj": (192, 64), "conv": (64, 3), "out_proj": (64, 64)}.items()},
    },
}  # fmt: skip
CONVOLVED_CONFIG = {
    "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3, "conv_bias": False, "norm_eps": 1e-5,
    "block_auto_adjust_ff_dim": False, "tie_embedding": True,
}  # fmt: skip
LLAMA4 = {
    "ffn_gate_inp": "feed_forward.router", "experts": "feed_forward.experts", "ffn_gate": "feed_forward.gate_proj",
    "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj",
    **{f"ffn_{n}_shexp": f"feed_forward.shared_expert.{n}_proj" for n in ("gate", "up", "down")},
}  # fmt: skip
LLAMA4_CONFIG = {
    "num_local_experts": 4, "num_experts_per_tok": 1, "attention_chunk_size": 4, "floor_scale": 3, "attn_scale": 0.5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
CASES: dict[str, Case] = {
    "Apertus": Case(
        Form("apertus", **PLAIN_FFN, head_norms=True, tied=False,
             metadata={"xielu.alpha_p": [0.3, -0.4], "xielu.alpha_n": [-0.2, 0.5], "xielu.beta": [0.5, 0.25],
                       "xielu.eps": [-1e-6, -1e-6]}),
        {"hidden_act": "xielu"},
        {"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"},
        numbers={"mlp.act_fn.alpha_p": [0.3, -0.4], "mlp.act_fn.alpha_n": [-0.2, 0.5], "mlp.act_fn.beta": [0.5, 0.25],
                 "mlp.act_fn.eps": [-1e-6, -1e-6]},
    ),
    "DeepseekV2": Case(
        _form("deepseek2", **LATENT, metadata={**LATENT_SIZES, **LATENT_YARN},
              extra={**LATENT_TENSORS, **LATENT_PARTS, "attn_q.weight": (96, 64)}),
        {**LATENT_CONFIG, "q_lora_rank": None, "topk_method": "group_limited_greedy",
         "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 0.7}},
        LATENT_NAMES,
    ),
    "DeepseekV3": Case(
        _form("deepseek2", **LATENT,
              metadata={**LATENT_SIZES, "attention.q_lora_rank": 24, "expert_gating_func": 2, "expert_weights_norm": True},
              extra={**LATENT_TENSORS, **LATENT_PARTS, **LATENT_QUERIES, "exp_probs_b.bias": (8,)}),
        {**LATENT_CONFIG, "norm_topk_prob": True}, LATENT_NAMES,
    ),
    "DeepseekV3 of old": Case(
        _form("deepseek2", **LATENT,
              metadata={**LATENT_SIZES, "attention.key_length": 24, "attention.value_length": 12, "attention.head_count_kv": 4,
                        "attention.key_length_mla": 24, "attention.value_length_mla": 12, "attention.q_lora_rank": 24,
                        "expert_weights_norm": True},
              extra={**LATENT_TENSORS, **LATENT_QUERIES, "attn_kv_b.weight": (112, 20), "exp_probs_b.bias": (8,)}),
        {**LATENT_CONFIG, "norm_topk_prob": True}, LATENT_NAMES,
    ),
    "Glm4MoeLite": Case(
        _form("deepseek2", **LATENT,
              metadata={**LATENT_SIZES, "attention.q_lora_rank": 24, "expert_weights_norm": True},
              extra={**LATENT_TENSORS, **LATENT_PARTS, **LATENT_QUERIES, "exp_probs_b.bias": (8,)}),
        {**LATENT_CONFIG, "norm_topk_prob": True}, LATENT_NAMES,
    ),
    "Lfm2": Case(
        _form("lfm2", **CONVOLVED, metadata={"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3}),
        CONVOLVED_CONFIG, LFM2,
    ),
    "Lfm2Moe": Case(
        _form("lfm2moe", **CONVOLVED, experts=4, extra={"exp_probs_b.bias": (4,)},
              metadata={"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3, "expert_gating_func": 2}),
        {**CONVOLVED_CONFIG, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "num_dense_layers": 0,
         "norm_topk_prob": True, "use_expert_bias": True},
        LFM2,
    ),
    "Arcee": Case(_form("arcee", **PLAIN_FFN), {"hidden_act": "relu2"}, apart=True),
    "Bloom": Case(
        _form("bloom", **ALL_HEADS, **PLAIN_FFN, **BIASES, inner=256,
              more={"token_embd_norm.weight": np.linspace(0.5, 1.5, 64), "token_embd_norm.bias": np.linspace(-1, 1, 64)}),
        {"n_layer": 2, "n_head": 4},
        {**FALCON, "token_embd_norm": "transformer.word_embeddings_layernorm"}, joined="heads",
    ),
    "Cohere": Case(
        _form("command-r", without=("ffn_norm",), metadata={"logit_scale": 0.0625}), {"logit_scale": 0.0625},
    ),
    "Cohere2": Case(
        _form("cohere2", layers=4, without=("ffn_norm",), metadata={"logit_scale": 0.25, "attention.sliding_window": 4}),
        {"logit_scale": 0.25, "sliding_window": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    ),
    "Exaone4": Case(
        _form("exaone4", layers=4, head_norms=True, **AFTER, metadata={"attention.sliding_window": 4}),
        {"sliding_window": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    ),
    "Falcon": Case(
        _form("falcon", **PLAIN_FFN, shared=1, fused=True, norm_biases=True, without=("ffn_norm",)),
        {"multi_query": True, "parallel_attn": True, "bias": False, "new_decoder_architecture": False, "ffn_hidden_size": 96, "alibi": False},
        FALCON,
    ),
    "Glm4": Case(
        _form("glm4", post_norms=True, tied=False, biases=True, without=("ffn_gate", "ffn_up"),
              extra={"ffn_up.weight": (192, 64)}, metadata={"rope.dimension_count": 8}),
        {"attention_bias": True, "partial_rotary_factor": 0.5},
        {"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm",
         "ffn_up": "mlp.gate_up_proj"},
    ),
    "GPT2": Case(
        _form("gpt2", **ALL_HEADS, **PLAIN_FFN, **BIASES, more=POSITIONS),
        {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_inner": 96, "n_positions": 64}, GPT2, turned=True,
    ),
    "GPTBigCode": Case(
        _form("starcoder", shared=1, fused=True, **PLAIN_FFN, **BIASES, more=POSITIONS),
        {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_inner": 96, "n_positions": 64}, GPT2,
    ),
    "GPTNeoX": Case(
        _form("gptneox", **ALL_HEADS, **PLAIN_FFN, **BIASES, tied=False,
              metadata={"use_parallel_residual": True, "rope.dimension_count": 8}),
        {"use_parallel_residual": True, "rotary_pct": 0.5}, GPT_NEOX, joined="heads",
    ),
    "GPTNeoX one after the other": Case(
        _form("gptneox", **ALL_HEADS, **PLAIN_FFN, **BIASES, tied=False,
              metadata={"use_parallel_residual": False, "rope.dimension_count": 8}),
        {"use_parallel_residual": False, "rotary_pct": 0.5}, GPT_NEOX, joined="heads",
    ),
    "Granite": Case(
        _form("granite", metadata={"embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0,
                                   "attention.scale": 0.1}),
        {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0, "attention_multiplier": 0.1},
        apart=True,
    ),
    "Ministral3": Case(
        _form("mistral3", tied=False,
              metadata={"attention.temperature_scale": 0.5, "rope.scaling.type": "yarn", "rope.scaling.factor": 16.0,
                        "rope.scaling.original_context_length": 4, "rope.scaling.yarn_log_multiplier": 1.0}),
        {"rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 4,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}},
        apart=True,
    ),
    "Dots1": Case(
        _form("dots1", shared=4, tied=False, head_norms=True, experts=4, layers=2, **SHARED,
              metadata={**CHOSEN, "expert_weights_norm": True, "leading_dense_block_count": 0},
              extra={"exp_probs_b.bias": (4,)}),
        {**ROUTED, "num_key_value_heads": 4, "n_routed_experts": 4, "norm_topk_prob": True, "sliding_window": None,
         "layer_types": ["full_attention"] * 2, "n_shared_experts": 1},
        ROUTER,
    ),
    "Ernie4_5_Moe": Case(
        _form("ernie4_5-moe", experts=4, extra={"exp_probs_b.bias": (4,)}),
        {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 0, "moe_layer_start_index": 0,
         "moe_intermediate_size": 96, "use_bias": False},
        {"ffn_gate_inp": "mlp.gate", "exp_probs_b": "mlp.gate.moe_statics.e_score_correction_bias"},
    ),
    "Glm4Moe": Case(
        _form("glm4moe", tied=False, experts=8, biases=True, shared_inner=96,
              without=("ffn_norm", "ffn_gate_inp_shexp"),
              metadata={**CHOSEN, "rope.dimension_count": 8, "expert_weights_norm": True, "expert_group_count": 4,
                        "expert_group_used_count": 2},
              extra={"exp_probs_b.bias": (8,), "post_attention_norm.weight": (64,)}),
        {**ROUTED, "n_routed_experts": 8, "num_local_experts": 8, "attention_bias": True, "partial_rotary_factor": 0.5, "n_group": 4,
         "topk_group": 2, "norm_topk_prob": True, "n_shared_experts": 1, "use_qk_norm": False},
        ROUTER,
    ),
    "GptOss": Case(
        _form("gpt-oss", tied=False, experts=4, biases=True, without=("ffn_norm",),
              metadata={"attention.sliding_window": 4, "rope.scaling.type": "yarn", "rope.scaling.factor": 16.0,
                        "rope.scaling.original_context_length": 64},
              extra={"post_attention_norm.weight": (64,), "attn_sinks.weight": (4,), "attn_output.bias": (64,),
                     "ffn_gate_inp.bias": (4,), "ffn_gate_exps.bias": (4, 96), "ffn_up_exps.bias": (4, 96),
                     "ffn_down_exps.bias": (4, 64)}),
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4,
         "layer_types": ["sliding_attention", "full_attention"],
         "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 64,
                             "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}},
        {"ffn_gate_inp": "mlp.router", "attn_sinks": "self_attn.sinks"}, interleaved=True,
    ),
    "HunYuanDenseV1": Case(
        _form("hunyuan-dense", head_norms=True), {},
        {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    ),
    "HunYuanMoEV1": Case(
        _form("hunyuan-moe", head_norms=True, experts=4, tied=False, **SHARED),
        {"num_experts": 4, "moe_topk": [2, 2]},
        {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm",
         "ffn_gate_inp": "mlp.gate.wg", "ffn_gate_shexp": "mlp.shared_mlp.gate_proj",
         "ffn_up_shexp": "mlp.shared_mlp.up_proj", "ffn_down_shexp": "mlp.shared_mlp.down_proj"},
    ),
    "Llama4": Case(
        _form("llama4", layers=5, tied=False, experts=4, **SHARED,
              metadata={"attention.sliding_window": 4, "attention.temperature_length": 3, "attention.temperature_scale": 0.5,
                        "expert_used_count": 1}),
        LLAMA4_CONFIG, LLAMA4, upright=True,
    ),
    "Llama4 of two experts a token": Case(
        _form("llama4", layers=4, tied=False, experts=4, **SHARED, metadata={"attention.sliding_window": 3}),
        {**LLAMA4_CONFIG, "attention_chunk_size": 3, "num_experts_per_tok": 2, "floor_scale": 8192, "attn_scale": 0.1},
        LLAMA4, upright=True,
    ),
    "Llama4 of few sizes": Case(
        _form("llama4", tied=False, metadata={"attention.sliding_window": 0}),
        {**LLAMA4_CONFIG, "moe_layers": [], "no_rope_layers": [1, 1], "attention_chunk_size": None, "intermediate_size_mlp": 96},
        LLAMA4,
    ),
    "MiniMaxM2": Case(
        _form("minimax-m2", tied=False, experts=4, metadata={"expert_gating_func": 2, "rope.dimension_count": 8},
              extra={"exp_probs_b.bias": (4,), **WHOLE_NORMS["extra"]}),
        {"num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 8, "partial_rotary_factor": 0.5},
        {"ffn_gate_inp": "mlp.gate", "exp_probs_b": "mlp.e_score_correction_bias"},
    ),
    "Mpt": Case(
        _form("mpt", **ALL_HEADS, **PLAIN_FFN, inner=256,
              metadata={"attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 0.3}),
        {"d_model": 64, "n_heads": 4, "n_layers": 2, "expansion_ratio": 4, "max_seq_len": 64,
         "attn_config": {"clip_qkv": 0.3, "alibi": True}},
        MPT,
    ),
    "Nemotron": Case(
        _form("nemotron", **PLAIN_FFN, tied=False, norm_biases=True, metadata={"rope.dimension_count": 8}),
        {"hidden_act": "relu2", "partial_rotary_factor": 0.5, "norm_eps": 1e-5}, added=1.0,
    ),
    "Olmo": Case(
        _form("olmo", without=("attn_norm", "ffn_norm", "output_norm"), metadata={"attention.clamp_kqv": 0.3}),
        {"clip_qkv": 0.3}, apart=True,
    ),
    "Olmo2": Case(_form("olmo2", **AFTER, **WHOLE_NORMS)),
    "Olmoe": Case(
        _form("olmoe", shared=4, tied=False, experts=4,
              extra={"attn_q_norm.weight": (64,), "attn_k_norm.weight": (64,)}),
        {"num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 4, "norm_topk_prob": False},
        {"ffn_gate_inp": "mlp.gate"},
    ),
    "Phi": Case(
        _form("phi2", shared=4, **PLAIN_FFN, **BIASES, tied=False, without=("ffn_norm",),
              more={"output.bias": np.linspace(-1, 1, 80)}, metadata={"rope.dimension_count": 8}),
        {"partial_rotary_factor": 0.5, "num_key_value_heads": 4, "hidden_act": "gelu_new"},
        {"output_norm": "model.final_layernorm", "attn_output": "self_attn.dense", "ffn_up": "mlp.fc1",
         "ffn_down": "mlp.fc2"},
    ),
    "SmolLM3": Case(
        _form("smollm3", layers=5), {"no_rope_layers": [1, 1, 1, 0, 1], "num_hidden_layers": 5}, apart=True
    ),
    "StableLm": Case(
        _form("stablelm", norm_biases=True, biases=True, tied=False, metadata={"rope.dimension_count": 4}),
        {"use_qkv_bias": True, "partial_rotary_factor": 0.25},
    ),
    "StableLm whose file says it is parallel": Case(
        _form("stablelm", norm_biases=True, biases=True, tied=False,
              metadata={"rope.dimension_count": 4, "use_parallel_residual": True}),
        {"use_qkv_bias": True, "partial_rotary_factor": 0.25},
    ),
    "StableLm in parallel": Case(
        _form("stablelm", norm_biases=True, biases=True, tied=False, without=("ffn_norm",),
              metadata={"rope.dimension_count": 4, "use_parallel_residual": True}),
        {"use_qkv_bias": True, "partial_rotary_factor": 0.25, "use_parallel_residual": True},
    ),
    "SeedOss": Case(
        _form("seed_oss", tied=False, biases=True, without=("ffn_norm",), extra={"post_attention_norm.weight": (64,)}),
        {"attention_bias": True, "attention_out_bias": False},
    ),
    "Starcoder2": Case(
        _form("starcoder2", **PLAIN_FFN, **BIASES, biases=True), {"use_bias": True, "sliding_window": None},
        {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    ),
}  # fmt: skip


def _config(case: Case) -> dict[str, Any]:
    form = case.form
    turned = form.metadata.get(f"{form.architecture}.rope.dimension_count", form.size)
    return {
        "vocab_size": form.vocabulary, "hidden_size": form.width, "num_hidden_layers": form.layers,
        "num_attention_heads": form.heads, "num_key_value_heads": form.shared, "intermediate_size": form.inner,
        "head_dim": form.size, "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5, "layer_norm_epsilon": 1e-5,
        "norm_epsilon": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": form.tied,
        "attn_implementation": "eager", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": turned / form.size},
        **case.config,
    }  # fmt: skip


def _translated(case: Case, kind: str, array: np.ndarray) -> np.ndarray:
    """A tensor as the class has it."""
    form = case.form
    if case.apart and kind in ("attn_q", "attn_k") and array.ndim == 2:
        pairs = array.reshape(-1, form.size // 2, 2, form.width)
        return pairs.swapaxes(1, 2).reshape(array.shape)
    if case.joined == "heads" and kind == "attn_qkv":
        apart = array.reshape(3, form.heads, form.size, *array.shape[1:])
        return apart.swapaxes(0, 1).reshape(array.shape)
    if kind == "conv":
        return array[:, None]
    if case.turned and array.ndim == 2 and kind not in ("token_embd", "position_embd"):
        return array.T
    return array


def _state(case: Case) -> dict[str, np.ndarray]:
    """The tensors of the file under the names of the class."""
    names, found = {**STANDARD, **case.names}, {}
    file = read_gguf(case.form.data())
    experts: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in file.tensors.items():
        array = dequantize(file, tensor).astype(np.float32)
        *front, kind, end = name.split(".")
        layer = f"{names['blk']}.{front[1]}." if front else ""
        if kind.endswith("_exps"):
            experts.setdefault(layer, {})[f"{kind}.{end}"] = array
            continue
        if kind == "attn_k_b":  # turned around, and apart from what it stands beside
            values = dequantize(file, file.tensors[name.replace("k_b", "v_b")])
            both = np.concatenate([array.swapaxes(1, 2), values], 1)
            array, kind = both.reshape(-1, array.shape[1]), "attn_kv_b"
        if kind == "attn_v_b":
            continue
        array = _translated(case, kind, array)
        if case.added and kind.endswith("norm") and end == "weight":
            array = array - np.float32(case.added)
        # What has a shape of its own, or an end that is part of its name.
        name = names[kind] if kind in UNENDED else f"{names[kind]}.{end}"
        found[f"{layer}{name}"] = array[None] if "moe_statics" in name else array
    for layer, own in experts.items():
        for end, suffix in (("weight", ""), ("bias", "_bias")):
            if f"ffn_up_exps.{end}" not in own:
                continue
            gate, up, down = (own[f"ffn_{n}_exps.{end}"] for n in ("gate", "up", "down"))
            both = np.concatenate([gate, up], 1)
            if case.interleaved:
                both = np.stack([gate, up], 2).reshape(both.shape)
            if (case.interleaved or case.upright) and end == "weight":
                both, down = both.swapaxes(1, 2), down.swapaxes(1, 2)
            place = f"{layer}{names.get('experts', 'mlp.experts')}"
            found[f"{place}.gate_up_proj{suffix}"] = both
            found[f"{place}.down_proj{suffix}"] = down
    return found | _numbers(case)


def _numbers(case: Case) -> dict[str, np.ndarray]:
    """What layers of the class have as tensors and files as metadata."""
    found: dict[str, np.ndarray] = {}
    for name, values in case.numbers.items():
        for layer, value in enumerate(np.atleast_1d(values)):
            shape = (1,) if "alpha" in name else ()
            found[f"model.layers.{layer}.{name}"] = np.full(shape, value, np.float32)
    return found


def _expected(name: str, case: Case) -> np.ndarray:
    torch, transformers = (pytest.importorskip(m) for m in ("torch", "transformers"))
    family = name.split(maxsplit=1)[0]
    keys = _config(case)
    if family == "Falcon":  # which has it from the others
        del keys["head_dim"]
    text = getattr(transformers, f"{family}TextConfig", None)
    config = (text or getattr(transformers, f"{family}Config"))(**keys)
    classes = [
        getattr(transformers, f"{family}{end}", None)
        for end in ("ForCausalLM", "LMHeadModel")
    ]
    model = next(each for each in classes if each is not None)(config)
    given = {n: torch.tensor(np.ascontiguousarray(a)) for n, a in _state(case).items()}
    loaded = model.load_state_dict(given, strict=False)
    assert not loaded.unexpected_keys
    assert all(
        (case.form.tied and "head" in key) or key.endswith(".bias")
        for key in loaded.missing_keys
    )
    model.tie_weights()
    with torch.no_grad():
        return model.eval()(torch.tensor([TOKENS])).logits[0, -1].numpy()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_the_classes_that_define_an_architecture(name: str) -> None:
    case = CASES[name]
    graph = load(case.form.data()).graph
    inputs = {
        value.name: np.zeros(
            (1, value.type.shape[1], ROOM, value.type.shape[3]), np.float32
        )
        for value in graph.inputs[3:]
    }
    found = np.zeros(0)
    for start, stop in ((0, 7), (7, 8), (8, 11)):
        inputs["tokens"] = np.array([TOKENS[start:stop]])
        inputs["position"] = np.array([start])
        inputs["span"] = np.zeros(stop, np.bool_)
        outputs = dict(zip(graph.output_names, evaluate(graph, inputs), strict=True))
        found = outputs.pop("logits")[0]
        inputs |= {n.removeprefix("new_"): array for n, array in outputs.items()}
    expected = _expected(name, case)
    assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max()
