"""What is done to scores before a token is chosen: repeated tokens, short texts and words that are not allowed.

Called by `generation`.

Source: onnxruntime ContribOperators.md (GreedySearch, Sampling), in the meaning of its CPU kernels; Keskar et al., CTRL,
2019, section 4.1 (repetition); Holtzman et al., The Curious Case of Neural Text Degeneration, 2020, section 3.1 (top-p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call

_LOWEST: Final = -3.4028234663852886e38
_NO_TOKEN: Final = -(1 << 31)
_LONGEST_RUN: Final = 256


def ends_of_repeated_runs(e: NodeMaker, ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The tokens of `ids: [batch, tokens]`, and of each whether the `size - 1` in front are those that the text ends with.

    Raises: UnsupportedError for runs of more than a few hundred tokens.
    """
    if size > _LONGEST_RUN:
        raise UnsupportedError(
            f"runs of {size} tokens are not supported, at most those of {_LONGEST_RUN}"
        )
    batch, length = ids.shape
    # With something in front that is no token there are as many runs as tokens, however few these are, or none.
    room = max(1, size - 1)
    front = e.full(_NO_TOKEN, ids.dtype, (batch, room))
    long = e.concat([front, ids], 1)
    repeats = e.full(True, dtypes.bool_, ids.shape)
    for place in range(room - size + 1, room):
        last = e.slice(long, 1, length + place, 1)
        same = e.op("equal", e.slice(long, 1, place, length), last)
        repeats = e.op("logical_and", repeats, same)
    return e.slice(long, 1, room, length), repeats


def has_runs(ids: Tensor, size: int) -> bool:
    """Whether `ids: [batch, tokens]` may have as many tokens."""
    length = ids.shape[1]
    return not isinstance(length, int) or length >= size


def marked(e: NodeMaker, scores: Tensor, places: Tensor, flags: Tensor) -> Tensor:
    """Which of `scores: [batch, vocabulary]` stand at one of the places `[batch, n]` that has a flag."""
    nowhere, here = e.full(0, dtypes.i32, scores.shape), e.cast(flags, dtypes.i32)
    found = e.op("scatter_elements", nowhere, places, here, axis=1, reduction="max")
    return e.op("greater", found, e.scalar(0, dtypes.i32))


@final
@record
class ScoreRules:
    """The operands and attributes that all searches have; operands that are left out do nothing.

    Attributes:
        least: tokens that a text has at least.
        penalty: of tokens that stand in it already.
        allowed: i32[vocabulary], 0 for what never comes.
        allowed_first: i32[batch, vocabulary], of the first token alone.
        run: so many tokens never come in the same order again; 0: they may.
        end: what ends a text.
    """

    call: Call
    least: Tensor | None
    penalty: Tensor | None
    allowed: Tensor | None
    allowed_first: Tensor | None
    run: int
    end: int

    @staticmethod
    def of(call: Call, places: Sequence[int]) -> ScoreRules:
        """Those of a call whose operands at four places are these."""
        least, penalty, allowed, allowed_first = (call.optional(i) for i in places)
        return ScoreRules(
            call=call,
            least=least,
            penalty=penalty,
            allowed=allowed,
            allowed_first=allowed_first,
            run=call.integer("no_repeat_ngram_size", 0),
            end=call.integer("eos_token_id"),
        )

    def of_rows(self, rows: Tensor) -> ScoreRules:
        """Those for texts of which each begins as the prompt of a number, `i64[texts]`."""
        first = self.allowed_first
        if first is not None:
            first = self.call.maker.op("gather", first, rows, axis=0)
        return replace(self, allowed_first=first)

    def adjusted(self, scores: Tensor, ids: Tensor, *, is_first: bool) -> Tensor:
        """Scores `[batch, vocabulary]` behind `ids: i32[batch, tokens]`."""
        scores = self._without_repetition(scores, ids)
        scores = self._without_runs(scores, ids)
        for allowed in (self.allowed, self.allowed_first if is_first else None):
            if allowed is not None:
                scores = self._unless(allowed, scores)
        return self._long_enough(scores, ids)

    def _unless(self, allowed: Tensor, scores: Tensor) -> Tensor:
        e = self.call.maker
        is_allowed = e.op("not_equal", allowed, e.scalar(0, allowed.dtype))
        return e.op("where", is_allowed, scores, e.scalar(_LOWEST, scores.dtype))

    def _without_repetition(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.penalty is None:
            return scores
        e, zero = self.call.maker, self.call.maker.scalar(0, scores.dtype)
        penalty = e.reshape(self.penalty, ())
        places, is_scored = self._places(ids, scores)
        seen = marked(e, scores, places, is_scored)
        lower = e.op(
            "where", e.op("less", scores, zero), e.op("mul", scores, penalty), e.op("div", scores, penalty)
        )  # fmt: skip
        return e.op("where", seen, lower, scores)

    def _places(self, ids: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens as places of scores, and which have one: prompts and padding may be behind the vocabulary."""
        e = self.call.maker
        words = e.dim(scores.shape[1])
        places = e.cast(e.op("max", ids, e.scalar(0, dtypes.i32)), dtypes.i64)
        last = e.op("sub", words, e.scalar(1, dtypes.i64))
        return e.op("min", places, last), e.op("less", places, words)

    def _without_runs(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.run < 1 or not has_runs(ids, self.run):
            return scores
        e = self.call.maker
        tokens, repeats = ends_of_repeated_runs(e, ids, self.run)
        places, is_scored = self._places(tokens, scores)
        never = marked(e, scores, places, e.op("logical_and", repeats, is_scored))
        return e.op("where", never, e.scalar(_LOWEST, scores.dtype), scores)

    def _long_enough(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.least is None:
            return scores
        e = self.call.maker
        least = e.cast(e.reshape(self.least, ()), dtypes.i64)
        is_short = e.op("less", e.dim(ids.shape[1]), least)
        is_end = e.op(
            "equal", e.iota((1, scores.shape[1]), 1), e.scalar(self.end, dtypes.i64)
        )
        is_no_end = e.op("logical_and", is_end, is_short)
        return e.op("where", is_no_end, e.scalar(_LOWEST, scores.dtype), scores)


@final
@record
class LikelyTokens:
    """From which tokens one is drawn.

    Attributes:
        most: the least likely ones that together are at most 1 less this are left out.
        least: so many likely ones are kept in any case.
        other: the score of those that are left out.
    """

    most: float
    least: int
    other: float

    def kept(self, e: NodeMaker, scores: Tensor) -> Tensor:
        """Scores `[batch, vocabulary]`, those of tokens that are left out replaced."""
        words = scores.shape[1]
        if not isinstance(words, int):
            raise UnsupportedError(
                "a vocabulary of a dynamic size is not supported", hint=FIXED_SIZE
            )
        low, places = e.ops("top_k", scores, k=(words,), axis=1, largest=False)
        below = e.op("cumsum", e.op("softmax", low, axis=1), axis=1)
        left = e.full(True, dtypes.bool_, below.shape)
        if self.most > 0:
            left = e.op("less_equal", below, e.scalar(1 - self.most, below.dtype))
        is_rest = e.op(
            "less", e.iota((1, words), 1), e.scalar(words - self.least, dtypes.i64)
        )
        left = e.op("logical_and", left, is_rest)
        found = e.op("where", left, e.scalar(self.other, low.dtype), low)
        return e.op("scatter_elements", scores, places, found, axis=1)
