from __future__ import annotations

import pytest

from tilewright.api.language import grammars
from tilewright.api.language.grammars import (
    DEAD,
    Automaton,
    Beginnings,
    Grammar,
    Nonterminal,
    byte_set,
    drop_dead_ends,
    literal,
    one_of,
)
from tilewright.base.errors import UserError


def _is_of(automaton: Automaton, text: bytes) -> bool:
    state = automaton.follow_all(automaton.start, text)
    return state != DEAD and automaton.may_end(state)


def test_a_rule_may_be_part_of_itself() -> None:
    g = Grammar()
    nested = g.reserve()
    g.define(nested, (), (*literal(b"("), nested, *literal(b")")))
    automaton = Automaton(g, nested)
    assert [_is_of(automaton, text) for text in (b"", b"()", b"((()))", b"(()", b"())")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert automaton.follow_all(automaton.start, b"())") == DEAD


def test_a_sequence_is_repeated_as_often_as_it_may() -> None:
    for least, most in ((0, 0), (0, 3), (2, 2), (1, 4), (2, None)):
        g = Grammar()
        automaton = Automaton(g, g.rule(g.repeated(least, most, *literal(b"ab"))))
        for count in range(7):
            expected = least <= count and (most is None or count <= most)
            assert _is_of(automaton, b"ab" * count) is expected, (least, most, count)
        assert not _is_of(automaton, b"aba")


def test_all_ways_to_read_a_text_are_kept() -> None:
    g = Grammar()
    word = g.rule(literal(b"in"), literal(b"int"), literal(b"integer"), (one_of(b"i"),))
    automaton = Automaton(g, g.rule((word, *literal(b"t")), (word,)))
    words = (b"in", b"int", b"intt", b"integer", b"integert", b"i", b"it")
    assert all(_is_of(automaton, text) for text in words)
    assert not any(_is_of(automaton, text) for text in (b"", b"inte", b"integers", b"t"))


def test_a_state_says_what_leaves_it_as_it_is() -> None:
    g = Grammar()
    inner = byte_set((0x20, 0x21), (0x23, 0x7E))
    root = g.rule((*literal(b'"'), g.any_number(inner), *literal(b'"')))
    automaton = Automaton(g, root)
    assert automaton.loops(automaton.start) == 0
    inside = automaton.follow(automaton.start, 0x22)
    assert automaton.loops(inside) == inner
    assert automaton.follow(inside, 0x41) == inside
    ended = automaton.follow(inside, 0x22)
    assert automaton.must_end(ended)
    assert not automaton.may_end(inside)


def _nested(ways: int) -> tuple[Grammar, Nonterminal]:
    """Brackets of some kinds that begin alike: which they are is told by how they end."""
    g = Grammar()
    value = g.reserve()
    ends = range(0x61, 0x61 + ways)
    kinds = [(*literal(b"("), g.optional(value), 1 << end, *literal(b")")) for end in ends]
    g.define(value, *kinds)
    return g, value


@pytest.mark.parametrize("ways", [1, 2, 7, 20])
def test_many_ways_to_read_a_text_cost_no_more_than_their_number(ways: int) -> None:
    automaton = Automaton(*_nested(ways))
    begun = automaton.follow_all(automaton.start, b"(" * 200)
    assert automaton.size < 200 * (20 + 12 * ways)
    ended = automaton.follow_all(begun, b"a)" * 199)
    assert automaton.follow(ended, 0x61 + ways) == DEAD
    assert automaton.must_end(automaton.follow_all(ended, b"a)"))


def test_the_same_alternatives_are_one() -> None:
    g = Grammar()
    one, two = (g.rule(g.repeated(5, 9, *literal(b"ab")), literal(b"c")) for _ in "ab")
    assert one == two
    assert g.rule((one,), (two,)) == one
    assert len(g.alternatives(g.rule((one, one), (two, two)))) == 1


def test_what_may_be_nothing_is_left_out_wherever_it_stands() -> None:
    g = Grammar()
    a, b = g.optional(*literal(b"a")), g.optional(*literal(b"b"))
    none = g.rule((a, b))
    again = g.repeated(2, 3, none, *literal(b","))
    automaton = Automaton(g, g.rule((none, none, *again, none)))
    fine = (b",,", b"abab,ab,ab", b"b,a,,", b",,a", b"ba,,b", b"bb,b,")
    assert all(_is_of(automaton, text) for text in fine)
    wrong = (b"", b",", b"abababa,,", b",,,,", b"bbbb,,", b",ba,")
    assert not any(_is_of(automaton, text) for text in wrong)
    often = Automaton(g, g.rule(g.repeated(3, 5, none)))
    assert [_is_of(often, b"ab" * n) for n in (0, 1, 5, 6)] == [True, True, True, False]


def test_one_of_some_texts_may_begin_as_another_does() -> None:
    g = Grammar()
    texts = [b"in", b"int", b"integer", b"i", b"out", b""]
    automaton = Automaton(g, g.one_text([*texts, b"in"]))
    assert all(_is_of(automaton, text) for text in texts)
    assert not any(_is_of(automaton, t) for t in (b"inte", b"o", b"outs", b"integers"))
    assert _is_of(Automaton(g, g.one_text([b"a"])), b"a")


def test_rules_that_begin_with_themselves_are_found() -> None:
    g = Grammar()
    one, two, fine = g.reserve(), g.reserve(), g.reserve()
    g.define(one, (g.optional(*literal(b"a")), two, *literal(b"b")))
    g.define(two, literal(b"c"), (one,))
    g.define(fine, (*literal(b"("), fine), ())
    assert set(Beginnings(g).circular) >= {one, two}
    assert fine not in Beginnings(g).circular


def test_alternatives_without_an_end_are_dropped() -> None:
    g = Grammar()
    endless, nothing = g.reserve(), g.rule()
    g.define(endless, (*literal(b"a"), endless))
    some = g.rule((*literal(b"a"), endless), (*literal(b"a"), *g.repeated(0, 2, nothing)))
    assert drop_dead_ends(g, some)
    automaton = Automaton(g, some)
    assert automaton.must_end(automaton.follow(automaton.start, 0x61))
    assert not drop_dead_ends(g, g.rule(g.repeated(1, 2, endless)))


def test_a_grammar_and_an_automaton_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "_MOST_SYMBOLS", 100)
    monkeypatch.setattr(grammars, "_MOST_SIZE", 100)
    automaton = Automaton(*_nested(4))
    with pytest.raises(UserError, match="too many ways to be read") as raised:
        automaton.follow_all(automaton.start, b"(" * 200)
    assert raised.value.hint
    with pytest.raises(UserError, match="the schema is too large") as raised:
        _nested(40)
    assert raised.value.hint
