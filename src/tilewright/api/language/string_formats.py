"""Grammars of the formats of strings that are kept to.  Called by `json_schemas`.

Source: RFC 3339, section 5.6; RFC 9562, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tilewright.api.language.grammars import Grammar, Nonterminal, byte_set, literal, one_of
from tilewright.api.language.number_ranges import DIGIT

HEX_DIGIT: Final = byte_set((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))


def _date(g: Grammar) -> Nonterminal:
    """The days of the calendar from year 0000 to 9999; 29 February is left out."""
    days = g.rule(
        (*literal(b"0"), byte_set((0x31, 0x39))), (one_of(b"1"), DIGIT), (one_of(b"2"), byte_set((0x30, 0x38)))
    )  # fmt: skip
    month = g.rule(
        (*literal(b"0"), byte_set((0x31, 0x39))), (*literal(b"1"), one_of(b"012"))
    )
    not_february = g.rule(
        (*literal(b"0"), one_of(b"13456789")), (*literal(b"1"), one_of(b"012"))
    )
    long_month = g.rule((*literal(b"0"), one_of(b"13578")), (*literal(b"1"), one_of(b"02")))
    dash, thirty = literal(b"-"), g.rule(literal(b"29"), literal(b"30"))
    day = g.rule(
        (month, *dash, days), (not_february, *dash, thirty), (long_month, *literal(b"-31"))
    )
    return g.rule((DIGIT, DIGIT, DIGIT, DIGIT, *dash, day))


def _time(g: Grammar) -> Nonterminal:
    hour = g.rule((one_of(b"01"), DIGIT), (*literal(b"2"), one_of(b"0123")))
    sixty = (byte_set((0x30, 0x35)), DIGIT)
    parts = g.optional(*literal(b"."), *g.repeated(1, 9, DIGIT))
    away = g.rule(literal(b"Z"), (one_of(b"+-"), hour, *literal(b":"), *sixty))
    colon = literal(b":")
    return g.rule((hour, *colon, *sixty, *colon, *sixty, parts, away))


def _date_time(g: Grammar) -> Nonterminal:
    return g.rule((_date(g), *literal(b"T"), _time(g)))


def _uuid(g: Grammar) -> Nonterminal:
    groups = [(HEX_DIGIT,) * count for count in (8, 4, 4, 4, 12)]
    dash = literal(b"-")
    return g.rule(sum(((*dash, *each) for each in groups[1:]), groups[0]))


FORMATS: Final[Mapping[str, Callable[[Grammar], Nonterminal]]] = {
    "date": _date, "time": _time, "date-time": _date_time, "uuid": _uuid,
}  # fmt: skip
"""Other formats say nothing that is kept to, as the standard has it."""
