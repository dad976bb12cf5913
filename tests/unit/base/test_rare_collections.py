"""Thresholds of the garbage collector come back, whoever leaves first."""

from __future__ import annotations

import gc
import threading

import pytest

from tilewright.base.rare_collections import rare_collections


@pytest.fixture(autouse=True)
def usual():
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield
    gc.set_threshold(*before)


def test_threads_that_overlap_leave_the_thresholds_of_before() -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with rare_collections():
            inside.set()
            leave.wait()

    with rare_collections():
        other = threading.Thread(target=stay)
        other.start()
        inside.wait()
    assert gc.get_threshold() != (701, 11, 12), "the other thread is still inside"
    leave.set()
    other.join()
    assert gc.get_threshold() == (701, 11, 12)


def test_an_error_inside_puts_them_back() -> None:
    with pytest.raises(ValueError, match="broken"), rare_collections():
        raise ValueError("broken")
    assert gc.get_threshold() == (701, 11, 12)


def test_thresholds_that_a_program_sets_meanwhile_stay() -> None:
    with rare_collections():
        gc.set_threshold(5, 6, 7)
    assert gc.get_threshold() == (5, 6, 7)


def test_a_collector_that_never_looks_is_left_alone() -> None:
    gc.set_threshold(0)
    with rare_collections():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def is_old(value: object) -> bool:
    return any(each is value for each in gc.get_objects(generation=2))


@pytest.fixture
def nothing_frozen():
    """The tests freeze what they imported; a program may not have."""
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.unfreeze()
    if was_frozen:
        gc.freeze()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_frozen")
def test_what_stays_is_old_at_the_end() -> None:
    with rare_collections(stays=True):
        made = [object()]
    assert is_old(made)
    with rare_collections():
        young = [object()]
    assert not is_old(young)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_frozen")
def test_what_a_program_froze_stays_frozen() -> None:
    kept = [object()]
    gc.freeze()
    with rare_collections(stays=True):
        made = [object()]
    # How many are frozen says nothing: those that nobody needs any more go all the same.
    assert not is_old(kept)
    assert not is_old(made)
    gc.unfreeze()
    assert is_old(kept)
