"""Options about code generators of users, as one `CodegenOptions`.

Not here: what generators are (`tilewright.byoc`), and how they are found (`compiler.transforms.external_codegen`).
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast, final

from tilewright.base.errors import UserError
from tilewright.cli.option_groups import OptionGroup, option


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CodegenOptions:
    """What the options of `codegen_options` say."""

    byoc: tuple[str, ...] = ()
    byoc_option: tuple[str, ...] = ()
    byoc_module: tuple[str, ...] = ()

    def chosen(self) -> Mapping[str, Mapping[str, object]] | None:
        """The generators by name with their options, as `compile` takes them.

        The modules of `--byoc-module` are imported first.
        Raises: UserError for a module that cannot be imported, and options of no generator.
        """
        self.import_modules()
        chosen: dict[str, dict[str, object]] = {name: {} for name in self.byoc}
        for text in self.byoc_option:
            name, key, value = _split(text)
            if name not in chosen:
                raise UserError(
                    f"--byoc-option '{text}': '{name}' takes no part",
                    hint=f"choose it: --byoc={name}",
                )
            chosen[name][key] = value
        return chosen or None

    def import_modules(self) -> None:
        """Import the modules that register generators, and loaders of kinds of modules.

        Raises: UserError for one that fails.
        """
        for name in self.byoc_module:
            try:
                importlib.import_module(name)
            except Exception as error:  # code of the user, which may raise anything
                raise UserError(
                    f"--byoc-module '{name}' cannot be imported: {type(error).__name__}: {error}",
                    hint="a module that lies in this folder is found with PYTHONPATH=. "
                    "in front of the command",
                ) from error


NO_CODEGENS: Final = CodegenOptions()


def _split(text: str) -> tuple[str, str, object]:
    """Generator, key and value of `NAME.KEY=VALUE`; the value is JSON, or a text."""
    place, equals, value = text.partition("=")
    name, dot, key = place.partition(".")
    if not (equals and dot and name and key):
        raise UserError(f"--byoc-option '{text}': expected NAME.KEY=VALUE")
    try:
        return name, key, cast("object", json.loads(value))
    except (ValueError, RecursionError):
        return name, key, value


def codegen_options(command: Callable[..., None]) -> Callable[..., None]:
    """--byoc, --byoc-option, --byoc-module: the command gets them as one `codegens`."""
    names = [field.name for field in fields(CodegenOptions)]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        options = CodegenOptions(**{name: given.pop(name) for name in names})
        command(codegens=options, **given)

    for decorate in reversed(_OPTIONS):
        call = decorate(call)
    return call


BYOC_MODULE: Final = option(
    "--byoc-module",
    multiple=True,
    metavar="MODULE",
    help="A Python module to import first: it registers code generators and loaders of their modules.",
    group=OptionGroup.CODEGENS,
)
_OPTIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    option(
        "--byoc",
        multiple=True,
        metavar="NAME",
        help="A code generator of yours, registered or installed (tilewright devices lists them); "
        "the first takes first.",
        group=OptionGroup.CODEGENS,
    ),
    option(
        "--byoc-option",
        multiple=True,
        metavar="NAME.KEY=VALUE",
        help="An option of a code generator: JSON, or a text.",
        group=OptionGroup.CODEGENS,
    ),
    BYOC_MODULE,
)
