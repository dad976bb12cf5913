"""The graph of a decoder: tokens and caches in, the next token's scores and the caches out.

One step takes any number of tokens: a prompt, or one token after another.  Caches have room for keys and values of
every layer; a step writes its own behind those that stand there, over the input where the caller gives outputs
the memory of inputs.

    tokens: i64[1, tokens]       what is read
    position: i64[1]             how many tokens stand in the caches before it
    span: bool[span]             by its length how far the caches are looked at, at least position + tokens;
                                 its elements are not
    key_i, value_i: f32[1, heads, room, size]
    window_i, state_i:           what a layer has summed up (`state_spaces`), of sizes that no text changes;
                                 zeros before the first token

That the place of a token is data and not a size lets a runtime take every step of a span alike.

Called by `load`.  Not the tokenizer, not sampling.

Source: llama.cpp, `llama-model.cpp` (which tensors a layer has, and their order), Vaswani et al. 2017, Zhang and
Sennrich, Root Mean Square Layer Normalization, 2019, Shazeer, GLU Variants, 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.gguf.hyperparameters import Hyperparameters
from tilewright.compiler.frontends.gguf.latent_attention import (
    decompression,
    latent_heads,
    latent_values,
)
from tilewright.compiler.frontends.gguf.networks import feed_forward
from tilewright.compiler.frontends.gguf.parts import Parts
from tilewright.compiler.frontends.gguf.rope import (
    Frequencies,
    frequencies,
    linear_bias_slopes,
    neighbours_apart,
    turned,
    turning,
)
from tilewright.compiler.frontends.gguf.short_convolutions import (
    convolved,
    short_convolution,
)
from tilewright.compiler.frontends.gguf.sinks import with_sinks
from tilewright.compiler.frontends.gguf.state_spaces import Summed, kept_shapes, state_space
from tilewright.compiler.frontends.gguf.weights import Projection, Weights
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.record import Record
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.formats.gguf import GgufFile

TOKENS: Final = "tokens"
POSITION: Final = "position"
SPAN: Final = "span"
ROOM: Final = "room"
LOGITS: Final = "logits"
_DIVISORS: Final = "rope_freqs.weight"
_NEAR_AND_FAR: Final = ("rope_factors_short.weight", "rope_factors_long.weight")
"""What frequencies are divided by: always, or with room for a context of training's length and for more."""

Turning = tuple[Tensor, Tensor]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """What every layer of a step needs: sizes, and what is made of positions."""

    count: Dim
    span: Dim
    room: Dim
    places: Tensor
    turning: Mapping[bool, Turning]
    masks: Mapping[int, Tensor]
    distances: Tensor | None
    query_scales: Tensor | None


def _one_after_the_other(
    orders: Sequence[np.ndarray | None], rows: Sequence[int]
) -> np.ndarray | None:
    """Queries and keys in their orders, then all rows that are left as they are; None: all are."""
    if orders[0] is None or orders[1] is None:
        return None
    rest = np.arange(rows[0] + rows[1], sum(rows))
    return np.concatenate([orders[0], orders[1] + rows[0], rest])


def _queries_first(heads: int, size: int) -> np.ndarray:
    """The order of rows that puts queries of all heads before their gates, which stand head by head."""
    return np.arange(2 * heads * size).reshape(heads, 2, size).swapaxes(0, 1).reshape(-1)


