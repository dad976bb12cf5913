"""Chats over HTTP: many at once, of which few are read at the same time, and answers that have a form."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fakes.language_models import speaking_form
from tilewright.api.language import grammars
from tilewright.api.language.language_model import LanguageModel
from tilewright.api.language.server import Server

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


def test_few_requests_are_read_at_the_same_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may have a process that renders its chat."""
    at_once, most = [0], [0]

    def slowly(*_: object, **__: object) -> str:
        at_once.append(0)
        most.append(len(at_once) - 1)
        time.sleep(0.3)
        at_once.pop()
        return "the"

    monkeypatch.setattr(server.model, "conversation", slowly)
    request = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}

    def ask(_: int) -> int:
        return _ask(server, "/v1/chat/completions", request)[0]

    with ThreadPoolExecutor(7) as clients:
        found = list(clients.map(ask, range(7)))
        assert (max(most), found) == (4, [200] * 7)
        monkeypatch.setattr("tilewright.api.language.server._READ_SECONDS", 0.05)
        assert sorted(clients.map(ask, range(7))) == [200] * 4 + [503] * 3
    assert _ask(server, "/v1/completions", {"prompt": "the", "max_tokens": 1})[0] == 200


def _events(server: Server, request: dict[str, Any]) -> list[Any]:
    text = _ask(server, "/v1/chat/completions", {**request, "stream": True})[1]
    *lines, last, _ = text.split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_answers_have_the_form_that_is_asked_for(server: Server) -> None:
    pytest.importorskip("jinja2")
    schema = {
        "type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"],
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    request = {
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "seed": 1, "n": 2, "response_format": form,
    }  # fmt: skip
    status, text = _ask(server, "/v1/chat/completions", request)
    assert status == 200, text
    for choice in json.loads(text)["choices"]:
        assert json.loads(choice["message"]["content"])["n"] in range(1, 10)
        assert choice["finish_reason"] == "stop"
    *events, last = _events(server, {**request, "n": 1})
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert json.loads(said)["n"] in range(1, 10)
    assert last["choices"][0]["finish_reason"] == "stop"
    form["json_schema"] = {"schema": {"pattern": "a"}}
    status, text = _ask(server, "/v1/chat/completions", request)
    assert status == 400
    assert "'pattern' at #" in json.loads(text)["error"]["message"]


MANY: dict[str, Any] = {
    "anyOf": [{"type": "string", "minLength": least} for least in range(40)]
}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (MANY, "too many ways to be read"),
        ({"type": "string", "pattern": "a"}, "'pattern' at #"),
        ({"enum": ["a" * (1 << 18)]}, "characters, expected at most"),
    ],
)
def test_a_schema_that_asks_too_much_is_the_fault_of_who_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any], told: str
) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setattr(grammars, "_MOST_SIZE", 100)
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
    messages = [{"role": "user", "content": "hi"}]
    request = {"messages": messages, "max_tokens": 9, "response_format": form}
    status, text = _ask(server, "/v1/chat/completions", request)
    assert status == 400
    message = json.loads(text)["error"]["message"]
    assert told in message
    assert "hint: " in message
