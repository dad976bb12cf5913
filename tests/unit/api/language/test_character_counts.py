from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.api.language.character_counts import CharacterCounts, is_code
from tilewright.api.language.grammars import (
    DEAD,
    Automaton,
    Grammar,
    Nonterminal,
    byte_set,
    literal,
    one_of,
)
from tilewright.api.language.token_trees import TokenTree

PIECES = [b"".join(each) for n in range(5) for each in itertools.product((b"a", b"(b)", b'"', b"(", b"b"), repeat=n)]  # fmt: skip
TREE = TokenTree(PIECES, [])


def _characters() -> tuple[Grammar, Nonterminal]:
    g = Grammar()
    return g, g.rule((one_of(b"a"),), literal(b"(b)"))


@pytest.mark.parametrize(
    "ends", [(0, 0), (0, 2), (1, 3), (2, 2), (3, None), (0, None), (0, 9)]
)
def test_counts_say_what_a_walk_through_the_tokens_says(
    ends: tuple[int, int | None],
) -> None:
    g, character = _characters()
    counts = CharacterCounts(TREE, Automaton(g, character))
    behind = g.rule(literal(b'"b'), literal(b'"'))
    automaton = Automaton(g, g.rule((*g.repeated(*ends, character), behind)))
    rest = Automaton(g, behind)
    rests = np.zeros(counts.tree_of_rests.count, np.bool_)
    for number, text in enumerate(counts.tree_of_rests.pieces):
        rests[number] = rest.follow_all(rest.start, text) != DEAD
    found = counts.allowed(slice(0, len(TREE.order)), 0, ends, rests)
    expected = [
        automaton.follow_all(automaton.start, PIECES[token]) != DEAD for token in TREE.order
    ]
    if ends == (0, 0):  # of which a form has nothing: no character may begin
        assert not found[[PIECES[t][:1] in (b"a", b"(") for t in TREE.order]].any()
    assert found.tolist() == expected


def test_a_branch_knows_how_many_characters_it_is() -> None:
    counts = CharacterCounts(TREE, Automaton(*_characters()))
    branch, found = 0, [counts.whole[0]]
    for byte in b"a(b)a":
        branch = dict(TREE.branches[branch])[byte]
        found.append(counts.whole[branch])
    assert found == [0, 1, -1, -1, 2, 3]


def test_no_tokens_have_no_counts() -> None:
    counts = CharacterCounts(TokenTree([], []), Automaton(*_characters()))
    found = counts.allowed(slice(0, 0), 0, (0, None), np.zeros(0, np.bool_))
    assert found.shape == (0,)


def test_what_can_be_read_in_two_ways_is_not_counted() -> None:
    g = Grammar()
    fine = g.rule((byte_set((0x61, 0x7A)),), literal(b"(b)"))
    longer = g.rule(literal(b"a"), literal(b"ab"))
    endless = g.rule((*literal(b"("), g.any_number(one_of(b"a")), *literal(b")")))
    assert is_code(Automaton(g, fine))
    assert is_code(Automaton(g, endless))
    assert not is_code(Automaton(g, longer))
    assert not is_code(Automaton(g, g.optional(*literal(b"a"))))
    assert not is_code(Automaton(g, g.rule(g.repeated(1, 100, one_of(b"a")))))