@final
@dataclass(slots=True)
class Transformer:
    """Writes the graph of a model."""

    file: GgufFile
    form: Hyperparameters
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    graph: Graph = field(default_factory=Graph)
    parts: Parts = field(init=False)
    maker: NodeMaker = field(init=False)
    weights: Weights = field(init=False)

    def __post_init__(self) -> None:
        name = self.file.metadata.get("general.name")
        self.graph.name = name if isinstance(name, str) and name else "model"
        self.parts = Parts(self.graph, self.file, self.form)
        self.maker, self.weights = self.parts.maker, self.parts.weights

    @property
    def records(self) -> list[Record]:
        """What became of each part so far."""
        return self.parts.records

    def run(self) -> None:
        """Write the whole graph.  Raises: ModelError naming the tensor or the part that is wrong."""
        e, form = self.maker, self.form
        count, span, room = (self._dim(n) for n in (TOKENS, SPAN, ROOM))
        tokens = self._input(TOKENS, TensorType(dtypes.i64, (1, count)))
        position = self._input(POSITION, TensorType(dtypes.i64, (1,)))
        self._input(SPAN, TensorType(dtypes.bool_, (span,)))
        with self.parts.part("Positions", "positions"):
            step = self._step(count, span, room, position)
        with self.parts.part(f"Embedding({self.parts.kind('token_embd')})", "token_embd"):
            x = self.weights.rows("token_embd.weight", form.width, tokens)
            x = self.parts.scaled(x, form.embedding_scale)
            if self.weights.has("position_embd.weight"):
                placed = self.weights.rows("position_embd.weight", form.width, step.places)
                x = e.op("add", x, e.unsqueeze(placed, (0,)))
        last = form.architecture.output_norm
        if last != "token_embd_norm":
            x = self.parts.norm(x, "token_embd_norm", optional=True)
        caches: dict[str, Tensor] = {}
        for layer in range(form.layers):
            x = self._layer(x, layer, step, caches)
        self._output(LOGITS, self._scores(x, count))
        for name, cache in caches.items():
            self._output(f"new_{name}", cache)
        self._check_all_read()

    def _check_all_read(self) -> None:
        """A tensor that has no part here has one in what the model computes.  Raises: UnsupportedError."""
        form = self.form
        behind = tuple(
            f"blk.{form.layers + number}." for number in range(form.further_layers)
        )
        left = [
            name
            for name in self.file.tensors
            if name not in self.weights.read and not name.startswith(behind)
        ]
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise UnsupportedError(
                f"tensor '{left[0]}'{more} has no part in the architecture that the file names",
                location=self.file.location,
            )

    # --- inputs and outputs

    def _dim(self, name: str) -> Dim:
        return self.sizes.get(name) or symbolic.symbol(name, 1)

    def _input(self, name: str, type_: TensorType) -> Tensor:
        value = Value(type_, name)
        self.graph.inputs.append(value)
        return self.maker.of_value(value)

    def _output(self, name: str, tensor: Tensor) -> None:
        self.graph.outputs.append(self.maker.value(tensor))
        self.graph.output_names.append(name)

    # --- positions

    def _step(self, count: Dim, span: Dim, room: Dim, position: Tensor) -> _Step:
        e, form = self.maker, self.form
        places = e.op("add", e.iota((count,), 0), position)
        local = bool(form.local_rope_base) and any(form.windows)
        kinds = {
            **({False: self._frequencies()} if any(form.turns) else {}),
            **({True: frequencies(form, local=True)} if local else {}),
        }
        found = {kind: turning(e, places, each, room) for kind, each in kinds.items()}
        seen = zip(form.windows, form.parts.attends, strict=True)
        windows = sorted({window for window, attends in seen if attends})
        masks = {w: self._seen(places, span, w) for w in windows}
        distances = self._distances(places, span) if form.linear_bias else None
        scales = self._query_scales(places) if form.far_scale else None
        return _Step(count, span, room, places, found, masks, distances, scales)

    def _frequencies(self) -> Frequencies:
        """As tensors say them, whatever the kind of scaling: files with both sets of divisors name none."""
        form, has = self.form, self.weights.has
        half = form.rope_size // 2
        if has(_DIVISORS):
            return frequencies(form, self.weights.array(_DIVISORS, half))
        if form.rope_scaling.type != "longrope" and not any(map(has, _NEAR_AND_FAR)):
            return frequencies(form)
        near, far = (
            frequencies(form, self.weights.array(name, half)) for name in _NEAR_AND_FAR
        )
        return replace(near, far=far.angles, near=form.near_context)

    def _seen(self, places: Tensor, span: Dim, window: int) -> Tensor:
        """`[1, 1, tokens, span]`: keys up to a token's own place, and not too far before it, or of its own part of the text."""
        e = self.maker
        place, key = e.unsqueeze(places, (0, 1, 3)), e.iota((1, 1, 1, span), 3)
        seen = e.op("less_equal", key, place)
        if not window:
            return seen
        if self.form.architecture.has_chunks:
            size = e.scalar(window, dtypes.i64)
            first = e.op("mul", e.op("div", place, size), size)
        else:
            first = e.op("sub", place, e.scalar(window - 1, dtypes.i64))
        return e.op("logical_and", seen, e.op("greater_equal", key, first))

    def _distances(self, places: Tensor, span: Dim) -> Tensor:
        """`[1, heads, tokens, span]`: what scores lose by distance, steeper from head to head down to none."""
        e, form = self.maker, self.form
        place = e.unsqueeze(places, (0, 1, 3))
        away = e.cast(e.op("sub", e.iota((1, 1, 1, span), 3), place), dtypes.f32)
        slopes = linear_bias_slopes(form.heads, form.linear_bias)
        return e.op("mul", away, e.constant(slopes.reshape(1, -1, 1, 1)))

    def _query_scales(self, places: Tensor) -> Tensor:
        """`[1, 1, tokens, 1]`: what queries are multiplied by, 1 within the context of training."""
        e, form = self.maker, self.form
        one, scale = (e.scalar(n, dtypes.f32) for n in (1, form.far_scale))
        own = form.far_context
        read = e.op("add", places, e.scalar(1, dtypes.i64)) if own else places
        contexts = e.op("div", read, e.scalar(own or form.near_context, dtypes.i64))
        grown = e.op("log", e.op("add", e.cast(contexts, dtypes.f32), one))
        return e.unsqueeze(e.op("add", e.op("mul", grown, scale), one), (0, 1, 3))

    # --- layers

    def _layer(
        self, x: Tensor, layer: int, step: _Step, caches: dict[str, Tensor]
    ) -> Tensor:
        block, after = f"blk.{layer}", self.form.architecture.norms_after
        before, own = x, f"{block}.attn_norm_2"
        seen = x if after else self.parts.norm(x, f"{block}.attn_norm")
        if self.form.architecture.has_single_parts:
            if self.form.parts.has_network[layer]:
                out = feed_forward(self.parts, seen, block)
            else:
                out = self._mixed_with_others(seen, layer, step, caches)
            return self._residual(x, out, f"{block}.residual")
        # A network beside attention may leave it a norm of its own.
        read = self.parts.norm(x, own) if self.weights.has(f"{own}.weight") else seen
        mixed = self._mixed_with_others(read, layer, step, caches)
        if self.form.architecture.network_norm != "post_attention_norm":
            name = f"{block}.post_attention_norm"
            mixed = self.parts.norm(mixed, name, optional=not after)
        x = self._residual(x, mixed, f"{block}.attn_residual")
        slopes = self.form.slopes[layer] if self.form.slopes else None
        read = self._network_reads(block, before, seen, x)
        out = feed_forward(self.parts, read, block, slopes)
        out = self.parts.norm(out, f"{block}.post_ffw_norm", optional=not after)
        return self._residual(x, out, f"{block}.ffn_residual")

    def _mixed_with_others(
        self, x: Tensor, layer: int, step: _Step, caches: dict[str, Tensor]
    ) -> Tensor:
        """Each token with those before it, by all that a layer has for that."""
        kinds = self.form.parts
        ways = {
            self._convolution: kinds.convolved,
            self._state_space: kinds.summed,
            self._attention: kinds.attends,
        }
        found = [mix(x, layer, step, caches) for mix, has in ways.items() if has[layer]]
        if len(found) == 1:
            return found[0]
        with self.parts.part("Sum", f"blk.{layer}.mixed"):
            return self.maker.op("add", *found)

    def _state_space(
        self, x: Tensor, layer: int, _: _Step, caches: dict[str, Tensor]
    ) -> Tensor:
        form = self.form
        assert form.space is not None, "layers with a state have sizes of it"
        kind = form.architecture.states
        names = (f"window_{layer}", f"state_{layer}")
        shapes = kept_shapes(form.space, kind)
        rows, state = (
            self._input(name, TensorType(dtypes.f32, shape))
            for name, shape in zip(names, shapes, strict=True)
        )
        kept = Summed(rows, state)
        mixed, kept = state_space(self.parts, kind, x, kept, f"blk.{layer}")
        caches |= zip(names, (kept.rows, kept.state), strict=True)
        return mixed

    def _network_reads(self, block: str, before: Tensor, seen: Tensor, x: Tensor) -> Tensor:
        """What the network of a layer reads: `x`, what attention added to, or what attention read, normalised."""
        architecture, name = (
            self.form.architecture,
            f"{block}.{self.form.architecture.network_norm}",
        )
        if architecture.norms_after:
            return x
        if architecture.shares_norm and not self.weights.has(f"{name}.weight"):
            return seen
        return self.parts.norm(before if self.form.is_parallel else x, name)

    def _residual(self, x: Tensor, more: Tensor, name: str) -> Tensor:
        with self.parts.part("Residual", name):
            more = self.parts.scaled(more, self.form.residual_scale)
            return self.maker.op("add", x, more)

    def _convolution(
        self, x: Tensor, layer: int, step: _Step, caches: dict[str, Tensor]
    ) -> Tensor:
        block, name = f"blk.{layer}", f"row_{layer}"
        found = short_convolution(self.parts, x, block)
        with self.parts.part("RowCache", f"{block}.cache"):
            rows = self.maker.unsqueeze(found.rows, (1,))
            caches[name] = self._appended(name, rows, step)
        return convolved(self.parts, found, caches[name], step.places, block)

    def _attention(
        self, x: Tensor, layer: int, step: _Step, caches: dict[str, Tensor]
    ) -> Tensor:
        e, form, block = self.maker, self.form, f"blk.{layer}"
        values, gate = None, None
        if form.latent is None:
            q, *new, gate = self._heads(x, block)
        else:
            keys, values = decompression(self.parts, form.latent, block)
            q, *new = latent_heads(self.parts, form.latent, keys, x, block)
        q, new[0] = self._placed_heads(q, new[0], layer, step)
        held: list[Tensor] = []
        with self.parts.part("KeyValueCache", f"{block}.cache"):
            for kind, each in zip(("key", "value"), new, strict=False):
                name = f"{kind}_{layer}"
                caches[name] = self._appended(name, each, step)
                held.append(caches[name])
        with self.parts.part("Attention", f"{block}.attention"):
            seen = [e.slice(cache, 2, 0, step.span) for cache in held]
            if form.latent is not None:
                seen.append(e.slice(seen[0], 3, form.rope_size, form.latent.rank))
            # A bound by sizes: what lies behind it is not computed; masks are exact.
            causal = () if step.count == 1 else (step.span - step.count,)
            mixed = self._mixed(q, seen, causal, step, layer)
        if values is not None:
            mixed = latent_values(self.parts, values, mixed, block)
        with self.parts.part("Heads", f"{block}.heads"):
            columns = mixed.shape[3]
            assert isinstance(columns, int)
            mixed = e.transpose(mixed, (0, 2, 1, 3))
            mixed = e.reshape(mixed, (1, step.count, form.heads * columns))
            if gate is not None:
                mixed = e.op("mul", mixed, e.op("sigmoid", gate))
        return self.parts.product(mixed, [Projection(f"{block}.attn_output", form.width)])

    def _placed_heads(
        self, q: Tensor, k: Tensor, layer: int, step: _Step
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their places, as far as a layer does that."""
        e, form, block = self.maker, self.form, f"blk.{layer}"
        if form.turns[layer]:
            cos, sin = step.turning[bool(form.windows[layer]) and True in step.turning]
            with self.parts.part("RotaryEmbedding", f"{block}.rope"):
                q, k = (turned(e, each, cos, sin) for each in (q, k))
            if form.has_even_heads:
                with self.parts.part("HeadNorm", f"{block}.attn_norm_of_heads"):
                    ones = e.constant(np.ones(form.key_size, np.float32))
                    q, k = (self.parts.normalised(each, ones) for each in (q, k))
        if form.architecture.norms_after_turning:
            q = self._late_norm(q, f"{block}.attn_q_norm")
            k = self._late_norm(k, f"{block}.attn_k_norm")
        grows = not form.far_context or not form.turns[layer]
        if step.query_scales is not None and grows:
            with self.parts.part("FarQueries", f"{block}.attn_q_scale"):
                q = e.op("mul", q, step.query_scales)
        return q, k

    def _mixed(
        self,
        q: Tensor,
        seen: list[Tensor],
        causal: tuple[Dim, ...],
        step: _Step,
        layer: int,
    ) -> Tensor:
        """The values that queries ask for, `[1, heads, n, size]`."""
        form, mask = self.form, step.masks[self.form.windows[layer]]
        name = f"blk.{layer}.attn_sinks.weight"
        if self.weights.has(name):
            sinks = self.weights.vector(name, form.heads)
            return with_sinks(self.maker, q, seen, mask, sinks, form)
        return self.maker.op(
            "attention", q, *seen, step.distances, mask,
            scale=form.attention_scale, softcap=form.attention_cap, causal=causal,
        )  # fmt: skip

    def _heads(self, x: Tensor, block: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values of every head, `[1, heads, n, size]`, in the order that is turned by halves.

        The last are gates of what heads give, `[1, n, columns]`, where there are any.
        """
        e, form = self.maker, self.form
        heads = (form.heads, form.shared_heads, form.shared_heads)
        sizes = (form.key_size, form.key_size, form.value_size)
        rows = [h * s for h, s in zip(heads, sizes, strict=True)]
        names = [f"{block}.attn_{letter}" for letter in "qkv"]
        orders = [self._order(h) for h in heads[:2]]
        gates = rows[0] if form.architecture.gates_attention else 0
        packed_rows = [rows[0] + gates, *rows[1:]]
        if gates:
            orders = [_queries_first(form.heads, form.key_size), np.arange(rows[1])]
        if self.weights.has(f"{block}.attn_qkv.weight"):
            order = _one_after_the_other(orders, packed_rows)
            parts = [Projection(f"{block}.attn_qkv", sum(packed_rows), order)]
        else:
            parts = [
                Projection(n, r, order)
                for n, r, order in zip(names, packed_rows, (*orders, None), strict=True)
            ]
        packed = self._limited(self.parts.product(x, parts))
        starts = (0, packed_rows[0], packed_rows[0] + rows[1])
        found: list[Tensor] = []
        for n, h, s, r, start in zip(names, heads, sizes, rows, starts, strict=True):
            own = e.slice(packed, 2, start, r)
            own = e.reshape(own, (1, x.shape[1], h, s))
            if not form.architecture.norms_after_turning:
                own = self._head_norm(own, f"{n}_norm")
            found.append(e.transpose(own, (0, 2, 1, 3)))
        gate = e.slice(packed, 2, rows[0], gates) if gates else None
        return found[0], found[1], found[2], gate

    def _limited(self, x: Tensor) -> Tensor:
        e, limit = self.maker, self.form.projection_limit
        if not limit:
            return x
        return e.op("clip", x, *(e.scalar(end, dtypes.f32) for end in (-limit, limit)))

    def _order(self, heads: int) -> np.ndarray | None:
        form = self.form
        if not form.turns_neighbours:
            return None
        return neighbours_apart(heads, form.key_size, form.rope_size)

    def _head_norm(self, x: Tensor, name: str) -> Tensor:
        """`x: [1, n, heads, size]` normalised: every head alike, each by its own weights, or all in one."""
        if not self.weights.has(f"{name}.weight"):
            return x
        e, (heads, size) = self.maker, x.shape[2:]
        assert isinstance(heads, int)
        assert isinstance(size, int)
        shape = self.file.tensors[f"{name}.weight"].shape
        with self.parts.part("HeadNorm", name):
            if len(shape) == 2:
                weights = self.weights.matrix(f"{name}.weight", (heads, size))
                return e.op(
                    "mul", self.parts.normalised(x), e.constant(self._placed(weights))
                )
            if shape == (size,):
                return self._alike(x, name)
            weights = self.weights.array(f"{name}.weight", heads * size)
            scale = e.constant(self._placed(weights.reshape(heads, size)).reshape(-1))
            flat = e.reshape(x, (*x.shape[:2], heads * size))
            return e.reshape(self.parts.normalised(flat, scale), x.shape)

    def _late_norm(self, x: Tensor, name: str) -> Tensor:
        """`x: [1, heads, n, size]` normalised, every head alike."""
        if not self.weights.has(f"{name}.weight"):
            return x
        with self.parts.part("HeadNorm", name):
            return self._alike(x, name)

    def _alike(self, x: Tensor, name: str) -> Tensor:
        """Rows of `x: [.., size]` normalised, every head by the same weights."""
        weights = self.weights.array(f"{name}.weight", self.form.key_size)[None]
        return self.parts.normalised(x, self.maker.constant(self._placed(weights)[0]))

    def _placed(self, weights: np.ndarray) -> np.ndarray:
        """`[heads, size]` weights of columns in the order that columns are in."""
        order = self._order(1)
        return weights if order is None else weights[:, order]

    def _appended(self, name: str, new: Tensor, step: _Step) -> Tensor:
        """The cache with the step's own rows behind those that stand in it."""
        e = self.maker
        past = self._input(
            name, TensorType(dtypes.f32, (*new.shape[:2], step.room, new.shape[3]))
        )
        places = e.broadcast_to(e.unsqueeze(step.places, (0, 1, 3)), new.shape)
        return e.op("scatter_elements", past, places, new, axis=2)

    # --- the end

    def _scores(self, x: Tensor, count: Dim) -> Tensor:
        """`[1, vocabulary]` for what follows the last token."""
        e, form = self.maker, self.form
        with self.parts.part("LastToken", "last"):
            last = e.slice(x, 1, count - 1, 1)
        last = self.parts.norm(last, form.architecture.output_norm)
        name = "output" if self.weights.has("output.weight") else "token_embd"
        rows = self.weights.tensor(f"{name}.weight", (None, form.width)).shape[0]
        scores = self.parts.product(last, [Projection(name, rows)])
        with self.parts.part("Scores", LOGITS):
            scores = self.parts.scaled(scores, form.final_scale)
            if form.final_cap:
                cap = e.scalar(form.final_cap, dtypes.f32)
                scores = e.op("mul", e.op("tanh", e.op("div", scores, cap)), cap)
            return e.reshape(scores, (1, rows))
