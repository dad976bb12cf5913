"""What a model's metadata says about its form, by architecture.

What architectures have that metadata does not say is a table of its own (`architectures`); what tensors say by being
there (biases, norms of queries, projections in one) is not asked here (`transformer`).

Source: ggml, `docs/gguf.md` (standardised keys), and `llama-arch.cpp`, `llama-model.cpp` of llama.cpp for what keys
leave open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.base.text import did_you_mean
from tilewright.compiler.frontends.gguf.activations import Xielu
from tilewright.compiler.frontends.gguf.architectures import ARCHITECTURES, Architecture
from tilewright.compiler.frontends.gguf.layer_parts import (
    LayerParts,
    StateSpace,
    read_layer_parts,
    read_state_space,
)
from tilewright.compiler.frontends.gguf.metadata_keys import MAX_SIZE, Keys, all_but_last
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.formats.gguf import GgufFile

_MAX_LAYERS: Final = 1024
_MAX_EXPERTS: Final = 1024
_NEUTRAL: Final[Mapping[str, tuple[float, ...]]] = {
    "attention.causal": (1,), "attention.output_scale": (0, 1), "attention.shared_kv_layers": (0,),
    "rope.scaling.alpha": (0, 1),
    "rope.scaling.yarn_attn_factor": (1,),
    "router_logit_softcapping": (0,),
}  # fmt: skip
"""Keys that change what a model computes in ways that there are not, with the values that change nothing."""
_FAR_SCALE: Final = "attention.temperature_scale"
_FAR_CONTEXT: Final = "attention.temperature_length"
_USUAL_FAR_SCALE: Final = 0.1
_YARN_REST: Final = "rope.scaling.yarn_log_multiplier"
_EPSILONS: Final[Mapping[str, str]] = {
    "rms": "layer_norm_rms_epsilon", "layer": "layer_norm_epsilon", "plain": "layer_norm_epsilon",
}  # fmt: skip
"""The key of what keeps a norm from division by zero, by the kind of norm."""
_ROUTERS: Final = ("", "softmax", "sigmoid", "softmax_of_chosen")
"""By the number that files give them; 0: what the architecture has."""
_PREFERENCE: Final = ".exp_probs_b.bias"
_LEAST_BASE: Final = 2.0
"""Of rotary embedding: bases of models are thousands; at 1 no column turns slower than another."""
_LEAST_SCALE: Final = 2.0**-64
"""Of scores, and one by it the greatest: models have thousandths to hundreds."""
_LEAST_TURNS: Final = 2.0**-10
"""Of YaRN, within a context: models have 1 and more, and none has a logarithm."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How positions beyond those of training are turned.

    Attributes:
        type: `none`, `linear`, `yarn` or `longrope`.
        factor: how many times longer contexts are.
        original_context: that of training; 0: not said.
        attention_factor: what cosines and sines are multiplied with.
        fast_turns: of YaRN: columns that turn more often within the context of training stay as they are.
        slow_turns: of YaRN: columns that turn less often are stretched by the factor.
        factor_rest: of YaRN: cosines and sines are divided by what its own factor is of this instead of 1.
    """

    type: str = "none"
    factor: float = 1.0
    original_context: int = 0
    attention_factor: float = 1.0
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    factor_rest: float = 0.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Of attention whose keys and values of all heads come from one short row, which is what caches hold.

    Attributes:
        rank: size of that row, without the columns that are turned.
        key_size: of queries and keys of each head, of which the last columns are turned.
        value_size: of values of each head.
    """

    rank: int
    key_size: int
    value_size: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """The form of one model; sizes are in elements, `windows` in keys per layer (0: all).

    Where there is a `latent`, `key_size` and `value_size` are those of the rows that caches hold.  `parts` say what each layer
    is made of, `space` is that of layers that sum up a text in a state.  `slopes` are those of the activation of each layer; none: it has none of its own.

    `local_rope_base` is that of layers with a window (0: that of all), `turns` whether each layer turns columns at all,
    `turns_neighbours` whether those are 2i and 2i + 1.  Queries grow with `far_scale` times the logarithm of how many
    contexts of training lie before them, and one.
    `linear_bias` is the power of two that scores of the first head lose by distance (0: none), `projection_limit` the
    largest number of queries, keys and values (0: any), `is_parallel` whether attention and the network behind it read the
    same.  `has_even_heads` says whether queries and keys that are turned are normalised without weights, `far_context` behind how many
    places queries of other layers grow (0: as `far_scale` says, of all).  Embeddings, what layers add, and scores are multiplied by `embedding_scale`, `residual_scale`, `final_scale`.
    `experts` is how many a mixture has (0: none), `chosen_experts` how many of them a token goes through, `router` how their
    scores become shares, `shares_add_up` whether these are made to be all of the result, and `expert_scale` what they are
    multiplied by.  Experts are chosen from `chosen_groups` of `expert_groups`.  `further_layers` stand behind the others in a
    file, for tokens after the next one, and are not read.
    """

    architecture: Architecture
    layers: int
    width: int
    heads: int
    shared_heads: int
    key_size: int
    value_size: int
    latent: Latent | None
    parts: LayerParts
    space: StateSpace | None
    slopes: tuple[Xielu, ...]
    context: int
    epsilon: float
    rope_size: int
    rope_base: float
    local_rope_base: float
    rope_scaling: RopeScaling
    windows: tuple[int, ...]
    turns: tuple[bool, ...]
    turns_neighbours: bool
    linear_bias: float
    projection_limit: float
    is_parallel: bool
    embedding_scale: float
    residual_scale: float
    final_scale: float
    attention_scale: float
    far_scale: float
    far_context: int
    has_even_heads: bool
    attention_cap: float
    final_cap: float
    experts: int
    chosen_experts: int
    shares_add_up: bool
    router: str
    expert_scale: float
    expert_groups: int
    chosen_groups: int
    further_layers: int

    @property
    def near_context(self) -> int:
        """With room for more tokens frequencies have other divisors, where a file has two sets of them."""
        return self.rope_scaling.original_context or self.context


