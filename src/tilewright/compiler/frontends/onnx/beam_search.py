"""Row for a search along several beams: the likeliest texts are followed side by side, and the best that ended are kept.

Of twice as many continuations as there are beams the first that do not end a text are the next beams; what ends among
the first is a finished text, of which a prompt keeps as many as it has beams.  A prompt is done when no beam can become
better than what it keeps.

Source: onnxruntime ContribOperators.md (BeamSearch), in the meaning of its CPU kernel for decoders like GPT-2, but for
one thing: there a prompt is done when no beam of any prompt can become better, so that what it gets depends on those
beside it; here its own beams decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.encoder_decoders import EncoderAndDecoder
from tilewright.compiler.frontends.onnx.generation import Read, Search, search_by, search_of
from tilewright.compiler.frontends.onnx.generation_scores import ScoreRules
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row


@final
@record
class _Beams:
    """Where a search stands; a row is a beam of a prompt.

    Attributes:
        ids: i32[rows, tokens].
        totals: f32[batch, beams], logarithms of how likely they are.
        token: i32[rows], the last of each.
        done: bool[batch].
        kept: f32[batch, beams], scores of finished texts; where there is none, the lowest.
        texts: i32[batch, beams, most], the finished texts.
    """

    ids: Tensor
    totals: Tensor
    token: Tensor
    done: Tensor
    kept: Tensor
    texts: Tensor

    def tensors(self) -> list[Tensor]:
        return [self.ids, self.totals, self.token, self.done, self.kept, self.texts]


@final
@record
class _BeamSearch:
    """A call as it is understood; `count` is how many beams a prompt has."""

    call: Call
    search: Search
    rules: ScoreRules
    count: int
    penalty: Tensor
    ends_early: bool
    batch: Dim

    def begin(self) -> tuple[_Beams, Sequence[Tensor]]:
        """The first token of every beam; before it all beams of a prompt are alike, and one counts."""
        e, (batch, count) = self.call.maker, (self.batch, self.count)
        ids, read = self.search.begin()
        rows = e.reshape(e.iota((batch, count), 0), (batch * count,))
        ids, scores = (e.op("gather", t, rows, axis=0) for t in (ids, read.scores))
        state = self.search.reader.of_rows(read.state, rows, is_first=True)
        is_first = e.op("equal", e.iota((batch, count), 1), e.scalar(0, dtypes.i64))
        zero, low = (e.scalar(number, dtypes.f32) for number in (0, -1e9))
        beams = _Beams(
            ids=ids,
            totals=e.op("where", is_first, zero, low),
            token=e.full(0, dtypes.i32, (batch * count,)),
            done=e.full(False, dtypes.bool_, (batch,)),
            kept=e.full(-math.inf, dtypes.f32, (batch, count)),
            texts=e.full(self.search.padding, dtypes.i32, (batch, count, self.search.most)),
        )
        read = Read(scores=scores, state=state)
        own = self.rules.of_rows(rows)
        return self.step(
            beams, read, own.adjusted(self._logarithms(read), ids, is_first=True)
        )

    def follow(
        self, beams: _Beams, state: Sequence[Tensor]
    ) -> tuple[_Beams, Sequence[Tensor]]:
        """Another token of every beam, and the state behind it."""
        found = self.search.reader.follow(beams.token, state)
        scores = self.rules.adjusted(self._logarithms(found), beams.ids, is_first=False)
        return self.step(beams, found, scores)

    def _logarithms(self, read: Read) -> Tensor:
        return self.call.maker.op("log_softmax", read.scores, axis=1)

    def step(
        self, beams: _Beams, read: Read, scores: Tensor
    ) -> tuple[_Beams, Sequence[Tensor]]:
        """The best continuations, and what of them ended."""
        e, (batch, count), words = (
            self.call.maker,
            (self.batch, self.count),
            scores.shape[1],
        )
        if not isinstance(words, int) or words < 2:
            raise UnsupportedError(
                "a vocabulary of one or of a dynamic size is not supported"
            )
        apart = e.reshape(scores, (batch, count, words))
        apart = e.op("add", apart, e.unsqueeze(beams.totals, (2,)))
        flat = e.reshape(apart, (batch, count * words))
        best, where = e.ops("top_k", flat, k=(2 * count,), axis=1)
        beam = e.op("div", where, e.scalar(words, dtypes.i64))
        token = e.op("sub", where, e.op("mul", beam, e.scalar(words, dtypes.i64)))
        is_end = e.op("equal", token, e.scalar(self.search.end, dtypes.i64))
        kept, texts = self._ended(beams, best, beam, is_end)
        rank = e.iota((batch, 2 * count), 1)
        late = e.op("add", rank, e.scalar(2 * count, dtypes.i64))
        _, picked = e.ops(
            "top_k", e.op("where", is_end, late, rank), k=(count,), axis=1, largest=False
        )
        total, beam, token = (
            e.op("gather_elements", t, picked, axis=1) for t in (best, beam, token)
        )
        done = e.unsqueeze(beams.done, (1,))
        own = e.iota((batch, count), 1)
        rows = self._rows(e.op("where", done, own, beam))
        token = e.op("where", done, e.scalar(self.search.padding, dtypes.i64), token)
        token = e.cast(e.reshape(token, (batch * count,)), dtypes.i32)
        ids = e.op("gather", beams.ids, rows, axis=0)
        found = _Beams(
            ids=e.concat([ids, e.unsqueeze(token, (1,))], 1),
            totals=e.op("where", done, e.scalar(0, dtypes.f32), total),
            token=token,
            done=self._done(beams, kept, e.slice(best, 1, 0, 1)),
            kept=kept,
            texts=texts,
        )
        return found, self.search.reader.of_rows(read.state, rows, is_first=False)

    def _rows(self, beam: Tensor) -> Tensor:
        """Beams of prompts, `[batch, n]`, as rows."""
        e, (batch, count) = self.call.maker, beam.shape
        first = e.op("mul", e.iota((batch, 1), 0), e.scalar(self.count, dtypes.i64))
        return e.reshape(e.op("add", beam, first), (batch * count,))

    def _shared(self, totals: Tensor, length: Dim) -> Tensor:
        """Scores of texts: longer ones may be less likely."""
        e = self.call.maker
        size = e.cast(e.reshape(e.dim(length), ()), dtypes.f32)
        return e.op("div", totals, e.op("pow", size, self.penalty))

    def _ended(
        self, beams: _Beams, best: Tensor, beam: Tensor, is_end: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The best finished texts, those of this step among them."""
        e, count = self.call.maker, self.count
        best, beam, is_end = (e.slice(t, 1, 0, count) for t in (best, beam, is_end))
        counts = e.op(
            "logical_and", is_end, e.op("logical_not", e.unsqueeze(beams.done, (1,)))
        )
        scores = self._shared(best, beams.ids.shape[1])
        scores = e.op("where", counts, scores, e.scalar(-math.inf, dtypes.f32))
        return self._best(
            beams, scores, e.op("gather", beams.ids, self._rows(beam), axis=0), count
        )

    def _best(
        self, beams: _Beams, scores: Tensor, ids: Tensor, wanted: int
    ) -> tuple[Tensor, Tensor]:
        """The best of what is kept and of others, the best first."""
        e, most = self.call.maker, self.search.most
        texts = e.reshape(self.search.filled(ids), (self.batch, self.count, most))
        scores, texts = e.concat([beams.kept, scores], 1), e.concat([beams.texts, texts], 1)
        kept, places = e.ops("top_k", scores, k=(wanted,), axis=1)
        places = e.broadcast_to(e.unsqueeze(places, (2,)), (self.batch, wanted, most))
        return kept, e.op("gather_elements", texts, places, axis=1)

    def _done(self, beams: _Beams, kept: Tensor, best: Tensor) -> Tensor:
        e = self.call.maker
        worst = e.op("reduce_min", kept, axes=(1,), keepdims=False)
        is_done = e.op("greater", worst, e.scalar(-math.inf, dtypes.f32))
        if not self.ends_early:
            highest = self._shared(e.squeeze(best, (1,)), beams.ids.shape[1])
            is_done = e.op("logical_and", is_done, e.op("greater_equal", worst, highest))
        return e.op("logical_or", beams.done, is_done)

    def finish(self, beams: _Beams, wanted: int) -> tuple[Tensor, Tensor]:
        """The best texts, those among them that never ended."""
        e = self.call.maker
        scores = self._shared(beams.totals, beams.ids.shape[1])
        low = e.scalar(-math.inf, dtypes.f32)
        scores = e.op("where", e.unsqueeze(beams.done, (1,)), low, scores)
        return self._best(beams, scores, beams.ids, wanted)


