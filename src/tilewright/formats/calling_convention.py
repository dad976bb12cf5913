"""Calling-convention strings of the VM: `0rrIiiCID_r` as data.

`0`, the argument letters, `_`, the result letters; `i` `I` `f` `F` are 32- and 64-bit integers
and floats, `r` a reference, `v` nothing, `C…D` a list whose entries have the letters inside.
Also says which registers a function's arguments arrive in.  Called by verifiers, emitters and
the VM.

Source: IREE `vm/module.h`, calling convention version 0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record

BANKS: Final[Mapping[str, str]] = {
    "i": "i32",
    "I": "i64",
    "f": "f32",
    "F": "f64",
    "r": "ref",
}
LETTERS: Final[Mapping[str, str]] = {bank: letter for letter, bank in BANKS.items()}
WIDE_BANKS: Final = frozenset({"i64", "f64"})
"""Banks whose values take an even-numbered pair of word registers."""

_KEPT: Final = 4096
_KEPT_LENGTH: Final = 256
"""Conventions that are remembered; files may bring any number of any length."""


@final
@record
class CallingConvention:
    """A signature; each argument is a bank, or a tuple of banks for a list of such entries."""

    arguments: tuple[str | tuple[str, ...], ...]
    results: tuple[str, ...]

    @property
    def is_variadic(self) -> bool:
        return any(isinstance(argument, tuple) for argument in self.arguments)

    def __str__(self) -> str:
        arguments = "".join(
            LETTERS[item]
            if isinstance(item, str)
            else f"C{''.join(LETTERS[bank] for bank in item)}D"
            for item in self.arguments
        )
        results = "".join(LETTERS[bank] for bank in self.results)
        return f"0{arguments or 'v'}_{results or 'v'}"

    def argument_registers(self) -> Iterator[tuple[str, int]]:
        """(bank, index) of the register each plain argument arrives in."""
        words = refs = 0
        for bank in self.arguments:
            assert isinstance(bank, str), "functions with code have no list arguments"
            if bank == "ref":
                yield bank, refs
                refs += 1
            else:
                width = 2 if bank in WIDE_BANKS else 1
                words += words % width
                yield bank, words
                words += width


def parse_calling_convention(text: str) -> CallingConvention:
    """Read a calling-convention string; the empty string means no arguments, no results.

    Raises:
        ArchiveError: the string is not one of version 0.
    """
    return _parse_kept(text) if len(text) <= _KEPT_LENGTH else _parse(text)


def _parse(text: str) -> CallingConvention:
    if not text:
        return CallingConvention((), ())
    arguments, underscore, results = text[1:].partition("_")
    if text[0] != "0" or not underscore:
        raise ArchiveError(
            f"calling convention '{text}', expected '0<arguments>_<results>'"
        )
    found = tuple(_items(arguments, text))
    returned = tuple(_items(results, text))
    if any(isinstance(item, tuple) for item in returned):
        raise ArchiveError(f"calling convention '{text}' returns a list")
    return CallingConvention(
        found, tuple(item for item in returned if isinstance(item, str))
    )


_parse_kept: Final = functools.lru_cache(_KEPT)(_parse)


def _items(letters: str, text: str) -> Iterator[str | tuple[str, ...]]:
    position = 0
    while position < len(letters):
        letter = letters[position]
        position += 1
        if letter == "v":
            continue
        if letter != "C":
            yield _bank(letter, text)
            continue
        end = letters.find("D", position)
        if end <= position:
            raise ArchiveError(f"calling convention '{text}' has a list without contents")
        yield tuple(_bank(inner, text) for inner in letters[position:end])
        position = end + 1


def _bank(letter: str, text: str) -> str:
    bank = BANKS.get(letter)
    if bank is None:
        raise ArchiveError(f"calling convention '{text}' has the unknown letter '{letter}'")
    return bank
