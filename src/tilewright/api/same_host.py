"""Whether a request of HTTP comes from a program or page of this machine.

A page of any site can send a browser to an address of its own machine: it cannot read the answer, but the work is done.
Browsers say in `Sec-Fetch-Site` where a request comes from, and in `Host` which name was asked for.  Called by the
servers.

Source: RFC 9110, section 7.2 (Host); W3C Fetch Metadata Request Headers, section 2.
"""

from __future__ import annotations

from collections.abc import Collection
from email.message import Message
from typing import Final

_OWN: Final = ("", "none", "same-origin")


def host_of(headers: Message) -> str:
    """The host that a request names, without a port."""
    name = headers.get("Host", "")
    bare, _, port = name.rpartition(":")
    return (bare if port.isdigit() else name).strip("[]").lower()


def is_for_this_host(headers: Message, names: Collection[str]) -> bool:
    """Whether a request names one of these hosts, and no page of another site made it."""
    is_own = headers.get("Sec-Fetch-Site", "").lower() in _OWN
    return is_own and host_of(headers) in names
