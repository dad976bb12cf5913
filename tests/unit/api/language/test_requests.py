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
    assert (found.prompts, found.tokens, found.stop, found.stream) == (
        ("a",),
        512,
        (),
        False,
    )
    assert (found.count, found.likely, found.tools) == (1, None, ())
    assert found.sampling.temperature == 1.0
    assert (found.sampling.top_k, found.sampling.top_p, found.sampling.seed) == (
        0,
        1.0,
        None,
    )


def test_prompts_are_texts_or_tokens() -> None:
    assert _read(prompt=["a"]).prompts == ("a",)
    assert _read(prompt=[1, 2]).prompts == ([1, 2],)
    assert _read(prompt=["a", "b"]).prompts == ("a", "b")
    assert _read(prompt=[[1], [2, 3]]).prompts == ([1], [2, 3])


def test_contents_are_texts_or_parts_of_one() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = _read(is_chat=True, messages=[{"role": "user", "content": parts}])
    assert found.messages == [{"role": "user", "content": "ab"}]


def test_fields_that_ask_for_nothing_are_taken() -> None:
    found = _read(
        prompt="a", n=1, logprobs=None, presence_penalty=0, stop=None, top_k=5, user="me"
    )
    assert found.sampling.top_k == 5
    assert _read(prompt="a", top_k=-1).sampling.top_k == 0


def test_what_a_template_may_look_at_is_an_object() -> None:
    turns = [{"role": "user", "content": "a"}]
    found = _read(is_chat=True, messages=turns, chat_template_kwargs={"thinking": False})
    assert found.options == {"thinking": False}
    assert _read(is_chat=True, messages=turns).options == {}
    with pytest.raises(UserError, match="'chat_template_kwargs' is no object"):
        _read(is_chat=True, messages=turns, chat_template_kwargs=["thinking"])


def test_how_long_a_model_reasons_is_told_its_template() -> None:
    found = _read(is_chat=True, messages=TURNS, reasoning_effort="low", model="any")
    assert found.options == {"reasoning_effort": "low"}
    own = {"reasoning_effort": "high", "thinking": True}
    found = _read(
        is_chat=True, messages=TURNS, reasoning_effort="low", chat_template_kwargs=own
    )
    assert found.options == own


def test_all_calls_are_wanted_but_where_one_is_asked_for() -> None:
    for value, expected in ((None, False), (True, False), (False, True)):
        found = _read(is_chat=True, messages=TURNS, parallel_tool_calls=value)
        assert found.takes_one_call is expected


def test_how_tokens_are_drawn_is_read_from_all_fields() -> None:
    found = _read(
        prompt="a", presence_penalty=1, frequency_penalty=-2, repetition_penalty=1.5,
        logit_bias={"7": -100, "8": 0.5}, seed=-1, n=3, best_of=3,
    )  # fmt: skip
    own = found.sampling
    assert (own.presence_penalty, own.frequency_penalty) == (1, -2)
    assert (own.repetition_penalty, own.seed) == (1.5, 2**64 - 1)
    assert own.logit_bias == {7: -100, 8: 0.5}
    assert found.count == 3


def test_likely_tokens_are_asked_for_in_two_ways() -> None:
    assert _read(prompt="a", logprobs=0).likely == 0
    assert _read(prompt="a", logprobs=5).likely == 5
    assert _read(prompt="a", logprobs=False).likely is None
    chat = {"is_chat": True, "messages": TURNS}
    assert _read(**chat).likely is None
    assert _read(**chat, logprobs=True).likely == 0
    assert _read(**chat, logprobs=True, top_logprobs=20).likely == 20


