"""Architectures of language models: one row each, of what its models have that their files do not say.

Most are the same decoder but for a few facts.  What metadata says is read in `hyperparameters`, what tensors say by being
there in `transformer`.

Source: `llama-model.cpp` and `models/` of llama.cpp, for which facts follow from an architecture's name; the models'
own publications for the activations; transformers for what `dots1` and `minimax-m2` route by, for `llama4`, and for YaRN of `gpt-oss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What all models of an architecture have.

    Attributes:
        turns_neighbours: rotary embedding turns columns 2i and 2i + 1, not i and i + half.
        sections_turn_halves: but models whose positions have parts (`rope.dimension_sections`) turn i and i + half.
        unturned_period: the last of every so many layers turns no columns, so of 1 none does; 0: every layer does.
        turns_windows_only: where some layers see windows, only these turn columns.
        turns_if_finetuned: files say by `rope.scaling.finetuned` whether layers turn columns.
        linear_bias: by which power of two scores of the first head fall with distance, where a file does not say it;
            0: they do not.
        norm: `rms`, `layer`, or `plain`: like `layer`, without weights.
        norms_after: attention and networks read what they are added to as it is; only what they add is normalised.
        shares_norm: a network without a norm of its own reads what attention reads.
        says_parallel: files say by `use_parallel_residual` whether attention and the network read the same.
        activation: of the feed-forward network, of its gate where it has one: `silu`, `gelu` (by tanh), `erf_gelu` or
            `squared_relu`, `xielu`, or `capped_swish`: that of gpt-oss, whose gate and values have an end at 7.
        even_heads: queries and keys that are turned are normalised by no weights, but for models of `uneven_experts`.
        uneven_experts: models of so many experts do not normalise them.
        norms_after_turning: queries and keys are normalised when they are turned, not before.
        network_norm: the name of the norm in front of the network.
        scales_embedding: embeddings are multiplied by the root of their width.
        has_scales: files say what embeddings, and what layers add, are multiplied by.
        final_scale_power: scores are multiplied by this power of `logit_scale`.
        far_context: in layers that turn no columns queries grow behind so many places; 0: they do not.
        scales_far_queries: files say how queries grow behind the context of training, and what YaRN leaves of its factor.
        attention_cap: of scores of attention, where a file does not say it; 0: none.
        final_cap: as that, of the scores of tokens.
        window_period: of so many layers all but the last see a window of keys; 0: every layer does, as in
            `sliding_window_pattern`, None: `sliding_window` is not looked at.
        window: of how many keys, where a file does not say it; 0: of all.
        has_chunks: a window is a part of the text, as long as it says, and not what lies before a token.
        window_layers: that is so of a model of so many layers alone; 0: of each.
        local_rope_base: of layers with a window; 0: that of all.
        plain_windows: layers with a window turn columns as if positions were not scaled.
        rounds_yarn: ends of YaRN's ramp are whole columns; else they lie between columns, too.
        wide_scale_layers: a model of so many layers scales scores by width per head instead of a head's size.
        gates_attention: what attention gives is multiplied by gates that stand beside queries.
        is_latent: keys and values of all heads come from one short row (multi-head latent attention).
        has_convolutions: layers without heads of keys are short convolutions.
        states: of layers that sum up a text, which are those without heads of keys: `mamba`, `mamba2` or `delta`.
        states_everywhere: each layer has one.
        states_period: all but the last of so many layers have one, where a file does not say it; 0: as `states` says.
        attends_beside_states: and attends to what that reads, too.
        has_single_parts: a layer is a state space, attention or a network, behind one norm.
        output_norm: the name of the norm behind all layers.
        shares_add_up: of a mixture of experts, those that are chosen share all of the result; what a file says of that
            goes first.
        shares_come_first: experts read tokens times their shares, and what they give is added up as it is.
        sigmoid_if_preferred: where a file does not say how, routers of a model with preferences for experts use sigmoids.
        router: how scores of experts become shares, where a file does not say it: `softmax`, `sigmoid`, or `softmax_of_chosen`.
    """

    turns_neighbours: bool = False
    sections_turn_halves: bool = False
    unturned_period: int = 0
    turns_windows_only: bool = False
    turns_if_finetuned: bool = False
    linear_bias: float = 0.0
    norm: str = "rms"
    norms_after: bool = False
    shares_norm: bool = False
    says_parallel: bool = False
    activation: str = "silu"
    even_heads: bool = False
    uneven_experts: int = 0
    norms_after_turning: bool = False
    network_norm: str = "ffn_norm"
    scales_embedding: bool = False
    has_scales: bool = False
    final_scale_power: int = 0
    far_context: int = 0
    scales_far_queries: bool = False
    attention_cap: float = 0.0
    final_cap: float = 0.0
    window_period: int | None = None
    window: int = 0
    has_chunks: bool = False
    window_layers: int = 0
    local_rope_base: float = 0.0
    plain_windows: bool = False
    rounds_yarn: bool = True
    wide_scale_layers: int = 0
    gates_attention: bool = False
    is_latent: bool = False
    has_convolutions: bool = False
    states: str = ""
    states_everywhere: bool = False
    states_period: int = 0
    attends_beside_states: bool = False
    has_single_parts: bool = False
    output_norm: str = "output_norm"
    shares_add_up: bool = True
    shares_come_first: bool = False
    sigmoid_if_preferred: bool = False
    router: str = "softmax"


