from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tilewright.api.language import constraints
from tilewright.api.language.constraints import Constraint, TextForm, TokenTree
from tilewright.api.language.grammars import DEAD, Automaton
from tilewright.api.language.json_schemas import ANY_OBJECT, grammar_of
from tilewright.base.errors import ModelError

PIECES = [
    b"", *(bytes([b]) for b in range(256)), b'{"', b'"}', b'":', b'": "', b"}}", b"abc", b"ab", b"ab", b'a"b', b"true",
    b"\xc3\xa4", b'\\"', b"12", b"[[", b"]]", b"}\n", b"</s>",
]  # fmt: skip
END = len(PIECES) - 1
TREE = TokenTree([*PIECES[:-1], b""], [END])
SCHEMA = {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"],
}  # fmt: skip


def _expected(automaton: Automaton, state: int) -> list[int]:
    """Each token by itself."""
    found = [
        token for token, piece in enumerate(PIECES[:-1])
        if piece and automaton.follow_all(state, piece) != DEAD
    ]  # fmt: skip
    return [*found, END] if automaton.may_end(state) else found


@pytest.mark.parametrize("schema", [SCHEMA, ANY_OBJECT, {}, {"enum": ["abc", "ab", 12]}])
def test_what_may_follow_is_what_each_token_says(schema: dict[str, object]) -> None:
    rng = random.Random(3)
    form = TextForm(TREE, *grammar_of(schema))
    other = Automaton(*grammar_of(schema))
    whole = 0
    for _ in range(12):
        constraint, read = Constraint(form), b""
        for _ in range(60):
            state = other.follow_all(other.start, read)
            found = np.flatnonzero(constraint.allowed()).tolist()
            assert found == _expected(other, state), read
            if constraint.is_complete:
                assert found == [END]
            token = rng.choice(found)
            if token == END:
                whole += 1
                json.loads(read.decode("utf-8", "replace"))
                break
            constraint.add(token)
            read += PIECES[token]
    assert whole > 2


def test_large_automata_begin_anew_in_the_middle_of_a_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constraints, "_MOST_SIZE", 0)
    monkeypatch.setattr(constraints, "_MOST_KEPT", 1)
    form = TextForm(TREE, *grammar_of(SCHEMA))
    one, two = Constraint(form), Constraint(form)
    for byte in b'{"a": 17, "b": "x"}':
        for each in (one, two):
            assert each.allowed()[1 + byte]
            each.add(1 + byte)
    assert one.is_complete
    assert np.flatnonzero(two.allowed()).tolist() == [END]


def test_a_vocabulary_without_what_a_form_needs_is_an_error() -> None:
    tree = TokenTree([b"a", b"b", b""], [2])
    with pytest.raises(ModelError, match="no token goes on behind ''"):
        Constraint(TextForm(tree, *grammar_of({}))).allowed()


def test_no_tokens_are_a_tree_too() -> None:
    assert TokenTree([], []).order.shape == (0,)
