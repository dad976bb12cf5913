"""What callers give a language model: a wrong type is refused, where it once said another text or failed in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes.language_models import speaking_form
from tilewright.api.language.arguments import form_option, prompt_tokens, sampling_of
from tilewright.api.language.cache import Cache
from tilewright.api.language.chat import render
from tilewright.api.language.language_model import LanguageModel
from tilewright.api.language.sampling import GREEDY, Sampling
from tilewright.api.language.tokenizer import Tokenizer
from tilewright.base import dtypes
from tilewright.base.errors import InputError, TilewrightError, UserError
from tilewright.formats.gguf import read_gguf
from tilewright.formats.tensor_spec import TensorSpec


@pytest.mark.parametrize("prompt", [b"hello", None, 5, {1: 2}])
def test_a_prompt_is_a_text_or_tokens(prompt: object) -> None:
    with pytest.raises(UserError, match=r"prompt is .*, expected a text or a sequence of"):
        prompt_tokens(prompt)


@pytest.mark.parametrize("value", ["greedy", 0, {"temperature": 0}])
def test_how_tokens_are_drawn_is_a_sampling(value: object) -> None:
    with pytest.raises(UserError, match=r"sampling is .*, expected a Sampling"):
        sampling_of(value)
    assert sampling_of(None) == Sampling()
    assert sampling_of(GREEDY) is GREEDY


@pytest.mark.parametrize("value", ["{}", ["object"], 5])
def test_a_schema_is_a_mapping(value: object) -> None:
    with pytest.raises(UserError, match=r"schema is .*, expected a JSON schema"):
        form_option(value)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": "hot"}, {"temperature": None}, {"temperature": True}, {"temperature": 10**400}, {"top_k": 1.5},
        {"top_k": None}, {"top_p": "x"}, {"min_p": None}, {"seed": 1.5}, {"seed": "x"}, {"seed": (1,)},
        {"repetition_penalty": "x"}, {"presence_penalty": None}, {"frequency_penalty": "x"}, {"logit_bias": None},
        {"logit_bias": [1]}, {"logit_bias": {1: "x"}}, {"logit_bias": {1: None}}, {"logit_bias": {1: float("inf")}},
    ],
)  # fmt: skip
def test_numbers_of_a_sampling_are_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"^{next(iter(options))}.* is "):
        Sampling(**options)


def test_a_sampling_takes_numbers_of_numpy() -> None:
    found = Sampling(temperature=np.float32(0.5), top_k=np.int64(3), seed=np.int64(1))  # type: ignore[arg-type]
    assert found.top_k == 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.of(read_gguf(speaking_form().data()))


@pytest.mark.parametrize("tokens", [[1.5], [True], ["a"], [None], "abc", b"abc", 5, None])
def test_tokens_are_whole_numbers(tokenizer: Tokenizer, tokens: Any) -> None:
    with pytest.raises(UserError, match=r"expected a (whole number|sequence of tokens)"):
        tokenizer.decode(tokens)


@pytest.mark.parametrize("token", [-1, 272, 10**30])
def test_a_token_is_one_that_there_is(tokenizer: Tokenizer, token: int) -> None:
    with pytest.raises(
        InputError, match=rf"token {token} is out of range, expected 0 .. 271"
    ):
        tokenizer.checked([3, token])


def test_tokens_may_be_an_array(tokenizer: Tokenizer) -> None:
    found = tokenizer.checked(np.array([3, 4], np.uint8))  # type: ignore[arg-type]
    assert found == [3, 4]
    assert {type(token) for token in found} == {int}


@pytest.mark.parametrize("text", [None, 5, b"x"])
def test_what_becomes_tokens_is_a_text(tokenizer: Tokenizer, text: Any) -> None:
    with pytest.raises(UserError, match=r"text is .*, expected a text"):
        tokenizer.encode(text)


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ("hi", "messages is 'hi'"),
        (None, "messages is None"),
        ({"role": "user", "content": "hi"}, "messages is {'role'"),
        ([{}], r"messages\[0\] is {}"),
        ([{"role": "user", "content": "a"}, "b"], r"messages\[1\] is 'b'"),
        ([{"role": 1, "content": "a"}], r"messages\[0\]"),
        ([{"role": "user", "content": 2}], r"messages\[0\]"),
        ([{"role": "assistant", "content": None}], r"messages\[0\]"),
    ],
)
def test_a_conversation_is_a_list_of_turns(messages: Any, named: str) -> None:
    with pytest.raises(UserError, match=named) as refused:
        render("{{ messages }}", messages, tokens={}, location="m.gguf")
    assert refused.value.hint == "messages=[{'role': 'user', 'content': 'Hello'}]"


@pytest.mark.parametrize("room", [1 << 50, 1 << 62])
def test_a_context_beyond_all_memory_is_refused_in_words(room: int) -> None:
    specs = [TensorSpec("key_0", dtypes.f32, (1, 2, "room", 4))]
    with pytest.raises(UserError, match=f"{room} tokens take") as refused:
        Cache(specs, room, b"model")
    assert refused.value.hint == "a smaller context"


@pytest.mark.parametrize("path", [None, 5, b"x", "a\0b"])
def test_a_saved_prompt_has_the_name_of_a_file(path: Any) -> None:
    cache = Cache([TensorSpec("key_0", dtypes.f32, (1, 2, "room", 4))], 8, b"model")
    for use in (cache.save, cache.load):
        with pytest.raises(UserError, match=r"path is .*, expected the path of a file"):
            use(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    place.write_bytes(speaking_form().data())
    return LanguageModel(place, cache=False, threads=1)


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "one text that ends it": (lambda m: m.stream("a", stop="xy"), r"stop is 'xy'.*\n.*\['xy'\]"),
    "a number that ends it": (lambda m: m.stream("a", stop=[1]), "one of stop is 1"),
    "parts of tokens": (lambda m: m.stream([1.5, 2.5]), "token is 1.5"),
    "bytes": (lambda m: m.stream(b"a"), "prompt is b'a'"),
    "a biased text": (
        lambda m: m.stream("a", sampling=tw.Sampling(logit_bias={"a": 1})),  # type: ignore[dict-item]
        "token is 'a'",
    ),
    "scores of the last token by -1": (lambda m: m.scores([3, -1]), "token -1 is out of"),
    "scores of parts of tokens": (lambda m: m.scores([1.5]), "token is 1.5"),
    "scores of a text": (lambda m: m.scores("a"), "tokens is 'a'"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("asked", REFUSED)
def test_a_model_refuses_it_before_it_begins(model: LanguageModel, asked: str) -> None:
    ask, told = REFUSED[asked]
    with pytest.raises(TilewrightError, match=f"(?s){told}"):
        ask(model)


@pytest.mark.slow
def test_a_prompt_and_scores_may_be_of_arrays(model: LanguageModel) -> None:
    tokens: Any = np.array([4, 5, 6])
    expected = model.generate([4, 5, 6], tokens=2, sampling=GREEDY)
    assert model.generate(tokens, tokens=2, sampling=GREEDY) == expected
    assert np.array_equal(model.scores(tokens), model.scores([4, 5, 6]))
