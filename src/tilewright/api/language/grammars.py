"""Grammars over bytes, and the automaton that follows a text through one of them.

A grammar is rules; each has alternatives, each of these a sequence of symbols: a set of bytes, or a rule.  The automaton keeps all
ways to read what came so far as stacks of symbols that may follow.  Stacks and sets of stacks have numbers, and what follows
a set by a byte is worked out once, so that most steps are a look into a table.  Rules must not begin with themselves.

Made by `json_schemas`; called by `constraints`.

Source: Aho and Ullman, The Theory of Parsing, Translation, and Compiling, 1972, section 2.5 (pushdown automata); Thompson, Regular
Expression Search Algorithm, 1968 (all ways at once).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

DEAD: Final = -1
"""The state behind a byte that cannot stand where it does."""
_END: Final = 0
"""The stack of nothing that must follow."""


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its number in a grammar."""

    index: int


Symbol = int | Rule
"""A set of bytes, bit `b` of which says whether byte `b` is in it, or a rule."""
Sequence = tuple[Symbol, ...]


def byte_set(*ranges: tuple[int, int]) -> int:
    """The bytes from each first to each last one."""
    found = 0
    for first, last in ranges:
        found |= (1 << (last + 1)) - (1 << first)
    return found


def one_of(text: bytes) -> int:
    """Any byte of a text."""
    return byte_set(*((byte, byte) for byte in text))


def literal(text: bytes) -> Sequence:
    """The bytes of a text, one after the other."""
    return tuple(1 << byte for byte in text)


@final
class Grammar:
    """Rules, written one after the other."""

    def __init__(self) -> None:
        self._rules: list[tuple[Sequence, ...]] = []

    def rule(self, *alternatives: Sequence) -> Rule:
        """A rule that is one of some sequences; of the empty one, too."""
        self._rules.append(alternatives)
        return Rule(len(self._rules) - 1)

    def reserve(self) -> Rule:
        """A rule that `define` says later, for it is part of itself."""
        return self.rule()

    def define(self, rule: Rule, *alternatives: Sequence) -> None:
        """Say what a reserved rule is."""
        self._rules[rule.index] = alternatives

    def alternatives(self, rule: Rule) -> tuple[Sequence, ...]:
        """What a rule may be."""
        return self._rules[rule.index]

    @property
    def size(self) -> int:
        """How many rules there are."""
        return len(self._rules)

    def optional(self, *symbols: Symbol) -> Rule:
        """A sequence, or nothing."""
        return self.rule((), symbols)

    def any_number(self, *symbols: Symbol) -> Rule:
        """A sequence as often as one likes."""
        found = self.reserve()
        self.define(found, (), (*symbols, found))
        return found

    def repeated(self, least: int, most: int | None, *symbols: Symbol) -> Sequence:
        """A sequence from `least` to `most` times; None: as often as one likes."""
        always = symbols * least
        if most is None:
            return (*always, self.any_number(*symbols))
        rest: Rule | None = None
        for _ in range(most - least):
            rest = self.optional(*symbols, *(() if rest is None else (rest,)))
        return always if rest is None else (*always, rest)


@final
class Automaton:
    """Follows texts through a grammar; its states are numbers.  Not thread-safe.

    Args:
        grammar: all rules.
        root: what a whole text is.
    """

    def __init__(self, grammar: Grammar, root: Rule) -> None:
        self._grammar: Grammar = grammar
        self._stacks: list[tuple[Symbol, int]] = [(0, _END)]  # the first has no symbol
        self._stack_numbers: dict[tuple[Symbol, int], int] = {}
        self._read: dict[int, frozenset[int]] = {}
        self._states: list[frozenset[int]] = []
        self._state_numbers: dict[frozenset[int], int] = {}
        self._followers: list[dict[int, int]] = []
        self._loops: dict[int, int] = {}
        self.start: Final[int] = self._state(self._ready(self._pushed((root,), _END)))

    def follow(self, state: int, byte: int) -> int:
        """The state behind a byte; `DEAD` where it cannot stand there."""
        known = self._followers[state]
        found = known.get(byte)
        if found is None:
            after: set[int] = set()
            for stack in self._states[state]:
                symbol, rest = self._stacks[stack]
                if isinstance(symbol, int) and symbol >> byte & 1:
                    after |= self._ready(rest)
            found = known[byte] = self._state(frozenset(after)) if after else DEAD
        return found

    def follow_all(self, state: int, text: Iterable[int]) -> int:
        """The state behind some bytes."""
        for byte in text:
            if state == DEAD:
                break
            state = self.follow(state, byte)
        return state

    def may_end(self, state: int) -> bool:
        """Whether what was read is a whole text."""
        return _END in self._states[state]

    def must_end(self, state: int) -> bool:
        """Whether nothing can follow."""
        return self._states[state] == frozenset((_END,))

    def loops(self, state: int) -> int:
        """The set of bytes behind which a state is itself: those of the middle of a string, say."""
        found = self._loops.get(state)
        if found is None:
            found = sum(1 << b for b in range(256) if self.follow(state, b) == state)
            self._loops[state] = found
        return found

    @property
    def size(self) -> int:
        """How many stacks and states were met so far."""
        return len(self._stacks) + len(self._states)

    # --- numbers for stacks and sets of them

    def _pushed(self, symbols: Sequence, stack: int) -> int:
        for symbol in reversed(symbols):
            key = (symbol, stack)
            found = self._stack_numbers.get(key)
            if found is None:
                found = self._stack_numbers[key] = len(self._stacks)
                self._stacks.append(key)
            stack = found
        return stack

    def _ready(self, stack: int) -> frozenset[int]:
        """What a stack may be where no rule is on top: a set of bytes is, or nothing is left."""
        found = self._read.get(stack)
        if found is not None:
            return found
        ready: set[int] = set()
        waiting, seen = [stack], {stack}
        while waiting:
            top = waiting.pop()
            symbol, rest = self._stacks[top]
            if top == _END or isinstance(symbol, int):
                ready.add(top)
                continue
            others = {
                self._pushed(each, rest) for each in self._grammar.alternatives(symbol)
            }
            waiting += others - seen
            seen |= others
        found = self._read[stack] = frozenset(ready)
        return found

    def _state(self, stacks: frozenset[int]) -> int:
        found = self._state_numbers.get(stacks)
        if found is None:
            found = self._state_numbers[stacks] = len(self._states)
            self._states.append(stacks)
            self._followers.append({})
        return found