_LLAMA: Final = Architecture(turns_neighbours=True)
_GRANITE: Final = Architecture(
    turns_neighbours=True, turns_if_finetuned=True, has_scales=True, final_scale_power=-1
)
_MAMBA: Final = Architecture(
    states="mamba", states_everywhere=True, has_single_parts=True, unturned_period=1
)
_LFM2: Final = Architecture(
    has_convolutions=True, output_norm="token_embd_norm", window_period=0, router="sigmoid"
)
_GPT2: Final = Architecture(norm="layer", activation="gelu", unturned_period=1)

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "llama": _LLAMA,
    "apertus": Architecture(activation="xielu"),
    "arcee": Architecture(turns_neighbours=True, activation="squared_relu"),
    "bloom": Architecture(norm="layer", activation="gelu", unturned_period=1, linear_bias=8.0),
    "chatglm": _LLAMA,
    "codeshell": Architecture(norm="layer", activation="gelu"),
    "cohere2": Architecture(
        norm="layer", shares_norm=True, turns_neighbours=True, turns_windows_only=True, window_period=4,
        final_scale_power=1,
    ),
    "command-r": Architecture(
        norm="layer", shares_norm=True, turns_neighbours=True, final_scale_power=1
    ),
    "deepseek2": Architecture(
        turns_neighbours=True, is_latent=True, scales_far_queries=True, shares_add_up=False, sigmoid_if_preferred=True,
    ),
    "dots1": Architecture(router="sigmoid", shares_add_up=False),
    "ernie4_5": _LLAMA,
    "ernie4_5-moe": _LLAMA,
    "exaone": Architecture(),
    "exaone4": Architecture(
        norms_after=True, turns_windows_only=True, window_period=4, window=4096, window_layers=64
    ),
    "falcon-h1": Architecture(
        states="mamba2", states_everywhere=True, attends_beside_states=True
    ),
    "falcon": Architecture(norm="layer", shares_norm=True, activation="erf_gelu"),
    "gemma": Architecture(activation="gelu", scales_embedding=True),
    "gemma2": Architecture(
        activation="gelu", scales_embedding=True, window_period=2, window=4096, wide_scale_layers=46,
        attention_cap=50.0, final_cap=30.0,
    ),
    "gemma3": Architecture(
        activation="gelu", scales_embedding=True, window_period=6, local_rope_base=10000.0,
        wide_scale_layers=62,
    ),
    "glm4": Architecture(turns_neighbours=True, sections_turn_halves=True),
    "glm4moe": Architecture(network_norm="post_attention_norm", router="sigmoid", shares_add_up=False),
    "gpt-oss": Architecture(
        network_norm="post_attention_norm", activation="capped_swish", window_period=2,
        router="softmax_of_chosen", shares_add_up=False, rounds_yarn=False,
    ),
    "gpt2": _GPT2,
    "gptneox": Architecture(norm="layer", activation="erf_gelu", says_parallel=True),
    "granite": _GRANITE,
    "granitehybrid": replace(_GRANITE, states="mamba2"),
    "granitemoe": _GRANITE,
    "hunyuan-dense": Architecture(norms_after_turning=True),
    "hunyuan-moe": Architecture(norms_after_turning=True),
    "internlm2": _LLAMA,
    "lfm2": _LFM2,
    "lfm2moe": _LFM2,
    "llama4": Architecture(
        turns_neighbours=True, turns_windows_only=True, window_period=4, window=8192, has_chunks=True, even_heads=True,
        uneven_experts=128, far_context=8192, router="sigmoid", shares_add_up=False, shares_come_first=True,
    ),
    "mamba": _MAMBA,
    "mamba2": replace(_MAMBA, states="mamba2"),
    "minimax-m2": Architecture(router="sigmoid"),
    "mistral3": Architecture(turns_neighbours=True, scales_far_queries=True),
    "mpt": Architecture(norm="layer", activation="erf_gelu", unturned_period=1),
    "nemotron": Architecture(norm="layer", activation="squared_relu"),
    "nemotron_h": Architecture(
        states="mamba2", has_single_parts=True, unturned_period=1, activation="squared_relu"
    ),
    "olmo": Architecture(norm="plain", turns_neighbours=True),
    "olmo2": Architecture(norms_after=True, window_period=4, plain_windows=True),
    "olmoe": Architecture(shares_add_up=False),
    "orion": Architecture(norm="layer"),
    "phi2": Architecture(norm="layer", shares_norm=True, activation="gelu"),
    "phi3": Architecture(window_period=0),
    "qwen": Architecture(),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(shares_add_up=False),
    "qwen2vl": Architecture(),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "qwen3next": Architecture(
        network_norm="post_attention_norm", states="delta", states_period=4, gates_attention=True
    ),
    "qwen3vl": Architecture(),
    "qwen3vlmoe": Architecture(),
    "refact": Architecture(unturned_period=1, linear_bias=8.0),
    "seed_oss": Architecture(network_norm="post_attention_norm"),
    "smollm3": Architecture(turns_neighbours=True, unturned_period=4),
    "stablelm": Architecture(norm="layer", shares_norm=True),
    "starcoder": _GPT2,
    "starcoder2": Architecture(norm="layer", activation="gelu"),
    "xverse": _LLAMA,
}  # fmt: skip
