"""How many characters each token has, for strings whose length is limited: worked out once for a vocabulary.

Where a form is at some characters, repeated a counted number of times, and then at something that begins with none of them (the
quote of a string), whether a token may come next is said by a few numbers: how many characters it begins, and, where it leaves
them, behind how many and with which rest.  Called by `constraints`.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
import numpy.typing as npt

from tilewright.api.language.grammars import DEAD, Automaton
from tilewright.api.language.token_trees import TokenTree

Counts = npt.NDArray[np.int64]

_NEVER: Final = 1 << 40
"""More characters than any text has."""


@final
class CharacterCounts:
    """What tokens are in characters of one kind.

    Args:
        tree: the tokens.
        character: follows a single character; where it may end nothing follows.
    """

    def __init__(self, tree: TokenTree, character: Automaton) -> None:
        self.begun: Final[Counts] = np.full(len(tree.order), _NEVER, np.int64)
        """Of each token, in the tree's order: how many characters it begins; `_NEVER` where it has other bytes."""
        self.whole: Final[list[int]] = [-1] * len(tree.first)
        """Of each branch: how many characters it is; -1 where it ends in the middle of one, or has others."""
        found: list[tuple[int, int, bytes]] = []
        waiting = [(0, 0, character.start, 0)]
        while waiting:
            branch, depth, state, count = waiting.pop()
            at_start = state == character.start
            if at_start:
                self.whole[branch] = count
            self.begun[tree.first[branch] : tree.own[branch]] = count + (not at_start)
            for byte, longer in tree.branches[branch]:
                after = character.follow(state, byte)
                if after == DEAD:
                    if at_start:  # else no text has such bytes
                        tokens = range(tree.first[longer], tree.last[longer])
                        found += [
                            (t, count, tree.pieces[tree.order[t]][depth:]) for t in tokens
                        ]
                elif character.may_end(after):
                    waiting.append((longer, depth + 1, character.start, count + 1))
                else:
                    waiting.append((longer, depth + 1, after, count))
        found.sort()
        numbers: dict[bytes, int] = {}
        self.leaving: Final[Counts] = np.array([t for t, _, _ in found], np.int64)
        """Tokens, by their places in the tree's order, that go on with something else behind some characters."""
        self.before: Final[Counts] = np.array([count for _, count, _ in found], np.int64)
        """Of each of these: how many characters stand before."""
        self.rest: Final[Counts] = np.array(
            [numbers.setdefault(text, len(numbers)) for _, _, text in found], np.int64
        )
        """Of each of these: the number of what it goes on with."""
        self.tree_of_rests: Final[TokenTree] = TokenTree(numbers, ())

    def allowed(
        self,
        tokens: slice,
        passed: int,
        ends: tuple[int, int | None],
        rests: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.bool_]:
        """Which of some tokens may come next, `[tokens]`.

        Args:
            tokens: a range of the tree's order.
            passed: so many of their characters were read.
            ends: how many characters must follow, and how many may: None is any number.
            rests: `[rests]`: which of them may follow behind the characters.
        """
        least, most = ends
        most = _NEVER - 1 if most is None else most
        found = self.begun[tokens] - passed <= most
        begin, end = np.searchsorted(self.leaving, (tokens.start, tokens.stop))
        before = self.before[begin:end] - passed
        fine = (before >= least) & (before <= most) & rests[self.rest[begin:end]]
        found[self.leaving[begin:end] - tokens.start] = fine
        return found


def is_code(character: Automaton) -> bool:
    """Whether nothing can follow a whole character, which are few bytes: so that texts are read in one way."""
    states, waiting = {character.start}, [character.start]
    if character.may_end(character.start):
        return False
    while waiting:
        state = waiting.pop()
        bytes_ = (b for b in range(256) if character.first_bytes(state) >> b & 1)
        for after in {character.follow(state, byte) for byte in bytes_} - states:
            if character.may_end(after) and not character.must_end(after):
                return False
            states.add(after)
            waiting.append(after)
        if len(states) > 64:
            return False
    return True
