from __future__ import annotations

import threading

import pytest

from fakes.language_models import speaking_form
from tilewright.api.language import form_store
from tilewright.api.language.constraints import TextForm
from tilewright.api.language.form_store import FormStore
from tilewright.api.language.grammars import Grammar, Nonterminal
from tilewright.api.language.json_schemas import grammar_of
from tilewright.api.language.schema_keywords import Schema
from tilewright.api.language.tokenizer import Tokenizer
from tilewright.base.errors import UserError
from tilewright.formats.gguf import read_gguf


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.of(read_gguf(speaking_form().data()))


def test_the_same_schema_is_the_same_form(tokenizer: Tokenizer) -> None:
    store = FormStore(tokenizer)
    first = store.of_schema({"type": "object"})
    assert store.of_schema({"type": "object"}) is first
    assert store.of_schema({"type": "array"}) is not first
    for count in range(20):
        store.of_schema({"type": "string", "maxLength": count})
    assert store.of_schema({"type": "object"}) is not first, "the last ones are kept"


def test_what_is_no_schema_is_refused(tokenizer: Tokenizer) -> None:
    store = FormStore(tokenizer)
    with pytest.raises(UserError, match="the schema is no JSON"):
        store.of_schema({"enum": [object()]})
    with pytest.raises(UserError, match="'type' at # is"):
        store.of_schema({"type": "text"})
    with pytest.raises(UserError, match="characters, expected at most") as raised:
        store.of_schema({"enum": ["a" * 300_000]})
    assert raised.value.hint


def test_what_takes_long_to_make_keeps_nobody_from_the_others(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FormStore(tokenizer)
    known = store.of_schema({"type": "object"})
    found: list[TextForm] = []

    def slow(schema: Schema) -> tuple[Grammar, Nonterminal]:
        other = threading.Thread(
            target=lambda: found.append(store.of_schema({"type": "object"}))
        )
        other.start()
        other.join(60)
        return grammar_of(schema)

    monkeypatch.setattr(form_store, "grammar_of", slow)
    store.of_schema({"type": "array"})
    assert found == [known]
