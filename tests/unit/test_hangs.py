"""One watch for hangs serves the tests of a minute, and the next test renews it."""

from __future__ import annotations

import faulthandler

import pytest

from hangs import HANG_S, RENEWED_S, HangWatch


def test_a_watch_is_renewed_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []

    def begin(seconds: int, *, file: int) -> None:
        begun.append((seconds, file))

    monkeypatch.setattr(faulthandler, "dump_traceback_later", begin)
    watch = HangWatch(7)
    counts: list[int] = []
    for now in (0, 1, RENEWED_S - 1, RENEWED_S, RENEWED_S + 1, 3 * RENEWED_S):
        watch.test_begins(now)
        counts.append(len(begun))
    assert counts == [1, 1, 1, 2, 2, 3]
    assert set(begun) == {(HANG_S, 7)}
