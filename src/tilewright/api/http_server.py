"""What the servers of this house share: how many may be connected, for how long, and what becomes of what fails.

A connection is a thread.  Whoever opens many, or sends a letter a minute, is one of at most `CONNECTIONS`, and has
`IDLE_SECONDS` for the head of a request; who comes on top is told to come back.  What all of them send together has a
limit, too: heads are short, and bodies share `SHARED_BYTES` beyond what each may have.  Headers that two readers would
understand in two ways are refused, for a proxy may be the other one.  What fails while a request is answered, whatever
it is, is an answer as well, or else ends the connection.

Not here: what is answered.  Called by the server of language models and by the explorer's.

Source: RFC 9112, sections 2.2 (bare CR), 3.2.2 (a whole URI as the target), 5.1 (no space before a colon) and 5.2
(folding); RFC 9110, sections 10.2.3 (Retry-After) and 15.6.4 (503); RFC 6585, section 5 (431).
"""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, final

from tilewright.base.errors import UserError
from tilewright.base.log import Log
from tilewright.base.text import printable_line
from tilewright.base.version import VERSION

CONNECTIONS: Final = 64
"""That are open at the same time."""
IDLE_SECONDS: Final = 60
RETRY_SECONDS: Final = 5
"""Until whoever was turned away may ask again."""
HEAD_BYTES: Final = 1 << 17
"""Of the head of a request, request line and all."""
OWN_BYTES: Final = 1 << 20
"""Of the body of a request, which every connection may send."""
SHARED_BYTES: Final = 64 << 20
"""Of what bodies have beyond that, all connections together."""
_PIECE_BYTES: Final = 1 << 18
_BODY_BYTES_PER_SECOND: Final = 1 << 16  # at least
_FULL_SECONDS: Final = 0.05  # that nobody is accepted where the system has no room
_WHOLE_TARGET: Final = re.compile(r"https?://(?P<host>[^/?]*)(?P<rest>.*)", re.IGNORECASE)
_NO_MEMORY: Final = "there is not enough memory for this"


class BusyError(Exception):
    """Others send so much that there is no room for more."""


@final
class _Room:
    """Bytes that connections share.  Thread-safe."""

    def __init__(self, size_bytes: int) -> None:
        self._left: int = size_bytes
        self._lock: Final[threading.Lock] = threading.Lock()

    def take(self, count: int) -> bool:
        """Have so many, if they are left."""
        with self._lock:
            is_there = count <= self._left
            self._left -= count if is_there else 0
        return is_there

    def give_back(self, count: int) -> None:
        """Leave so many to others."""
        with self._lock:
            self._left += count