def _search_of(call: Call) -> Search:
    mask, kind = call.optional(9), call.integer("model_type", 0)
    if kind == 0:
        return search_of(call, mask)
    if kind != 1:
        raise UnsupportedError(f"attribute 'model_type' is {kind}, expected 0 or 1")
    return search_by(call, EncoderAndDecoder(call), 1, mask)


def _beam_search(call: Call) -> list[Tensor | None]:
    e = call.maker
    count, wanted = call.number(3, "num_beams"), call.number(4, "num_return_sequences")
    if count < 1 or not 1 <= wanted <= count:
        raise ModelError(f"{wanted} texts of {count} beams")
    for place, name in ((10, "decoder_input_ids"), (11, "logits_processor")):
        if not call.is_nothing(place):
            raise UnsupportedError(f"operand {place + 1} ('{name}') is not supported")
    if call.wants(2):
        raise UnsupportedError("output 3 ('scores') is not supported")
    penalty = call.optional(5)
    it = _BeamSearch(
        call=call,
        search=_search_of(call),
        rules=ScoreRules.of(call, (2, 6, 7, 8)),
        count=count,
        penalty=e.scalar(1, dtypes.f32) if penalty is None else e.reshape(penalty, ()),
        ends_early=call.flag("early_stopping"),
        batch=call.tensor(0).shape[0],
    )
    beams, state = it.begin()
    width = len(beams.tensors())

    def go_on(values: list[Tensor]) -> Tensor:
        held = _Beams(*values[:width])
        return it.search.goes_on(held.ids, held.done)

    def trip(values: list[Tensor]) -> list[Tensor]:
        found, state = it.follow(_Beams(*values[:width]), values[width:])
        return [*found.tensors(), *state]

    begin = [*beams.tensors(), *state]
    held = control.loop(e, begin, go_on, trip, checkpoint=call.checkpoint)
    scores, texts = it.finish(_Beams(*held[:width]), wanted)
    return [texts, scores, None]


ROWS: Final[tuple[Row, ...]] = (
    row(
        "BeamSearch",
        _beam_search,
        domain=MICROSOFT,
        ignores=("decoder_start_token_id",),
    ),
)
