"""A language model over HTTP, with the requests and answers of OpenAI's interface.

    GET  /v1/models
    POST /v1/completions           {"prompt": "Once upon a time"}
    POST /v1/chat/completions      {"messages": [{"role": "user", "content": "Hello"}]}

Answers are whole, or with `"stream": true` server-sent events as the text is made; what fails in the middle of a stream
is an event, too.  One text is made at a time, so that each has all of the machine; requests wait for their turn.  For one machine and people who trust each other: no
keys, no encryption; names of hosts other than those it listens on are refused, for web pages could send them.  Called
by `tilewright serve`.

Who hangs up is not answered.  Who only ends what it sends (`shutdown` of the sending half) is, where the request is one
of HTTP/1.1: an interim answer (100, or a comment of a stream) tells the two apart.  With HTTP/1.0, which has no interim
answers, both count as hanging up.

Source: OpenAI API reference, Completions and Chat; HTML Standard, section 9.2 (server-sent events); RFC 9110, sections
8.6 (lengths) and 15.2 (interim answers); RFC 9112, section 6.3.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final, final
from urllib.parse import unquote

from tilewright.api.http_server import (
    OWN_BYTES,
    RETRY_SECONDS,
    BusyError,
    HttpHandler,
    HttpServer,
    reason_of,
)
from tilewright.api.language.answers import Answer, Answers, error, usage
from tilewright.api.language.language_model import LanguageModel, Text
from tilewright.api.language.peer import has_ended, is_gone
from tilewright.api.language.requests import Request, read_request
from tilewright.api.language.tool_calls import ToolReader
from tilewright.api.same_host import host_of, is_for_this_host
from tilewright.base.errors import TilewrightError, UserError
from tilewright.base.log import Log

LIMIT_BYTES: Final = 16 << 20
"""Of a request: more than any context holds."""
_LIMIT_DIGITS: Final = len(str(LIMIT_BYTES))
_READERS: Final = 4
"""Requests that are read at the same time: each may hold much memory, and a process that renders a chat."""
_READ_SECONDS: Final = 30
"""That a request waits for others to be read."""
_PATIENCE_SECONDS: Final = 10
"""That a whole stream may wait for who reads it: it has its turn meanwhile."""
_PROBE_MILLISECONDS: Final = 500
"""Until a connection that is gone has refused what was sent to it: a round trip."""
_LINGER_SECONDS: Final = 2
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_ASKED: Final = "invalid_request_error"
_FAILED: Final = "server_error"
_LOG: Final = Log("server")


@final
class Server(HttpServer):
    """Listens on a port; `serve_forever` answers until `shutdown`.

    Args:
        model: who speaks.
        host: name or address to listen on.
        port: 0 for any that is free (`server_port` says which).

    Raises: UserError where the port is taken or the host is none.
    """

    full_type = "application/json"
    full = json.dumps(error("too many connections", _FAILED))

    def __init__(
        self, model: LanguageModel, host: str = "127.0.0.1", port: int = 8080
    ) -> None:
        self.model: Final[LanguageModel] = model
        self.turn: Final[threading.Lock] = threading.Lock()
        self.readers: Final[threading.BoundedSemaphore] = threading.BoundedSemaphore(
            _READERS
        )
        self.large_reader: Final[threading.BoundedSemaphore] = threading.BoundedSemaphore()
        is_open = host in ("0.0.0.0", "::", "")
        self.hosts: Final[frozenset[str] | None] = (
            None if is_open else frozenset((*_LOCAL, host.lower()))
        )
        super().__init__(host, port, _Handler, _LOG)


_PLACES: Final = (
    "expected GET /v1/models or /health, POST /v1/completions or /v1/chat/completions"
)


@final
class _Handler(HttpHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    _was_probed: bool = False
    _patience: float = 0.0

    @property
    def _server(self) -> Server:
        assert isinstance(self.server, Server), "made by it"
        return self.server

    def answer_failure(self, problem: str) -> None:
        """Say that it is not who asked that is at fault."""
        self.close_connection = True
        self._send(HTTPStatus.INTERNAL_SERVER_ERROR, error(problem, _FAILED))

    def get(self) -> None:
        """Answer a request for something that is there."""
        if not self._is_known_host():
            return
        # What is not read here would be taken for the next request.
        has_body = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        if has_body and self._body() is None:
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
                self._refuse(
                    HTTPStatus.NOT_FOUND, f"there is no '{self.path[:80]}', {_PLACES}"
                )

    def head(self) -> None:
        """Say what a request for something that is there would give."""
        self.get()

    def post(self) -> None:
        """Answer a request for a text."""
        if not self._is_known_host():
            return
        kind = {"/v1/completions": "text", "/v1/chat/completions": "chat"}.get(
            self.path.partition("?")[0]
        )
        if kind is None:
            self.close_connection = True
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no '{self.path[:80]}', {_PLACES}")
            return
        body = self._body()
        if body is None:
            return
        try:
            read = self._read(body, is_chat=kind == "chat")
            del body  # while others have their turn
            if read is not None:
                # From here on nothing is wrong with the request.
                self._speak(*read)
        except TilewrightError as problem:
            self._send(_status_of(problem), _told(problem))

    def _is_known_host(self) -> bool:
        """Whether the request names a host that this is; a web page that was tricked here names its own."""
        if is_for_this_host(self.headers, self._server.hosts):
            return True
        self.close_connection = True
        told = f"host '{host_of(self.headers)[:80]}' is not this one, or a page of another site asks"
        self._refuse(HTTPStatus.FORBIDDEN, told)
        return False

    def _body(self) -> bytearray | None:
        """The whole request, if it says once how long it is and is not too long."""
        lengths = set(self.headers.get_all("Content-Length", ()))
        length = lengths.pop() if len(lengths) == 1 else ""
        if self.headers.get("Transfer-Encoding") is not None or not length:
            status = HTTPStatus.BAD_REQUEST if lengths else HTTPStatus.LENGTH_REQUIRED
            return self._refuse_body(status, "requests say their length in bytes, and once")
        if not (length.isascii() and length.isdigit()):
            return self._refuse_body(
                HTTPStatus.BAD_REQUEST, "a length is a number of bytes"
            )
        digits = length.lstrip("0") or "0"
        if len(digits) > _LIMIT_DIGITS or int(digits) > LIMIT_BYTES:
            message = f"requests have a length of at most {LIMIT_BYTES} bytes"
            return self._refuse_body(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        try:
            body = self.read_body(int(digits))
        except BusyError as problem:
            self.close_connection = True
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, error(str(problem), _FAILED))
            self._linger()
            return None
        if len(body) < int(digits):
            message = f"the request ended before its {digits} bytes"
            return self._refuse_body(HTTPStatus.BAD_REQUEST, message)
        return body

    def _refuse_body(self, status: HTTPStatus, message: str) -> None:
        """Refuse a request whose end is not known or not waited for: nothing behind it is read."""
        self.close_connection = True
        self._refuse(status, message)

    # --- texts

    def _read(
        self, body: bytearray, *, is_chat: bool
    ) -> tuple[Request, Sequence[Text]] | None:
        """A request and what is to be said; None where too many are being read, which is answered."""
        server = self._server
        # What is long may take thirty times its length while it is read.
        large = [server.large_reader] if len(body) > OWN_BYTES else []
        with contextlib.ExitStack() as seats:
            for seat in (*large, server.readers):
                if not seat.acquire(timeout=_READ_SECONDS):
                    told = error("too many requests are being read", _FAILED)
                    self._send(HTTPStatus.SERVICE_UNAVAILABLE, told)
                    return None
                seats.callback(seat.release)
            found = read_request(body, is_chat=is_chat)
            return found.without_input(), self._texts(found)

    def _texts(self, request: Request) -> Sequence[Text]:
        """What is to be said, of which nothing is made yet: `count` texts for each prompt."""
        model, sampling = self._server.model, request.sampling
        prompts: list[Sequence[int]] = []
        if request.is_chat:
            asked = model.conversation(
                request.messages, tools=request.tools, options=request.options
            )
            prompts.append(model.encode(asked, bos=False))
        prompts += [
            model.encode(prompt) if isinstance(prompt, str) else prompt
            for prompt in request.prompts
        ]
        seeds = [
            None if sampling.seed is None else sampling.seed + at
            for at in range(request.count)
        ]
        form = None if request.schema is None else model.form_of(request.schema)
        return [
            model.stream(
                prompt,
                tokens=request.tokens,
                sampling=replace(sampling, seed=seed),
                stop=request.stop,
                likely=request.likely,
                schema=form,
            )
            for prompt in prompts
            for seed in seeds
        ]

    def _speak(self, request: Request, texts: Sequence[Text]) -> None:
        """Answer with texts that are made now, or with nothing where nobody waits for them."""
        model = self._server.model
        answers = Answers(request, model.name, model.tokenizer)
        # Who hangs up wants no more of it.
        with contextlib.suppress(ConnectionError, TimeoutError):
            if request.stream:
                with self._server.turn:
                    self._stream(texts, answers)
                return
            choices: list[Answer] = []
            with self._server.turn:
                for index, text in enumerate(texts):
                    choice = self._whole(index, text, answers)
                    if choice is None:
                        self.close_connection = True
                        return
                    choices.append(choice)
            counts = usage(texts, len(texts) // request.count)
            head = answers.head(is_whole=True)
            self._send(HTTPStatus.OK, {**head, "choices": choices, "usage": counts})

    def _whole(self, index: int, text: Text, answers: Answers) -> Answer | None:
        """All of a text, or None where nobody waits for it any more."""
        probe = b"HTTP/1.1 100 Continue\r\n\r\n"
        if self._is_alone(probe):
            return None  # and so the prompt is not read
        reader = _tool_reader(answers.request)
        parts: list[str] = []
        for part in text:
            if self._is_alone(probe):
                return None
            parts.append(part if reader is None else reader.add(part))
        if reader is not None:
            parts.append(reader.finish())
        calls = () if reader is None else reader.calls
        return answers.whole(index, "".join(parts), text, calls)

    def _is_alone(self, probe: bytes) -> bool:
        """Whether who asked has hung up: others are waiting.

        Who only ends what it sends looks the same until it is sent something.

        Args:
            probe: what means nothing at this place of an answer.
        """
        if is_gone(self.connection):
            return True
        if self._was_probed or not has_ended(self.connection):
            return False
        if self.request_version == "HTTP/1.0":
            return True
        self._was_probed = True
        try:
            self.wfile.write(probe)
        except OSError:
            return True
        return is_gone(self.connection, _PROBE_MILLISECONDS)

    def _stream(self, texts: Sequence[Text], answers: Answers) -> None:
        self.close_connection = True  # its end is that of the answer
        self._patience = _PATIENCE_SECONDS
        self.connection.settimeout(self._patience)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for index, text in enumerate(texts):
                if not self._stream_text(index, text, answers):
                    return
        except (ConnectionError, TimeoutError):
            raise
        except Exception as problem:  # too late for another status
            told = _told(problem)
            _LOG.warning("%s: %s", self.address_string(), told)
        else:
            told = None
        # From here on what the text held is let go.
        if told is not None:
            self._event(told)
        elif answers.request.wants_usage:
            counts = usage(texts, len(texts) // answers.request.count)
            self._event({**answers.head(), "choices": [], "usage": counts})
        self._write(b"data: [DONE]\n\n")

    def _stream_text(self, index: int, text: Text, answers: Answers) -> bool:
        """One text, part by part; whether anybody waited for it until its end."""
        self._event(answers.first(index))
        probe = b":\n\n"
        if self._is_alone(probe):
            return False  # and so the prompt is not read
        reader = _tool_reader(answers.request)
        length = sent = 0
        for part in text:
            if self._is_alone(probe):
                return False
            length += len(part)
            said = part if reader is None else reader.add(part)
            if said:
                scores = [each for each in text.scores[sent:] if each.start < length]
                sent += len(scores)
                self._event(answers.part(index, said, scores))
        rest, scores = "" if reader is None else reader.finish(), text.scores[sent:]
        if rest or scores:
            self._event(answers.part(index, rest, scores))
        calls = () if reader is None else reader.calls
        if calls:
            self._event(answers.calls(index, calls))
        self._event(answers.last(index, text, has_calls=bool(calls)))
        return True

    def _event(self, data: Answer) -> None:
        self._write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        """Send a piece of a stream; raises TimeoutError once all of them have waited too long."""
        start = time.monotonic()
        self.connection.settimeout(max(self._patience, 0.001))
        self.wfile.write(data)
        self._patience -= time.monotonic() - start

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
        self._send(status, error(message, _ASKED))
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
            if status is HTTPStatus.SERVICE_UNAVAILABLE:
                self.send_header("Retry-After", str(RETRY_SECONDS))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)


def _tool_reader(request: Request) -> ToolReader | None:
    """What finds calls in a text, where any are wanted."""
    if not request.takes_tools:
        return None
    return ToolReader(1 if request.takes_one_call else None)


def _status_of(problem: TilewrightError) -> HTTPStatus:
    """Whether who asked is at fault or who answers."""
    if isinstance(problem, UserError):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.INTERNAL_SERVER_ERROR


def _told(problem: Exception) -> Answer:
    if isinstance(problem, TilewrightError):
        return error(str(problem), _ASKED if isinstance(problem, UserError) else _FAILED)
    return error(reason_of(problem), _FAILED)
