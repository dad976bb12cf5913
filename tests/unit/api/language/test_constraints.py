from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from fakes.json_schema_check import is_allowed
from tilewright.api.language import constraints
from tilewright.api.language.character_counts import CharacterCounts
from tilewright.api.language.constraints import Constraint, TextForm
from tilewright.api.language.grammars import DEAD, Automaton, Shape
from tilewright.api.language.json_schemas import ANY_OBJECT, grammar_of
from tilewright.api.language.token_trees import TokenTree
from tilewright.base.errors import ModelError

PIECES = [
    b"", *(bytes([b]) for b in range(256)), b'{"', b'"}', b'":', b'": "', b"}}", b"abc", b"ab", b"ab", b'a"b', b"true",
    b"\xc3\xa4", b'\\"', b"12", b"[[", b"]]", b"}\n", b"\xa4b\"", b"abcdefghij", b"ab\xc3", b'"],', b'a", "b', b"\\u00e", b"9ab",
    b'nab"', b"\\\\a", b"ab\n", b'x"}', b"[1", b", 2", b"</s>",
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


NODE = {"type": "object", "required": ["a", "b"], "additionalProperties": False}
SCHEMAS: list[dict[str, Any]] = [
    SCHEMA, ANY_OBJECT, {}, {"enum": ["abc", "ab", 12]},
    {"type": "string", "maxLength": 3},
    {"type": "string", "minLength": 2},
    {"type": "string", "minLength": 4, "maxLength": 12},
    {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 5, "maxLength": 9}, {"const": "abcdefghijabc"}]},
    {"items": {"type": "string", "minLength": 1, "maxLength": 4}, "minItems": 1, "maxItems": 3},
    {"properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": ["string", "integer"], "maxLength": 2}}, "additionalProperties": {"type": "string", "maxLength": 3}},
    {"$defs": {"e": {"anyOf": [{"type": "integer"}] + [
        {**NODE, "properties": {"a": {"$ref": "#/$defs/e"}, "b": {"const": op}}} for op in ("ab", "abc", "x")
    ]}}, "$ref": "#/$defs/e"},
    {"$defs": {"e": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/e"}, "maxItems": n} for n in (1, 2, 3)]}}, "$ref": "#/$defs/e"},
]  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_may_follow_is_what_each_token_says(schema: dict[str, object]) -> None:
    rng = random.Random(3)
    form = TextForm(TREE, *grammar_of(schema))
    other = Automaton(*grammar_of(schema))
    whole = 0
    for _ in range(20):
        constraint, read = Constraint(form), b""
        for _ in range(60):
            state = other.follow_all(other.start, read)
            found = np.flatnonzero(constraint.allowed()).tolist()
            assert found == _expected(other, state), read
            if constraint.is_complete:
                assert found == [END]
            likely = [END] if END in found and rng.random() < 0.5 else found
            ends = [token for token in found if PIECES[token][:1] in (b'"', b"]", b"}")]
            token = rng.choice(ends if ends and rng.random() < 0.3 else likely)
            if token == END:
                whole += 1
                value = json.loads(
                    read.decode("utf-8", "replace"), parse_int=Decimal, parse_float=Decimal
                )
                assert is_allowed(value, schema)
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


def test_how_many_characters_tokens_have_is_worked_out_once_for_all_forms() -> None:
    known: dict[Shape, CharacterCounts | None] = {}
    counts: list[CharacterCounts | None] = []
    for most in (3, 100):
        schema = {"items": {"type": "string", "maxLength": most}}
        form = TextForm(TREE, *grammar_of(schema), known)
        constraint = Constraint(form)
        for byte in b'["':
            constraint.allowed()
            constraint.add(1 + byte)
        constraint.allowed()
        counts += known.values()
    assert len(counts) == 2
    assert counts[0] is counts[1] is not None


def test_a_long_string_costs_no_new_walk_through_the_vocabulary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = TextForm(TREE, *grammar_of({"type": "string", "maxLength": 4000}))
    constraint = Constraint(form)
    constraint.add(1 + 0x22)
    constraint.allowed()
    for _ in range(20):
        constraint.add(1 + 0x61)
        with monkeypatch.context() as within:
            within.setattr(Automaton, "follow", None)
            assert constraint.allowed()[1 + 0x61]
