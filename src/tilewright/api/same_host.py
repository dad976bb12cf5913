"""Whether a request of HTTP comes from a program or page of this machine.

A page of any site can send a browser to an address of its own machine: it cannot read the answer, but the work is done.
Browsers say in `Sec-Fetch-Site` where a request comes from, and in `Host` which name was asked for.  Called by the
servers.

Source: RFC 9110, section 7.2 (Host); RFC 9112, section 3.2 (only one); RFC 6454, section 7 (Origin); W3C Fetch Metadata
Request Headers, section 2.
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


def is_for_this_host(headers: Message, names: Collection[str] | None) -> bool:
    """Whether a request names one of these hosts, and no page of another site made it.

    Args:
        headers: of the request.
        names: None for any, where every network may ask.
    """
    hosts = headers.get_all("Host", ())
    if len(hosts) > 1 or headers.get("Sec-Fetch-Site", "").lower() not in _OWN:
        return False
    # Browsers leave the former out where a connection is not encrypted, but not the origin.
    origin = headers.get("Origin")
    if origin is not None and origin.rpartition("//")[2].lower() != "".join(hosts).lower():
        return False
    return names is None or host_of(headers) in names
