"""Grammars over bytes, and the automaton that follows a text through one of them.

A grammar is rules; each has alternatives, each of these a sequence of symbols: a set of bytes, a rule, or a rule that is repeated.  The
automaton keeps all ways to read what came so far as one graph of stacks of symbols that may follow: a node is a symbol and the nodes
that may follow it, and ways that are to go on with the same symbol share one node, so that many ways cost no more than a few.
Nodes and sets of them have numbers, and what follows a set by a byte is worked out once, so that most steps are a look into a table.

Made by `json_schemas`; called by `constraints`.

Source: Tomita, An Efficient Augmented-Context-Free Parsing Algorithm, 1987 (stacks as a graph); Aho and Ullman, The Theory of
Parsing, Translation, and Compiling, 1972, section 2.5 (pushdown automata).
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.errors import UserError

DEAD: Final = -1
"""The state behind a byte that cannot stand where it does."""
_END: Final = 0
"""The node behind which nothing follows."""
_MOST_SYMBOLS: Final = 1 << 19
"""Of a grammar."""
_MOST_SIZE: Final = 1 << 19
"""Of an automaton: one that meets so much is of a grammar with too many ways to read one text."""


@final
@dataclass(frozen=True, slots=True)
class Nonterminal:
    """A rule by its number in a grammar."""

    index: int


@final
@dataclass(frozen=True, slots=True)
class Repeated:
    """A rule from `least` to `most` times; None: as often as one likes."""

    rule: Nonterminal
    least: int
    most: int | None

    def behind_one(self) -> Repeated | None:
        """What is left of it behind one more; None: nothing."""
        if self.most == 1:
            return None
        most = None if self.most is None else self.most - 1
        return Repeated(self.rule, max(self.least - 1, 0), most)


Symbol = int | Nonterminal | Repeated
"""A set of bytes, bit `b` of which says whether byte `b` is in it, or a rule, once or repeated."""
Symbols = tuple[Symbol, ...]
Nodes = frozenset[int]
Shape = tuple[object, ...]
"""What a rule is, without the numbers of rules."""


def byte_set(*ranges: tuple[int, int]) -> int:
    """The bytes from each first to each last one."""
    found = 0
    for first, last in ranges:
        found |= (1 << (last + 1)) - (1 << first)
    return found


def one_of(text: bytes) -> int:
    """Any byte of a text."""
    return byte_set(*((byte, byte) for byte in text))


def literal(text: bytes) -> Symbols:
    """The bytes of a text, one after the other."""
    return tuple(1 << byte for byte in text)


@final
class Grammar:
    """Rules, written one after the other; equal ones are one."""

    def __init__(self) -> None:
        self._rules: list[tuple[Symbols, ...]] = []
        self._known: dict[tuple[Symbols, ...], Nonterminal] = {}
        self._count: int = 0

    def rule(self, *alternatives: Symbols) -> Nonterminal:
        """A rule that is one of some sequences; of the empty one, too.  Raises: UserError where a grammar becomes too large."""
        told = tuple(dict.fromkeys(alternatives))
        if len(told) == 1 and len(told[0]) == 1 and isinstance(told[0][0], Nonterminal):
            return told[0][0]
        found = self._known.get(told)
        if found is None:
            found = self._known[told] = self.reserve()
            self.define(found, *told)
        return found

    def reserve(self) -> Nonterminal:
        """A rule that `define` says later, for it is part of itself."""
        self._rules.append(())
        return Nonterminal(len(self._rules) - 1)

    def define(self, rule: Nonterminal, *alternatives: Symbols) -> None:
        """Say what a reserved rule is.  Raises: UserError where a grammar becomes too large."""
        self._count += 1 + sum(map(len, alternatives))
        if self._count > _MOST_SYMBOLS:
            raise UserError(
                "the schema is too large",
                hint="a part that is used often is said once, in '$defs'; shorter texts in 'enum'",
            )
        self._rules[rule.index] = tuple(dict.fromkeys(alternatives))

    def alternatives(self, rule: Nonterminal) -> tuple[Symbols, ...]:
        """What a rule may be."""
        return self._rules[rule.index]

    def shape(self, rule: Nonterminal, depth: int = 8) -> Shape | None:
        """What a rule is, for comparisons with those of other grammars; None where it is deep or part of itself."""
        found: list[object] = []
        for symbols in self._rules[rule.index]:
            for symbol in symbols:
                if isinstance(symbol, int):
                    found.append(symbol)
                    continue
                inner = self.shape(_rule_of(symbol), depth - 1) if depth else None
                if inner is None:
                    return None
                ends = (symbol.least, symbol.most) if isinstance(symbol, Repeated) else ()
                found.append((inner, ends))
            found.append("or")
        return tuple(found)

    @property
    def size(self) -> int:
        """How many rules there are."""
        return len(self._rules)

    def optional(self, *symbols: Symbol) -> Nonterminal:
        """A sequence, or nothing."""
        return self.rule((), symbols)

    def any_number(self, *symbols: Symbol) -> Repeated:
        """A sequence as often as one likes."""
        return Repeated(self.rule(symbols), 0, None)

    def one_text(self, texts: Iterable[bytes]) -> Nonterminal:
        """One of some texts; what they begin with alike stands there once."""
        found: list[Symbols] = []
        ordered = sorted(set(texts))
        for byte, group in itertools.groupby(ordered, lambda text: text[:1]):
            own = list(group)
            if not byte:
                found.append(())
                continue
            same = _common_length(own[0], own[-1])
            rest = [text[same:] for text in own]
            behind = () if rest == [b""] else (self.one_text(rest),)
            found.append((*literal(own[0][:same]), *behind))
        return self.rule(*found)

    def repeated(self, least: int, most: int | None, *symbols: Symbol) -> Symbols:
        """A sequence from `least` to `most` times; None: as often as one likes."""
        return () if most == 0 else (Repeated(self.rule(symbols), least, most),)


def drop_dead_ends(grammar: Grammar, root: Nonterminal) -> bool:
    """Drop alternatives that no whole text is of; whether any is of the root.

    A text that has begun with one of them could only go on for ever, or not at all.
    """
    fine = _rules_of(grammar, bool)

    def ends(symbols: Symbols) -> bool:
        return all(
            bool(each) if isinstance(each, int)
            else (isinstance(each, Repeated) and not each.least) or fine[_rule_of(each).index]
            for each in symbols
        )  # fmt: skip

    for index in range(grammar.size):
        told = grammar.alternatives(Nonterminal(index))
        kept = tuple(filter(ends, told))
        if len(kept) < len(told):
            grammar.define(Nonterminal(index), *kept)
    return fine[root.index]


def _rules_of(grammar: Grammar, has_text: Callable[[int], bool]) -> list[bool]:
    """Of each rule whether it has a text, where sets of bytes have one as `has_text` says it."""
    fine = [False] * grammar.size
    owners: list[int] = []
    missing: list[int] = []
    """Of each alternative: how many of its symbols have no text that is known of."""
    users: defaultdict[int, list[int]] = defaultdict(list)
    for index in range(grammar.size):
        for symbols in grammar.alternatives(Nonterminal(index)):
            owners.append(index)
            missing.append(0)
            for symbol in symbols:
                if isinstance(symbol, int):
                    missing[-1] += not has_text(symbol)
                elif isinstance(symbol, Nonterminal) or symbol.least:
                    missing[-1] += 1
                    users[_rule_of(symbol).index].append(len(missing) - 1)
    waiting = [at for at, count in enumerate(missing) if not count]
    while waiting:
        owner = owners[waiting.pop()]
        if fine[owner]:
            continue
        fine[owner] = True
        for user in users[owner]:
            missing[user] -= 1
            if not missing[user]:
                waiting.append(user)
    return fine


@final
class Beginnings:
    """How the rules of a grammar begin: which may be nothing, and an order in which each stands before those that it begins with."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar: Grammar = grammar
        self._empty: list[bool] = _rules_of(grammar, lambda _: False)
        self._ranks: list[int] = [-1] * grammar.size
        self.circular: Final[list[Nonterminal]] = []
        """Rules that begin with themselves, as far as they were found."""
        for index in range(grammar.size):
            self._find_rank(Nonterminal(index))

    def may_be_empty(self, symbol: Symbol) -> bool:
        """Whether a symbol may be nothing."""
        if isinstance(symbol, Repeated):
            return not symbol.least or self._empty[symbol.rule.index]
        return isinstance(symbol, Nonterminal) and self._empty[symbol.index]

    def rank(self, symbol: Nonterminal | Repeated) -> int:
        """A number above that of all symbols that one begins with."""
        if isinstance(symbol, Repeated):
            return self._ranks[symbol.rule.index] + 1
        return self._ranks[symbol.index]

    def _heads(self, rule: Nonterminal) -> Iterator[Nonterminal | Repeated]:
        for symbols in self._grammar.alternatives(rule):
            for symbol in symbols:
                if not isinstance(symbol, int):
                    yield symbol
                if not self.may_be_empty(symbol):
                    break

    def _find_rank(self, root: Nonterminal) -> None:
        if self._ranks[root.index] >= 0:
            return
        path = [(root, self._heads(root))]
        on_path = {root}
        while path:
            rule, heads = path[-1]
            deeper = next(
                (h for h in map(_rule_of, heads) if self._ranks[h.index] < 0), None
            )
            if deeper is None:
                path.pop()
                on_path.discard(rule)
                inner = [self.rank(each) for each in self._heads(rule)]
                self._ranks[rule.index] = max(inner, default=0) + 1
            elif deeper in on_path:
                begin = next(at for at, (each, _) in enumerate(path) if each == deeper)
                self.circular.extend(each for each, _ in path[begin:])
            else:
                path.append((deeper, self._heads(deeper)))
                on_path.add(deeper)


