"""Rows for text that a decoder writes token by token: the decoder is a subgraph, the search is a loop around it.

A step reads the tokens that are new, beside caches of what was read before; both grow with the text.  The prompt is
read before the loop, so that each trip is one token.

Source: onnxruntime ContribOperators.md (GreedySearch, Sampling), in the meaning of its CPU kernels: a token that ends
a text is written as padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from onnx import GraphProto

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.forms import tensor_in
from tilewright.compiler.frontends.onnx.generation_scores import LikelyTokens, ScoreRules
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.frontends.onnx.tensors import dtype_of

# Scores `[batch, vocabulary]`, and how long the texts are -> a token of each.
Pick = Callable[[Tensor, Dim], Tensor]
_OWN_INPUTS: Final = ("input_ids", "position_ids", "attention_mask")


@final
@record
class Read:
    """What a decoder has read, and its scores for what follows, `[batch, vocabulary]`.

    Attributes:
        scores: of the next token.
        places: i32[batch, 1], where it stands.
        mask: i32[batch, tokens], of all that was read.
        caches: keys and values of every layer.
    """

    scores: Tensor
    places: Tensor
    mask: Tensor
    caches: Sequence[Tensor]


@final
class _Decoder:
    """A subgraph like that of GPT-2."""

    def __init__(self, call: Call, name: str) -> None:
        self._call: Call = call
        self._words: int = call.integer("vocab_size", 0)
        self.graph: GraphProto = call.graph(name)
        names = [value.name for value in self.graph.input]
        layers = len(self.graph.output) - 1
        if tuple(names[:3]) != _OWN_INPUTS or len(names) != 3 + layers or layers < 1:
            raise UnsupportedError(
                f"a decoder with the inputs {' '.join(names[:8])} is not supported",
                hint=f"expected are {' '.join(_OWN_INPUTS)} and a past for each of {layers} layers",
            )

    def no_caches(self, batch: Dim) -> list[Tensor]:
        """Those of no token at all."""
        return [self._no_cache(at, batch) for at in range(3, len(self.graph.input))]

    def _no_cache(self, at: int, batch: Dim) -> Tensor:
        value = self.graph.input[at]
        held = value.type.tensor_type
        sizes = [dim.dim_value for dim in held.shape.dim]
        if len(sizes) != 5 or sizes[0] != 2 or not (sizes[2] and sizes[4]):
            raise ModelError(f"'{value.name}' is no past [2, batch, heads, tokens, size]")
        shape = (2, batch, sizes[2], 0, sizes[4])
        return self._call.maker.full(0, dtype_of(held.elem_type), shape)

    def read(
        self, tokens: Tensor, places: Tensor, mask: Tensor, caches: Sequence[Tensor]
    ) -> Read:
        """Read tokens, `i32[batch, n]`, behind those that stand in caches."""
        e = self._call.maker
        made = self._call.inline(self.graph, [tokens, places, mask, *caches])
        scores, *held = map(tensor_in, made)
        last = e.slice(scores, 1, scores.shape[1] - 1, 1)
        found = e.cast(self._of_words(e.squeeze(last, (1,))), dtypes.f32)
        return Read(scores=found, places=places, mask=mask, caches=held)

    def _of_words(self, scores: Tensor) -> Tensor:
        """Scores `[batch, columns]` without the columns behind the vocabulary, which only fill it up."""
        columns, words = scores.shape[1], self._words
        if words < 1 or words == columns:
            return scores
        if not isinstance(columns, int):
            raise UnsupportedError("'vocab_size' beside a dynamic size is not supported")
        if words > columns:
            raise ModelError(f"'vocab_size' is {words}, the decoder has {columns} scores")
        return self._call.maker.slice(scores, 1, 0, words)


@final
@record
class Search:
    """A call as it is understood.

    Attributes:
        end: what ends a text.
        padding: what stands behind its end.
        most: tokens of a text.
        given_mask: which tokens of the prompts are read, where the caller says it.
    """

    call: Call
    first: _Decoder
    others: _Decoder
    end: int
    padding: int
    most: Dim
    given_mask: Tensor | None

    def prompt(self) -> tuple[Tensor, Read]:
        """The tokens of the prompts, and what is known when they are read."""
        e, tokens = self.call.maker, self.call.tensor(0)
        zero, padding = (e.scalar(n, dtypes.i32) for n in (0, self.padding))
        is_word = e.cast(e.op("not_equal", tokens, padding), dtypes.i32)
        before = e.op("sub", e.op("cumsum", is_word, axis=1), is_word)
        places = e.op("mul", before, is_word)
        given = self.given_mask
        mask = is_word if given is None else given
        read = self.first.read(tokens, places, mask, self.first.no_caches(tokens.shape[0]))
        count = e.op("reduce_sum", is_word, axes=(1,), keepdims=True)
        return tokens, Read(
            scores=read.scores,
            places=e.op("add", count, zero),
            mask=mask,
            caches=read.caches,
        )

    def follow(self, token: Tensor, read: Read) -> Read:
        """What is known behind a token, `i32[batch]`."""
        e = self.call.maker
        one = e.full(1, dtypes.i32, (token.shape[0], 1))
        mask = e.concat([read.mask, one], 1)
        found = self.others.read(e.unsqueeze(token, (1,)), read.places, mask, read.caches)
        places = e.op("add", read.places, one)
        return Read(scores=found.scores, places=places, mask=mask, caches=found.caches)

    def write(
        self, ids: Tensor, ended: Tensor, token: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The texts with another token, which of them have ended, and the token that was written."""
        e = self.call.maker
        is_end = e.op("equal", token, e.scalar(self.end, dtypes.i32))
        ended = e.op("logical_or", ended, is_end)
        token = e.op("where", ended, e.scalar(self.padding, dtypes.i32), token)
        return e.concat([ids, e.unsqueeze(token, (1,))], 1), ended, token

    def goes_on(self, ids: Tensor, ended: Tensor) -> Tensor:
        """Whether texts have room, and one of them has not ended."""
        e = self.call.maker
        has_room = e.op("less", e.dim(ids.shape[1]), e.dim(self.most))
        left = e.op("reduce_min", e.cast(ended, dtypes.i32), axes=(0,), keepdims=False)
        is_left = e.op("equal", left, e.scalar(0, dtypes.i32))
        return e.op("logical_and", e.reshape(has_room, ()), is_left)

    def filled(self, ids: Tensor) -> Tensor:
        """The texts, padded to their full length."""
        e, (batch, length) = self.call.maker, ids.shape
        rest = e.full(self.padding, dtypes.i32, (batch, self.most - length))
        return e.concat([ids, rest], 1)


