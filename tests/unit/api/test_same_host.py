"""Whom the servers answer."""

from __future__ import annotations

from email.message import Message

import pytest

from tilewright.api.same_host import is_for_this_host

NAMES = ("localhost", "127.0.0.1", "::1")


def headers(*rows: tuple[str, str]) -> Message:
    made = Message()
    for name, value in rows:
        made[name] = value
    return made


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:1"])
def test_programs_of_this_machine_are_answered(host: str) -> None:
    assert is_for_this_host(headers(("Host", host)), NAMES)


@pytest.mark.parametrize("host", ["", "evil.example", "localhost.evil.example:80"])
def test_a_name_that_is_not_of_this_machine_is_refused(host: str) -> None:
    assert not is_for_this_host(headers(("Host", host)), NAMES)
    assert is_for_this_host(headers(("Host", host)), None)


def test_two_names_are_none() -> None:
    two = headers(("Host", "localhost"), ("Host", "evil.example"))
    assert not is_for_this_host(two, NAMES)
    assert not is_for_this_host(two, None)


@pytest.mark.parametrize("names", [NAMES, None])
@pytest.mark.parametrize(
    ("name", "value", "is_own"),
    [
        ("Origin", "http://localhost:80", True),
        ("Origin", "http://evil.example", False),
        ("Origin", "http://localhost:81", False),
        ("Origin", "null", False),
        ("Sec-Fetch-Site", "cross-site", False),
        ("Sec-Fetch-Site", "same-origin", True),
        ("Sec-Fetch-Site", "none", True),
    ],
)
def test_pages_of_other_sites_are_refused(
    names: tuple[str, ...] | None, name: str, value: str, is_own: bool
) -> None:
    asked = headers(("Host", "localhost:80"), (name, value))
    assert is_for_this_host(asked, names) == is_own
