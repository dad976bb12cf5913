"""Grammars of decimal numbers between bounds.  Called by `json_schemas`."""

from __future__ import annotations

from typing import Final

from tilewright.api.language.grammars import (
    Grammar,
    Nonterminal,
    Symbols,
    byte_set,
    literal,
    one_of,
)

DIGIT: Final = byte_set((0x30, 0x39))
_FIRST_DIGIT: Final = byte_set((0x31, 0x39))
MOST_DIGITS: Final = 16
"""Before and behind the point: what a number of 64 bits tells apart.  A model that has lost its way would write digits for ever."""
LIMIT: Final = 10**MOST_DIGITS - 1


def natural(grammar: Grammar) -> Nonterminal:
    """0, 1, 2 and so on."""
    more = grammar.repeated(0, MOST_DIGITS - 1, DIGIT)
    return grammar.rule(literal(b"0"), (_FIRST_DIGIT, *more))


def fraction(grammar: Grammar) -> Nonterminal:
    """The point and digits behind it."""
    return grammar.rule((*literal(b"."), *grammar.repeated(1, MOST_DIGITS, DIGIT)))


def number(grammar: Grammar) -> Nonterminal:
    """Any number, as JSON writes it."""
    exponent = grammar.optional(
        one_of(b"eE"), grammar.optional(one_of(b"+-")), *grammar.repeated(1, 2, DIGIT)
    )
    whole = (grammar.optional(*literal(b"-")), natural(grammar))
    return grammar.rule((*whole, grammar.optional(fraction(grammar)), exponent))


def integers(grammar: Grammar, least: int, most: int) -> Nonterminal:
    """The whole numbers from `least` to `most`; those of more than 16 digits are left out."""
    least, most = max(least, -LIMIT), min(most, LIMIT)
    found: list[Symbols] = []
    if least < 0:
        negative = _naturals(max(1, -most), -least)
        found += [(*literal(b"-"), *each) for each in negative]
    if most >= 0:
        found += _naturals(max(0, least), most)
    return grammar.rule(*found)


def numbers(
    grammar: Grammar, least: int, most: int, *, above: bool, below: bool
) -> Nonterminal:
    """The numbers from `least` to `most`.

    Args:
        grammar: gets the rules.
        least: the least one.
        most: the greatest one.
        above: without the least one itself.
        below: without the greatest one itself.
    """
    least, most = max(least, -LIMIT), min(most, LIMIT)
    found: list[Symbols] = []
    if least < 0:
        from_, to = max(0, -most), -least
        is_open = below and most <= 0
        mirrored = _from_to(grammar, from_, to, above=is_open or most >= 0, below=above)
        found += [(*literal(b"-"), *each) for each in mirrored]
    if most >= 0:
        is_open = above and least >= 0
        found += _from_to(grammar, max(0, least), most, above=is_open, below=below)
    return grammar.rule(*found)


def _from_to(
    grammar: Grammar, least: int, most: int, *, above: bool, below: bool
) -> list[Symbols]:
    """Numbers without a sign."""
    if least > most or (least == most and (above or below)):
        return []
    end = () if below else (literal(str(most).encode()),)
    if least == most:
        return list(end)
    behind = fraction(grammar)
    first = literal(str(least).encode())
    found: list[Symbols] = (
        [(*first, _some(grammar))] if above else [(*first, grammar.optional(behind))]
    )
    found += [(*each, grammar.optional(behind)) for each in _naturals(least + 1, most - 1)]
    return [*found, *end]


def _some(grammar: Grammar) -> Nonterminal:
    """The point and digits behind it that are not all 0."""
    zeros = grammar.repeated(0, MOST_DIGITS // 2, *literal(b"0"))
    more = grammar.repeated(0, MOST_DIGITS // 2, DIGIT)
    return grammar.rule((*literal(b"."), *zeros, _FIRST_DIGIT, *more))


def _naturals(least: int, most: int) -> list[Symbols]:
    """The whole numbers from `least` to `most`, both 0 or more, by their lengths."""
    found: list[Symbols] = []
    for length in range(len(str(least)), len(str(most)) + 1):
        first = max(least, 10 ** (length - 1) if length > 1 else 0)
        last = min(most, 10**length - 1)
        if first <= last:
            found += _digits(str(first).encode(), str(last).encode())
    return found


def _digits(first: bytes, last: bytes) -> list[Symbols]:
    """Texts of digits of one length, from one to another in the order of numbers."""
    if not first:
        return [()]
    rest = len(first) - 1
    if first[1:] == b"0" * rest and last[1:] == b"9" * rest:
        return [(byte_set((first[0], last[0])), *(DIGIT,) * rest)]
    if first[0] == last[0]:
        return [(1 << first[0], *each) for each in _digits(first[1:], last[1:])]
    low = [(1 << first[0], *each) for each in _digits(first[1:], b"9" * rest)]
    high = [(1 << last[0], *each) for each in _digits(b"0" * rest, last[1:])]
    if last[0] - first[0] < 2:
        return [*low, *high]
    between = byte_set((first[0] + 1, last[0] - 1))
    return [*low, (between, *(DIGIT,) * rest), *high]
