"""Who is at the other end of a connection is found out with `poll` and without."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tilewright.api.language import peer

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["as it is", "no POLLRDHUP", "no poll"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    """Two ends of a connection, on systems of three kinds."""
    if request.param != "as it is":
        monkeypatch.setattr(peer, "_ENDED", 0)
    if request.param == "no poll":
        monkeypatch.setattr(peer, "_POLLS", False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other = socket.create_connection(listening.getsockname())
        mine, _ = listening.accept()
    with mine, other:
        yield mine, other


@pytest.mark.parametrize("sent", [b"", b"more"])
def test_who_waits_is_there(ends: Ends, sent: bytes) -> None:
    mine, other = ends
    other.sendall(sent)
    assert not peer.is_gone(mine, 1)
    assert not peer.has_ended(mine)
    mine.settimeout(1)
    if sent:
        assert mine.recv(10) == sent, "nothing was taken from it"


def test_who_sends_no_more_is_told_apart_from_who_is_gone(ends: Ends) -> None:
    mine, other = ends
    other.shutdown(socket.SHUT_WR)
    deadline = [peer.is_gone(mine, 50) for _ in range(2)]
    assert deadline == [False, False]
    assert peer.has_ended(mine)


def test_who_is_gone_takes_nothing_more(ends: Ends) -> None:
    mine, other = ends
    mine.sendall(b"never read")
    other.recv(1)
    other.close()  # with bytes unread: a reset
    mine.settimeout(5)
    assert peer.is_gone(mine, 1000)
    assert peer.has_ended(mine)
    assert mine.gettimeout() == 5
