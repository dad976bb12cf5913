from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.language_models import speaking_form
from tilewright.api.http_server import OWN_BYTES, SHARED_BYTES
from tilewright.api.language.language_model import LanguageModel, Text
from tilewright.api.language.sampling import GREEDY
from tilewright.api.language.server import Server
from tilewright.base.errors import DeviceError, UserError

pytestmark = pytest.mark.slow  # a model of two programs is compiled


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(speaking_form().data())
    with Server(LanguageModel(path, cache=False), port=0) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def _ask(
    server: Server, path: str, data: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    connection.request("GET" if data is None else "POST", path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def _events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_the_model_is_listed(server: Server) -> None:
    status, text = _ask(server, "/v1/models")
    assert status == 200
    assert [model["id"] for model in json.loads(text)["data"]] == ["tiny"]
    assert _ask(server, "/health")[0] == 200


def test_a_text_is_that_of_the_model(server: Server) -> None:
    expected = server.model.generate("the end", tokens=6, sampling=GREEDY)
    request = {"prompt": "the end", "max_tokens": 6, "temperature": 0}
    status, text = _ask(server, "/v1/completions", request)
    found = json.loads(text)
    assert status == 200
    assert found["object"] == "text_completion"
    assert found["choices"][0]["text"] == expected
    assert found["choices"][0]["finish_reason"] in ("length", "stop")
    assert found["usage"]["total_tokens"] == sum(
        found["usage"][name] for name in ("prompt_tokens", "completion_tokens")
    )
    _, streamed = _ask(server, "/v1/completions", {**request, "stream": True})
    events = _events(streamed)
    assert "".join(event["choices"][0]["text"] for event in events) == expected
    assert events[-1]["choices"][0]["finish_reason"] == found["choices"][0]["finish_reason"]


def test_an_answer_comes_whole_or_in_parts(server: Server) -> None:
    pytest.importorskip("jinja2")
    turns = [{"role": "user", "content": "hi"}]
    request = {"messages": turns, "max_tokens": 5, "temperature": 0}
    status, text = _ask(server, "/v1/chat/completions", request)
    assert status == 200
    whole = json.loads(text)
    assert whole["choices"][0]["message"]["role"] == "assistant"
    options = {"stream": True, "stream_options": {"include_usage": True}}
    _, streamed = _ask(server, "/v1/chat/completions", {**request, **options})
    *events, last = _events(streamed)
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert said == whole["choices"][0]["message"]["content"]
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [last["usage"][c] for c in counts] == [whole["usage"][c] for c in counts]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


PENALTIES = {"temperature": 0, "presence_penalty": 1, "frequency_penalty": 0.5}


def test_several_texts_are_asked_for_at_once(server: Server) -> None:
    request = {"prompt": ["the end", "and"], "n": 2, "max_tokens": 5, "seed": 7}
    whole = json.loads(_ask(server, "/v1/completions", request)[1])
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts[0] != texts[1], "each has a seed of its own"
    usage = whole["usage"]
    prompts = sum(len(server.model.tokenizer.encode(p)) for p in request["prompt"])
    assert usage["prompt_tokens"] == prompts
    assert usage["completion_tokens"] <= 20
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *events, last = _events(_ask(server, "/v1/completions", {**request, **options})[1])
    found = ["", "", "", ""]
    for event in events:
        (choice,) = event["choices"]
        found[choice["index"]] += choice["text"]
    assert found == texts
    ends = [e["choices"][0] for e in events if e["choices"][0]["finish_reason"]]
    assert [end["index"] for end in ends] == [0, 1, 2, 3]
    assert last["usage"]["completion_tokens"] == usage["completion_tokens"]
    one = json.loads(_ask(server, "/v1/completions", {**request, "prompt": "the end", "n": 1})[1])  # fmt: skip
    assert one["choices"][0]["text"] == texts[0]


def test_completions_say_how_likely_tokens_were(server: Server) -> None:
    request = {"prompt": "the end", "max_tokens": 6, "logprobs": 2, **PENALTIES}
    (choice,) = json.loads(_ask(server, "/v1/completions", request)[1])["choices"]
    found = choice["logprobs"]
    counts = {len(found[name]) for name in found}
    assert counts == {len(found["tokens"])}
    assert all(2 <= len(table) <= 3 for table in found["top_logprobs"])
    assert all(
        table[token] == logprob
        for table, token, logprob in zip(
            found["top_logprobs"], found["tokens"], found["token_logprobs"], strict=True
        )
    )
    for token, start in zip(found["tokens"], found["text_offset"], strict=True):
        assert token.startswith("bytes:") or choice["text"][start:].startswith(token)
    events = _events(_ask(server, "/v1/completions", {**request, "stream": True})[1])
    held = [e["choices"][0]["logprobs"] for e in events if e["choices"][0]["logprobs"]]
    for name in ("tokens", "text_offset"):
        assert [value for each in held for value in each[name]] == found[name]
    streamed = [value for each in held for value in each["token_logprobs"]]
    assert streamed == pytest.approx(found["token_logprobs"], abs=1e-4)
    (bare,) = json.loads(_ask(server, "/v1/completions", {**request, "logprobs": 0})[1])["choices"]  # fmt: skip
    assert bare["logprobs"]["top_logprobs"] is None
    assert bare["logprobs"]["tokens"] == found["tokens"]


def test_chats_say_how_likely_tokens_were(server: Server) -> None:
    pytest.importorskip("jinja2")
    turns = [{"role": "user", "content": "hi"}]
    request = {"messages": turns, "max_tokens": 5, "logprobs": True, "top_logprobs": 2, **PENALTIES}  # fmt: skip
    (choice,) = json.loads(_ask(server, "/v1/chat/completions", request)[1])["choices"]
    content = choice["logprobs"]["content"]
    raw = b"".join(bytes(each["bytes"]) for each in content)
    assert raw.decode("utf-8", "replace") == choice["message"]["content"]
    assert {len(each["top_logprobs"]) for each in content} == {2}
    events = _events(_ask(server, "/v1/chat/completions", {**request, "stream": True})[1])
    held = [e["choices"][0]["logprobs"] for e in events]
    streamed = [each for scores in held if scores for each in scores["content"]]
    assert [each["bytes"] for each in streamed] == [each["bytes"] for each in content]
    # What is read again is read from the cache: sums in another order.
    for mine, other in zip(streamed, content, strict=True):
        assert mine["logprob"] == pytest.approx(other["logprob"], abs=1e-4)


def test_penalties_and_biases_change_the_text(server: Server) -> None:
    request = {"prompt": "the end", "max_tokens": 12, "temperature": 0}
    plain = json.loads(_ask(server, "/v1/completions", request)[1])["choices"][0]["text"]
    others = [PENALTIES, {"repetition_penalty": 1.3}, {"logit_bias": {"5": 100}}]
    for other in others:
        found = json.loads(_ask(server, "/v1/completions", {**request, **other})[1])
        assert found["choices"][0]["text"] != plain, other
    status, _ = _ask(server, "/v1/completions", {**request, "logit_bias": {"99999": 1}})
    assert status == 400


def test_tools_are_refused_where_the_template_has_none(server: Server) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    turns = [{"role": "user", "content": "hi"}]
    request = {"messages": turns, "tools": [tool], "max_tokens": 2}
    status, text = _ask(server, "/v1/chat/completions", request)
    assert status == 400
    assert "'tools' is not supported" in json.loads(text)["error"]["message"]


def test_tools_that_are_called_are_told_apart_from_the_text(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2")
    template = "{% for t in tools %}{{ t | tojson }} <tool_call>{% endfor %}{{ messages[0].content }}"
    monkeypatch.setitem(server.model.file.metadata, "tokenizer.chat_template", template)  # type: ignore[arg-type]
    said = 'Let me see. <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'

    def speak(*_: object, **__: object) -> Text:
        text = Text([said[at : at + 7] for at in range(0, len(said), 7)])
        text.timing.reason = "stop"
        return text

    monkeypatch.setattr(server.model, "stream", speak)
    tool = {"type": "function", "function": {"name": "f"}}
    turns = [{"role": "user", "content": "hi"}]
    request = {"messages": turns, "tools": [tool]}
    (choice,) = json.loads(_ask(server, "/v1/chat/completions", request)[1])["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"x": 1}'}
    events = _events(_ask(server, "/v1/chat/completions", {**request, "stream": True})[1])
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(d.get("content", "") for d in deltas) == "Let me see. "
    (calls,) = [d["tool_calls"] for d in deltas if "tool_calls" in d]
    assert calls[0]["index"] == 0
    assert calls[0]["function"] == call["function"]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("problem", "told"),
    [(DeviceError("is gone"), "is gone"), (MemoryError(), "not enough memory"), (KeyError("x"), "KeyError: 'x'")],
)  # fmt: skip
def test_what_fails_in_a_stream_is_an_event(
    server: Server, monkeypatch: pytest.MonkeyPatch, problem: Exception, told: str
) -> None:
    def failing(*_: object, **__: object) -> Text:
        def parts() -> Iterator[str]:
            yield "so "
            raise problem

        return Text(parts())

    monkeypatch.setattr(server.model, "stream", failing)
    answer = _exchange(server, _request(stream=True))
    assert answer.count(b"HTTP/1.1") == 1
    *events, last = _events(answer.partition(b"\r\n\r\n")[2].decode())
    assert events[-1]["choices"][0]["text"] == "so "
    assert last["error"]["type"] == "server_error"
    assert told in last["error"]["message"]
    status, text = _ask(server, "/v1/completions", {"prompt": "the"})
    problem_ = json.loads(text)["error"]
    assert (status, problem_["type"], told in problem_["message"]) == (
        500,
        "server_error",
        True,
    )


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prompt_that_nobody_waits_for_is_not_read_to_its_end(
    server: Server, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    model = server.model
    monkeypatch.setattr(model, "_piece", 4)
    advance, pieces = model._advance, []
    begun, gone = threading.Event(), threading.Event()

    def slowly(tokens: Any) -> Any:
        pieces.append(len(model.cache.tokens))
        begun.set()
        assert gone.wait(60)
        time.sleep(0.01)
        return advance(tokens)

    monkeypatch.setattr(model, "_advance", slowly)
    model.cache.keep([0, 0])
    with socket.create_connection(("127.0.0.1", server.server_port)) as held:
        held.sendall(_request("q" * 60, stream=is_stream))
        assert begun.wait(60)
    gone.set()
    assert server.turn.acquire(timeout=60)
    server.turn.release()
    assert len(pieces) < 12


def test_requests_at_once_wait_for_their_turn(server: Server) -> None:
    request = {"prompt": "and then", "max_tokens": 6, "temperature": 0}
    expected = json.loads(_ask(server, "/v1/completions", request)[1])["choices"][0]["text"]
    found: list[str] = []

    def ask() -> None:
        answer = json.loads(_ask(server, "/v1/completions", request)[1])
        found.append(answer["choices"][0]["text"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_who_hangs_up_does_not_stop_the_others(server: Server) -> None:
    request = json.dumps(
        {"prompt": "the", "max_tokens": 50, "temperature": 0, "stream": True}
    )
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("POST", "/v1/completions", request.encode())
    connection.getresponse().read(20)
    connection.close()
    assert _ask(server, "/v1/completions", {"prompt": "the", "max_tokens": 2})[0] == 200


def test_an_address_that_there_is_not_is_answered_with_those_there_are(
    server: Server,
) -> None:
    for path, data in (("/", None), ("/v1/embeddings", {"input": "x"})):
        status, answer = _ask(server, path, data)
        assert status == 404
        assert "POST /v1/completions or /v1/chat/completions" in str(answer)


@pytest.mark.parametrize(
    ("path", "data", "headers", "status"),
    [
        ("/v1/engines", None, {}, 404),
        ("/v1/embeddings", {"input": "x"}, {}, 404),
        ("/v1/completions", b"{", {}, 400),
        ("/v1/completions", {"prompt": 3}, {}, 400),
        ("/v1/completions", {"prompt": [99999]}, {}, 400),
        ("/v1/completions", {"prompt": [5] * 64}, {}, 400),
        ("/v1/completions", b"", {"Content-Length": "99999999999"}, 413),
        ("/v1/completions", b"", {"Content-Length": "0" * 20 + "9" * 14}, 413),
        ("/v1/completions", b"", {"Content-Length": "0" * 20 + "99999999"}, 413),
        ("/v1/completions", b"", {"Content-Length": str((16 << 20) + 1)}, 413),
        ("/v1/completions", b"", {"Content-Length": "9" * 5000}, 413),
        ("/v1/completions", b"", {"Content-Length": "0" * 5000}, 400),
        ("/v1/completions", b"", {"Content-Length": "-5"}, 400),
        ("/v1/completions", b"{}", {"Content-Length": "2, 2"}, 400),
        ("/v1/completions", b"{}", {"Content-Length": "²"}, 400),
        ("/v1/completions", b"{}", {"Transfer-Encoding": "chunked"}, 411),
        ("/v1/completions", {"prompt": "x", "response_format": {"type": "json"}}, {}, 400),
        ("/v1/completions", {"prompt": "x" * (15 << 20)}, {}, 400),
        ("/v1/completions", {"prompt": "the end " * (1 << 20)}, {}, 400),
        ("/v1/models/other", None, {}, 404),
        ("/v1/models/tiny?x=1", None, {}, 200),
        ("/v1/models", None, {"Host": "evil.example"}, 403),
        ("/v1/models", None, {"Host": "[::1]:80"}, 200),
        ("/v1/models", None, {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/v1/models", None, {"Sec-Fetch-Site": "same-origin"}, 200),
        ("/v1/models", None, {"Origin": "http://evil.example"}, 403),
        ("/v1/models", None, {"X Y": "1"}, 400),
    ],
)
def test_requests_that_are_wrong_are_answered_with_what_is(
    server: Server, path: str, data: Any, headers: dict[str, str], status: int
) -> None:
    found, text = _ask(server, path, data, headers)
    assert found == status
    if status != 200:
        assert json.loads(text)["error"]["message"]


def _exchange(server: Server, request: bytes) -> bytes:
    """All that the server says to some bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as held:
        held.sendall(request)
        return b"".join(iter(lambda: held.recv(4096), b""))


TWO_ENDS = (
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    b"%s\r\n\r\n{}GET /health HTTP/1.1\r\n\r\n"
)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01 no request\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"PUT /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (TWO_ENDS % b"Content-Length: 30", b"400"),
        (TWO_ENDS % b"Transfer-Encoding: chunked", b"411"),
        (TWO_ENDS.replace(b"POST", b"GET") % b"Transfer-Encoding: chunked", b"411"),
    ],
)
def test_what_is_no_request_is_refused_as_others_are(
    server: Server, request_: bytes, status: bytes
) -> None:
    head, _, body = _exchange(server, request_).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert json.loads(body)["error"]["message"]


def test_who_sends_too_much_is_told_so(server: Server) -> None:
    """The whole request is on its way when it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("POST", "/v1/completions", b"x" * ((16 << 20) + 1))
    assert connection.getresponse().status == 413
    connection.close()


def test_who_sends_much_while_others_do_is_asked_to_come_back(server: Server) -> None:
    data = {"prompt": "the", "max_tokens": 1, "user": "x" * (OWN_BYTES + 1)}
    assert _ask(server, "/v1/completions", data)[0] == 200
    # The client may have its answer before the server has given back what the request took.
    end = time.monotonic() + 60
    while not (taken := server.room.take(SHARED_BYTES)) and time.monotonic() < end:
        time.sleep(0.01)
    assert taken
    status, text = _ask(server, "/v1/completions", data)
    server.room.give_back(SHARED_BYTES)
    assert status == 503
    assert json.loads(text)["error"]["type"] == "server_error"
    assert _ask(server, "/v1/completions", data)[0] == 200


def test_the_head_of_an_answer_has_no_body(server: Server) -> None:
    request = b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head, _, body = _exchange(server, request).partition(b"\r\n\r\n")
    assert head.split()[1] == b"200"
    assert body == b""


def _request(prompt: str = "the", *, version: str = "1.1", **options: Any) -> bytes:
    body = json.dumps({"prompt": prompt, **options}).encode()
    head = (
        f"POST /v1/completions HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def test_the_body_of_a_request_that_needs_none_is_not_the_next_request(
    server: Server,
) -> None:
    inner = b"GET /v1/engines HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: %s\r\nContent-Length: %d"
    )
    first = head % (b"keep-alive", len(inner)) + b"\r\n\r\n" + inner
    answers = _exchange(server, first + head % (b"close", 0) + b"\r\n\r\n")
    assert answers.count(b"HTTP/1.1 200") == 2
    assert b"404" not in answers


def test_a_request_that_ends_too_early_is_refused(server: Server) -> None:
    request = _request()
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as held:
        held.sendall(request[:-5])
        held.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: held.recv(4096), b""))
    assert answer.split()[1] == b"400"
    assert b"ended before" in answer


class _Slow:
    """A text of many parts, which takes the place of what the model would say.

    Attributes:
        made: how many parts were made.
    """

    def __init__(self, count: int, seconds: float = 0.002, part: str = "x") -> None:
        self.made = 0
        self._count, self._seconds, self._part = count, seconds, part

    def __call__(self, *_: object, **__: object) -> Text:
        return Text(self._parts())

    def _parts(self) -> Iterator[str]:
        for _ in range(self._count):
            self.made += 1
            time.sleep(self._seconds)
            yield self._part


def _wait_for_turn(server: Server) -> None:
    """Until nobody is served; a request that was sent just now counts."""
    time.sleep(0.1)
    with server.turn:
        pass


@pytest.mark.parametrize("part", ["x", ""])
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_an_answer_that_nobody_waits_for_is_given_up(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    is_stream: bool,
    part: str,
) -> None:
    slow = _Slow(10_000, part=part)
    monkeypatch.setattr(server.model, "stream", slow)
    with socket.create_connection(("127.0.0.1", server.server_port)) as held:
        held.sendall(_request(version=version, stream=is_stream))
        while not slow.made:
            time.sleep(0.001)
    with server.turn:
        pass
    assert slow.made < 3000


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_request_that_was_abandoned_while_it_waited_is_not_begun(
    server: Server, monkeypatch: pytest.MonkeyPatch, version: str, is_stream: bool
) -> None:
    slow = _Slow(3)
    monkeypatch.setattr(server.model, "stream", slow)
    with server.turn:
        with socket.create_connection(("127.0.0.1", server.server_port)) as held:
            held.sendall(_request(version=version, stream=is_stream))
            time.sleep(0.2)
        time.sleep(0.1)
    _wait_for_turn(server)
    assert slow.made == 0


@pytest.mark.parametrize("is_stream", [False, True])
def test_who_only_ends_what_it_sends_still_gets_the_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    monkeypatch.setattr(server.model, "stream", _Slow(20))
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as held:
        held.sendall(_request(stream=is_stream))
        held.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(held)
        answer.begin()
        text = answer.read().decode()
    assert answer.status == 200
    if is_stream:
        lines = [line for line in text.split("\n\n") if not line.startswith(":")]
        parts = [event["choices"][0]["text"] for event in _events("\n\n".join(lines))]
    else:
        parts = [json.loads(text)["choices"][0]["text"]]
    assert "".join(parts) == "x" * 20


def test_who_does_not_read_does_not_keep_the_others_waiting(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.api.language.server._PATIENCE_SECONDS", 0.3)
    slow = _Slow(2000, seconds=0, part="x" * (1 << 16))
    monkeypatch.setattr(server.model, "stream", slow)
    with socket.create_connection(("127.0.0.1", server.server_port)) as held:
        held.sendall(_request(stream=True))
        start = time.monotonic()
        _wait_for_turn(server)
        assert time.monotonic() - start < 20
        assert 0 < slow.made < 2000


def test_a_whole_answer_is_sent_outside_its_turn(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.model, "stream", _Slow(1, part="x" * (32 << 20)))
    with socket.create_connection(("127.0.0.1", server.server_port)) as held:
        held.sendall(_request())
        assert held.recv(
            1
        )  # and no more: the answer does not fit into what lies on the way
        assert server.turn.acquire(timeout=20)
        server.turn.release()


def test_an_answer_comes_where_many_files_are_open(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1200 + sum(1 for _ in Path("/proc/self/fd").iterdir())
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"at most {hard} files may be open")
    with contextlib.ExitStack() as held:
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            held.callback(os.close, os.dup(0))
        status, text = _ask(server, "/v1/completions", {"prompt": "the", "max_tokens": 2})
    assert status == 200
    assert json.loads(text)["usage"]["completion_tokens"] == 2


def test_a_prompt_that_cannot_fit_does_not_keep_others_waiting(server: Server) -> None:
    """Its text is looked at before its turn comes."""
    with server.turn:
        status, text = _ask(server, "/v1/completions", {"prompt": "x" * (15 << 20)})
    assert status == 400
    assert "the prompt has at least" in json.loads(text)["error"]["message"]


def test_events_say_that_usage_comes_last(server: Server) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    request = {"prompt": "the end", "max_tokens": 2, "temperature": 0, **options}
    *events, last = _events(_ask(server, "/v1/completions", request)[1])
    assert [event["usage"] for event in events] == [None] * len(events)
    assert last["usage"]["completion_tokens"] == 2
    assert last["choices"] == []


def test_a_port_that_is_taken_is_an_error(server: Server) -> None:
    with pytest.raises(UserError, match=r"cannot listen on 127\.0\.0\.1(.|\n)*--port=0"):
        Server(server.model, port=server.server_port)