def read_hyperparameters(file: GgufFile) -> Hyperparameters:
    """The form of the model in a file.

    Raises: ModelError for metadata that is missing or senseless; UnsupportedError for an architecture without a row.
    """
    name = Keys(file, "general").text("architecture", "")
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        known = " ".join(ARCHITECTURES)
        raise UnsupportedError(
            f"architecture '{name}' is not supported",
            location=file.location,
            hint=did_you_mean(name, ARCHITECTURES) or f"supported are: {known}",
        )
    keys = Keys(file, name)
    try:
        return _read(keys, architecture)
    except ModelError as error:
        error.location = error.location or file.location
        raise


def _read(keys: Keys, architecture: Architecture) -> Hyperparameters:
    further = keys.size("nextn_predict_layers", 0, limit=_MAX_LAYERS, least=0)
    layers = keys.size("block_count", limit=_MAX_LAYERS, least=further + 1) - further
    width, heads = keys.size("embedding_length"), _heads(keys, architecture)
    parts = read_layer_parts(keys, architecture, heads, layers)
    latent, own_size, rope_size = _sizes_of_heads(keys, architecture, width // heads)
    scored = width // heads if layers == architecture.wide_scale_layers else own_size
    experts, chosen = _experts(keys)
    groups = _expert_groups(keys, experts)
    scaling = _rope_scaling(keys, architecture)
    key_size = latent.rank + rope_size if latent else own_size
    rope_base = keys.real("rope.freq_base", 10000.0, least=_LEAST_BASE)
    windows = _windows(keys, architecture, layers)
    whole = math.sqrt(width) if architecture.scales_embedding else 1.0
    form = Hyperparameters(
        architecture=architecture,
        layers=layers,
        width=width,
        heads=heads,
        shared_heads=parts.shared_heads,
        key_size=key_size,
        value_size=latent.rank if latent else keys.size("attention.value_length", key_size),
        latent=latent,
        parts=parts,
        space=read_state_space(keys, architecture),
        slopes=keys.slopes(layers) if architecture.activation == "xielu" else (),
        context=keys.size("context_length", limit=1 << 31),
        epsilon=keys.real(f"attention.{_EPSILONS[architecture.norm]}", least=0),
        rope_size=rope_size,
        rope_base=rope_base,
        local_rope_base=_local_rope_base(keys, architecture, rope_base),
        rope_scaling=scaling,
        windows=windows,
        turns=_turns(keys, architecture, windows),
        turns_neighbours=_turns_neighbours(keys, architecture),
        linear_bias=keys.real(
            "attention.max_alibi_bias", architecture.linear_bias, least=0
        ),
        projection_limit=keys.real("attention.clamp_kqv", 0.0, least=0),
        is_parallel=architecture.says_parallel and keys.flag("use_parallel_residual"),
        embedding_scale=_own_scale(keys, architecture, "embedding_scale") or whole,
        residual_scale=_own_scale(keys, architecture, "residual_scale") or 1.0,
        final_scale=_final_scale(keys, architecture),
        attention_scale=_attention_scale(keys, architecture, scored, scaling),
        far_scale=_far_scale(keys, architecture, windows),
        far_context=_far_context(keys, architecture),
        has_even_heads=architecture.even_heads and experts != architecture.uneven_experts,
        attention_cap=_cap(keys, "attn", architecture.attention_cap),
        final_cap=_cap(keys, "final", architecture.final_cap),
        experts=experts,
        chosen_experts=chosen,
        shares_add_up=keys.flag("expert_weights_norm", architecture.shares_add_up),
        router=_router(keys, architecture),
        expert_scale=keys.real("expert_weights_scale", 0.0) or 1.0,
        expert_groups=groups,
        chosen_groups=_chosen_groups(keys, groups),
        further_layers=further,
    )
    _refuse_other_forms(keys, form)
    return form


def _heads(keys: Keys, architecture: Architecture) -> int:
    """Of queries; one where files of models that attend nowhere say that there are none."""
    return keys.size("attention.head_count", least=int(not architecture.states)) or 1


def _sizes_of_heads(
    keys: Keys, architecture: Architecture, default: int
) -> tuple[Latent | None, int, int]:
    """Of latent attention, the size of queries and keys of each head, and how many of their columns are turned."""
    size = keys.size("attention.key_length", max(1, default))
    rope_size = keys.size("rope.dimension_count", size)
    latent = _latent(keys, size) if architecture.is_latent else None
    size = latent.key_size if latent else size
    if rope_size > size or rope_size % 2:
        raise ModelError(
            f"{rope_size} columns of heads of {size} are turned, expected an even part of them"
        )
    return latent, size, rope_size


def _latent(keys: Keys, key_size: int) -> Latent:
    """Files say sizes of heads beside those of what is kept; older ones say only the first, by the names of the last."""
    return Latent(
        rank=keys.size("attention.kv_lora_rank"),
        key_size=keys.size("attention.key_length_mla", key_size),
        value_size=keys.size(
            "attention.value_length_mla", keys.size("attention.value_length", key_size)
        ),
    )


def _experts(keys: Keys) -> tuple[int, int]:
    """How many there are, and how many of them a token goes through."""
    # Files of models without experts may say that there are none.
    if not keys.real("expert_count", 0):
        return 0, 0
    experts = keys.size("expert_count", limit=_MAX_EXPERTS)
    chosen = keys.size("expert_used_count", limit=experts)
    return experts, chosen


def _router(keys: Keys, architecture: Architecture) -> str:
    number = keys.size("expert_gating_func", 0, MAX_SIZE, least=0)
    if number >= len(_ROUTERS):
        raise UnsupportedError(
            f"experts that are chosen by rule {number} are not supported"
        )
    if not number and architecture.sigmoid_if_preferred and keys.has_tensor(_PREFERENCE):
        return "sigmoid"
    return _ROUTERS[number] or architecture.router


def _expert_groups(keys: Keys, experts: int) -> int:
    """Of as many experts each; where files say that there are none, or no experts, all are one group."""
    if not experts or not keys.real("expert_group_count", 0):
        return 1
    groups = keys.size("expert_group_count", limit=experts)
    if experts % groups or (groups > 1 and experts // groups < 2):
        raise ModelError(f"{experts} experts are not {groups} groups of two or more")
    return groups


def _chosen_groups(keys: Keys, groups: int) -> int:
    """From how many of the groups a token's experts are; what files say of that counts where there are several."""
    if groups == 1:
        return 1
    return keys.size("expert_group_used_count", groups, limit=groups)


def _cap(keys: Keys, scores: str, default: float) -> float:
    return keys.real(f"{scores}_logit_softcapping", default, least=0)


def _far(keys: Keys, architecture: Architecture, key: str) -> float:
    """What a file says of places behind the context of training, where its architecture has that; else 0."""
    if architecture.scales_far_queries:
        return keys.real(key, 0.0, least=0)
    keys.refuse(key, (0,))
    return 0.0


def _far_scale(keys: Keys, architecture: Architecture, windows: tuple[int, ...]) -> float:
    """By what queries grow; where that is a matter of layers without windows, not of models that have none."""
    if architecture.far_context:
        return keys.real(_FAR_SCALE, _USUAL_FAR_SCALE if any(windows) else 0.0, least=0)
    return _far(keys, architecture, _FAR_SCALE)


def _far_context(keys: Keys, architecture: Architecture) -> int:
    if architecture.far_context:
        return keys.size(_FAR_CONTEXT, architecture.far_context)
    keys.refuse(_FAR_CONTEXT, (0,))
    return 0


def _refuse_other_forms(keys: Keys, form: Hyperparameters) -> None:
    """What would change results and is not part of a form.  Raises: UnsupportedError."""
    own_range = 1 if form.rope_scaling.type == "yarn" else 0
    others: dict[str, tuple[float, ...]] = {
        "attention.key_length_swa": (form.key_size,),
        "attention.value_length_swa": (form.value_size,),
        "rope.dimension_count_swa": (form.rope_size,),
        "rope.scaling.yarn_ext_factor": (-1, own_range),
    }
    if not form.local_rope_base:
        others["rope.freq_base_swa"] = (form.rope_base,)
    for key, neutral in {**_NEUTRAL, **others}.items():
        keys.refuse(key, neutral)


def _turns(
    keys: Keys, architecture: Architecture, windows: tuple[int, ...]
) -> tuple[bool, ...]:
    """Whether each layer turns columns by their positions."""
    if architecture.turns_if_finetuned and not keys.flag("rope.scaling.finetuned", True):
        return (False,) * len(windows)
    if architecture.turns_windows_only and any(windows):
        return tuple(map(bool, windows))
    period = architecture.unturned_period
    return tuple(not period or layer % period < period - 1 for layer in range(len(windows)))


def _turns_neighbours(keys: Keys, architecture: Architecture) -> bool:
    if not architecture.sections_turn_halves:
        return architecture.turns_neighbours
    sections = keys.first(2, "rope.dimension_sections")
    return len(sections) < 2 or min(sections) <= 0


def _own_scale(keys: Keys, architecture: Architecture, key: str) -> float:
    """What a file says of a scale, where its architecture has those; else 0."""
    if architecture.has_scales:
        return keys.real(key, 0.0)
    keys.refuse(key, (0, 1))
    return 0.0


def _final_scale(keys: Keys, architecture: Architecture) -> float:
    """What scores are multiplied by, as the architecture means what a file says."""
    if not architecture.final_scale_power:
        keys.refuse("logit_scale", (0, 1))
        return 1.0
    found = keys.real("logit_scale", 0.0) or 1.0
    if not _LEAST_SCALE <= abs(found) <= 1 / _LEAST_SCALE:
        raise ModelError(f"scores are scaled by {found:g}, which leaves no numbers of them")
    return found**architecture.final_scale_power


def _local_rope_base(keys: Keys, architecture: Architecture, base: float) -> float:
    """That of layers with a window where an architecture has one, or what a file says of it; else 0."""
    own = base if architecture.plain_windows else architecture.local_rope_base
    return keys.real("rope.freq_base_swa", own, least=_LEAST_BASE) if own else 0.0


def _rope_scaling(keys: Keys, architecture: Architecture) -> RopeScaling:
    kind = keys.text("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise UnsupportedError(f"rotary embedding scaled as '{kind}' is not supported")
    # The key that files had before there were several kinds.
    older = keys.real("rope.scale_linear", 0.0, least=0)
    factor = keys.real("rope.scaling.factor", older, least=0)
    return RopeScaling(
        type=kind,
        factor=1.0 if kind == "none" else factor or 1.0,
        original_context=keys.size("rope.scaling.original_context_length", 0, 1 << 31),
        attention_factor=keys.real("rope.scaling.attn_factor", 1.0),
        fast_turns=keys.real("rope.scaling.yarn_beta_fast", 32.0, least=_LEAST_TURNS),
        slow_turns=keys.real("rope.scaling.yarn_beta_slow", 1.0, least=_LEAST_TURNS),
        factor_rest=_yarn_rest(keys, architecture),
    )


def _yarn_rest(keys: Keys, architecture: Architecture) -> float:
    """As `RopeScaling.factor_rest`; latent attention leaves nothing of the factor where scores grow instead."""
    found = _far(keys, architecture, _YARN_REST)
    return float(found > 0) if architecture.is_latent else found


def _attention_scale(
    keys: Keys, architecture: Architecture, size: int, scaling: RopeScaling
) -> float:
    """What scores are multiplied by, as a file says it or by the size of what is multiplied."""
    scale = keys.real("attention.scale", 0.0, least=0) or 1 / math.sqrt(size)
    if not architecture.is_latent or scaling.type != "yarn":
        return scale
    # Files have a tenth of it, as YaRN's own factor has a tenth of the logarithm.
    grown = keys.real(_YARN_REST, 0.0, least=0) * math.log(max(scaling.factor, 1.0))
    return scale * (1.0 + grown) ** 2


def _windows(keys: Keys, architecture: Architecture, layers: int) -> tuple[int, ...]:
    """How many keys each layer sees; as a file says it, or else the last of every period sees all."""
    period = architecture.window_period
    if period is None:
        return (0,) * layers
    own = architecture.window if architecture.window_layers in (0, layers) else 0
    window = keys.size("attention.sliding_window", own, 1 << 31, least=0)
    said = keys.windowed("attention.sliding_window_pattern", layers) if window else None
    seen = said or all_but_last(period, layers)
    return tuple(window if is_windowed else 0 for is_windowed in seen)
