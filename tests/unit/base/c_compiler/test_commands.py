"""What is told of commands that fail."""

from __future__ import annotations

import pytest

from tilewright.base.c_compiler import commands


@pytest.mark.parametrize(("said", "is_hinted"), [("", True), ("x.c:1: error\n", False)])
def test_a_command_that_fails_without_a_word_may_have_had_no_disk(
    said: str, is_hinted: bool
) -> None:
    error = commands._failure(["cc", "-c", "x.c"], 1, said)
    assert ("TMPDIR" in (error.hint or "")) == is_hinted
