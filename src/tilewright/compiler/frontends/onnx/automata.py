"""Finite automata that match texts, made from the trees of regular expressions.

A text is read once from where a match begins, whatever the expression is: all states that an automaton may be in are
kept as one set, and sets that were met are remembered.  Called by `strings` and `tokenizer`, through `regular_expressions`.

Source: Thompson, "Regular Expression Search Algorithm" (1968).
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final, assert_never, final

from tilewright.base.record import record
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.character_classes import WORD, CharacterClass

_MOST_STATES: Final = 100_000
_MOST_REMEMBERED: Final = 10_000


class Place(IntFlag):
    """What may hold between two characters of a text."""

    BEGIN_TEXT = 1
    END_TEXT = 2
    BEGIN_LINE = 4
    END_LINE = 8
    WORD_BORDER = 16
    NO_WORD_BORDER = 32

    @staticmethod
    def of(text: str, place: int) -> Place:
        """All that holds before the character at a place."""
        before, behind = text[place - 1 : place] if place else "", text[place : place + 1]
        is_border = _is_word(before) != _is_word(behind)
        found = Place.WORD_BORDER if is_border else Place.NO_WORD_BORDER
        if not before:
            found |= Place.BEGIN_TEXT
        if not behind:
            found |= Place.END_TEXT
        if before in ("", "\n"):
            found |= Place.BEGIN_LINE
        if behind in ("", "\n"):
            found |= Place.END_LINE
        return found


def _is_word(letter: str) -> bool:
    return letter != "" and letter in WORD


@final
@record
class Concatenation:
    """One after the other."""

    parts: tuple[Expression, ...]


@final
@record
class Alternation:
    """One of several."""

    parts: tuple[Expression, ...]


@final
@record
class Repetition:
    """So many times; `most` is None where there is no bound."""

    part: Expression
    least: int
    most: int | None


Expression = CharacterClass | Place | Concatenation | Alternation | Repetition


@final
@record
class _Letter:
    letters: CharacterClass
    then: int


@final
@record
class _Where:
    holds: Place
    then: int


@final
@record
class _Fork:
    then: tuple[int, ...]


@final
@record
class _End:
    """The whole expression has matched."""


_State = _Letter | _Where | _Fork | _End
_Ready = tuple[frozenset[int], bool]


class Automaton:
    """What matches an expression.

    Ownership: holds what it remembers of texts, a bounded number of sets.
    Thread safety: any thread may match.
    """

    def __init__(self, expression: Expression) -> None:
        """Raises: UnsupportedError for expressions of too many states."""
        self._states: list[_State] = [_End()]
        self._begin = frozenset((self._add(expression, 0),))
        self._has_places = any(isinstance(state, _Where) for state in self._states)
        self._closures: dict[tuple[frozenset[int], int], _Ready] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    @property
    def may_be_empty(self) -> bool:
        """Whether it may match no character at all, somewhere in some text."""
        return self._closure(self._begin, sum(Place))[1]

    def matches(self, text: str) -> bool:
        """Whether all of a text matches."""
        return self._longest(text, 0) == len(text)

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        """The first match from a place on, the longest where several begin there: where it begins and ends."""
        for first in range(begin, len(text) + 1):
            end = self._longest(text, first)
            if end is not None:
                return first, end
        return None

    def _longest(self, text: str, begin: int) -> int | None:
        found, states = None, self._begin
        for place in range(begin, len(text) + 1):
            here = int(Place.of(text, place)) if self._has_places else 0
            ready, is_end = self._closure(states, here)
            if is_end:
                found = place
            if not ready or place == len(text):
                return found
            states = self._step(ready, text[place])
        return found

    def _closure(self, states: frozenset[int], here: int) -> _Ready:
        """The states that read a character next, and whether the expression has matched."""
        key = (states, here)
        if key not in self._closures:
            if len(self._closures) >= _MOST_REMEMBERED:
                self._closures.clear()
            self._closures[key] = self._reached(states, here)
        return self._closures[key]

    def _reached(self, states: frozenset[int], here: int) -> _Ready:
        seen, ready, is_end = set(states), set[int](), False
        stack = list(states)
        while stack:
            number = stack.pop()
            match self._states[number]:
                case _Letter():
                    ready.add(number)
                    continue
                case _Where(holds, then):
                    ways = (then,) if holds & here else ()
                case _Fork(ways):
                    pass
                case _End():
                    is_end, ways = True, ()
            stack += [way for way in ways if way not in seen]
            seen.update(ways)
        return frozenset(ready), is_end

    def _step(self, ready: frozenset[int], letter: str) -> frozenset[int]:
        key = (ready, letter)
        if key not in self._steps:
            if len(self._steps) >= _MOST_REMEMBERED:
                self._steps.clear()
            reading = (self._states[number] for number in ready)
            self._steps[key] = frozenset(
                state.then
                for state in reading
                if isinstance(state, _Letter) and letter in state.letters
            )
        return self._steps[key]

    # --- from expressions to states

    def _new(self, state: _State) -> int:
        if len(self._states) >= _MOST_STATES:
            raise UnsupportedError("a regular expression is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _add(self, expression: Expression, then: int) -> int:
        """The state at which an expression begins that goes on at `then`."""
        match expression:
            case CharacterClass():
                return self._new(_Letter(expression, then))
            case Place():
                return self._new(_Where(expression, then))
            case Concatenation(parts):
                for part in reversed(parts):
                    then = self._add(part, then)
                return then
            case Alternation(parts):
                return self._new(_Fork(tuple(self._add(part, then) for part in parts)))
            case Repetition():
                return self._repeat(expression, then)
            case _:
                assert_never(expression)

    def _repeat(self, repetition: Repetition, then: int) -> int:
        part, entry = repetition.part, then
        if repetition.most is None:
            entry = self._new(_Fork((then,)))
            self._states[entry] = _Fork((self._add(part, entry), then))
        else:
            for _ in range(repetition.most - repetition.least):
                entry = self._new(_Fork((self._add(part, entry), then)))
        for _ in range(repetition.least):
            entry = self._add(part, entry)
        return entry
