from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.api.language.requests import read_request
from tilewright.base.errors import UserError

TURNS = [{"role": "user", "content": "hi"}]


def _read(is_chat: bool = False, **fields: Any) -> Any:
    return read_request(json.dumps(fields).encode(), is_chat=is_chat)


def test_what_is_not_said_is_as_clients_expect() -> None:
    found = _read(prompt="a")
    assert (found.prompt, found.tokens, found.stop, found.stream) == ("a", 512, (), False)
    assert found.sampling.temperature == 1.0
    assert (found.sampling.top_k, found.sampling.top_p, found.sampling.seed) == (
        0,
        1.0,
        None,
    )


def test_prompts_are_texts_or_tokens() -> None:
    assert _read(prompt=["a"]).prompt == "a"
    assert _read(prompt=[1, 2]).prompt == [1, 2]


def test_contents_are_texts_or_parts_of_one() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = _read(is_chat=True, messages=[{"role": "user", "content": parts}])
    assert found.messages == [{"role": "user", "content": "ab"}]


def test_fields_that_ask_for_nothing_are_taken() -> None:
    found = _read(
        prompt="a", n=1, logprobs=None, presence_penalty=0, stop=None, top_k=5, user="me"
    )
    assert found.sampling.top_k == 5


WRONG = {
    "'n' is not supported": {"prompt": "a", "n": 2},
    "'tools' is not supported": {"prompt": "a", "tools": [{}]},
    "'logprobs' is not supported": {"prompt": "a", "logprobs": 3},
    "'prompt' is no text": {"prompt": 3},
    "'prompt' is no text and": {"prompt": ["a", "b"]},
    "'prompt' is no text and no list of tokens": {"prompt": [True]},
    "'max_tokens' is no number": {"prompt": "a", "max_tokens": -1},
    "'seed' is no whole number": {"prompt": "a", "seed": 1.5},
    "'temperature' is no number": {"prompt": "a", "temperature": "hot"},
    "temperature is -1.0": {"prompt": "a", "temperature": -1},
    "'stop' is no text": {"prompt": "a", "stop": 3},
    "'stream' is neither": {"prompt": "a", "stream": "yes"},
}


@pytest.mark.parametrize("message", WRONG)
def test_fields_that_are_wrong_are_named(message: str) -> None:
    with pytest.raises(UserError, match=message):
        _read(**WRONG[message])


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (None, "'messages' is no list"),
        ([], "'messages' is no list"),
        ([{"role": "king", "content": "x"}], "messages.0..role' is 'king'"),
        ([*TURNS, {"role": "user", "content": 3}], "messages.1..content' is no text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "content' is no text"),
    ],
)
def test_turns_that_are_wrong_are_named(messages: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _read(is_chat=True, messages=messages)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_bodies_that_are_no_objects_are_errors(body: bytes) -> None:
    with pytest.raises(UserError, match="the request is no JSON"):
        read_request(body, is_chat=False)
