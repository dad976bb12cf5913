from __future__ import annotations

from tilewright.api.language.grammars import (
    DEAD,
    Automaton,
    Grammar,
    byte_set,
    literal,
    one_of,
)


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
