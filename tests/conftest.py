"""What every test shares: markers, a cache of its own, where the exported models are.

What it is: fixtures and settings that hold for the whole suite.
What it is not: a place for helpers of one room (those live beside its tests).
"""

from __future__ import annotations

import ctypes.util
import functools
import gc
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from brief_reports import report_briefly
from selection import (
    UNEVEN,
    closest_markers,
    is_left_out,
    leave_to_the_night,
    markers_of_file,
    markers_of_test,
    refused_markers,
)

ROOT = Path(__file__).resolve().parent.parent
LAST_FILE: pytest.StashKey[Path] = pytest.StashKey()
CACHE_VARIABLE = "TILEWRIGHT_CACHE_DIR"
MODELS_VARIABLE = "TILEWRIGHT_TEST_MODELS"

hypothesis.settings.register_profile(
    "tilewright",
    deadline=None,  # compiling takes as long as the machine's other work lets it
    max_examples=25,  # four times as many in the nightly run
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "nightly", hypothesis.settings.get_profile("tilewright"), max_examples=100
)
hypothesis.settings.load_profile("tilewright")


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a fresh object cache; workers of one run share it.

    A cache from an earlier run could hide a change in the compiler.
    """
    if hasattr(config, "workerinput"):
        report_briefly(config)
        return
    folder = tempfile.mkdtemp(prefix="tilewright-test-cache-")
    os.environ[CACHE_VARIABLE] = folder
    os.environ.setdefault("TILEWRIGHT_JOBS", "1")  # the test processes are the parallelism
    # A run starts hundreds of interpreters; without this each would compile our sources again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> Iterator[None]:
    """Let SIGINT reach the tests and their children.

    Shells start what runs in the background with SIGINT ignored, and Python leaves it so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@functools.cache
def missing_requirement(marker: str) -> str | None:
    """Return why a test with ``marker`` cannot run here, or None."""
    if marker == "needs_torch":
        return None if importlib.util.find_spec("torch") else "torch is not installed"
    if marker == "needs_cuda":
        return None if ctypes.util.find_library("cuda") else "no CUDA driver"
    return None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of whose tests none is in this run, nor what it would import."""
    expression = config.option.markexpr
    if collection_path.suffix != ".py" or not refused_markers(expression):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return is_left_out(expression, markers_of_file(text)) or None


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """Make no cases of a test that is not in this run."""
    if not name.lower().startswith("test"):
        return None
    expression = collector.config.option.markexpr
    return [] if is_left_out(expression, markers_of_test(obj)) else None


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say of each test when it runs, and skip those whose device or package is not here."""
    config.stash[UNEVEN] = leave_to_the_night(items)
    for item in items:
        held = closest_markers(item)
        for marker in ("needs_torch", "needs_cuda"):
            if marker in held:
                reason = missing_requirement(marker)
                if reason is not None:
                    item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection() -> None:
    """Collecting makes a million objects that live until the end: looking for garbage among them finds none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what collecting made out of every later garbage collection; many tests collect again and again.

    A compilation makes and drops so many objects that looking after each 700, as Python does, is a tenth of its time.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The same for what the tests of a file leave in caches, before those of the next one."""
    stash = item.config.stash
    if item.path != stash.get(LAST_FILE, None):
        stash[LAST_FILE] = item.path
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def models_folder() -> Path:
    """The folder of exported models (``make models``); skips if there is none."""
    folder = Path(os.environ.get(MODELS_VARIABLE, ROOT / "build" / "models"))
    if not folder.is_absolute():
        folder = ROOT / folder
    if not folder.is_dir():
        pytest.skip(f"no exported models in {folder.name}; run 'make models'")
    return folder
