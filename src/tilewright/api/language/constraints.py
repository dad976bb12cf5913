"""Which tokens may come next, where a text has a form: those whose bytes a grammar can follow.

The vocabulary is a tree of bytes.  A walk through it follows the grammar and leaves a branch with the first byte that cannot stand
there; where a state stays itself with every byte of a branch, all of the branch may follow at once.  What was found for a state is
kept.  Called by `language_model`.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
import numpy.typing as npt

from tilewright.api.language.character_counts import CharacterCounts, is_code
from tilewright.api.language.grammars import (
    DEAD,
    Automaton,
    Grammar,
    Nodes,
    Nonterminal,
    Repeated,
    Shape,
    Symbol,
)
from tilewright.api.language.token_trees import TokenTree
from tilewright.base.errors import ModelError

Allowed = npt.NDArray[np.bool_]

_MOST_KEPT: Final = 128
"""Answers that are kept: each has one byte for every token."""
_FEWEST_FIRST: Final = 64
"""Bytes that characters begin with where counting them is worth while: most tokens are made of them."""
_MOST_SIZE: Final = 1 << 18
"""Stacks and states of an automaton, which begins anew behind that."""


@final
class TextForm:
    """A form of texts over the tokens of a model, and what was worked out of it so far.  Not thread-safe.

    Args:
        tree: the tokens.
        grammar: the form.
        root: what a whole text is.
        known: how many characters the tokens have, by what a character is: for all forms over one vocabulary.
    """

    def __init__(
        self,
        tree: TokenTree,
        grammar: Grammar,
        root: Nonterminal,
        known: dict[Shape, CharacterCounts | None] | None = None,
    ) -> None:
        self.tree: Final[TokenTree] = tree
        self._grammar: Final[Grammar] = grammar
        self._root: Final[Nonterminal] = root
        self.automaton: Automaton = Automaton(grammar, root)
        self._kept: dict[int, Allowed] = {}
        self._known: dict[Shape, CharacterCounts | None] = {} if known is None else known
        self._counts: dict[Nonterminal, CharacterCounts | None] = {}
        self._counting: dict[int, bool] = {}
        self._rests: dict[tuple[Nonterminal, Nodes], Allowed] = {}

    def trim(self) -> None:
        """Begin with an automaton anew where this one has become large; its states are others."""
        if self.automaton.size > _MOST_SIZE:
            self.automaton = Automaton(self._grammar, self._root)
            self._kept.clear()
            self._rests.clear()
            self._counting.clear()

    def allowed(self, state: int) -> Allowed:
        """Which tokens may follow a state, `[vocabulary]`: those that end a text where it is whole."""
        found = self._kept.pop(state, None)
        if found is None:
            found = self._worked_out(state)
        self._kept[state] = found  # the last one is that of now
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    def _worked_out(self, start: int) -> Allowed:
        tree = self.tree
        allowed = np.zeros(tree.count, np.bool_)
        allowed[tree.order[self._places(tree, start)]] = True
        if self.automaton.may_end(start):
            allowed[tree.ends] = True
        return allowed

    def _places(self, tree: TokenTree, start: int) -> Allowed:
        """Which tokens may follow a state, in the tree's order."""
        automaton = self.automaton
        places = np.zeros(len(tree.order), np.bool_)
        waiting = [(0, start)]
        while waiting:
            branch, state = waiting.pop()
            if tree is self.tree and self._has_counts(state):
                state = self._count(branch, state, places)
                if state == DEAD:
                    continue
            below, first = tree.below[branch], automaton.first_bytes(state)
            if not below & ~first and not (below and below & ~automaton.loops(state)):
                places[tree.first[branch] : tree.last[branch]] = True
                continue
            places[tree.first[branch] : tree.own[branch]] = True
            waiting += [
                (longer, automaton.follow(state, byte))
                for byte, longer in tree.branches[branch]
                if first >> byte & 1
            ]
        return places

    def _count(self, branch: int, state: int, places: Allowed) -> int:
        """Mark what may follow by counts of characters; what is left of the state, `DEAD` for nothing."""
        ways = self.automaton.ways(state)
        left = {number for number, _, _ in ways}
        tokens = slice(self.tree.first[branch], self.tree.last[branch])
        for number, symbol, behind in ways:
            counts = self._counts_of(symbol, behind)
            if counts is None or counts.whole[branch] < 0:
                continue
            assert isinstance(symbol, Repeated)
            rests = self._allowed_rests(counts, symbol.rule, behind)
            ends = (symbol.least, symbol.most)
            places[tokens] |= counts.allowed(tokens, counts.whole[branch], ends, rests)
            left.discard(number)
        if len(left) == len(ways):
            return state
        return self.automaton.state_at(frozenset(left)) if left else DEAD

    def _has_counts(self, state: int) -> bool:
        """Whether a state is at characters that are counted."""
        found = self._counting.get(state)
        if found is None:
            ways = self.automaton.ways(state)
            found = any(self._counts_of(symbol, behind) for _, symbol, behind in ways)
            self._counting[state] = found
        return found

    def _counts_of(self, symbol: Symbol, behind: Nodes) -> CharacterCounts | None:
        """How many characters tokens have, where it is told at once what a character is and what is none."""
        if not isinstance(symbol, Repeated):
            return None
        rule, automaton = symbol.rule, self.automaton
        if rule not in self._counts:
            self._counts[rule] = self._new_counts(rule)
        after = automaton.first_bytes(automaton.state_at(behind))
        if after & automaton.first_bytes(automaton.start_of(rule)):
            return None
        return self._counts[rule]

    def _new_counts(self, rule: Nonterminal) -> CharacterCounts | None:
        automaton = self.automaton
        if automaton.first_bytes(automaton.start_of(rule)).bit_count() < _FEWEST_FIRST:
            return None
        shape = self._grammar.shape(rule)
        if shape is None:
            return None
        if shape not in self._known:
            character = Automaton(self._grammar, rule)
            fine = is_code(character)
            self._known[shape] = CharacterCounts(self.tree, character) if fine else None
        return self._known[shape]

    def _allowed_rests(
        self, counts: CharacterCounts, rule: Nonterminal, behind: Nodes
    ) -> Allowed:
        """Which texts behind characters may stand there."""
        found = self._rests.get((rule, behind))
        if found is None:
            tree = counts.tree_of_rests
            found = np.zeros(tree.count, np.bool_)
            places = self._places(tree, self.automaton.state_at(behind))
            found[tree.order[places]] = True
            if len(self._rests) >= _MOST_KEPT:
                self._rests.clear()
            self._rests[rule, behind] = found
        return found


@final
class Constraint:
    """One text that has a form: which tokens may come next.  Not thread-safe."""

    def __init__(self, form: TextForm) -> None:
        self._form: Final[TextForm] = form
        self._automaton: Automaton = form.automaton
        self._state: int = self._automaton.start
        self._read: bytearray = bytearray()

    @property
    def is_complete(self) -> bool:
        """Whether the text is whole and nothing can follow."""
        return self._automaton.must_end(self._state)

    def allowed(self) -> Allowed:
        """Which tokens may come next, `[vocabulary]`.

        Raises: ModelError where none can: of a vocabulary that has no tokens of single bytes.
        """
        self._form.trim()
        if self._automaton is not self._form.automaton:
            self._automaton = self._form.automaton
            self._state = self._automaton.follow_all(self._automaton.start, self._read)
        found = self._form.allowed(self._state)
        if not found.any():
            read = bytes(self._read[-20:]).decode("utf-8", "replace")
            raise ModelError(
                f"no token goes on behind {read!r} in the form that was asked for"
            )
        return found

    def add(self, token: int) -> None:
        """Go on behind a token that was allowed."""
        piece = self._form.tree.pieces[token]
        self._read += piece
        self._state = self._automaton.follow_all(self._state, piece)
