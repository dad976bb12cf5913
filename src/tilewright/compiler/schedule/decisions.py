"""Decisions: what is chosen for a nest, as data, and the spaces that it is chosen from.

A rule has a record of its own (a `Decision`) with one field for each choice, and a `ChoiceSpace` of the records that it can
carry out: every point of a space is a right schedule, some are fast.  A point is plain data: it prints, parses back,
and is part of keys.  Not here: what a choice means (`rules`), nor how to search (a tuner walks `neighbours`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, final

from tilewright.base.errors import ScheduleError
from tilewright.base.record import record

Value = int | bool | str | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is decided for one nest; a rule's record adds the fields.

    >>> from tilewright.compiler.schedule.rules.tilings import Tiling
    >>> str(Tiling(columns=32, rows=(2, 7), prefetch=True))
    'contraction columns=32 lanes=0 rows=[2,7] streams=1 outer=panels panels=1 tiles=1 steps=0 unroll=4 prefetch=yes near=no'
    >>> Tiling.read(str(Tiling(columns=32, rows=(2, 7))).split()[1:]) == Tiling(
    ...     columns=32, rows=(2, 7)
    ... )
    True
    """

    rule: ClassVar[str]

    def __str__(self) -> str:
        words = (f"{f.name}={_text(getattr(self, f.name))}" for f in fields(self))
        return " ".join((self.rule, *words))

    @classmethod
    def read(cls, words: Sequence[str]) -> Self:
        """The record of `name=value` words.  Raises: ScheduleError for a word that is none."""
        known = {f.name: f for f in fields(cls)}
        found: dict[str, Value] = {}
        for word in words:
            name, _, text = word.partition("=")
            if name not in known:
                raise ScheduleError(
                    f"'{cls.rule}' decides nothing called '{name}'",
                    hint=f"it decides: {' '.join(known)}",
                )
            found[name] = _read(known[name], text)
        return cls(**found)


def text_of(nests: Iterable[Decision]) -> str:
    """What was decided for the nests of a kernel, as one line."""
    return "; ".join(map(str, nests))


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def _read_sizes(text: str) -> tuple[int, ...]:
    if text[:1] + text[-1:] != "[]":
        raise ValueError
    return tuple(map(int, filter(None, text[1:-1].split(","))))


# Fields of records by their declared type, as text.
_READERS: Final[Mapping[str, Callable[[str], Value]]] = {
    "int": int,
    "bool": {"yes": True, "no": False}.__getitem__,
    "str": str,
    "tuple[int, ...]": _read_sizes,
}


def _read(declared: Field[Any], text: str) -> Value:
    try:
        return _READERS[str(declared.type)](text)
    except (ValueError, KeyError):
        raise ScheduleError(
            f"'{text}' is no value of '{declared.name}', expected {declared.type}"
        ) from None


C = TypeVar("C", bound=Decision)
Made_co = TypeVar("Made_co", covariant=True)


@final
@record
class Choice(Generic[C]):
    """One field of a record: which values it may have, and the best one by the cost model.

    Both may look at the fields chosen before it; those after it have their defaults there.
    """

    name: str
    values: Callable[[C], Sequence[Value]]
    best: Callable[[C], Value]


def plain(name: str, values: Sequence[Value], best: Value) -> Choice[Any]:
    """A choice that no other has a say in."""
    return Choice(name, lambda _: values, lambda _: best)


@final
@record
class ChoiceSpace(Generic[C]):
    """All that may be chosen for one nest: fields in order, each from values that fit those before it."""

    start: C
    choices: tuple[Choice[C], ...] = ()

    def best(self, fixed: Mapping[str, Value] | None = None) -> C:
        """The point the cost model takes; what of `fixed` fits stays as it is."""
        point = self.start
        for choice in self.choices:
            wanted = (fixed or {}).get(choice.name)
            keeps = wanted is not None and wanted in choice.values(point)
            value = wanted if keeps else choice.best(point)
            point = replace(point, **{choice.name: value})
        return point

    def points(self) -> Iterator[C]:
        """Every point; there may be very many."""
        return self._below(self.start, self.choices)

    def _below(self, point: C, choices: Sequence[Choice[C]]) -> Iterator[C]:
        if not choices:
            yield point
            return
        first, *rest = choices
        for value in first.values(point):
            yield from self._below(replace(point, **{first.name: value}), rest)

    def neighbours(self, point: C) -> Iterator[C]:
        """Points that differ in one choice, and in what no longer fits it; the nearest values first."""
        taken = {choice.name: getattr(point, choice.name) for choice in self.choices}
        seen = {point}
        for choice in self.choices:
            values = list(choice.values(point))
            at = values.index(taken[choice.name])
            for value in sorted(values, key=lambda v: abs(values.index(v) - at)):
                near = self.best({**taken, choice.name: value})
                if near not in seen:
                    seen.add(near)
                    yield near

    def sample(self, chance: random.Random) -> C:
        """A point picked by chance, choice by choice."""
        point = self.start
        for choice in self.choices:
            value = chance.choice(list(choice.values(point)))
            point = replace(point, **{choice.name: value})
        return point

    def check(self, point: Decision) -> C:
        """`point`, which is one of this space.  Raises: ScheduleError naming the choice that does not fit."""
        if type(point) is not type(self.start):
            raise ScheduleError(
                f"decisions are of rule '{point.rule}', expected '{self.start.rule}'"
            )
        partial = self.start
        for choice in self.choices:
            value, allowed = getattr(point, choice.name), choice.values(partial)
            if value not in allowed:
                raise ScheduleError(
                    f"'{choice.name}={_text(value)}' does not fit this nest, expected one of "
                    f"{' '.join(map(_text, allowed))}"
                )
            partial = replace(partial, **{choice.name: value})
        return partial


def space_from(start: C, *choices: Choice[C]) -> ChoiceSpace[C]:
    """The space of some choices, in order."""
    return ChoiceSpace(start, choices)


class Site(Protocol[C, Made_co]):
    """A nest, or several, that a rule matched: what may be chosen there, and how it is carried out."""

    def space(self) -> ChoiceSpace[C]:
        """Everything that `apply` can carry out."""
        ...

    def apply(self, chosen: C, grid: Any, /) -> Made_co:
        """Rewrite it as was decided, handing loops of workgroups to the grid.  Raises: ScheduleError."""
        ...


def may(choice: object) -> tuple[bool, ...]:
    """No, and yes where that may be chosen."""
    return (False, True) if choice else (False,)


def powers_around(best: int) -> tuple[int, ...]:
    """`best`, and some that are smaller and larger by powers of two."""
    return tuple(
        sorted({max(1, best >> k) for k in range(4)} | {best << k for k in range(4)})
    )


def ladder(most: int, *also: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, ... up to `most`, with `most` itself and other values that are wanted."""
    steps = {n << k for n in (1, 2, 3) for k in range(max(1, most).bit_length())}
    return tuple(sorted({n for n in steps if n <= most} | {max(1, most), *also}))
