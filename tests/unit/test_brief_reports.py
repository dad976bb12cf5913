"""Runs whose processes say less count the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from brief_reports import BriefReports, report_briefly

TESTS = Path(__file__).resolve().parents[1]
OUTCOMES = """
import pytest
import warnings

@pytest.fixture
def broken_setup():
    raise ValueError("in the setup")

@pytest.fixture
def broken_teardown():
    yield
    raise ValueError("in the teardown")

@pytest.fixture
def chatty():
    print("set up")
    yield
    print("torn down")

@pytest.fixture
def absent():
    pytest.skip("not here")

@pytest.mark.parametrize("n", range(5))
def test_passes(n): pass
def test_fails(): assert 1 == 2, "as it is to"
def test_fails_with_output(chatty): print("called"); assert 0
def test_passes_with_output(chatty): print("called")
def test_errs_before(broken_setup): pass
def test_errs_behind(broken_teardown): pass
def test_fails_and_errs(broken_teardown): assert not "twice"
def test_is_skipped(absent): pass
@pytest.mark.skip(reason="for now")
def test_is_marked(): pass
@pytest.mark.xfail(strict=True)
def test_fails_as_expected(): assert 0
@pytest.mark.xfail(strict=True)
def test_passes_unexpectedly(): pass
def test_warns(): warnings.warn("mind this")
"""
CONFTEST = """
import sys
sys.path.insert(0, {tests!r})
from brief_reports import report_briefly

def pytest_configure(config):
    if {briefly} and hasattr(config, "workerinput"):
        report_briefly(config)
"""


class Options:
    """What a configuration is asked for, and what is registered with it."""

    def __init__(self, **asked: object) -> None:
        self.option = self
        self.pluginmanager = self
        self.plugins: list[object] = []
        self.durations = self.xmlpath = None
        self.maxfail = 0
        vars(self).update(asked)

    def register(self, plugin: object) -> None:
        self.plugins.append(plugin)


@pytest.mark.parametrize(
    "asked", [{"durations": 5}, {"durations": 0}, {"xmlpath": "x.xml"}, {"maxfail": 1}]
)
def test_all_is_said_to_who_asks_for_it(asked: dict[str, object]) -> None:
    config = Options(**asked)
    report_briefly(config)
    assert config.plugins == []
    config = Options()
    report_briefly(config)
    assert [type(plugin) for plugin in config.plugins] == [BriefReports]


def words_of_run(folder: Path, *, briefly: bool) -> tuple[list[str], str]:
    """The lines of a run's summary without times, and what it says of failures."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_outcomes.py").write_text(OUTCOMES)
    (folder / "conftest.py").write_text(CONFTEST.format(tests=str(TESTS), briefly=briefly))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "-rA", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    shown = done.stdout.replace(str(folder), "")
    failures, _, summary = shown.partition("short test summary info")
    plain = re.sub(r"in \d+\.\d+s|0x[0-9a-f]+", "", summary).splitlines()
    return sorted(plain), re.sub(r"0x[0-9a-f]+", "", failures).partition("= ERRORS")[2]


@pytest.mark.slow
def test_a_run_counts_and_shows_the_same(tmp_path: Path) -> None:
    brief = words_of_run(tmp_path / "brief", briefly=True)
    assert brief == words_of_run(tmp_path / "whole", briefly=False)
    lines, failures = brief
    counts = "4 failed, 8 passed, 2 skipped, 1 xfailed, 1 warning, 3 errors"
    assert any(line.startswith(counts) for line in lines), lines
    for said in (
        "as it is to",
        "in the setup",
        "in the teardown",
        "twice",
        "set up",
        "torn down",
    ):
        assert said in failures
