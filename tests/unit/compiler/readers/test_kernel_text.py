from __future__ import annotations

import numpy as np
import pytest

from fakes.affine_kernels import random_kernel
from fakes.loop_nests import assert_same, chained, doubled, product, row_sums
from fakes.thread_kernels import summed, turned
from tilewright.base import dtypes
from tilewright.base.dtypes import f16, f32, f64, i32, i64, u8
from tilewright.base.errors import UserError
from tilewright.base.symbolic import Symbol, opaque, symbol
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Argument,
    Barrier,
    Binary,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expression,
    Fma,
    For,
    Function,
    Horizontal,
    If,
    Index,
    Intrinsic,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Permuted,
    Prefetch,
    Select,
    Space,
    Splat,
    Statement,
    Store,
    Transposed,
    Unary,
    walk,
)
from tilewright.compiler.kernel.rewrite import as_index, lane_index
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.readers.kernel_text import parse_kernel, parse_kernels

X = Buffer("x", f32, (64,))
Y = Buffer("y", f32, (64,))
AT = Buffer("at", i64, (64,))


def kernel(*body: Statement, **more: object) -> Kernel:
    parameters = (
        Parameter(X, AccessMode.READ),
        Parameter(AT, AccessMode.READ),
        Parameter(Y, AccessMode.READ_WRITE),
    )
    given = {"dims": (), "locals": (), **more}
    return Kernel("k", parameters, body=body, **given)  # type: ignore[arg-type]


def stored(value: Expression, **more: object) -> Kernel:
    """A kernel that stores a value, as what it is a type of."""
    y = Buffer("y", value.dtype, (64,))
    parameters = (
        Parameter(X, AccessMode.READ), Parameter(AT, AccessMode.READ), Parameter(y, AccessMode.WRITE),
    )  # fmt: skip
    body = (Store(y, (0,), value),)
    return Kernel("k", parameters, (), body=body, **{"locals": (), **more})  # type: ignore[arg-type]


def returns(made: Kernel) -> Kernel:
    """The kernel read from the text of another, which prints the same."""
    text = kernel_text(made)
    found = parse_kernel(text)
    assert kernel_text(found) == text
    return found


