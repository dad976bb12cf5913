"""Options about the passes and schedules of a compilation, as one `PassOptions`.

Not here: what they mean (`compiler.passes.context`, `compiler.schedule.by_user`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

import click

from tilewright.base.errors import UserError
from tilewright.base.input_file import read_small_file
from tilewright.base.json_text import read_json
from tilewright.cli.option_groups import OptionGroup, option

if TYPE_CHECKING:
    from tilewright.compiler.passes import PassContext, PassInstrument
    from tilewright.compiler.schedule.by_user import ScheduleSpec

_ALL: Final = "all"
_MOST_SCHEDULES_BYTES: Final = 64 << 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """What the options of `pass_options` say."""

    required_pass: tuple[str, ...] = ()
    disabled_pass: tuple[str, ...] = ()
    pass_config: tuple[str, ...] = ()
    print_ir_before: tuple[str, ...] = ()
    print_ir_after: tuple[str, ...] = ()
    print_pass_times: bool = False
    dump_ir: Path | None = None
    schedules: Path | None = None

    def context(self) -> AbstractContextManager[PassContext]:
        """What a compilation is to run in.  Raises: UserError for what there is not."""
        from tilewright.transform import PassContext

        return PassContext(
            required_pass=self.required_pass,
            disabled_pass=self.disabled_pass,
            config=self._config(),
            instruments=self._instruments(),
        )

    def _config(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for text in self.pass_config:
            key, equals, value = text.partition("=")
            if not equals:
                raise UserError(f"--pass-config '{text}': expected KEY=VALUE")
            found[key] = value
        return found

    def _instruments(self) -> list[PassInstrument]:
        from tilewright import transform
        from tilewright.compiler.passes import PrintTimes

        found: list[PassInstrument] = []
        if _ALL in self.print_ir_before:
            found.append(transform.PrintBeforeAll())
        if _ALL in self.print_ir_after:
            found.append(transform.PrintAfterAll())
        before, after = (
            _known(option, [name for name in names if name != _ALL])
            for option, names in (
                ("--print-ir-before", self.print_ir_before),
                ("--print-ir-after", self.print_ir_after),
            )
        )
        if before or after:
            found.append(transform.PassPrintingInstrument(before, after))
        if self.dump_ir is not None:
            found.append(transform.DumpIR(self.dump_ir, refresh=True))
        if self.print_pass_times:
            found.append(PrintTimes())
        return found

    def read_schedules(self) -> Mapping[str, ScheduleSpec] | None:
        """The traces of `--schedules`, by patterns of kernel names.  Raises: InputError, UserError."""
        path = self.schedules
        if path is None:
            return None
        data = read_small_file(path, _MOST_SCHEDULES_BYTES)
        try:
            found = read_json(data)
        except (ValueError, RecursionError) as error:
            raise UserError(f"no JSON: {error}", location=path) from error
        if not isinstance(found, dict):
            raise UserError(
                "expected an object of traces by patterns of kernel names", location=path
            )
        return {
            pattern: json.dumps(trace)
            for pattern, trace in cast("dict[str, object]", found).items()
        }


def _known(option: str, names: list[str]) -> tuple[str, ...]:
    """The names of passes.  Raises: UserError for one that there is not."""
    from tilewright.compiler.passes.context import known_names

    return known_names(option, names)


def pass_options(command: Callable[..., None]) -> Callable[..., None]:
    """--disabled-pass, --pass-config, --print-ir-after, …: the command gets them as one `passes`."""
    names = [field.name for field in fields(PassOptions)]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        options = PassOptions(**{name: given.pop(name) for name in names})
        command(passes=options, **given)

    for decorate in reversed(_OPTIONS):
        call = decorate(call)
    return call


_OPTIONS: Final = (
    option(
        "--disabled-pass",
        multiple=True,
        metavar="PASS",
        help="Leave a pass out.",
        group=OptionGroup.PASSES,
    ),
    option(
        "--required-pass",
        multiple=True,
        metavar="PASS",
        help="Run a pass whatever the level.",
        group=OptionGroup.PASSES,
    ),
    option(
        "--pass-config",
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of a pass, for example fold-constants.limit_bytes=1024.",
        group=OptionGroup.PASSES,
    ),
    option(
        "--schedules",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Your own schedules: a JSON object of traces by patterns of kernel names.",
        group=OptionGroup.PASSES,
    ),
    option(
        "--print-ir-before",
        multiple=True,
        metavar="PASS",
        help="Print the graph before a pass, or 'all', on standard error.",
        group=OptionGroup.PASSES,
    ),
    option(
        "--print-ir-after",
        multiple=True,
        metavar="PASS",
        help="Print the graph after a pass, or 'all', on standard error.",
        group=OptionGroup.PASSES,
    ),
    option(
        "--print-pass-times",
        is_flag=True,
        help="Print the time of each pass on standard error.",
        group=OptionGroup.PASSES,
    ),
    option(
        "--dump-ir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write the graph after every pass that changes it, one file each.",
        group=OptionGroup.PASSES,
    ),
)
