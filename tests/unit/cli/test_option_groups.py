"""Options under headings."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from tilewright.cli import VERBS, root
from tilewright.cli.option_groups import OptionGroup, Verb, grouped, option


@click.command("weights", cls=Verb)
@option("--unlisted", hidden=True)
@option("--seconds", group=OptionGroup.MEASURING, help="How long.")
@option("--output-that-has-a-long-name", help="Where to.")
@click.option("--plain", help="Declared without a group.")
def weights() -> None:
    """Nothing."""


def headings(text: str) -> list[str]:
    return [
        line[:-1] for line in text.splitlines() if line[:1].isalpha() and line[-1] == ":"
    ]


def test_options_stand_under_their_headings_the_common_ones_first() -> None:
    text = CliRunner().invoke(weights, ["--help"]).output
    assert headings(text) == ["Options", "Measuring", "General"]
    assert text.index("--plain") < text.index("Measuring:") < text.index("--seconds")
    assert text.index("General:") < text.index("--help")
    assert "--unlisted" not in text


@pytest.mark.parametrize("verb", VERBS)
def test_what_most_calls_need_is_the_shortest_reading(verb: str) -> None:
    command = root.get_command(click.Context(root), verb)
    assert isinstance(command, Verb)
    groups = grouped(command, click.Context(command))
    if set(groups) != {OptionGroup.GENERAL}:  # some have no option of their own
        assert next(iter(groups)) is OptionGroup.COMMON
    assert len(groups.get(OptionGroup.COMMON, [])) <= 8
    assert [o.opts[-1] for o in groups[OptionGroup.GENERAL]] == ["--verbose", "--help"]


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("verb", ["compile", "run", "bench"])
def test_narrow_terminals_leave_room_for_the_explanation(verb: str, width: int) -> None:
    result = CliRunner().invoke(root, [verb, "--help"], terminal_width=width)
    options, _ = result.output[result.output.index("Options:") :].split("  Example")
    lines = options.splitlines()
    assert max(map(len, lines)) <= max(width, len("  --bytecode [translate|interpret]"))
    column = max(len(line) - len(line.lstrip()) for line in lines)
    assert column <= width // 2


@pytest.mark.parametrize("spelling", ["--list_drivers", "--list-drivers"])
def test_underscores_of_irees_tools_are_dashes(spelling: str) -> None:
    result = CliRunner().invoke(root, ["run", spelling])
    assert result.exit_code == 0
    assert "local-task" in result.output


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x"])
@pytest.mark.parametrize(
    "words",
    [
        ("bench", "--seconds"),
        ("run", "--timeout"),
        ("run", "--expected-rtol"),
        ("compare", "m.onnx", "--tolerance"),
    ],
)
def test_numbers_are_finite_and_not_negative(words: tuple[str, ...], value: str) -> None:
    result = CliRunner().invoke(root, [*words, value])
    assert result.exit_code == 2
    assert f"Invalid value for '{words[-1]}'" in result.output