def search_of(call: Call, given_mask: Tensor | None) -> Search:
    """What a call asks for.  Raises: UnsupportedError, ModelError for what is no decoder or no room."""
    if call.integer("model_type", 0) != 0 or call.attributes.graph("encoder") is not None:
        raise UnsupportedError("a search over an encoder and a decoder is not supported")
    tokens = call.tensor(0)
    if tokens.rank != 2:
        raise ModelError(f"tokens {tokens.type}, expected [batch, tokens]")
    most, length = call.one_size(1, "max_length", 1), tokens.shape[1]
    if isinstance(most, int) and isinstance(length, int):
        if most <= length:
            raise ModelError(f"max_length is {most}, the prompt has {length} tokens")
    else:
        # A call whose prompt leaves no room fails here: sizes behind it count on some.
        room = control.fresh_symbol(call.maker, "room", 1)
        call.maker.bind_sizes(call.maker.dims((most - length,)), [room])
    has_first = call.attributes.graph("init_decoder") is not None
    return Search(
        call=call,
        first=_Decoder(call, "init_decoder" if has_first else "decoder"),
        others=_Decoder(call, "decoder"),
        end=call.integer("eos_token_id"),
        padding=call.integer("pad_token_id"),
        most=most,
        given_mask=given_mask,
    )


