"""Whether anybody is at the other end of a connection, found out without waiting and without reading.

Where the system has `poll`, it says so, whatever the number of the connection; and Linux says, too, that the other
end only sends no more.  Elsewhere what came is looked at and left there.  Called by `server`.

Source: POSIX.1-2017, `poll` and `recv` (MSG_PEEK); Linux, poll(2), for POLLRDHUP.
"""

from __future__ import annotations

import select
import socket
from typing import Final

_POLLS: Final = hasattr(select, "poll")
_GONE: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL if _POLLS else 0
_ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)


def is_gone(connection: socket.socket, wait_ms: int = 0) -> bool:
    """Whether the other end takes nothing more, within a time."""
    if _POLLS:
        return bool(_state_of(connection, wait_ms, _GONE) & _GONE)
    select.select([connection], (), (), wait_ms / 1000)
    return _peeked(connection) is None


def has_ended(connection: socket.socket) -> bool:
    """Whether the other end sends nothing more, which one that is gone does not, either."""
    if _ENDED:
        return bool(_state_of(connection, 0, _ENDED | _GONE))
    return not _peeked(connection)


def _state_of(connection: socket.socket, wait_ms: int, wanted: int) -> int:
    """What of `wanted` is true of a connection, within a time."""
    poll = select.poll()
    poll.register(connection, wanted)
    return next((state for _, state in poll.poll(wait_ms)), 0)


def _peeked(connection: socket.socket) -> int | None:
    """How many bytes wait, at most 1; 0 at the end, None of a connection that is gone."""
    patience = connection.gettimeout()
    connection.setblocking(False)
    try:
        return len(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return 1  # there may be some later
    except OSError:
        return None
    finally:
        connection.settimeout(patience)
