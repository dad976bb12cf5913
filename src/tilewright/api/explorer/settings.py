"""What can be asked of a page: how a model is compiled, and the sizes that it is called with.

Settings are the query of an address and the fields of a form.  Not here: what becomes of it.  Called by
`explorer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import parse_qsl, urlencode

from tilewright.api.report.markup import Markup, element, void_element
from tilewright.base.errors import UserError
from tilewright.base.host import usable_cores
from tilewright.base.target import LEVELS, Target
from tilewright.base.text import did_you_mean, plural

_DIM: Final = "dim."
LARGEST: Final = 1 << 20
"""The largest size that a page asks for."""
_FIELDS: Final = 64
_TITLES: Final = {
    "opt_level": "optimization",
    "target": "code for",
    "precision": "products in",
    "threads": "threads",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a model is compiled, and the sizes of its dynamic dimensions, by name."""

    opt_level: int = 2
    target: str = "host"
    precision: str = "f32"
    threads: int = 1
    dims: tuple[tuple[str, int], ...] = ()

    @property
    def compiled(self) -> tuple[int, str, str, int]:
        """What another compilation is needed for."""
        return self.opt_level, self.target, self.precision, self.threads

    def __str__(self) -> str:
        level, target, precision, threads = self.compiled
        words = (f"O{level}", target, precision, plural(threads, "thread"))
        return ", ".join((*words, self.sizes) if self.dims else words)

    @property
    def sizes(self) -> str:
        """The sizes in words."""
        return ", ".join(f"{name} = {value}" for name, value in self.dims)


@final
class SettingsForm:
    """All that can be asked for on this machine.

    Args:
        first: what is shown where nothing is asked for; its dims name those that there are.
        is_fixed: the model was compiled before, so that only sizes can be chosen.
    """

    def __init__(self, first: Settings, *, is_fixed: bool) -> None:
        self.first: Final[Settings] = first
        self._dims: Final[Mapping[str, int]] = dict(first.dims)
        self.values: Final[Mapping[str, Sequence[str]]] = {
            "opt_level": ("0", "1", "2"),
            "target": _targets(),
            "precision": ("f32", "bf16", "f16", "i8"),
            "threads": tuple(
                str(n) for n in range(1, max(usable_cores(), first.threads) + 1)
            ),
        }
        self._is_fixed: Final[bool] = is_fixed

    def read(self, query: str) -> Settings:
        """What a query asks for; what it leaves out is as at first.

        Raises: UserError naming the field and what it may be.
        """
        try:
            fields = parse_qsl(query, keep_blank_values=True, max_num_fields=_FIELDS)
        except ValueError as error:
            raise UserError(f"the address has more than {_FIELDS} fields") from error
        given = dict(zip(_TITLES, map(str, self.first.compiled), strict=True))
        dims = dict(self._dims)
        for name, value in fields:
            if name.startswith(_DIM) and name.removeprefix(_DIM) in dims:
                dims[name.removeprefix(_DIM)] = _size(name, value)
            elif name in given and not self._is_fixed:
                given[name] = self._known(name, value)
            else:
                known = [*(() if self._is_fixed else given), *(_DIM + dim for dim in dims)]
                raise UserError(
                    f"nothing is called '{name}' here",
                    hint=did_you_mean(name, known)
                    or f"there are {', '.join(known) or 'no fields'}",
                )
        return Settings(
            opt_level=int(given["opt_level"]),
            target=given["target"],
            precision=given["precision"],
            threads=int(given["threads"]),
            dims=tuple(dims.items()),
        )

    def query(self, settings: Settings) -> str:
        """Settings as the query of an address, which `read` reads."""
        fields: list[tuple[str, str | int]] = []
        if not self._is_fixed:
            fields += zip(_TITLES, settings.compiled, strict=True)
        return urlencode([*fields, *((_DIM + name, size) for name, size in settings.dims)])

    def words(self, settings: Settings) -> str:
        """Settings in words; of a model that was compiled before nobody says how here."""
        return (settings.sizes or "as it is") if self._is_fixed else str(settings)

    def _known(self, name: str, value: str) -> str:
        if value not in self.values[name]:
            raise UserError(f"{name} is '{value}', expected {' '.join(self.values[name])}")
        return value

    def form(self, chosen: Settings) -> Markup:
        """The fields, with what is chosen, and a button."""
        fields: list[Markup] = []
        if not self._is_fixed:
            for name, value in zip(_TITLES, map(str, chosen.compiled), strict=True):
                options = (_option(each, each == value) for each in self.values[name])
                fields.append(
                    element("label", _TITLES[name], element("select", *options, name_=name))
                )
        for name, size in chosen.dims:
            box = void_element(
                "input", type="number", min=0, max=LARGEST, value=size, name_=_DIM + name
            )
            fields.append(element("label", name, box))
        if not fields:
            return Markup("")
        button = "call" if self._is_fixed else "compile and call"
        return element(
            "form", *fields, element("button", button, type="submit"), class_="controls", method="get", action="/",
        )  # fmt: skip


def _option(value: str, is_chosen: bool) -> Markup:
    marks = {"selected": "selected"} if is_chosen else {}
    return element("option", value, value=value, **marks)


def _size(name: str, value: str) -> int:
    if not (
        value.isascii() and value.isdecimal() and len(value) < 8 and int(value) <= LARGEST
    ):
        raise UserError(f"{name} is '{value[:40]}', expected a size up to {LARGEST}")
    return int(value)


def _targets() -> tuple[str, ...]:
    """`host`, and the x86-64 levels that run here."""
    host = Target.host()
    levels = (
        level
        for level in LEVELS
        if host.arch == "x86_64" and Target.level(level).features <= host.features
    )
    return ("host", *levels)
