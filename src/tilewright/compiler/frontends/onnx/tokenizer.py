"""The row for Tokenizer, which skl2onnx writes for the words and characters of texts; the host computes it.

Called by the importer, through the table.

Source: onnxruntime's contributed operators (com.microsoft, Tokenizer).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.automata import Automaton
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.host import check_count
from tilewright.compiler.frontends.onnx.regular_expressions import (
    regular_expression,
)
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Result, Row, row
from tilewright.compiler.frontends.onnx.strings import Values

_BEGIN: Final = "\x02"
_END: Final = "\x03"
Pieces = Callable[[str], list[str]]


def _tokenizer(call: Call) -> Result:
    """The tokens of every string, as many as the longest row has; shorter rows are padded behind."""
    tokens = _pieces(call, call.integer("mincharnum"))
    padding, has_marks = call.string("pad_value"), bool(call.integer("mark"))

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
    check_count((len(rows), width))
    found = np.full((len(rows), width), padding, object)
    for place, tokens in enumerate(rows):
        found[place, : len(tokens)] = tokens
    return found


def _pieces(call: Call, least: int) -> Pieces:
    """What cuts a string: characters, what stands between separators, or what an expression matches."""
    separators = list(call.attributes.strings("separators") or ())
    expression = call.attributes.string("tokenexp")
    if least < 1:
        raise ModelError("attribute 'mincharnum' is not positive")
    if not separators and not expression:
        raise ModelError("attributes 'separators' and 'tokenexp' are missing")
    # Where there are separators, nobody looks at the expression.
    if separators == [""] or (expression == "." and not separators):
        if least > 1:
            raise ModelError("attribute 'mincharnum' is above 1, and tokens are characters")
        return list
    if not separators:
        return partial(_matches, regular_expression(expression or ""), least)
    cutting = [regular_expression(separator) for separator in separators]
    if any(each.may_be_empty for each in cutting):
        raise UnsupportedError("a separator matches nothing at all")
    return lambda text: [piece for piece in _between(cutting, text) if len(piece) >= least]


def _matches(expression: Automaton, least: int, text: str) -> list[str]:
    """The matches that are long enough; behind the first character of another, the next may begin."""
    tokens, found = list[str](), expression.find(text, 0)
    while found is not None:
        begin, end = found
        if end - begin >= least:
            tokens.append(text[begin:end])
        else:
            end = begin + 1
        found = expression.find(text, end)
    return tokens


def _between(separators: Sequence[Automaton], text: str) -> list[str]:
    """What is left when every separator is cut out of what the one before it left."""
    left = [text]
    for separator in separators:
        left = [piece for part in left for piece in _cut(separator, part)]
    return left


def _cut(separator: Automaton, text: str) -> list[str]:
    pieces, begin = list[str](), 0
    while (found := separator.find(text, begin)) is not None:
        pieces.append(text[begin : found[0]])
        begin = found[1]
    return [piece for piece in (*pieces, text[begin:]) if piece]


TEXT_ROWS: Final[tuple[Row, ...]] = (row("Tokenizer", _tokenizer, domain=MICROSOFT),)
