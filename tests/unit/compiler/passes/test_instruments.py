"""The ready-made watchers print and write what passes did."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest

from fakes import tiny_ops
from tilewright.base.errors import UserError
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.passes import (
    DumpIR,
    GraphPass,
    PassContext,
    PassInstrument,
    PassPrintingInstrument,
    PassResult,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintTimes,
    register_pass,
    run_passes,
)
from tilewright.compiler.readers.graph_text import parse_graph


@register_pass
@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DropOne(GraphPass):
    """Removes the first neg."""

    def run(self, graph: Graph, context: PassContext) -> PassResult:
        with Editor(graph) as edit:
            for node in edit.nodes():
                edit.replace(node, [node.present_operands[0]])
                return PassResult(modified=True)
        return PassResult(modified=False)


@register_pass
@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Look(GraphPass):
    """Does nothing."""

    far: bool = False

    def run(self, graph: Graph, context: PassContext) -> PassResult:
        return PassResult(modified=False)


def watched(*instruments: PassInstrument) -> None:
    text = "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = neg(%a) return %b }"
    context = PassContext(instruments=instruments)
    run_passes(parse_graph(text, tiny_ops.lookup), [DropOne(), Look()], context)


def test_prints_go_where_they_are_told_to() -> None:
    before, after = io.StringIO(), io.StringIO()
    watched(PrintBeforeAll(before), PrintAfterAll(after))
    assert before.getvalue().count("// ----- before") == 2
    assert before.getvalue().count("neg(") == 3
    assert after.getvalue().count("// ----- after") == 2
    assert after.getvalue().count("neg(") == 2


def test_a_print_says_the_options_of_the_pass() -> None:
    out = io.StringIO()
    context = PassContext(instruments=[PrintAfterAll(out)], config={"look.far": "yes"})
    text = "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) return %a }"
    run_passes(parse_graph(text, tiny_ops.lookup), [Look()], context)
    assert out.getvalue().startswith("// ----- after look(far=True) -----\n")


def test_prints_go_to_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    watched(PrintAfterAll())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "// ----- after drop-one -----\ngraph @g" in captured.err


def test_a_process_without_standard_error_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    out = io.StringIO()
    watched(PrintAfterAll(), PrintTimes(), PrintAfterAll(out))
    assert "// ----- after look" in out.getvalue()


def test_named_passes_alone_are_printed() -> None:
    out = io.StringIO()
    watched(PassPrintingInstrument(["Look"], ["drop_one"], out))
    heads = [line for line in out.getvalue().splitlines() if line.startswith("//")]
    assert heads == ["// ----- after drop-one -----", "// ----- before look -----"]


@pytest.mark.parametrize("option", ["print_before_pass_names", "print_after_pass_names"])
@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["lock"], "there is no pass 'lock'"),
        ("look", "is 'look', expected a sequence of names of passes"),
    ],
)
def test_a_pass_that_there_is_not_cannot_be_printed(
    option: str, names: object, text: str
) -> None:
    with pytest.raises(UserError) as caught:
        PassPrintingInstrument(**{option: names})  # type: ignore[arg-type]
    assert f"{option}" in str(caught.value)
    assert text in str(caught.value)


def test_times_are_a_table() -> None:
    timing = PassTimingInstrument()
    watched(timing)
    assert [(name, changed) for name, _, changed in timing.rows] == [
        ("drop-one", True),
        ("look", False),
    ]
    first, second, total = timing.render().splitlines()
    assert first.startswith("drop-one ")
    assert second.endswith("(no change)")
    assert total.startswith("total ")


def test_dumps_of_another_graph_begin_with_its_input(tmp_path: Path) -> None:
    dump = DumpIR(tmp_path)
    watched(dump)
    watched(dump)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "000-input.twir",
        "001-drop-one.twir",
        "002-input.twir",
        "003-drop-one.twir",
    ]
    assert dump.last == tmp_path / "003-drop-one.twir"


def test_a_folder_that_takes_no_dumps_is_an_error_that_names_the_setting(
    tmp_path: Path,
) -> None:
    """Whoever set the variable in a shell an hour ago must find it by the error."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc")):
        dump = DumpIR(folder)
        with pytest.raises(UserError) as caught:
            watched(dump)
        assert str(caught.value.location).startswith(str(folder))
        assert caught.value.hint is not None
        assert "--dump-ir, DumpIR or TILEWRIGHT_DUMP_DIR" in caught.value.hint
        assert dump.last is None


def test_a_refresh_removes_old_dumps_and_nothing_else(tmp_path: Path) -> None:
    for name in ("007-old.twir", "notes.txt", "model.twir"):
        (tmp_path / name).write_text("")
    DumpIR(tmp_path, refresh=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.twir", "notes.txt"]
