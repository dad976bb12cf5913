"""Texts of sizes for people alone, and the lines that warnings name."""

from __future__ import annotations

import inspect
import io
import linecache
import logging
import sys
import warnings
from pathlib import Path
from types import FrameType

import pytest

import tilewright as tw
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.compiler.frontends.torch import messages
from tilewright.compiler.frontends.torch.messages import is_for_readers

torch = pytest.importorskip("torch")
LOG = logging.getLogger(__name__)
pytestmark = pytest.mark.needs_torch


class Size:
    """Asks at each text that is made of it."""

    def __init__(self) -> None:
        self.found: list[bool] = []

    def __format__(self, form: str) -> str:
        frame = inspect.currentframe()
        asker = None if frame is None else frame.f_back
        assert isinstance(asker, FrameType)
        self.found.append(is_for_readers(asker))
        return "n"


def test_texts_of_logs_prints_warnings_and_errors_are_for_people_alone() -> None:
    n = Size()
    LOG.debug(f"of {n}")  # noqa: G004 - what models write
    LOG.log(
        10,
        "a %s",
        f"""of
        {n}""",
    )
    print(f"of {n}", f"{n}")  # noqa: T201
    sys.stdout.write(f"of {n}")
    print(f"of {n}", file=sys.stderr)  # noqa: T201
    with pytest.warns(UserWarning, match="of n"):
        warnings.warn(f"of {n}", stacklevel=1)
    with pytest.raises(ValueError, match="of n"):
        raise ValueError(f"of {n}")
    assert n.found == [True] * 8


def test_texts_that_something_may_be_looked_up_by_are_not() -> None:
    n, kept = Size(), []
    table = {"n": 1}
    kept.append(f"{n}")
    text = f"{n}"
    assert table[f"{n}"] == table[text]
    LOG.debug(text)
    kept.append(f"{n}")
    exec("f'{n}'", {"n": n})  # a code without a file
    assert n.found == [False] * 5


def test_texts_of_what_is_written_or_caught_may_be_looked_at() -> None:
    n, table = Size(), io.StringIO()
    table.write(f"{n}")
    print(f"{n}", file=table)
    try:
        raise KeyError(f"{n}")
    except KeyError as error:
        table.write(error.args[0])
    assert table.getvalue() == "nn\nn"
    assert n.found == [False] * 3


def test_an_error_that_only_others_catch_is_for_people() -> None:
    n = Size()

    def fails() -> None:
        try:
            table = {}[0]
        except KeyError:
            raise ValueError(f"no {n}") from None
        else:
            raise ValueError(f"{table} {n}")

    def within() -> None:
        raise ValueError(f"no {n}")

    for each in (fails, within):
        with pytest.raises(ValueError, match="no n"):
            each()
    assert n.found == [True] * 2


def test_a_file_is_read_once_until_it_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read: list[str] = []
    parse = messages.ast.parse
    monkeypatch.setattr(
        messages.ast, "parse", lambda text: read.append(text) or parse(text)
    )
    file = tmp_path / "model.py"

    def found(text: str) -> list[bool]:
        n = Size()
        file.write_text(text)
        linecache.checkcache(str(file))
        exec(compile(text, str(file), "exec"), {"n": n, "print": str})
        return n.found

    assert found("print(f'{n}')\nkept = f'{n}'\nprint(f'{n}')\n") == [True, False, True]
    assert len(read) == 1
    assert found("kept = f'{n}'\nprint(f'{n}')\n") == [False, True]
    assert len(read) == 2


class Told(torch.nn.Module):
    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.looks = looks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        LOG.info(f"rows {x.shape[0]}")  # noqa: G004
        if self.looks:
            return x * {"4": 1.0}.get(f"{x.shape[0]}", 2.0)
        return x * 2


@pytest.mark.slow
@pytest.mark.parametrize("looks", [False, True])
def test_only_a_text_that_a_result_may_depend_on_is_warned_of_at_the_callers_line(
    looks: bool,
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TilewrightWarning)
        tw.compile(
            Told(looks).eval(),
            (torch.ones(4, 3),),
            dynamic_shapes=({0: torch.export.Dim.AUTO},),
        )
    found = [w for w in caught if issubclass(w.category, TilewrightWarning)]
    assert [w.filename for w in found] == [__file__] * looks
    assert all("makes a text of a size" in str(w.message) for w in found)
