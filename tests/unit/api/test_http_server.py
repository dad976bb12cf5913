"""Connections are bounded in number and in time, and whatever fails is answered."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from tilewright.api import http_server
from tilewright.api.http_server import BusyError, HttpHandler, HttpServer
from tilewright.base.errors import UserError
from tilewright.base.log import Log

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Handler(HttpHandler):
    """Does what a test wants."""

    protocol_version = "HTTP/1.1"
    work: Callable[[HttpHandler], None]

    def get(self) -> None:
        Handler.work(self)

    post = get

    def answer_failure(self, problem: str) -> None:
        self.close_connection = True
        self.tell(HTTPStatus.INTERNAL_SERVER_ERROR, problem)

    def tell(self, status: HTTPStatus, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def well(handler: HttpHandler) -> None:
    assert isinstance(handler, Handler)
    handler.close_connection = True
    handler.tell(HTTPStatus.OK, "well")


def tell_target(handler: HttpHandler) -> None:
    assert isinstance(handler, Handler)
    handler.close_connection = True
    handler.tell(HTTPStatus.OK, f"{handler.path} {handler.headers.get_all('Host')}")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setattr(http_server, "CONNECTIONS", 3)
    monkeypatch.setattr(Handler, "work", staticmethod(well), raising=False)
    with HttpServer("127.0.0.1", 0, Handler, Log("test")) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=20)


def exchange(server: HttpServer, *pieces: bytes, pause: float = 0.0) -> bytes:
    """All that is answered until the connection is closed."""
    with connect(server) as held:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                held.sendall(piece)
                time.sleep(pause)
        return b"".join(iter(lambda: held.recv(4096), b""))


def test_who_comes_on_top_is_turned_away_until_another_leaves(server: HttpServer) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(server)) for _ in range(3)]
        for each in held:  # so that they are known to be open
            each.sendall(REQUEST[:10])
        answer = exchange(server, REQUEST)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 5\r\n" in answer
        held[0].close()
        deadline = time.monotonic() + 20
        while not exchange(server, REQUEST).startswith(b"HTTP/1.1 200 "):
            assert time.monotonic() < deadline


def test_a_head_that_comes_letter_by_letter_has_one_time_for_all_of_it(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.3)
    begin = time.monotonic()
    letters = (bytes([letter]) for letter in REQUEST[:-1] + b"X: " + b"a" * 400)
    assert exchange(server, *letters, pause=0.02) == b""
    assert time.monotonic() - begin < 20
    assert exchange(server, REQUEST).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length : 3",
        b"X Y: 1",
        b": 1",
        b"no header at all",
        b"\xff: 1",
        b" folded: at first",
        b"X: 1\r\n folded",
        b"X: 1\rContent-Length: 3",
        b"X: \x001",
    ],
)
def test_headers_that_can_be_read_in_two_ways_are_refused(
    server: HttpServer, header: bytes
) -> None:
    inner = b"GET /inner HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = exchange(server, REQUEST[:-2] + header + b"\r\n\r\n" + inner)
    assert answer.split()[1] == b"400"
    assert answer.count(b"HTTP/1.1 ") == 1
    other_order = REQUEST.replace(b"Host", header + b"\r\nHost")
    assert exchange(server, other_order + inner).split()[1] == b"400"


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (MemoryError(), b"there is not enough memory for this"),
        (RecursionError("deep"), b"RecursionError: deep"),
        (KeyError("x"), b"KeyError: 'x'"),
    ],
)
def test_whatever_fails_is_answered(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, problem: Exception, told: bytes
) -> None:
    def fail(_: HttpHandler) -> None:
        raise problem

    monkeypatch.setattr(Handler, "work", staticmethod(fail))
    answer = exchange(server, REQUEST)
    assert answer.split()[1] == b"500"
    assert answer.endswith(told)


def test_an_answer_that_has_begun_is_not_answered_again(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handler: HttpHandler) -> None:
        handler.send_response(HTTPStatus.OK)
        handler.end_headers()
        raise MemoryError

    monkeypatch.setattr(Handler, "work", staticmethod(fail))
    answer = exchange(server, REQUEST)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.split()[1] == b"200"


def test_a_system_without_threads_turns_away(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        for _ in range(5):  # more than there is room for: none of them counts
            assert exchange(server, REQUEST).startswith(b"HTTP/1.1 503 ")
    assert exchange(server, REQUEST).startswith(b"HTTP/1.1 200 ")


def test_what_is_logged_does_not_steer_a_terminal(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tilewright.test"):
        exchange(server, REQUEST.replace(b"/", b"/\x1b[31m", 1))
    text = "".join(record.getMessage() for record in caplog.records)
    assert "\\x1b[31m" in text
    assert "\x1b" not in text


def test_who_comes_at_the_same_time_waits_to_be_accepted() -> None:
    """Nobody is accepted yet, as while others are: the system keeps those who come."""
    with contextlib.ExitStack() as held:
        made = held.enter_context(HttpServer("127.0.0.1", 0, Handler, Log("test")))
        place = ("127.0.0.1", made.server_port)
        for _ in range(http_server.CONNECTIONS):
            come = held.enter_context(socket.create_connection(place, timeout=60))
            assert come.getpeername() == place


@pytest.mark.parametrize("host", ["a" * 300, "no.such.host.invalid", "a\0b", "999.1.1.1"])
def test_a_name_that_is_none_is_refused_in_words(host: str) -> None:
    with pytest.raises(UserError, match="cannot listen on"):
        HttpServer(host, 0, Handler, Log("test"))


def test_it_listens_on_addresses_of_version_6() -> None:
    try:
        with HttpServer("::1", 0, Handler, Log("test")) as made:
            assert made.server_port > 0
    except UserError as error:
        assert "cannot assign" in str(error).lower() or "not supported" in str(error)  # noqa: PT017 - a machine without it


def post(length: int, *, sent: int | None = None) -> bytes:
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + b"x" * (length if sent is None else sent)


def count_body(handler: HttpHandler) -> None:
    assert isinstance(handler, Handler)
    handler.close_connection = True
    try:
        body = handler.read_body(int(handler.headers["Content-Length"]))
    except BusyError as problem:
        handler.tell(HTTPStatus.SERVICE_UNAVAILABLE, str(problem))
    else:
        handler.tell(HTTPStatus.OK, f"{len(body)} bytes")


def within_seconds(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so."""
    deadline = time.monotonic() + 20
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_left(server: HttpServer, count: int) -> bool:
    """Whether so many bytes may be sent, as they are left."""
    if not server.room.take(count):
        return False
    server.room.give_back(count)
    return True


