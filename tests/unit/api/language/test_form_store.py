from __future__ import annotations

import pytest

from fakes.language_models import speaking_form
from tilewright.api.language.form_store import FormStore
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
