"""A language model over HTTP, with the requests and answers of OpenAI's interface.

    GET  /v1/models
    POST /v1/completions           {"prompt": "Once upon a time"}
    POST /v1/chat/completions      {"messages": [{"role": "user", "content": "Hello"}]}

Answers are whole, or with `"stream": true` server-sent events as the text is made.  One text is made at a time, so
that each has all of the machine; requests wait for their turn.  For one machine and people who trust each other: no
keys, no encryption; names of hosts other than those it listens on are refused, for web pages could send them.  Called
by `tilewright serve`.

Source: OpenAI API reference, Completions and Chat; HTML Standard, section 9.2 (server-sent events).
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, final
from urllib.parse import unquote

from tilewright.api.language.language_model import LanguageModel, Text
from tilewright.api.language.requests import Request, read_request
from tilewright.base.errors import TilewrightError, UserError
from tilewright.base.log import Log
from tilewright.base.version import VERSION

LIMIT_BYTES: Final = 16 << 20
"""Of a request: more than any context holds."""
_IDLE_SECONDS: Final = 60
_LINGER_SECONDS: Final = 2
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_LOG: Final = Log("server")

Answer = dict[str, Any]


@final
class Server(ThreadingHTTPServer):
    """Listens on a port; `serve_forever` answers until `shutdown`.

    Args:
        model: who speaks.
        host: name or address to listen on.
        port: 0 for any that is free (`server_port` says which).

    Raises: UserError where the port is taken or the host is none.
    """

    daemon_threads = True

    def __init__(
        self, model: LanguageModel, host: str = "127.0.0.1", port: int = 8080
    ) -> None:
        self.model: Final[LanguageModel] = model
        self.turn: Final[threading.Lock] = threading.Lock()
        self.hosts: Final[frozenset[str]] = frozenset((*_LOCAL, host.lower()))
        self.is_open: Final[bool] = host in ("0.0.0.0", "::", "")
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UserError(f"cannot listen on {host}:{port}: {error}") from error


@final
class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = f"tilewright/{VERSION}"
    timeout = _IDLE_SECONDS

    @property
    def _server(self) -> Server:
        assert isinstance(self.server, Server), "made by it"
        return self.server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        _LOG.info("%s: %s", self.address_string(), format % args)

    def do_GET(self) -> None:
        """Answer a request for something that is there."""
        if not self._is_known_host():
            return
        model = {
            "id": self._server.model.name,
            "object": "model",
            "owned_by": "local",
            "created": 0,
        }
        match unquote(self.path.partition("?")[0]):
            case "/v1/models":
                self._send(HTTPStatus.OK, {"object": "list", "data": [model]})
            case path if path == f"/v1/models/{model['id']}":
                self._send(HTTPStatus.OK, model)
            case "/health":
                self._send(HTTPStatus.OK, {"status": "ok"})
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, f"there is no '{self.path[:80]}'")

    def do_HEAD(self) -> None:
        """Say what a request for something that is there would give."""
        self.do_GET()

    def do_POST(self) -> None:
        """Answer a request for a text."""
        if not self._is_known_host():
            return
        kind = {"/v1/completions": "text", "/v1/chat/completions": "chat"}.get(
            self.path.partition("?")[0]
        )
        if kind is None:
            self.close_connection = True
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no '{self.path[:80]}'")
            return
        body = self._body()
        if body is None:
            return
        try:
            request = read_request(body, is_chat=kind == "chat")
            text = self._text(request)
            # From here on nothing is wrong with the request.
            with self._server.turn:
                self._speak(request, text)
        except TilewrightError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))

    def _is_known_host(self) -> bool:
        """Whether the request names a host that this is; a web page that was tricked here names its own."""
        name = self.headers.get("Host", "")
        bare = name.rpartition(":")[0] if name.rpartition(":")[2].isdigit() else name
        if self._server.is_open or bare.strip("[]").lower() in self._server.hosts:
            return True
        self.close_connection = True
        self._refuse(HTTPStatus.FORBIDDEN, f"host '{bare[:80]}' is not this one")
        return False

    def _body(self) -> bytes | None:
        """The whole request, if it says once how long it is and is not too long."""
        lengths = set(self.headers.get_all("Content-Length", ()))
        length = lengths.pop() if len(lengths) == 1 else ""
        if self.headers.get("Transfer-Encoding") is not None or not length:
            # Where such a request ends is not known, and what follows is not read.
            self.close_connection = True
            status = HTTPStatus.BAD_REQUEST if lengths else HTTPStatus.LENGTH_REQUIRED
            self._refuse(status, "requests say their length in bytes, and once")
            return None
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > LIMIT_BYTES:
            self.close_connection = True
            self._refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"requests have a length of at most {LIMIT_BYTES} bytes",
            )
            return None
        return self.rfile.read(int(length))

    # --- texts

    def _text(self, request: Request) -> Text:
        """What is to be said, of which nothing is made yet."""
        model = self._server.model
        if request.is_chat:
            return model.chat(
                request.messages,
                tokens=request.tokens,
                sampling=request.sampling,
                stop=request.stop,
            )
        return model.stream(
            request.prompt,
            tokens=request.tokens,
            sampling=request.sampling,
            stop=request.stop,
        )

    def _speak(self, request: Request, text: Text) -> None:
        shape = _Shape(request, self._server.model.name)
        if request.stream:
            self._stream(text, shape)
            return
        parts: list[str] = []
        for part in text:
            if self._is_alone():
                self.close_connection = True
                return
            parts.append(part)
        whole = "".join(parts)
        self._send(HTTPStatus.OK, {**shape.whole(whole, text), "usage": usage(text)})

    def _is_alone(self) -> bool:
        """Whether who asked has hung up: others are waiting."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def _stream(self, text: Text, shape: _Shape) -> None:
        self.close_connection = True  # its end is that of the answer
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        # Who hangs up wants no more of it.
        with contextlib.suppress(ConnectionError, TimeoutError):
            self._event(shape.part("", None, is_first=True))
            for part in text:
                if part:
                    self._event(shape.part(part, None))
            self._event(shape.part("", text.timing.reason))
            if shape.request.wants_usage:
                self._event({**shape.head(), "choices": [], "usage": usage(text)})
            self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, data: Answer) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    # --- answers

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Refuse what is no request, or none that there is an answer to, as all others are refused."""
        del explain
        self.close_connection = True
        self.request_version = self.protocol_version  # so that there is a status line
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._refuse(status, message or status.phrase)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        kind = "invalid_request_error"
        self._send(
            status,
            {"error": {"message": message, "type": kind, "param": None, "code": None}},
        )
        if self.close_connection:
            self._linger()

    def _linger(self) -> None:
        """Read what is still on its way: a connection that is closed before would take the answer with it."""
        until, left = time.monotonic() + _LINGER_SECONDS, LIMIT_BYTES
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_LINGER_SECONDS)
            while left > 0 and time.monotonic() < until:
                part = self.connection.recv(1 << 16)
                left -= len(part) or left

    def _send(self, status: HTTPStatus, data: Answer) -> None:
        content = json.dumps(data).encode()
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)


def usage(text: Text) -> Mapping[str, int]:
    """The counts of tokens that answers state."""
    read, made = text.timing.prompt_tokens, text.timing.new_tokens
    return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}


@final
class _Shape:
    """What answers to a request look like."""

    def __init__(self, request: Request, model: str) -> None:
        self.request: Request = request
        prefix = "chatcmpl" if request.is_chat else "cmpl"
        self._id: str = f"{prefix}-{uuid.uuid4().hex[:24]}"
        self._created: int = int(time.time())
        self._model: str = model

    def head(self, *, is_whole: bool = False) -> Answer:
        """What every answer begins with."""
        kind = "text_completion"
        if self.request.is_chat:
            kind = "chat.completion" if is_whole else "chat.completion.chunk"
        found: Answer = {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
        }
        if self.request.wants_usage and not is_whole:
            found["usage"] = None  # until the last event
        return found

    def whole(self, content: str, text: Text) -> Answer:
        """An answer in one."""
        choice: Answer = {"index": 0, "finish_reason": text.timing.reason, "logprobs": None}
        message = {"role": "assistant", "content": content}
        choice |= {"message": message} if self.request.is_chat else {"text": content}
        return {**self.head(is_whole=True), "choices": [choice]}

    def part(self, content: str, reason: str | None, *, is_first: bool = False) -> Answer:
        """One event of an answer in parts."""
        choice: Answer = {"index": 0, "finish_reason": reason, "logprobs": None}
        if self.request.is_chat:
            delta = (
                {"role": "assistant", "content": ""} if is_first else {"content": content}
            )
            choice["delta"] = {} if reason is not None else delta
        else:
            choice["text"] = content
        return {**self.head(), "choices": [choice]}
