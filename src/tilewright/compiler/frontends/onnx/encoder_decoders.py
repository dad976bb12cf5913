"""How a search reads with two subgraphs: one reads the prompts, the other writes beside what the first has found.

Called by `beam_search`.

Source: onnxruntime, the subgraphs of T5 that its BeamSearch takes (`convert_generation`): with the first token of the
texts in the encoder, or without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from onnx import GraphProto

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.forms import tensor_in
from tilewright.compiler.frontends.onnx.generation import (
    Read,
    empty_cache,
    last_scores,
    words_of,
)

_READS: Final = ("encoder_input_ids", "encoder_attention_mask")
_FIRST: Final = "decoder_input_ids"
_WRITES: Final = ("input_ids", "encoder_attention_mask")
_FOUND: Final = "encoder_hidden_states"


def _names(graph: GraphProto) -> tuple[str, ...]:
    return tuple(value.name for value in graph.input)


@final
class EncoderAndDecoder:
    """Subgraphs like those of T5; a `generation.Reader`.

    Its state: keys and values of every layer of the texts that are written, then what stays as it is: the mask of the
    prompts, what the encoder has found where the decoder asks for it, and keys and values of that.
    """

    def __init__(self, call: Call) -> None:
        self._call: Call = call
        self._encoder: GraphProto = call.graph("encoder")
        self._decoder: GraphProto = call.graph("decoder")
        self._own: int = len(self._decoder.output) - 1
        self._asks: bool = _FOUND in _names(self._decoder)
        self._writes_first: bool = _FIRST in _names(self._encoder)
        if self._own < 2 or not self._is_like_t5():
            raise UnsupportedError(
                "subgraphs of other operands or results than those of T5 are not supported"
            )
        length = self._decoder.input[0].type.tensor_type.shape.dim[-1:]
        if [dim.dim_value for dim in length] != [1]:
            raise UnsupportedError(
                "a decoder that reads all of its text for each token is not supported",
                hint="its 'input_ids' are [batch, 1]",
            )

    def _is_like_t5(self) -> bool:
        own, asks, first = self._own, self._asks, self._writes_first
        read = (*_READS, _FIRST) if first else _READS
        written = (*_WRITES, _FOUND) if asks else _WRITES
        names = _names(self._decoder)
        return (
            _names(self._encoder) == read
            and len(self._encoder.output) == (2 + 2 * own if first else own)
            and names[: len(written)] == written
            and len(names) == len(written) + 2 * own
            and (first or not asks)
        )

    def begin(self, tokens: Tensor, given_mask: Tensor | None) -> tuple[Tensor, Read]:
        """See `generation.Reader`."""
        e, call = self._call.maker, self._call
        start, batch = call.integer("decoder_start_token_id"), tokens.shape[0]
        mask = self._mask(tokens) if given_mask is None else given_mask
        ids = e.full(start, dtypes.i32, (batch, 1))
        given = [tokens, mask, ids] if self._writes_first else [tokens, mask]
        found = [tensor_in(held) for held in call.inline(self._encoder, given)]
        if not self._writes_first:
            at = len(_WRITES)
            pasts = self._decoder.input[at : at + self._own]
            caches = [empty_cache(call, value, batch) for value in pasts]
            return ids, self.follow(e.reshape(ids, (batch,)), [*caches, mask, *found])
        scores, hidden, *rest = found
        caches, crossed = rest[: self._own], rest[self._own :]
        fixed = [mask, *([hidden] if self._asks else []), *crossed]
        return ids, Read(scores=last_scores(call, scores), state=[*caches, *fixed])

    def _mask(self, tokens: Tensor) -> Tensor:
        """Only padding in front is left out: what stands behind may be the token that ends a text."""
        e = self._call.maker
        is_word = words_of(tokens, self._call.integer("pad_token_id"), e)
        counted = e.op("cumsum", is_word, axis=1)
        return e.cast(e.op("greater", counted, e.scalar(0, dtypes.i32)), dtypes.i32)

    def follow(self, token: Tensor, state: Sequence[Tensor]) -> Read:
        """See `generation.Reader`."""
        caches, fixed = state[: self._own], state[self._own :]
        head, crossed = fixed[: 1 + self._asks], fixed[1 + self._asks :]
        given = [self._call.maker.unsqueeze(token, (1,)), *head, *caches, *crossed]
        made = map(tensor_in, self._call.inline(self._decoder, given))
        scores, *caches = made
        return Read(scores=last_scores(self._call, scores), state=[*caches, *fixed])

    def of_rows(
        self, state: Sequence[Tensor], rows: Tensor, *, is_first: bool
    ) -> list[Tensor]:
        """See `generation.Reader`: all beams of a prompt share what it was read as."""
        e, moved = self._call.maker, len(state) if is_first else self._own
        of = [e.op("gather", t, rows, axis=0) for t in state[:moved]]
        return [*of, *state[moved:]]
