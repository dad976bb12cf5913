"""A C core that was built from other sources than those beside this Python is refused, with what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.base.errors import UserError
from tilewright.runtime import native
from tilewright.runtime.native.core import check_core
from tilewright.runtime.native.core_sources import expected_mark

PACKAGE = Path(native.__file__).parents[2]
CHECKOUT = PACKAGE.parents[1]


@pytest.mark.skipif(native.EXTENSION is None, reason="the extension is not built")
def test_the_core_here_was_built_from_the_sources_here() -> None:
    assert native.EXTENSION is not None
    assert expected_mark() == native.EXTENSION.SOURCES


@pytest.mark.parametrize("built_from", [None, "12-3"])
def test_another_core_is_refused_with_the_remedy(built_from: str | None) -> None:
    check_core(built_from, None)  # nothing to compare with
    with pytest.raises(UserError, match="built from other sources") as caught:
        check_core(built_from, "45-6")
    assert "make native" in str(caught.value)


@pytest.mark.skipif(
    native.EXTENSION is None or not (CHECKOUT / "native").is_dir(),
    reason="the extension is not built here",
)
def test_a_source_that_changed_since_the_core_was_built_ends_the_import(
    tmp_path: Path,
) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "compiler", "tuning")
    shutil.copytree(PACKAGE, tmp_path / "src" / "tilewright", ignore=ignore)
    shutil.copytree(CHECKOUT / "native", tmp_path / "native")

    def load() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "import tilewright.runtime.native"],
            env={"PYTHONPATH": str(tmp_path / "src")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert load().returncode == 0
    with (tmp_path / "native" / "include" / "tw_size.h").open("a") as file:
        file.write("// another line\n")
    done = load()
    assert done.returncode == 1
    assert "UserError: tilewright.runtime._native: the C core was built from" in done.stderr