def _common_length(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _rule_of(symbol: Nonterminal | Repeated) -> Nonterminal:
    return symbol.rule if isinstance(symbol, Repeated) else symbol


@final
class Automaton:
    """Follows texts through a grammar; its states are numbers.  Not thread-safe.

    A state is a set of nodes: what may follow.  Whatever asks for a new state raises UserError where the automaton
    becomes too large: many ways to read one text stay apart for long.

    Args:
        grammar: all rules, of which none may begin with itself.
        root: what a whole text is.
    """

    def __init__(self, grammar: Grammar, root: Nonterminal) -> None:
        self._grammar: Grammar = grammar
        self._beginnings: Beginnings = Beginnings(grammar)
        assert not self._beginnings.circular, "a rule begins with itself"
        self._nodes: list[tuple[Symbol, Nodes]] = [(0, frozenset())]  # the end
        self._node_numbers: dict[tuple[Symbol, Nodes], int] = {}
        self._states: list[Nodes] = []
        self._state_numbers: dict[Nodes, int] = {}
        self._ready: list[Nodes | None] = []
        self._followers: list[dict[int, int]] = []
        self._first: dict[int, int] = {}
        self._loops: dict[int, int] = {}
        self.size: int = 0
        """How many nodes there are, and how many in all sets of them."""
        self.start: Final[int] = self.start_of(root)

    def follow(self, state: int, byte: int) -> int:
        """The state behind a byte; `DEAD` where it cannot stand there."""
        known = self._followers[state]
        found = known.get(byte)
        if found is None:
            after: set[int] = set()
            for node in self._ready_of(state):
                symbol, behind = self._nodes[node]
                if isinstance(symbol, int) and symbol >> byte & 1:
                    after |= behind
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
        return _END in self._ready_of(state)

    def must_end(self, state: int) -> bool:
        """Whether nothing can follow."""
        return self._ready_of(state) == frozenset((_END,))

    def loops(self, state: int) -> int:
        """The set of bytes behind which a state is itself: those of the middle of a string, say."""
        found = self._loops.get(state)
        if found is None:
            first = self.first_bytes(state)
            bytes_ = (b for b in range(256) if first >> b & 1)
            found = sum(1 << b for b in bytes_ if self.follow(state, b) == state)
            self._loops[state] = found
        return found

    def first_bytes(self, state: int) -> int:
        """The set of bytes that may stand next."""
        found = self._first.get(state)
        if found is None:
            found = 0
            for node in self._ready_of(state):
                symbol = self._nodes[node][0]
                if isinstance(symbol, int):
                    found |= symbol
            self._first[state] = found
        return found

    def ways(self, state: int) -> list[tuple[int, Symbol, Nodes]]:
        """What a state is one of: the number of a node, a symbol that comes next, and what may follow it."""
        return [(node, *self._nodes[node]) for node in self._states[state]]

    def start_of(self, rule: Nonterminal) -> int:
        """The state in which a rule comes next, and then the end."""
        return self._state(frozenset((self._node(rule, frozenset((_END,))),)))

    def state_at(self, nodes: Nodes) -> int:
        """The state in which any of some nodes comes next."""
        return self._state(nodes)

    # --- numbers for nodes and sets of them

    def _grow(self, by: int) -> None:
        self.size += by
        if self.size > _MOST_SIZE:
            raise UserError(
                "the schema has too many ways to be read",
                hint="what tells the parts of 'anyOf' apart comes first in them",
            )

    def _node(self, symbol: Symbol, behind: Nodes) -> int:
        key = (symbol, behind)
        found = self._node_numbers.get(key)
        if found is None:
            self._grow(1 + len(behind))
            found = self._node_numbers[key] = len(self._nodes)
            self._nodes.append(key)
        return found

    def _state(self, nodes: Nodes) -> int:
        found = self._state_numbers.get(nodes)
        if found is None:
            self._grow(1 + len(nodes))
            found = self._state_numbers[nodes] = len(self._states)
            self._states.append(nodes)
            self._ready.append(None)
            self._followers.append({})
        return found

    def _ready_of(self, state: int) -> Nodes:
        """What a state may be where no rule comes next: a set of bytes does, or the end."""
        found = self._ready[state]
        if found is not None:
            return found
        waiting, ready = self._next_symbols(self._states[state])
        # A rule is taken apart behind all those that begin with it, and so only once, with all that may follow it.
        order = [
            (-self._beginnings.rank(s), n, s)
            for n, s in enumerate(waiting)
            if not isinstance(s, int)
        ]
        heapq.heapify(order)
        count = len(waiting)
        while order:
            symbol = heapq.heappop(order)[2]
            for head, behind in self._taken_apart(symbol, frozenset(waiting.pop(symbol))):
                if head not in waiting and not isinstance(head, int):
                    count += 1
                    heapq.heappush(order, (-self._beginnings.rank(head), count, head))
                waiting[head] |= behind
        made = {self._node(symbol, frozenset(behind)) for symbol, behind in waiting.items()}
        found = self._ready[state] = frozenset(made | ready)
        self._grow(len(found))
        return found

    def _next_symbols(self, nodes: Nodes) -> tuple[defaultdict[Symbol, set[int]], set[int]]:
        """The symbols that may come next, each with what may follow it; and the end, where it may."""
        found: defaultdict[Symbol, set[int]] = defaultdict(set)
        waiting, seen = list(nodes), set(nodes)
        while waiting:
            node = waiting.pop()
            if node == _END:
                continue
            symbol, behind = self._nodes[node]
            found[symbol] |= behind
            if self._beginnings.may_be_empty(symbol):
                waiting += behind - seen
                seen |= behind
        return found, seen & {_END}

    def _taken_apart(
        self, symbol: Nonterminal | Repeated, behind: Nodes
    ) -> Iterator[tuple[Symbol, Nodes]]:
        """What a symbol may begin with where it is not nothing, and what may follow that."""
        if isinstance(symbol, Repeated):
            rest = symbol.behind_one()
            yield (
                symbol.rule,
                behind if rest is None else frozenset((self._node(rest, behind),)),
            )
            return
        for symbols in self._grammar.alternatives(symbol):
            begin = 0
            for each in symbols:
                begin += 1
                if not self._beginnings.may_be_empty(each):
                    break
            pushed = behind
            for at in range(len(symbols) - 1, -1, -1):
                if at < begin:
                    yield symbols[at], pushed
                pushed = frozenset((self._node(symbols[at], pushed),))