class HttpServer(ThreadingHTTPServer):
    """Listens on a port; `serve_forever` answers until `shutdown`.

    Args:
        host: name or address to listen on.
        port: 0 for any that is free (`server_port` says which).
        handler: one connection.
        log: who hears what happens.

    Raises: UserError where the port is taken or the host is none.
    """

    daemon_threads = True
    request_queue_size = CONNECTIONS
    full: str = "too many connections"
    full_type: str = "text/plain; charset=utf-8"

    def __init__(self, host: str, port: int, handler: type[HttpHandler], log: Log) -> None:
        self.log: Final[Log] = log
        self._free: Final[threading.BoundedSemaphore] = threading.BoundedSemaphore(
            CONNECTIONS
        )
        self.room: Final[_Room] = _Room(SHARED_BYTES)
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), handler)
        except (OSError, OverflowError, TypeError, ValueError) as error:
            raise UserError(
                f"cannot listen on {host[:80]}:{port}: {error}",
                hint="port 0 (--port=0) takes one that is free",
            ) from error

    def server_bind(self) -> None:
        """Take the port; what this machine is called elsewhere is not asked, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            self.server_address[1],
        )

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        try:
            return super().get_request()
        except OSError:  # too many open files: the same one is asked for again at once
            time.sleep(_FULL_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or turn it away."""
        if not self._free.acquire(blocking=False):
            self._turn_away(request)
            return
        try:
            super().process_request(request, client_address)
        except (RuntimeError, MemoryError):  # the system has no thread
            self._free.release()
            self._turn_away(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """A connection, from its first request to its last."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that ended otherwise than it should have."""
        del request
        self.log.warning("%s: the connection failed", client_address)

    def _turn_away(self, request: socket.socket) -> None:
        """Answer without waiting for anything, and close the connection."""
        content = self.full.encode()
        head = (
            f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {RETRY_SECONDS}\r\n"
            f"Content-Type: {self.full_type}\r\nContent-Length: {len(content)}\r\n"
            "Connection: close\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(head.encode() + content)
            request.shutdown(socket.SHUT_WR)
            # What was not read when a connection is closed takes the answer with it.
            request.recv(1 << 16)
        self.shutdown_request(request)


class HttpHandler(BaseHTTPRequestHandler):
    """One connection."""

    server_version = f"tilewright/{VERSION}"
    timeout = IDLE_SECONDS
    _has_begun: bool = False
    _waits_for_leave: bool = False  # the client sends the body when it is told to
    _taken: int = 0  # of what connections share

    def setup(self) -> None:
        """Read what comes with a time for all of it, not for each piece."""
        super().setup()
        self.rfile.close()
        self._source: _Source = _Source(self.connection)
        self._lines: _Lines = _Lines(self._source)
        self.rfile = self._lines

    def handle(self) -> None:
        """Answer requests until the connection closes, which may be at any time."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def handle_one_request(self) -> None:
        """Answer a request whose head comes in time."""
        self._source.until = time.monotonic() + IDLE_SECONDS
        self._lines.begin_head()
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Whether the head of a request can be understood in one way."""
        self._has_begun = False
        self._waits_for_leave = False
        if not super().parse_request():
            return False
        is_folded = any("\n" in value for value in self.headers.values())
        if self.headers.defects or is_folded or not self._lines.is_plain:
            self.send_error(HTTPStatus.BAD_REQUEST, "the headers are damaged")
            return False
        self._take_origin()
        return True

    def _take_origin(self) -> None:
        """Leave of a target that is a whole URI what other requests have; the host that it names is the one that counts."""
        whole = _WHOLE_TARGET.fullmatch(self.path)
        if whole is not None and len(self.headers.get_all("Host", ())) <= 1:
            del self.headers["Host"]
            self.headers["Host"] = whole["host"]
            self.path = "/" + whole["rest"].removeprefix("/")

    def handle_expect_100(self) -> bool:
        """Let the client wait until the body is read: what the head decides is answered without one."""
        self._waits_for_leave = True
        return True

    def read_body(self, length: int) -> bytearray:
        """Up to so many bytes behind the head.

        What comes is counted as it comes, for lengths are only said, until the request is answered.

        Raises: TimeoutError; BusyError for one longer than `OWN_BYTES` where others have sent all that there is room for.
        """
        self._source.until = (
            time.monotonic() + IDLE_SECONDS + length / _BODY_BYTES_PER_SECOND
        )
        if self._waits_for_leave:
            self._waits_for_leave = False
            super().handle_expect_100()
        body = bytearray()
        while len(body) < length:
            wanted = min(length - len(body), _PIECE_BYTES)
            self._take_room(len(body) + wanted - OWN_BYTES - self._taken)
            piece = self.rfile.read(wanted)
            body += piece
            if len(piece) < wanted:
                break
        return body

    def _take_room(self, count: int) -> None:
        if count <= 0:
            return
        if not self._http_server.room.take(count):
            raise BusyError("others send too much at the moment")
        self._taken += count

    def do_GET(self) -> None:
        """Answer a request for something that is there."""
        self._guarded(self.get)

    def do_HEAD(self) -> None:
        """Say what a request for something that is there would give."""
        self._guarded(self.head)

    def do_POST(self) -> None:
        """Answer a request for something to be done."""
        self._guarded(self.post)

    def get(self) -> None:
        """Answer a GET."""
        self._refuse_method()

    def head(self) -> None:
        """Answer a HEAD."""
        self._refuse_method()

    def post(self) -> None:
        """Answer a POST."""
        self._refuse_method()

    def _refuse_method(self) -> None:
        self.send_error(HTTPStatus.NOT_IMPLEMENTED, f"unsupported method '{self.command}'")

    def _guarded(self, answer: Callable[[], None]) -> None:
        """Answer a request, also where that fails for no reason of this house."""
        try:
            answer()
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            return
        except Exception as error:
            problem = reason_of(error)
        else:
            return
        finally:
            self._http_server.room.give_back(self._taken)
            self._taken = 0
        # From here on what the answer held is let go.
        self._log.warning("%s: %s", self.address_string(), problem)
        if self._has_begun:
            self.close_connection = True
        else:
            self.answer_failure(problem)

    def answer_failure(self, problem: str) -> None:
        """Say that the server is at fault."""
        raise NotImplementedError

    def send_response(self, code: int, message: str | None = None) -> None:
        """Begin an answer."""
        self._has_begun = True
        super().send_response(code, message)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        self._log.info("%s: %s", self.address_string(), printable_line(format % args))

    @property
    def _log(self) -> Log:
        return self._http_server.log

    @property
    def _http_server(self) -> HttpServer:
        assert isinstance(self.server, HttpServer), "made by it"
        return self.server


def reason_of(error: Exception) -> str:
    """What an answer says of an exception that nobody expected."""
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    return f"{type(error).__name__}: {error}"[:1000]


class _Source(io.RawIOBase):
    """The bytes of a connection, until a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.until: float = 0.0
        self._connection: Final[socket.socket] = connection

    def readable(self) -> bool:
        """It is only read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Some bytes, 0 at the end.  Raises: TimeoutError."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request takes too long")
        patience = self._connection.gettimeout()
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(patience)


class _Lines(io.BufferedReader):
    """Lines of a head, and whether each ends where it says so."""

    is_plain: bool = True
    _head_bytes: int = 0

    def begin_head(self) -> None:
        """From here on lines are those of another head."""
        self.is_plain = True
        self._head_bytes = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line with its end.  Raises: LineTooLong, as for a line, where the whole head is too long."""
        line = super().readline(size)
        self._head_bytes += len(line)
        if self._head_bytes > HEAD_BYTES:
            raise http.client.LineTooLong("head")
        if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r") or b"\0" in line:
            self.is_plain = False
        return line