LOAD = Load(X, (3,))
VECTOR = Load(X, (0,), lanes=8)
MASK = Compare("lt", Index(0, lanes=8, stride=1), Const(5, i64, 8), 8)
VALUES = {
    "number": Const(1.5, f32),
    "number without a point": Const(2, f32),
    "not a number": Const(float("nan"), f32),
    "less than all": Const(float("-inf"), f64),
    "number of another type": Const(-7, i32),
    "truth": Const(1, dtypes.bool_),
    "the same number in all lanes": Const(0.5, f16, 4),
    "small": Const(1e-30, f32),
    "whole": Const(-3, i64),
    "index": Index(symbol("g", 0, 0) + 3),
    "index of lanes": Index(2, i32, 8, 3),
    "load": LOAD,
    "load of lanes": Load(X, (1,), lanes=4, stride=2),
    "load with a mask": Load(X, (0,), lanes=8, mask=MASK),
    "sum of loads with masks": Binary(
        "add", Load(X, (0,), 8, mask=MASK), Load(X, (8,), 8, mask=MASK), f32, 8
    ),
    "function of one": Unary("rsqrt", LOAD, f32),
    "question": Unary("is_nan", LOAD, dtypes.bool_),
    "sign": Binary("sub", LOAD, Const(1.0, f32), f32),
    "word": Binary("copysign", LOAD, Const(-1.0, f32), f32),
    "shift": Binary("shl", Load(AT, (0,)), Const(3, i64), i64),
    "fma": Fma(LOAD, LOAD, Const(1.0, f32), f32),
    "comparison": Compare("ge", LOAD, Const(0.0, f32)),
    "choice": Select(MASK, VECTOR, Const(0.0, f32, 8), f32, 8),
    "cast": Cast(LOAD, u8),
    "cast of lanes": Cast(VECTOR, f64, 8),
    "cast of a number to whole": Cast(Const(2.5, f32), i32),
    "bits": Bitcast(LOAD, i32),
    "bits of neighbours as a word": Bitcast(Load(X, (0,), lanes=8), i64, 4),
    "bits of a word in lanes": Bitcast(Load(AT, (0,)), i32, 2),
    "instruction": Intrinsic(
        INSTRUCTIONS["vpdpbusd"], (Const(1, i32), Const(-2, i32), Const(3, i32))
    ),
    "instruction in lanes": Intrinsic(
        INSTRUCTIONS["sdot"], tuple(Const(n, i32, 8) for n in (1, -2, 3)), 8
    ),
    "splat": Splat(LOAD, 8, f32),
    "sum of lanes": Horizontal("add", VECTOR, f32),
    "most of lanes": Horizontal("max", VECTOR, f32),
    "column": Transposed((VECTOR,) * 8, 2, f32, 8),
    "lanes in another order": Permuted(VECTOR, (7, 0, 0, 3), f32, 4),
    "instruction of tiles": Intrinsic(
        INSTRUCTIONS["smmla"], tuple(Const(n, i32, 8) for n in (1, -2, 3)), 8
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_each_kind_of_expression_comes_back(name: str) -> None:
    value = VALUES[name]
    made = stored(value)
    if name == "index":
        made = Kernel("k", made.parameters, (Symbol("g", 0, 0),), (), made.body)
    (store,) = returns(made).body
    assert isinstance(store, Store)
    assert type(store.value) is type(value)
    assert (store.value.dtype, store.value.lanes) == (value.dtype, value.lanes)


def test_indices_from_memory_and_of_lanes_come_back() -> None:
    found = as_index(Load(AT, (as_index(Load(AT, (2,))),)))
    lanes = as_index(Cast(Load(AT, (0,), 8), i32, 8))
    body = (
        Store(Y, (found * 3 + 1,), LOAD),
        Store(Y, (0,), Load(X, (lanes,), 8)),
        Store(Y, (0,), Load(X, (lane_index(8) * 2,), 8, stride=0)),
        Store(Y, (as_index(Binary("shl", Load(AT, (0,)), Const(1, i64), i64)),), LOAD),
    )
    back = returns(kernel(*body))
    assert all(len(s.value.indices) == 1 for s in back.body if isinstance(s, Store))  # type: ignore[union-attr]
    assert_same(kernel(body[2]), returns(kernel(body[2])))


def test_each_kind_of_statement_comes_back() -> None:
    i, j = symbol("i", 0, 3), symbol("j", 0, 7)
    inner = (
        Prefetch(X, (i + j * 4,), 1),
        If(Compare("ne", Index(j), Const(2, i64)), (Store(Y, (i + j * 4,), LOAD),)),
        Store(Y, (8 * i,), VECTOR, 2, MASK),
        For(Symbol("e", 0, 0), 1, ()),
    )
    of_j = For(Symbol("j", 0, 7), 8, inner, LoopKind.UNROLL, reduction=True)
    made = kernel(
        For(Symbol("i", 0, 3), 4, (of_j,), LoopKind.GRID_Y), notes=("why", "and how")
    )
    back = returns(made)
    assert back.notes == ("why", "and how")
    (outer,) = back.body
    assert isinstance(outer, For)
    assert outer.kind is LoopKind.GRID_Y
    (second,) = outer.body
    assert isinstance(second, For)
    assert second.reduction
    assert [type(s) for s in second.body] == [type(s) for s in inner]
    mask = second.body[2]
    assert isinstance(mask, Store)
    assert mask.mask is not None
    assert mask.stride == 2


def test_remarks_between_statements_say_nothing() -> None:
    made = kernel(Store(Y, (0,), LOAD), Store(Y, (1,), LOAD))
    head, first, second = kernel_text(made).splitlines()
    assert_same(
        made, parse_kernel(f"{head}\n    # a remark\n{first}\n    # one more\n{second}\n")
    )


@pytest.mark.parametrize("made", [turned(Barrier()), summed()], ids=["turned", "summed"])
def test_threads_and_barriers_come_back(made: Kernel) -> None:
    back = returns(made)
    assert [type(s) for s in walk(back.body)] == [type(s) for s in walk(made.body)]
    assert_same(made, back)


def test_bounds_come_back_where_extents_do_not_imply_them() -> None:
    n, rest = Symbol("n", 1, 9), symbol("i", None, 40)
    loop = For(Symbol("i", None, 40), symbol("n", 1, 9), (Store(Y, (rest,), LOAD),))
    made = kernel(loop, dims=(n, Symbol("m"), Symbol("k", -4, None)))
    text = kernel_text(made)
    assert "*, n: 1..9, m, k: -4..):" in text
    assert "for i in range(n):  # i: ..40" in text
    back = returns(made)
    assert [s.bounds() for s in back.dims] == [(1, 9), (0, None), (-4, None)]
    (loop,) = back.body
    assert isinstance(loop, For)
    assert loop.var.bounds() == (None, 40)


@pytest.mark.parametrize("name", ["i", "reduction", "unroll"])
@pytest.mark.parametrize("bounds", [(0, None), (None, None), (0, 40), (0, 3)])
def test_a_variable_of_a_known_extent_may_have_any_bounds(
    name: str, bounds: tuple[int | None, int | None]
) -> None:
    """As where an extent became a number in code for one size; a name may be that of a mark."""
    place = symbol(name, *bounds)
    loop = For(Symbol(name, *bounds), 4, (Store(Y, (place,), LOAD),), reduction=True)
    (back,) = returns(kernel(loop)).body
    assert isinstance(back, For)
    assert back.var.bounds() == bounds
    assert back.reduction
    assert back.kind is LoopKind.SERIAL


def test_tables_come_back_however_long() -> None:
    generator = np.random.default_rng(0)
    many = tuple(float(x) for x in generator.standard_normal(300).astype(np.float32))
    tables = (
        Buffer("few", f32, (3,), Space.CONSTANT, (1.0, float("nan"), -0.5)),
        Buffer("many", f32, (300,), Space.CONSTANT, many),
        Buffer("whole", i64, (2,), Space.CONSTANT, (1 << 60, -1)),
        Buffer("bytes", u8, (100,), Space.CONSTANT, tuple(range(100))),
    )
    back = returns(kernel(Store(Y, (0,), Load(tables[1], (7,))), locals=tables))
    assert [b.data for b in back.locals[1:]] == [b.data for b in tables[1:]]
    assert back.locals[0].data is not None
    assert np.isnan(back.locals[0].data[1])


def test_repeated_parts_are_the_same_part_again() -> None:
    value: Expression = LOAD
    for _ in range(40):
        value = Binary("mul", value, value, f32)
    (store,) = returns(stored(value)).body
    assert isinstance(store, Store)
    assert isinstance(store.value, Binary)
    assert store.value.left is store.value.right


def test_functions_come_back_with_what_they_compute() -> None:
    square = Function(
        "square", (f64,), f64, Binary("mul", Argument(0, f64), Argument(0, f64), f64)
    )
    fourth = Function(
        "fourth", (f64,), f64, Call(square, (Call(square, (Argument(0, f64),)),))
    )
    made = stored(Call(fourth, (Const(3.0, f64),)))
    assert kernel_text(made).splitlines()[1:3] == [
        "    function square(f64) -> f64 = ($0 * $0)",
        "    function fourth(f64) -> f64 = square(square($0))",
    ]
    result = np.zeros(64)
    evaluate(returns(made), [np.zeros(64, np.float32), np.zeros(64, np.int64), result])
    assert result[0] == 81


def test_functions_of_one_name_are_told_apart_by_their_operands() -> None:
    both = (
        Call(Function("power", (i64, i64), i64), (Load(AT, (0,)), Load(AT, (1,)))),
        Cast(Call(Function("power", (i32, i32), i32), (Const(2, i32), Const(5, i32))), i64),
    )
    returns(stored(Binary("add", *both, i64)))


def test_small_kernels_compute_the_same_when_read_back() -> None:
    n = symbol("N", 1, 40)
    for made in (doubled(), product(), row_sums(), chained()):
        assert_same(made, returns(made))
    for made in (doubled(n), product(n), chained(n * 2 + 1)):
        assert_same(made, returns(made), {"N": 5})


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(60))
def test_random_kernels_come_back(seed: int) -> None:
    returns(random_kernel(seed, rank=1 + seed % 2, tables=seed % 3 == 0))


def test_indices_written_by_hand_are_brought_in_order() -> None:
    text = """\
kernel k(read x: f32[64], write y: f32[64], *, n):
  for i in range(2 + 6 + n - n):
    for j in range(4):
      y[j + 2*i*2 - j + 3*j*1 - 2*j] = x[(1 + i)*4 - 4 + min(3, 7) - 3 + j]
"""
    (outer,) = parse_kernel(text).body
    assert isinstance(outer, For)
    assert outer.extent == 8
    (inner,) = outer.body
    assert isinstance(inner, For)
    assert (
        kernel_text(parse_kernel(text)).splitlines()[3].strip() == "y[4*i + j] = x[4*i + j]"
    )


def test_what_is_written_is_not_simplified_by_bounds() -> None:
    text = "kernel k(write y: f32[8]):\n    for i in range(4):\n        y[i // 8] = 1.0\n"
    assert kernel_text(parse_kernel(text)) == text


def test_several_kernels_stand_one_below_the_other() -> None:
    text = kernel_text(product()) + "\n\n" + kernel_text(doubled())
    assert [k.name for k in parse_kernels(text)] == ["product", "doubled"]
    assert parse_kernels("\n") == ()
    with pytest.raises(UserError, match="with 2 kernels, expected one"):
        parse_kernel(text)


HEAD = "kernel k(read x: f32[8], write y: f32[8, n], *, n):\n"
WRONG = {
    "": "with 0 kernels",
    "colonel k():": "line 1, column 1: expected 'kernel name(', got 'colonel k():'",
    "kernel k(see x: f32[8]):\n  pass": "column 10: unknown access 'see'",
    "kernel k(read x f32[8]):\n  pass": "column 17: expected ':', got 'f32[8]):'",
    "kernel k(read x: f33[8]):\n  pass": "column 18: unknown data type 'f33'\nhint: did you mean 'f",
    "kernel k(read x: f32[8], read x: f32[8]):\n  pass": "two buffers are called 'x'",
    "kernel k(read x: f32[m]):\n  pass": "column 22: unknown variable or size 'm'",
    "kernel k(read x: f32[8]@moon):\n  pass": "unknown space 'moon'",
    "kernel k(read x: f32[8])\n  pass": "column 25: expected ':', got the end of the line",
    "kernel k(read x: f32[8]):": "expected lines that belong to it",
    f"{HEAD}    for i in range(4):\n    y[0, 0] = 1.0": "line 2, column 23: expected statements inside",
    f"{HEAD}    for i in range(4):  # maybe\n        pass": "column 27: unknown mark 'maybe'",
    f"{HEAD}    for n in range(4):\n        pass": "column 9: 'n' stands for something already",
    f"{HEAD}    y[0, 0] = 1.0\n      y[0, 0] = 1.0": "line 3, column 7: expected 4 spaces",
    f"{HEAD}    y[0, 0] = z[0]": "line 2, column 15: unknown buffer 'z'",
    f"{HEAD}    y[0, 0] = (x[0] + 1)": "column 21: binary: operand of i64, expected f32",
    f"{HEAD}    y[0, 0] = (x[0] ? 1.0)": "expected an operator, got '? 1.0)'",
    f"{HEAD}    y[0, 0] = sqr(x[0])": "column 15: unknown function of (f32) 'sqr'\nhint: did you mean 'sqrt' or 'rsqrt'?",
    f"{HEAD}    y[0, 0] = sqrt(x[0], x[1])": "2 operands, expected 1",
    f"{HEAD}    y[0, 0] = x[0 : 4 lanes]": "4 lanes stored as 1",
    f"{HEAD}    y[0, 0] = x[0 : 0 lanes]": "0 lanes, expected 1 to 4096",
    f"{HEAD}    y[0, 0] = $0": "no argument $0 here",
    f"{HEAD}    y[0, n // 0] = 1.0": "column 12: a divisor of 0, expected at least 1",
    f"{HEAD}    y[0, <x[0]>] = 1.0": "an index of f32, expected an integer",
    f"{HEAD}    x[0] = 1.0": "kernel text, line 1: kernel 'k'",
    f"{HEAD}    y[0, 0] = i64(2.5)": "kernel text, line 1: kernel 'k'",
    f"{HEAD}    y[0, 0] = {'(' * 200}": "an expression is nested too deeply",
    f"{HEAD}    y[0, {'(' * 200}] = 1.0": "an index is nested too deeply",
    f"{HEAD}    prefetch x[0]  # level 4": "level 4, expected 1 to 3",
    f"{HEAD}    local t: f32[70]@constant = 70 values AAAA\n    pass": "3 bytes for 70 values of f32",
    f"{HEAD}    local t: f32[2]@constant = [1, two]\n    pass": "expected a number, got 'two]'",
    f"{HEAD}    local t: i64[1]@constant = [1.5]\n    pass": "'1.5' is no value of i64",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_errors_say_where_and_what_was_expected(text: str) -> None:
    with pytest.raises(UserError) as error:
        parse_kernel(text)
    assert WRONG[text] in str(error.value)


def test_an_opaque_index_is_equal_to_that_of_the_program() -> None:
    """The algebra compares texts: what is read must cancel with what is made."""
    made = as_index(Load(AT, (3,)))
    text = "kernel k(read at: i64[64], write y: f32[64]):\n    y[<at[3]>] = 1.0\n"
    (store,) = parse_kernel(text).body
    assert isinstance(store, Store)
    assert store.indices[0] - made == 0
    assert store.indices[0] != opaque("another", "<at[4]>")
