"""A system that has threads for some and for nobody after them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def threads_left(count: int) -> Iterator[None]:
    """Inside of the block so many threads can be started."""
    start, left = threading.Thread.start, iter(range(count))

    def limited(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", limited)
        yield
