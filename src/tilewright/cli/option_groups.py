"""Options under headings: `--help` shows what most calls need first, the rest by what it is about.

An option says its group where it is declared; one that says none is among the first.  Not what
options mean (`options`, `model_options`, the verbs).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar, final

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
# Options longer than this stand on a line of their own; on narrow terminals shorter ones do.
_WIDEST: Final = 30


@final
class OptionGroup(enum.Enum):
    """The headings, in the order in which help shows them."""

    COMMON = "Options"
    CHECKING = "Expected results"
    SAMPLING = "How tokens are drawn"
    CODE = "Code generation"
    PASSES = "Passes and schedules"
    CODEGENS = "Code generators of yours"
    WHERE = "Device and engine"
    MODULES = "Modules and weights"
    LIMITS = "Modules of strangers"
    MEASURING = "Measuring"
    PRINTING = "What is printed"
    GENERAL = "General"


FILE: Final = click.Path(readable=False)
"""A file, as shells complete it; what is wrong with it is said by who reads it."""


@final
class _Number(click.FloatRange):
    """A number from 0 on; not NaN and not infinite, of which every comparison is false or never ends."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"got '{value}', expected a finite number", param, ctx)
        return number


NUMBER: Final = _Number(0)


@final
class GroupedOption(click.Option):
    """An option that knows its heading."""

    def __init__(self, *arguments: Any, group: OptionGroup, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group: OptionGroup = group


def option(
    *names: str, group: OptionGroup = OptionGroup.COMMON, **settings: Any
) -> Callable[[Decorated], Decorated]:
    """`click.option` under a heading."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


def grouped(
    command: click.Command, context: click.Context
) -> dict[OptionGroup, list[click.Option]]:
    """The options of a command under their headings, those that are shown."""
    helps = command.get_help_option(context)
    found: dict[OptionGroup, list[click.Option]] = {}
    for group in OptionGroup:
        options = [
            parameter
            for parameter in command.get_params(context)
            if isinstance(parameter, click.Option)
            and not parameter.hidden
            and _group_of(parameter, helps) is group
        ]
        if options:
            found[group] = options
    return found


def _group_of(parameter: click.Option, helps: click.Option | None) -> OptionGroup:
    if isinstance(parameter, GroupedOption):
        return parameter.group
    return OptionGroup.GENERAL if parameter is helps else OptionGroup.COMMON


def _with_dashes(word: str) -> str:
    return word.replace("_", "-")


@final
class Verb(click.Command):
    """A command whose help groups its options, which may be spelled with `_` as IREE's tools do."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """As click does, with one spelling of options."""
        return super().make_context(
            info_name, args, parent, token_normalize_func=_with_dashes, **extra
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group that has options."""
        widest = min(_WIDEST, 2 * formatter.width // 5)
        for group, options in grouped(self, ctx).items():
            rows = [row for o in options if (row := o.get_help_record(ctx)) is not None]
            with formatter.section(group.value):
                formatter.write_dl(rows, col_max=widest)