def test_long_bodies_share_what_there_is_room_for_and_short_ones_need_none(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "work", staticmethod(count_body))
    monkeypatch.setattr(http_server, "OWN_BYTES", 1000)
    monkeypatch.setattr(http_server, "_PIECE_BYTES", 100)
    assert server.room.take(http_server.SHARED_BYTES - 500)
    with connect(server) as slow:
        slow.sendall(post(1450, sent=1350))  # and no more for now: 400 of the room
        assert within_seconds(lambda: not is_left(server, 101))
        assert exchange(server, post(1300)).split()[1] == b"503"
        assert exchange(server, post(1000)).endswith(b"1000 bytes")
        slow.sendall(b"x" * 100)
        assert slow.recv(4096).split()[1] == b"200"
    for _ in range(2):  # what one had is the next one's, soon after its answer
        assert within_seconds(lambda: exchange(server, post(1500)).endswith(b"1500 bytes"))
    assert exchange(server, post(1501)).split()[1] == b"503"
    assert within_seconds(lambda: server.room.take(500))


def test_a_length_that_is_only_said_takes_no_room(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "work", staticmethod(count_body))
    with connect(server) as silent:
        silent.sendall(post(1 << 40, sent=10))
        assert exchange(server, post(http_server.OWN_BYTES + 1)).split()[1] == b"200"


def test_a_head_of_many_long_lines_is_refused(server: HttpServer) -> None:
    lines = b"".join(b"X-%d: %s\r\n" % (at, b"a" * 4000) for at in range(60))
    answer = exchange(server, REQUEST[:-2] + lines + b"\r\n")
    assert answer.split()[1] == b"431"
    assert (
        exchange(server, REQUEST[:-2] + lines[:100_000] + b"\r\n\r\n").split()[1] == b"200"
    )


@pytest.mark.parametrize("is_read", [False, True])
def test_a_client_that_waits_is_told_to_go_on_where_its_body_is_read(
    is_read: bool, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(handler: HttpHandler) -> None:
        assert handler.read_body(2) == b"{}"
        well(handler)

    monkeypatch.setattr(Handler, "work", staticmethod(reads if is_read else well))
    head = REQUEST.replace(b"GET", b"POST").strip()
    head += b"\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with connect(server) as held:
        held.sendall(head)
        first = held.recv(len(b"HTTP/1.1 100"))
        assert first == (b"HTTP/1.1 100" if is_read else b"HTTP/1.1 200")
        held.sendall(b"{}" if is_read else b"")
        rest = b"".join(iter(lambda: held.recv(4096), b""))
    assert rest.endswith(b"well")
    assert rest.count(b"HTTP/1.1 ") == is_read


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        ("http://localhost/health", "/health", "localhost"),
        ("HTTP://localhost:80/a?b=http://c/d", "/a?b=http://c/d", "localhost:80"),
        ("https://evil.example", "/", "evil.example"),
        ("http://localhost?a", "/?a", "localhost"),
        ("/http://other/", "/http://other/", "named.example"),
    ],
)
def test_a_whole_uri_is_a_target_and_names_the_host(
    target: str, path: str, host: str, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "work", staticmethod(tell_target))
    head = f"GET {target} HTTP/1.1\r\nHost: named.example\r\n\r\n"
    assert exchange(server, head.encode()).endswith(f"{path} ['{host}']".encode())


def test_two_hosts_stay_two_beside_a_whole_uri(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "work", staticmethod(tell_target))
    head = b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n"
    assert exchange(server, head).endswith(b"http://localhost/ ['localhost', 'evil']")