def test_turns_may_call_tools_and_say_what_they_gave() -> None:
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"x": 1}'},
    }
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "1", "name": "f"},
    ]
    found = _read(is_chat=True, messages=turns, tools=[TOOL], tool_choice="auto")
    assert found.messages[0]["content"] == ""
    assert found.messages[0]["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert found.messages[1] == turns[1]
    assert found.tools == [TOOL]
    assert _read(is_chat=True, messages=turns, tools=[TOOL], tool_choice="none").tools == ()


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
WRONG = {
    "'n' is no whole number from 1 to 128": {"prompt": "a", "n": 0},
    "256 texts are asked for": {"prompt": ["a"] * 64, "n": 4},
    "'best_of' is not supported": {"prompt": "a", "best_of": 2},
    "'tools' is not supported": {"prompt": "a", "tools": [TOOL]},
    "'logprobs' is no whole number": {"prompt": "a", "logprobs": 21},
    "'logprobs' is no whole": {"prompt": "a", "logprobs": True},
    "'model' is no text": {"prompt": "a", "model": 7},
    "'audio' is not supported": {"prompt": "a", "audio": {"voice": "alloy", "format": "wav"}},
    "'web_search_options' is not supported": {"prompt": "a", "web_search_options": {}},
    "'store' is not supported": {"prompt": "a", "store": True},
    "'reasoning_effort' is no text": {"prompt": "a", "reasoning_effort": 3},
    "'parallel_tool_calls' is neither true": {"prompt": "a", "parallel_tool_calls": "no"},
    "'echo' is not supported": {"prompt": "a", "echo": True},
    "'presence_penalty' is 3": {"prompt": "a", "presence_penalty": 3},
    "'frequency_penalty' is nan": {"prompt": "a", "frequency_penalty": float("nan")},
    "repetition_penalty is 0.0": {"prompt": "a", "repetition_penalty": 0},
    "'logit_bias' gives no tokens": {"prompt": "a", "logit_bias": {"x": 1}},
    "'logit_bias' gives no": {"prompt": "a", "logit_bias": {"1": 101}},
    "'logit_bias' gives": {"prompt": "a", "logit_bias": 3},
    "'logit_bias' names more": {"prompt": "a", "logit_bias": {str(i): 1 for i in range(2000)}},
    "'temperature' is no number that": {"prompt": "a", "temperature": 10**400},
    "'prompt' is no text": {"prompt": 3},
    "'prompt' is no text and": {"prompt": ["a", 3]},
    "'prompt' is no text and no list of tokens": {"prompt": [True]},
    "'max_tokens' is no number": {"prompt": "a", "max_tokens": -1},
    "'seed' is no whole number": {"prompt": "a", "seed": 1.5},
    "'temperature' is no number": {"prompt": "a", "temperature": "hot"},
    "temperature is -1.0": {"prompt": "a", "temperature": -1},
    "'stop' is no text": {"prompt": "a", "stop": 3},
    "'stream' is neither": {"prompt": "a", "stream": "yes"},
}  # fmt: skip
CHATS = {
    "'top_logprobs' is for requests": {"top_logprobs": 2},
    "'logprobs' is neither": {"logprobs": 3},
    "'tools' is no list": {"tools": {"a": 1}},
    "'tools.0.' is no function": {"tools": [{"type": "function"}]},
    "'tool_choice' is not supported": {"tools": [TOOL], "tool_choice": "required"},
}


@pytest.mark.parametrize("message", CHATS)
def test_fields_of_chats_that_are_wrong_are_named(message: str) -> None:
    with pytest.raises(UserError, match=message):
        _read(is_chat=True, messages=TURNS, **CHATS[message])


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
        ([{"role": "assistant", "content": None}], "content' is no text"),
        ([{"role": "assistant", "tool_calls": 3}], "tool_calls' is no list"),
        ([{"role": "assistant", "tool_calls": [{}]}], "that is no function with a name"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
            "arguments that are no JSON",
        ),
        ([{"role": "tool", "content": "", "tool_call_id": 3}], "tool_call_id' is no text"),
    ],
)
def test_turns_that_are_wrong_are_named(messages: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _read(is_chat=True, messages=messages)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_bodies_that_are_no_objects_are_errors(body: bytes) -> None:
    with pytest.raises(UserError, match="the request is no JSON"):
        read_request(body, is_chat=False)


def test_an_error_does_not_repeat_what_is_long() -> None:
    turn = {"role": "r" * 1_000_000, "content": ""}
    with pytest.raises(UserError, match="expected one of") as caught:
        _read(is_chat=True, messages=[turn])
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("value", [{}, 0, False, 0.0])
@pytest.mark.parametrize("name", ["stop", "tools", "echo", "functions", "best_of"])
def test_what_is_empty_or_zero_is_still_of_the_wrong_type(name: str, value: Any) -> None:
    """`false` is a value of `echo`, and 0 is not `false`."""
    if name == "echo" and value is False:
        assert _read(prompt="a", echo=False).prompts == ("a",)
        return
    with pytest.raises(UserError, match=f"'{name}' is"):
        _read(prompt="a", **{name: value})


@pytest.mark.parametrize("value", [0, 1, 1.0, "", [], {}])
def test_flags_are_true_or_false(value: Any) -> None:
    with pytest.raises(UserError, match="'stream' is neither true nor false"):
        _read(prompt="a", stream=value)
    with pytest.raises(UserError, match="'include_usage' is neither true nor false"):
        _read(prompt="a", stream_options={"include_usage": value})


def test_options_of_streams_are_an_object() -> None:
    assert _read(prompt="a", stream_options=None).wants_usage is False
    for value in ("usage", [], 0):
        with pytest.raises(UserError, match="'stream_options' is no object"):
            _read(prompt="a", stream_options=value)


def test_calls_of_an_assistant_are_a_list() -> None:
    for value in ({}, 0, "", False):
        turn = {"role": "assistant", "content": "a", "tool_calls": value}
        with pytest.raises(UserError, match=r"tool_calls' is no list"):
            _read(is_chat=True, messages=[turn])
    turn = {"role": "assistant", "content": "a", "tool_calls": []}
    assert _read(is_chat=True, messages=[turn]).messages == [
        {"role": "assistant", "content": "a"}
    ]


def test_a_form_of_answers_is_a_schema() -> None:
    schema = {"type": "array"}
    for form, expected in {
        "text": None, "json_object": {"type": "object"}, "json_schema": schema,
    }.items():  # fmt: skip
        own = {"type": form, "json_schema": {"name": "x", "strict": True, "schema": schema}}
        assert _read(prompt="a", response_format=own).schema == expected
        assert _read(is_chat=True, messages=TURNS, response_format=own).schema == expected
    assert _read(prompt="a", response_format=None).schema is None
    for form, message in (
        (
            {"type": "xml"},
            "'response_format.type' is 'xml', expected text json_object json_schema",
        ),
        ({"type": "json_schema"}, "'response_format.json_schema.schema' is no object"),
        ("json", "'response_format' is no object"),
    ):
        with pytest.raises(UserError, match=message):
            _read(prompt="a", response_format=form)
    with pytest.raises(UserError, match="not supported beside 'tools'"):
        _read(
            is_chat=True,
            messages=TURNS,
            tools=[TOOL],
            response_format={"type": "json_object"},
        )
