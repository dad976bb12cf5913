"""Progress for people: on a terminal, in a notebook, and silence elsewhere."""

from __future__ import annotations

import io
import sys
import types

import pytest
from rich.console import Console

import tilewright as tw
from fakes.small_models import mlp
from tilewright.api import progress as room
from tilewright.api.progress import PhaseBar, phase_bar
from tilewright.base.errors import ModelError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_every_phase_and_is_clean_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    seen: list[str] = []
    phase = PhaseBar.phase

    def spy(self: PhaseBar, name: str) -> None:
        seen.append(name)
        phase(self, name)

    monkeypatch.setattr(PhaseBar, "phase", spy)
    tw.compile(mlp(), progress=True, jobs=1)
    assert len(seen) >= 3
    assert len(set(seen)) == len(seen)
    text = terminal.getvalue()
    assert seen[-1] in text
    assert text.endswith("\x1b[2K"), "the line is still there"


@pytest.mark.parametrize("progress", [None, False, True])
def test_where_nobody_looks_nothing_is_written(
    capfd: pytest.CaptureFixture[str], progress: bool | None
) -> None:
    tw.compile(mlp(), progress=progress, jobs=1)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_a_phase_with_brackets_is_no_markup() -> None:
    terminal = Terminal()
    with phase_bar(Console(file=terminal, force_terminal=True, width=80)) as bar:
        bar.phase("[red]model[/nothing]")
        bar.advance(1, 2)
    assert "[red]model[/nothing]" in terminal.getvalue()


class _Shown:
    """What a notebook shows at one place, over time."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def update(self, obj: object) -> None:
        self.texts.append(str(obj))


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> _Shown:
    """A stand-in for IPython's display, with rich believing that it is in a notebook."""
    shown = _Shown()
    display = types.ModuleType("IPython.display")

    def show(obj: object, *, display_id: bool) -> _Shown:
        assert display_id
        shown.update(obj)
        return shown

    display.__dict__.update(HTML=str, display=show)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(
        room, "Console", lambda **_: Console(file=io.StringIO(), force_jupyter=True)
    )
    return shown


def test_a_notebook_shows_a_bar_without_widgets(notebook: _Shown) -> None:
    tw.compile(mlp(), progress=True, jobs=1)
    assert any("<progress value=" in text for text in notebook.texts)
    assert notebook.texts[-1] == "", "the line is still there"


def test_a_notebook_is_clean_after_an_error(notebook: _Shown) -> None:
    with pytest.raises(ModelError):
        tw.compile(b"no model", progress=True)
    assert notebook.texts
    assert notebook.texts[-1] == ""


def test_names_in_a_notebook_are_escaped(notebook: _Shown) -> None:
    with phase_bar(Console(file=io.StringIO(), force_jupyter=True)) as bar:
        bar.phase("<script>alert(1)</script>")
    assert any("&lt;script&gt;" in text for text in notebook.texts)
    assert not any("<script>" in text for text in notebook.texts)


def test_a_notebook_is_not_flooded(notebook: _Shown) -> None:
    with phase_bar(Console(file=io.StringIO(), force_jupyter=True)) as bar:
        bar.phase("code")
        for done in range(1, 10_001):
            bar.advance(done, 10_000)
    assert len(notebook.texts) < 1_000
    assert "10000/10000" in notebook.texts[-2]
