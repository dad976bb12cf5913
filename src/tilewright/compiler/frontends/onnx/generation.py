"""Rows for text that a decoder writes token by token: the decoder is a subgraph, the search is a loop around it.

A step reads the tokens that are new, beside caches of what was read before; both grow with the text.  The prompt is
read before the loop, so that each trip is one token.

Source: onnxruntime ContribOperators.md (GreedySearch, Sampling), in the meaning of its CPU kernels: a token that ends
a text is written as padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from onnx import GraphProto, ValueInfoProto

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
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
    """What is known behind the tokens that were read.

    Attributes:
        scores: of the next token, `f32[batch, vocabulary]`.
        state: what a reader carries from token to token.
    """

    scores: Tensor
    state: Sequence[Tensor]


class Reader(Protocol):
    """How the subgraphs of a search read texts."""

    def begin(self, tokens: Tensor, given_mask: Tensor | None) -> tuple[Tensor, Read]:
        """The first tokens of the texts, `i32[batch, n]`, and what is known behind them.

        Args:
            tokens: the prompts.
            given_mask: which of their tokens are read, where the caller says it.
        """
        ...

    def follow(self, token: Tensor, state: Sequence[Tensor]) -> Read:
        """What is known behind another token, `i32[batch]`."""
        ...

    def of_rows(
        self, state: Sequence[Tensor], rows: Tensor, *, is_first: bool
    ) -> list[Tensor]:
        """The state of texts that go on from others, `rows: i64[texts]`; later than the first time from those of their own prompt."""
        ...


def words_of(tokens: Tensor, padding: int, e: NodeMaker) -> Tensor:
    """Which tokens are words, `i32[batch, tokens]`."""
    is_word = e.op("not_equal", tokens, e.scalar(padding, dtypes.i32))
    return e.cast(is_word, dtypes.i32)


def empty_cache(call: Call, value: ValueInfoProto, batch: Dim) -> Tensor:
    """A cache of no token at all: keys and values `[2, batch, heads, tokens, size]`, or one of them without the first axis.

    Raises: ModelError for what is no such input.
    """
    held = value.type.tensor_type
    sizes: list[Dim] = [dim.dim_value for dim in held.shape.dim]
    is_pair = len(sizes) == 5 and sizes[0] == 2
    if not (is_pair or len(sizes) == 4) or not (sizes[-3] and sizes[-1]):
        raise ModelError(f"'{value.name}' is no past [2, batch, heads, tokens, size]")
    shape = (*sizes[:-4], batch, sizes[-3], 0, sizes[-1])
    return call.maker.full(0, dtype_of(held.elem_type), shape)


def last_scores(call: Call, scores: Tensor) -> Tensor:
    """Those behind the last token, `f32[batch, vocabulary]`, without the columns that only fill a vocabulary up."""
    e, words = call.maker, call.integer("vocab_size", 0)
    scores = e.squeeze(e.slice(scores, 1, scores.shape[1] - 1, 1), (1,))
    columns = scores.shape[1]
    if words >= 1 and words != columns:
        if not isinstance(columns, int):
            raise UnsupportedError(
                "'vocab_size' beside a dynamic size is not supported", hint=FIXED_SIZE
            )
        if words > columns:
            raise ModelError(f"'vocab_size' is {words}, the decoder has {columns} scores")
        scores = e.slice(scores, 1, 0, words)
    return e.cast(scores, dtypes.f32)


@final
class _DecoderAlone:
    """Subgraphs like that of GPT-2, of which the first reads the prompts.

    Its state: i32[batch, 1], where the next token stands; i32[batch, tokens], the mask of all that was read; keys and
    values of every layer.
    """

    def __init__(self, call: Call, padding: int) -> None:
        has_first = call.attributes.graph("init_decoder") is not None
        self._call: Call = call
        self._padding: int = padding
        self._first: GraphProto = call.graph("init_decoder" if has_first else "decoder")
        self._others: GraphProto = call.graph("decoder")
        for graph in (self._first, self._others):
            names, layers = [v.name for v in graph.input], len(graph.output) - 1
            if tuple(names[:3]) != _OWN_INPUTS or len(names) != 3 + layers or layers < 1:
                raise UnsupportedError(
                    f"a decoder with the inputs {' '.join(names[:8])} is not supported",
                    hint=f"expected are {' '.join(_OWN_INPUTS)} and a past for each of {layers} layers",
                )

    def begin(self, tokens: Tensor, given_mask: Tensor | None) -> tuple[Tensor, Read]:
        """See `Reader`."""
        e, (batch, _) = self._call.maker, tokens.shape
        is_word = words_of(tokens, self._padding, e)
        before = e.op("sub", e.op("cumsum", is_word, axis=1), is_word)
        places = e.op("mul", before, is_word)
        mask = is_word if given_mask is None else given_mask
        caches = [empty_cache(self._call, v, batch) for v in self._first.input[3:]]
        next_ = e.op("reduce_sum", is_word, axes=(1,), keepdims=True)
        return tokens, self._read(self._first, [tokens, places, mask, *caches], next_, mask)

    def follow(self, token: Tensor, state: Sequence[Tensor]) -> Read:
        """See `Reader`."""
        e, (places, mask, *caches) = self._call.maker, state
        one = e.full(1, dtypes.i32, (token.shape[0], 1))
        mask = e.concat([mask, one], 1)
        given = [e.unsqueeze(token, (1,)), places, mask, *caches]
        return self._read(self._others, given, e.op("add", places, one), mask)

    def _read(
        self, graph: GraphProto, given: Sequence[Tensor], places: Tensor, mask: Tensor
    ) -> Read:
        scores, *caches = map(tensor_in, self._call.inline(graph, given))
        return Read(scores=last_scores(self._call, scores), state=[places, mask, *caches])

    def of_rows(
        self, state: Sequence[Tensor], rows: Tensor, *, is_first: bool
    ) -> list[Tensor]:
        """See `Reader`."""
        del is_first
        e, (places, mask, *caches) = self._call.maker, state
        return [
            *(e.op("gather", t, rows, axis=0) for t in (places, mask)),
            *(e.op("gather", cache, rows, axis=1) for cache in caches),
        ]


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
    reader: Reader
    end: int
    padding: int
    most: Dim
    given_mask: Tensor | None

    def begin(self) -> tuple[Tensor, Read]:
        """The first tokens of the texts, and what is known behind them."""
        return self.reader.begin(self.call.tensor(0), self.given_mask)

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
    """A search with a decoder alone.  Raises: UnsupportedError, ModelError for what is no decoder or no room."""
    if call.integer("model_type", 0) != 0 or call.attributes.graph("encoder") is not None:
        raise UnsupportedError("a search over an encoder and a decoder is not supported")
    reader = _DecoderAlone(call, call.integer("pad_token_id"))
    return search_by(call, reader, call.tensor(0).shape[-1], given_mask)


def search_by(call: Call, reader: Reader, length: Dim, given_mask: Tensor | None) -> Search:
    """A search of texts that begin with `length` tokens."""
    tokens, most = call.tensor(0), call.one_size(1, "max_length", 1)
    if tokens.rank != 2:
        raise ModelError(f"tokens {tokens.type}, expected [batch, tokens]")
    if isinstance(most, int) and isinstance(length, int):
        if most <= length:
            raise ModelError(f"max_length is {most}, the prompt has {length} tokens")
    else:
        # A call whose prompt leaves no room fails here: sizes behind it count on some.
        room = control.fresh_symbol(call.maker, "room", 1)
        call.maker.bind_sizes(call.maker.dims((most - length,)), [room])
    return Search(
        call=call,
        reader=reader,
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

    ids, read = search.begin()
    none = e.full(False, dtypes.bool_, (ids.shape[0],))
    ids, ended, token = search.write(ids, none, choose(read.scores, ids, is_first=True))

    def go_on(values: list[Tensor]) -> Tensor:
        return search.goes_on(values[0], values[1])

    def trip(values: list[Tensor]) -> list[Tensor]:
        ids, ended, token, *state = values
        found = search.reader.follow(token, state)
        chosen = choose(found.scores, ids, is_first=False)
        ids, ended, token = search.write(ids, ended, chosen)
        return [ids, ended, token, *found.state]

    begin = [ids, ended, token, *read.state]
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
