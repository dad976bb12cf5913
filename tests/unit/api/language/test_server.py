from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.language_models import speaking_form
from tilewright.api.language.language_model import LanguageModel, Text
from tilewright.api.language.sampling import GREEDY
from tilewright.api.language.server import Server
from tilewright.base.errors import UserError

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
    assert last["usage"] == whole["usage"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


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
        ("/v1/completions", b"", {"Content-Length": "-5"}, 413),
        ("/v1/completions", b"{}", {"Transfer-Encoding": "chunked"}, 411),
        ("/v1/completions", {"prompt": "x", "response_format": {"type": "json"}}, {}, 400),
        ("/v1/completions", {"prompt": "x" * (15 << 20)}, {}, 400),
        ("/v1/completions", {"prompt": "the end " * (1 << 20)}, {}, 400),
        ("/v1/models/other", None, {}, 404),
        ("/v1/models/tiny?x=1", None, {}, 200),
        ("/v1/models", None, {"Host": "evil.example"}, 403),
        ("/v1/models", None, {"Host": "[::1]:80"}, 200),
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


def test_the_head_of_an_answer_has_no_body(server: Server) -> None:
    request = b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head, _, body = _exchange(server, request).partition(b"\r\n\r\n")
    assert head.split()[1] == b"200"
    assert body == b""


def test_an_answer_that_nobody_waits_for_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def parts() -> Iterator[str]:
        for number in range(10_000):
            made.append(number)
            time.sleep(0.002)
            yield "x"

    def stream(*_: object, **__: object) -> Text:
        return Text(parts())

    monkeypatch.setattr(server.model, "stream", stream)
    body = b'{"prompt": "the"}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.server_port)) as held:
        held.sendall(head.encode() + body)
        while not made:
            time.sleep(0.001)
    with server.turn:
        pass
    assert len(made) < 5000


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
    with pytest.raises(UserError, match=r"cannot listen on 127\.0\.0\.1"):
        Server(server.model, port=server.server_port)