def _written(call: Call, pick: Pick) -> Tensor:
    """Texts of which `pick` chooses token after token, `i32[batch, max_length]`."""
    e, rules = call.maker, ScoreRules.of(call, range(2, 6))
    search = search_of(call, call.optional(6))

    def choose(scores: Tensor, ids: Tensor, *, is_first: bool) -> Tensor:
        found = pick(rules.adjusted(scores, ids, is_first=is_first), ids.shape[1])
        return e.cast(found, dtypes.i32)

    ids, read = search.prompt()
    none = e.full(False, dtypes.bool_, (ids.shape[0],))
    ids, ended, token = search.write(ids, none, choose(read.scores, ids, is_first=True))

    def go_on(values: list[Tensor]) -> Tensor:
        return search.goes_on(values[0], values[1])

    def trip(values: list[Tensor]) -> list[Tensor]:
        ids, ended, token, places, mask, *caches = values
        before = Read(scores=token, places=places, mask=mask, caches=caches)
        found = search.follow(token, before)
        chosen = choose(found.scores, ids, is_first=False)
        ids, ended, token = search.write(ids, ended, chosen)
        return [ids, ended, token, found.places, found.mask, *found.caches]

    begin = [ids, ended, token, read.places, read.mask, *read.caches]
    held, *_ = control.loop(e, begin, go_on, trip, checkpoint=call.checkpoint)
    return search.filled(held)


def _greedy_search(call: Call) -> Tensor:
    """The most likely token, one after the other."""

    def most_likely(scores: Tensor, length: Dim) -> Tensor:
        del length
        return call.maker.op("arg_max", scores, axis=1, keepdims=False, select_last=False)

    return _written(call, most_likely)


def _sampling(call: Call) -> Tensor:
    """Tokens that are drawn from the most likely ones."""
    e = call.maker
    if call.flag("custom"):
        raise UnsupportedError("attribute 'custom' is not supported")
    if call.wants(1):
        raise UnsupportedError("output 2 ('filtered_logits') is not supported")
    has_penalty = call.float("presence_penalty", 0.0) != 0
    if has_penalty and not call.is_nothing(7):
        raise UnsupportedError(
            "operand 8 ('presence_mask') with 'presence_penalty' is not supported"
        )
    seed = None if call.is_nothing(8) else call.number(8, "the seed")
    temperature = call.float("temperature", 1.0)
    if temperature <= 0:
        raise ModelError(
            f"attribute 'temperature' is {temperature:g}, expected more than 0"
        )
    shares = LikelyTokens(
        most=call.float("top_p", 0.0),
        least=call.integer("min_tokens_to_keep", 0),
        other=call.float("filter_value", -1e20),
    )

    def drawn(scores: Tensor, length: Dim) -> Tensor:
        scaled = e.op("div", scores, e.scalar(temperature, scores.dtype))
        below = e.op(
            "cumsum",
            e.op("softmax", e.cast(shares.kept(e, scaled), dtypes.f64), axis=1),
            axis=1,
        )
        with call.draws.trip(e.reshape(e.dim(length), ())):
            number = call.draws.uniform(e, (scores.shape[0], 1), dtypes.f64, seed)
        words = scores.shape[1]
        # Sums end near 1, not at it.
        total = e.slice(below, 1, words - 1, 1)
        passed = e.cast(e.op("less_equal", below, e.op("mul", number, total)), dtypes.i64)
        count = e.op("reduce_sum", passed, axes=(1,), keepdims=False)
        return e.op("min", count, e.op("sub", e.dim(words), e.scalar(1, dtypes.i64)))

    return _written(call, drawn)


_WITHOUT_EFFECT: Final = ("decoder_start_token_id",)

ROWS: Final[tuple[Row, ...]] = (
    row("GreedySearch", _greedy_search, domain=MICROSOFT, ignores=_WITHOUT_EFFECT),
    row(
        "Sampling",
        _sampling,
        domain=MICROSOFT,
        ignores=_WITHOUT_EFFECT,
    ),
)
