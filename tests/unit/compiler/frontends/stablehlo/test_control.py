"""Branches and loops: many beside each other, and many in each other, are read in time that grows with them."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.stablehlo_text import graph_of, run
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import table

NUMBER = "tensor<i64>"


def _case(count: int) -> str:
    """Branch `i` of so many adds `i`."""
    branches = "}, {\n".join(
        f"%c{i} = stablehlo.constant dense<{i}> : {NUMBER}\n"
        f"%s{i} = stablehlo.add %x, %c{i} : {NUMBER}\nstablehlo.return %s{i} : {NUMBER}\n"
        for i in range(count)
    )
    return (
        f'%r = "stablehlo.case"(%i) ({{\n{branches}}}) : (tensor<i32>) -> {NUMBER}\n'
        f"return %r : {NUMBER}"
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 300])
def test_an_index_out_of_range_is_the_last_of_any_number_of_branches(count: int) -> None:
    body, last = _case(count), count - 1
    inside = range(count) if count < 300 else (149, 150)
    outside = (-(2**31), -1, count, 2**31 - 1) if count < 300 else (-1,)
    for index, expected in [*((i, i) for i in inside), *((i, last) for i in outside)]:
        (found,) = run(
            body, f"%x: {NUMBER}, %i: tensor<i32>", np.array(100), np.array(index, np.int32)
        )
        assert int(found) == 100 + expected, index


NEGATED = f"%n = stablehlo.negate %x : {NUMBER}\nstablehlo.return %n : {NUMBER}\n"
NOTHING = f"stablehlo.return %x : {NUMBER}\n"


def _branches_in_branches(depth: int, innermost: str) -> str:
    """Each asks the same, and has the argument where the answer is no."""
    body = innermost
    for i in range(depth):
        body = (
            f'%r{i} = "stablehlo.if"(%p) ({{\n{body}}}, {{\n{NOTHING}}}) : (tensor<i1>) -> {NUMBER}\n'
            f"stablehlo.return %r{i} : {NUMBER}\n"
        )
    return "".join(body.rsplit("stablehlo.", 1))


@pytest.mark.parametrize("depth", [1, 5, 8, 29])
def test_branches_in_branches_are_read_in_time_that_grows_with_them(depth: int) -> None:
    arguments = f"%x: {NUMBER}, %p: tensor<i1>"
    negated, nothing = (_branches_in_branches(depth, n) for n in (NEGATED, NOTHING))
    for answer in (False, True):
        given = np.array(7), np.array(answer)
        assert int(run(negated, arguments, *given)[0]) == (-7 if answer else 7)
        assert int(run(nothing, arguments, *given)[0]) == 7


def _loops_in_loops(depth: int, trips: int) -> str:
    """Loops whose trips are known, around an addition."""
    body = f"%s = stablehlo.add %x{depth}, %one : {NUMBER}\n"
    inner = "%s"
    for i in reversed(range(depth)):
        start = f"%x{i}" if i else "%x"
        body = (
            f"%w{i}:2 = stablehlo.while(%i{i} = %zero, %x{i + 1} = {start}) : {NUMBER}, {NUMBER}\n"
            f"cond {{\n%c{i} = stablehlo.compare LT, %i{i}, %most : ({NUMBER}, {NUMBER}) -> tensor<i1>\n"
            f"stablehlo.return %c{i} : tensor<i1>\n}} do {{\n{body}"
            f"%n{i} = stablehlo.add %i{i}, %one : {NUMBER}\n"
            f"stablehlo.return %n{i}, {inner} : {NUMBER}, {NUMBER}\n}}\n"
        )
        inner = f"%w{i}#1"
    numbers = "".join(
        f"%{name} = stablehlo.constant dense<{value}> : {NUMBER}\n"
        for name, value in (("zero", 0), ("one", 1), ("most", trips))
    )
    return f"{numbers}{body}return {inner} : {NUMBER}"


@pytest.mark.parametrize(("depth", "trips"), [(1, 3), (3, 2), (3, 3), (20, 1)])
def test_loops_in_loops_are_read_in_time_that_grows_with_them(
    depth: int, trips: int
) -> None:
    (found,) = run(_loops_in_loops(depth, trips), f"%x: {NUMBER}", np.array(5))
    assert int(found) == 5 + trips**depth


def _operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of operations, noted as they are imported."""
    found: list[str] = []
    find = table.find

    def noted(name: str) -> object:
        found.append(name)
        return find(name)

    monkeypatch.setattr(table, "find", noted)
    return found


def test_what_is_written_out_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = _operations(monkeypatch)
    graph_of(_loops_in_loops(3, 3), f"%x: {NUMBER}")
    # 27 innermost additions, and as many of counters as there are trips.
    assert names.count("stablehlo.add") == 27 + 3 + 9 + 27


def test_a_nest_that_is_too_long_is_tried_once_at_each_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = _operations(monkeypatch)
    graph = graph_of(_loops_in_loops(12, 3), f"%x: {NUMBER}")
    # 256 nodes of an attempt at each level, their counters, and what stays: nothing near to 3 to the power of 12.
    assert names.count("stablehlo.add") < 12 * 1024
    loops = [node for node in graph.walk() if node.op == "while"]
    assert 0 < len(loops) < 12
    assert sum(1 for _ in graph.walk()) < 600


