"""What each layer of a model is made of: attention, a convolution, a state space, a network; and the sizes of state spaces.

Called by `hyperparameters`.

Source: `llama-model.cpp` and `models/` of llama.cpp, for which layers are of which kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf.architectures import Architecture
from tilewright.compiler.frontends.gguf.metadata_keys import Keys, all_but_last


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """Sizes of layers that sum up a text in a state.

    Attributes:
        taps: of the convolution in front of it.
        inner: columns that go through it.
        size: numbers of a state for each of them.
        heads: parts of the columns with one decay each; for `mamba` the size of the row that decays are made of.
        groups: of heads that share what is read from and written to a state.
        normalises: rows that decays, reads and writes are made of are normalised.
    """

    taps: int
    inner: int
    size: int
    heads: int
    groups: int
    normalises: bool

    @property
    def grid(self) -> tuple[int, int]:
        """Groups, and heads of each."""
        return self.groups, self.heads // self.groups

    @property
    def columns(self) -> int:
        """Columns of a head."""
        return self.inner // self.heads


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """For each layer whether it has a part; `shared_heads` are those of keys, where there are any."""

    shared_heads: int
    convolved: tuple[bool, ...]
    summed: tuple[bool, ...]
    attends: tuple[bool, ...]
    has_network: tuple[bool, ...]


def read_layer_parts(
    keys: Keys, architecture: Architecture, heads: int, layers: int
) -> LayerParts:
    """The parts of each layer.  Raises: ModelError for numbers of heads that make no sense."""
    none, each = (False,) * layers, (True,) * layers
    shared, headless = _shared_heads(keys, architecture, heads, layers)
    networks = _networks(keys, layers) if architecture.has_single_parts else each
    attends = tuple(not is_headless for is_headless in headless)
    summed = headless if architecture.states else none
    if architecture.states_everywhere:
        summed = each
        attends = each if architecture.attends_beside_states else none
    if architecture.has_single_parts:
        summed, attends = (
            tuple(is_it and not net for is_it, net in zip(part, networks, strict=True))
            for part in (summed, attends)
        )
    return LayerParts(
        shared_heads=shared,
        convolved=headless if architecture.has_convolutions else none,
        summed=summed,
        attends=attends,
        has_network=networks,
    )


def _networks(keys: Keys, layers: int) -> tuple[bool, ...]:
    """Which layers are networks and nothing else: those with a size of one."""
    sizes = keys.first(layers, "feed_forward_length") or (0.0,) * layers
    if len(sizes) != layers:
        raise ModelError(f"{len(sizes)} sizes of networks, expected {layers}")
    return tuple(size > 0 for size in sizes)


def _shared_heads(
    keys: Keys, architecture: Architecture, heads: int, layers: int
) -> tuple[int, tuple[bool, ...]]:
    """How many heads of keys there are, and which layers have none, where that may be."""
    name, headless = "attention.head_count_kv", (False,) * layers
    attends_nowhere = (
        architecture.states_everywhere and not architecture.attends_beside_states
    )
    if architecture.is_latent or attends_nowhere:
        return 1, headless
    if architecture.states_period:
        shared, headless = (
            keys.size(name, heads),
            _states_by_period(keys, architecture, layers),
        )
    elif architecture.has_convolutions or (
        architecture.states and not architecture.states_everywhere
    ):
        counts = keys.first(layers, name)
        headless = tuple(not count for count in counts)
        several = {count for count in counts if count}
        is_whole = all(math.isfinite(x) and x >= 1 and x == int(x) for x in several)
        if len(counts) != layers or len(several) > 1 or not is_whole:
            raise ModelError(f"the heads of keys are {counts}, expected one number or 0")
        shared = int(several.pop()) if several else heads
    else:
        shared = keys.size(name, heads)
    if heads % shared:
        raise ModelError(f"{heads} heads of queries do not share {shared} heads of keys")
    return shared, headless


def _states_by_period(
    keys: Keys, architecture: Architecture, layers: int
) -> tuple[bool, ...]:
    said = keys.windowed("attention.recurrent_layers", layers)
    period = keys.size("full_attention_interval", architecture.states_period)
    return said or all_but_last(period, layers)


def read_state_space(keys: Keys, architecture: Architecture) -> StateSpace | None:
    """The sizes of state spaces, where an architecture has those.  Raises: ModelError for such that do not fit."""
    if not architecture.states:
        return None
    has_heads = architecture.states != "mamba"
    inner, heads = keys.size("ssm.inner_size"), keys.size("ssm.time_step_rank")
    groups = keys.size("ssm.group_count", limit=heads) if has_heads else 1
    if has_heads and (inner % heads or heads % groups):
        raise ModelError(
            f"{inner} columns of a state space are not {heads} heads in {groups} groups"
        )
    return StateSpace(
        taps=keys.size("ssm.conv_kernel", least=2, limit=64),
        inner=inner,
        size=keys.size("ssm.state_size"),
        heads=heads,
        groups=groups,
        normalises=not has_heads and keys.flag("ssm.dt_b_c_rms", False),
    )
