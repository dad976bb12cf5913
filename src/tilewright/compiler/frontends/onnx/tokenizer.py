"""The row for Tokenizer, which skl2onnx writes for the words and characters of texts; the host computes it.

Called by the importer, through the table.

Source: onnxruntime's contributed operators (com.microsoft, Tokenizer).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Result, Row, row
from tilewright.compiler.frontends.onnx.strings import Values, regular_expression

_BEGIN: Final = "\x02"
_END: Final = "\x03"
Pieces = Callable[[str], list[str]]


def _tokenizer(call: Call) -> Result:
    """The tokens of every string, as many as the longest row has; shorter rows are padded behind."""
    pieces, least = _pieces(call), call.integer("mincharnum")
    padding, has_marks = call.string("pad_value"), bool(call.integer("mark"))

    def tokens(text: str) -> list[str]:
        return [piece for piece in pieces(text) if len(piece) >= least]

    def tokenize(x: Values) -> Sequence[object]:
        rows = [tokens(text) for text in x.flat]
        # Where no string has a token, there are no marks either.
        if has_marks and any(rows):
            rows = [[_BEGIN, *found, _END] for found in rows]
        found = _padded(rows, padding)
        return (found.reshape((*x.shape, found.shape[1])),)

    count = control.fresh_symbol(call.maker, "tokens")
    return call.on_host(tokenize, [(*call.shape(0), count)])


def _padded(rows: Sequence[Sequence[str]], padding: str) -> np.ndarray[Any, Any]:
    width = max(map(len, rows), default=0)
    found = np.full((len(rows), width), padding, object)
    for place, tokens in enumerate(rows):
        found[place, : len(tokens)] = tokens
    return found


def _pieces(call: Call) -> Pieces:
    """What cuts a string: characters, what stands between separators, or what an expression matches."""
    separators, expression = (
        call.attributes.strings("separators"),
        call.attributes.string("tokenexp"),
    )
    if call.integer("mincharnum") < 1:
        raise ModelError("attribute 'mincharnum' is not positive")
    if not separators and not expression:
        raise ModelError("attributes 'separators' and 'tokenexp' are missing")
    if expression:
        compiled = regular_expression(expression)
        return lambda text: [match.group() for match in compiled.finditer(text)]
    if list(separators or ()) == [""]:
        return list
    cutting = [regular_expression(separator) for separator in separators or ()]
    if any(each.match("") for each in cutting):
        raise UnsupportedError("a separator matches nothing at all")
    return lambda text: _between(cutting, text)


def _between(separators: Sequence[re.Pattern[str]], text: str) -> list[str]:
    """What is left when every separator is cut out of what the one before it left."""
    left = [text]
    for separator in separators:
        left = [piece for part in left for piece in _cut(separator, part)]
    return left


def _cut(separator: re.Pattern[str], text: str) -> list[str]:
    begins = [0, *(match.end() for match in separator.finditer(text))]
    ends = [*(match.start() for match in separator.finditer(text)), len(text)]
    return [text[a:b] for a, b in zip(begins, ends, strict=True) if a < b]


TEXT_ROWS: Final[tuple[Row, ...]] = (row("Tokenizer", _tokenizer, domain=MICROSOFT),)
