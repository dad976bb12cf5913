from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.language_models import speaking_form
from tilewright.api.language.language_model import LanguageModel
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


def test_a_port_that_is_taken_is_an_error(server: Server) -> None:
    with pytest.raises(UserError, match=r"cannot listen on 127\.0\.0\.1"):
        Server(server.model, port=server.server_port)
