"""Which tokens may come next, where a text has a form: those whose bytes a grammar can follow.

The vocabulary is a tree of bytes.  A walk through it follows the grammar and leaves a branch with the first byte that cannot stand
there; where a state stays itself with every byte of a branch, all of the branch may follow at once.  What was found for a state is
kept.  Called by `language_model`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, final

import numpy as np
import numpy.typing as npt

from tilewright.api.language.grammars import DEAD, Automaton, Grammar, Rule
from tilewright.base.errors import ModelError

Allowed = npt.NDArray[np.bool_]

_MOST_KEPT: Final = 128
"""Answers that are kept: each has one byte for every token."""
_MOST_SIZE: Final = 1 << 18
"""Stacks and states of an automaton, which begins anew behind that."""


@final
class TokenTree:
    """The bytes of all tokens as a tree; a branch is a range of tokens in the order of their bytes.

    Args:
        pieces: the bytes of each token; tokens without any are none of a text.
        ends: tokens that end a text.
    """

    def __init__(self, pieces: Iterable[bytes], ends: Iterable[int]) -> None:
        texts = list(pieces)
        order = sorted((t for t in range(len(texts)) if texts[t]), key=texts.__getitem__)
        self.count: Final[int] = len(texts)
        self.order: Final[npt.NDArray[np.int64]] = np.array(order, np.int64)
        self.ends: Final[list[int]] = sorted(ends)
        self._texts: Final[list[bytes]] = [texts[token] for token in order]
        self.pieces: Final[list[bytes]] = texts
        # Of each branch: its first token and the one behind the last, those that end with it, the branches of
        # longer ones by their next byte, and the set of bytes in them.
        self.first: Final[list[int]] = []
        self.last: Final[list[int]] = []
        self.own: Final[list[int]] = []
        self.branches: Final[list[list[tuple[int, int]]]] = []
        self.below: Final[list[int]] = []
        self._grow()

    def _grow(self) -> None:
        path = [self._branch(0)]
        before = b""
        for place, text in enumerate(self._texts):
            pairs = zip(before, text, strict=False)
            same = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
            )
            self._close(path, before, same, place)
            for byte in text[same:]:
                made = self._branch(place)
                self.branches[path[-1]].append((byte, made))
                path.append(made)
            self.own[path[-1]] = place + 1
            before = text
        self._close(path, before, -1, len(self._texts))

    def _branch(self, place: int) -> int:
        self.first.append(place)
        self.last.append(place)
        self.own.append(place)
        self.branches.append([])
        self.below.append(0)
        return len(self.first) - 1

    def _close(self, path: list[int], text: bytes, length: int, place: int) -> None:
        """End the branches of a text that are longer than `length`."""
        while len(path) - 1 > length:
            ended = path.pop()
            self.last[ended] = place
            if path:
                self.below[path[-1]] |= self.below[ended] | 1 << text[len(path) - 1]


@final
class TextForm:
    """A form of texts over the tokens of a model, and what was worked out of it so far.  Not thread-safe.

    Args:
        tree: the tokens.
        grammar: the form.
        root: what a whole text is.
    """

    def __init__(self, tree: TokenTree, grammar: Grammar, root: Rule) -> None:
        self.tree: Final[TokenTree] = tree
        self._grammar: Final[Grammar] = grammar
        self._root: Final[Rule] = root
        self.automaton: Automaton = Automaton(grammar, root)
        self._kept: dict[int, Allowed] = {}

    def trim(self) -> None:
        """Begin with an automaton anew where this one has become large; its states are others."""
        if self.automaton.size > _MOST_SIZE:
            self.automaton = Automaton(self._grammar, self._root)
            self._kept.clear()

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
        tree, automaton = self.tree, self.automaton
        places = np.zeros(len(tree.order), np.bool_)
        waiting = [(0, start)]
        while waiting:
            branch, state = waiting.pop()
            below = tree.below[branch]
            if not below or not below & ~automaton.loops(state):
                places[tree.first[branch] : tree.last[branch]] = True
                continue
            places[tree.first[branch] : tree.own[branch]] = True
            for byte, longer in tree.branches[branch]:
                after = automaton.follow(state, byte)
                if after != DEAD:
                    waiting.append((longer, after))
        allowed = np.zeros(tree.count, np.bool_)
        allowed[tree.order[places]] = True
        if automaton.may_end(start):
            allowed[tree.ends] = True
        return allowed


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
