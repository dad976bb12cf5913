"""Attributes that are worked out when they are first read."""

from __future__ import annotations

import os
import threading

import pytest

from tilewright.base.lazy import lazy


class Sum:
    """Counts how often it adds."""

    def __init__(self) -> None:
        self.count = 0
        self.entered = threading.Event()
        self.go_on = threading.Event()

    @lazy
    def total(self) -> int:
        """The sum."""
        self.count += 1
        return 7

    @lazy
    def slow(self) -> int:
        """One that another thread is busy with."""
        self.entered.set()
        self.go_on.wait(30)
        return 9


def test_it_is_computed_once_per_object() -> None:
    one, other = Sum(), Sum()
    assert (one.total, one.total, other.total) == (7, 7, 7)
    assert (one.count, other.count) == (1, 1)


def test_the_class_shows_what_it_means() -> None:
    assert Sum.total.__doc__ == "The sum."


def test_an_error_is_raised_again_at_the_next_look() -> None:
    class Broken:
        @lazy
        def value(self) -> int:
            raise ValueError("no")

    broken = Broken()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            _ = broken.value


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_can_read_what_a_thread_of_its_parent_was_computing() -> None:
    parent, other = Sum(), Sum()
    thread = threading.Thread(target=lambda: parent.slow)
    thread.start()
    assert parent.entered.wait(30)
    child = os.fork()
    if child == 0:
        threading.Timer(30, lambda: os._exit(3)).start()
        other.go_on.set()
        os._exit(0 if other.slow == 9 else 1)
    _, status = os.waitpid(child, 0)
    parent.go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
