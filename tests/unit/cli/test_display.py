"""Tables stay readable: nothing is cut, shapes survive, numbers stay whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tilewright.cli.display import labelled, out, table


def rendered(width: int, *cells: str) -> str:
    rows = table("title", [("name", "left"), ("value", "right"), ("", "bar")])
    rows.add_row(*cells)
    stream = io.StringIO()
    Console(file=stream, width=width).print(rows, markup=False)
    return stream.getvalue()


def test_shapes_in_brackets_are_no_markup() -> None:
    assert "f32[batch, 48]" in rendered(80, "x: f32[batch, 48]", "1", "")


@pytest.mark.parametrize("name", ["[/red]a", "[bold]x[/bold]", "\\[x\\", ":smile:"])
def test_names_are_no_markup_wherever_they_stand(name: str, capsys) -> None:
    rows = table(name, [("name", "left")])
    rows.add_row(name)
    out.print(name)
    out.print(rows)
    assert [line.strip() for line in capsys.readouterr().out.splitlines() if line] == [
        name,
        name,
        "name",
        name,
    ]


def test_names_do_not_steer_the_terminal(capsys) -> None:
    name = "a\x1b[2Jb\x07\u202e"
    rows = table(name, [("name", "left")])
    rows.add_row(name)
    out.print(name)
    out.print(rows)
    out.print(labelled("mismatch", "red", name))
    shown = capsys.readouterr().out
    assert shown.count("a\\x1b[2Jb\\x07\\u202e") == 4
    assert not set(shown) & set("\x1b\x07\u202e")


def test_a_line_end_in_a_name_does_not_break_a_row(capsys) -> None:
    rows = table("", [("name", "left"), ("type", "left")])
    rows.add_row("a\nb", "f32")
    out.print(rows)
    assert capsys.readouterr().out.splitlines()[-1] == "a\\nb  f32"


@pytest.mark.parametrize("width", [30, 40, 200])
def test_a_narrow_terminal_folds_text_and_keeps_numbers(width: int) -> None:
    name = "a_long_kernel_name_that_fits_on_no_line_at_all"
    text = rendered(width, name, "123,456", "████")
    assert "…" not in text
    assert "123,456" in text
    assert "████" in text
    assert name in "".join(line.split(" ")[0] for line in text.splitlines()[2:])


def test_a_title_wider_than_the_table_stays_on_one_line() -> None:
    rows = table("/a/long/path/of/some/model.vmfb", [("", "left")])
    rows.add_row("1")
    stream = io.StringIO()
    Console(file=stream, width=80).print(rows)
    assert stream.getvalue().splitlines()[0] == "/a/long/path/of/some/model.vmfb"


@pytest.mark.parametrize("width", [60, 80])
def test_names_keep_their_room_and_numbers_at_the_right_go(width: int) -> None:
    columns = [
        ("kernel", "left"),
        ("runs as", "left"),
        *[(f"number {n}", "right") for n in range(8)],
    ]
    rows = table("kernels", columns)
    name = "fused_conv_add_relu_17"
    rows.add_row(name, "tiled", *["123.4 GB/s"] * 8)
    stream = io.StringIO()
    Console(file=stream, width=width).print(rows)
    _, head, line = stream.getvalue().splitlines()
    assert line.split()[:2] == [name, "tiled"]
    assert "number 0" in head
    assert "number 7" not in head
    assert len(line) <= width
