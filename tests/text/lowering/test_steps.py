"""Lowering steps on kernels as text: what stands above `# becomes` and what the step makes of it.

The file's name is the step, up to a second word after `_` that tells cases apart.  `TILEWRIGHT_UPDATE_TEXT=1 pytest
tests/text/lowering` writes what comes out; read the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lower_kernel import lower_text, steps_of
from tilewright.base.errors import UserError
from tilewright.base.target import Target

FILES = sorted(Path(__file__).parent.glob("*.kernel"))
BECOMES = "# becomes\n"
TARGET = Target.level("v3")
STEPS = steps_of(TARGET)


def step_of(file: Path) -> str:
    """The longest step that the file's name begins with."""
    name = file.stem.replace("_", "-")
    return max((step for step in STEPS if name.startswith(step)), key=len)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_step_makes_of_a_kernel_what_stands_below_it(file: Path) -> None:
    remark, _, rest = file.read_text("utf-8").partition("\n")
    before, _, after = rest.partition(BECOMES)
    assert remark.startswith("# "), "the first line says what is shown"
    found = lower_text(before, [step_of(file)], TARGET)
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        file.write_text(f"{remark}\n{before}{BECOMES}{found}", "utf-8")
        return
    assert found == after


def test_every_step_is_shown_but_those_that_need_pages() -> None:
    long = {"serialize-threads", "transpose"}
    assert {step_of(file) for file in FILES} == set(STEPS) - long


def test_several_kernels_go_through_several_steps() -> None:
    text = "kernel a(write y: f32[4, 2]):\n    y[1, 1] = 1.0\n"
    two = text + text.replace("kernel a", "kernel b")
    both = lower_text(two, ["all"], TARGET)
    assert (
        both
        == "kernel a(write y: f32[4, 2]):\n    y[3] = 1.0\nkernel b(write y: f32[4, 2]):\n    y[3] = 1.0\n"
    )


def test_a_step_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UserError, match="unknown step 'flaten'"):
        lower_text("kernel a(write y: f32[1]):\n    y[0] = 1.0\n", ["flaten"], TARGET)


def test_a_text_without_kernels_is_refused() -> None:
    with pytest.raises(UserError, match="no kernel"):
        lower_text("\n", ["all"], TARGET)
