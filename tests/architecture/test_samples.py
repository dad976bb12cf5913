"""What `thinned` and `sampled` leave in a run has many values of every parameter: as many as half of the cases that stay.

One case that stays asks for nothing, and one that is skipped where it runs counts as one that stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from selection import UNEVEN, Sample

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("run", ["fast", pytest.param("slow", marks=pytest.mark.slow)])
def test_a_sample_takes_no_value_again_while_others_are_never_taken(
    run: str, request: pytest.FixtureRequest
) -> None:
    """A step that shares a divisor with the number of values of an inner parameter does."""
    wanted: list[str] = []
    assert request.config.stash[UNEVEN] == wanted, f"choose other numbers for the {run} run"


COLLECT = """
import json, sys
from pathlib import Path

import pytest
from tilewright.base.target import Target

host = Target.level(sys.argv[1])
Target.host = staticmethod(lambda: host)

class Told:
    def pytest_collection_finish(self, session):
        from selection import UNEVEN
        Path(sys.argv[2]).write_text(json.dumps(session.config.stash[UNEVEN]))

sys.exit(pytest.main(["-q", "--collect-only", *sys.argv[3:]], plugins=[Told()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_samples_are_as_even_on_other_processors(level: str, tmp_path: Path) -> None:
    """A processor runs two to four levels, so a step of 2, 3 or 4 takes the same one each time on some of them."""
    words = ("targets_here", "targets_apart", "Target.host")
    files = [
        str(path)
        for path in TESTS.rglob("test_*.py")
        if any(word in path.read_text(encoding="utf-8") for word in words)
    ]
    found = tmp_path / "found.json"
    subprocess.run(
        [sys.executable, "-c", COLLECT, level, found, *files],
        check=True,
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        stdout=subprocess.DEVNULL,
    )
    wanted: list[str] = []
    assert json.loads(found.read_text()) == wanted


def test_a_step_with_a_divisor_of_the_values_is_noticed() -> None:
    values = [{"outer": i, "inner": j} for i in range(5) for j in range(6)]
    even, uneven = Sample(7), Sample(4)
    assert [even.takes(v) for v in values].count(True) == 5
    assert [uneven.takes(v) for v in values].count(True) == 8
    assert even.uneven() == []
    assert uneven.uneven() == ["inner"]


def test_what_is_never_in_a_run_is_no_value_that_it_lacks() -> None:
    sample = Sample(2)
    for number in range(4):
        sample.takes({"x": number // 2} if number < 2 else None)
    assert sample.uneven() == []