def test_what_an_attempt_wrote_is_gone_where_the_loop_stays_one() -> None:
    """The constant is known before the loop, and first needed in the attempt."""
    long = "".join(
        f"%s{i + 1} = stablehlo.multiply %s{i}, %big : {NUMBER}\n" for i in range(200)
    )
    body = (
        f"%zero = stablehlo.constant dense<0> : {NUMBER}\n%one = stablehlo.constant dense<1> : {NUMBER}\n"
        f"%most = stablehlo.constant dense<3> : {NUMBER}\n%big = stablehlo.constant dense<3> : {NUMBER}\n"
        f"%w:2 = stablehlo.while(%i = %zero, %s0 = %x) : {NUMBER}, {NUMBER}\n"
        f"cond {{\n%c = stablehlo.compare LT, %i, %most : ({NUMBER}, {NUMBER}) -> tensor<i1>\n"
        f"stablehlo.return %c : tensor<i1>\n}} do {{\n{long}%n = stablehlo.add %i, %one : {NUMBER}\n"
        f"stablehlo.return %n, %s200 : {NUMBER}, {NUMBER}\n}}\n"
        f"%r = stablehlo.multiply %w#1, %big : {NUMBER}\nreturn %r : {NUMBER}"
    )
    graph = graph_of(body, f"%x: {NUMBER}")
    assert [node.op for node in graph if node.op == "mul"] == ["mul"]
    (found,) = run(body, f"%x: {NUMBER}", np.array(5))
    assert int(found) % 2**64 == 5 * pow(3, 601, 2**64) % 2**64


def _loop(type_: str, condition: str, body: str) -> str:
    """A loop that carries `%i`."""
    return (
        f"%r = stablehlo.while(%i = %x) : {type_}\ncond {{\n{condition}}} do {{\n{body}}}\n"
        f"return %r : {type_}"
    )


def _gives(*values: str, type_: str) -> str:
    types = ", ".join([type_] * len(values))
    return f"stablehlo.return {', '.join(values)} : {types}\n"


BOOL, PAIR = "tensor<i1>", "tensor<2xi1>"
TUPLE, TOKEN = f"tuple<{BOOL}>", "!stablehlo.token"
DOUBLED = f"%t = stablehlo.tuple %p, %p : tuple<{BOOL}, {BOOL}>\n"
LONGER = f"%l = stablehlo.concatenate %i, %i, dim = 0 : ({PAIR}, {PAIR}) -> tensor<4xi1>\n"


@pytest.mark.parametrize(
    ("type_", "body", "message"),
    [
        (NUMBER, _loop(NUMBER, _gives("%i", type_=NUMBER), _gives("%i", type_=NUMBER)), r"condition is i64\[\]"),
        (PAIR, _loop(PAIR, _gives("%i", type_=PAIR), _gives("%i", type_=PAIR)), r"condition is bool\[2\]"),
        (BOOL, _loop(BOOL, _gives("%i", "%i", type_=BOOL), _gives("%i", type_=BOOL)), "condition gives 2 values"),
        (BOOL, _loop(BOOL, _gives("%i", type_=BOOL), _gives("%i", "%i", type_=BOOL)), "body gives 2 values"),
        (PAIR, _loop(PAIR, _gives("%p", type_=BOOL), LONGER + _gives("%l", type_="tensor<4xi1>")),
         r"returns tensor<4xi1> as value 0, the result is tensor<2xi1>"),
        (TUPLE, _loop(TUPLE, _gives("%p", type_=BOOL), _gives("%p", type_=BOOL)), r"returns tensor<i1> as value 0, the result is tuple"),
        (TUPLE, _loop(TUPLE, _gives("%p", type_=BOOL), DOUBLED + _gives("%t", type_=f"tuple<{BOOL}, {BOOL}>")),
         r"as value 0, the result is tuple<tensor<i1>>"),
        (TOKEN, _loop(TOKEN, _gives("%p", type_=BOOL), _gives("%p", type_=BOOL)), r"as value 0, the result is !stablehlo"),
        (BOOL, _loop(BOOL, _gives("%p", type_=BOOL), f"%t = stablehlo.after_all : {TOKEN}\n" + _gives("%t", type_=TOKEN)),
         r"as value 0, the result is tensor<i1>"),
        ("tensor<1xi1>", _loop("tensor<1xi1>", _gives("%i", type_="tensor<1xi1>"), _gives("%i", type_="tensor<1xi1>")),
         r"condition is bool\[1\], expected bool\[\]"),
        (NUMBER, _case(2).replace("tensor<i32>", NUMBER).replace("(%i)", "(%x)"), r"index is i64\[\], expected i32"),
        (NUMBER, (f'%r = "stablehlo.if"(%x) ({{\n{NEGATED}}}, {{\n{NOTHING}}}) : ({NUMBER}) -> {NUMBER}\n'
         f"return %r : {NUMBER}"), r"condition is i64\[\], expected bool"),
    ],
)  # fmt: skip
def test_what_decides_and_what_a_loop_carries_is_what_it_has_to_be(
    type_: str, body: str, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        graph_of(body, f"%x: {type_}, %p: {BOOL}")


def test_a_condition_that_is_known_is_a_single_one() -> None:
    known = "%c = stablehlo.constant dense<false> : tensor<2xi1>\n"
    body = _loop(NUMBER, known + _gives("%c", type_=PAIR), _gives("%i", type_=NUMBER))
    with pytest.raises(ModelError, match=r"condition is bool\[2\], expected bool\[\]"):
        graph_of(body, f"%x: {NUMBER}")
