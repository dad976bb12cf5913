from __future__ import annotations

import pytest

from fakes.complaints import complaint_of
from tilewright.base import symbolic
from tilewright.base.dtypes import bool_, f32, i32, i64
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Symbol
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Const,
    For,
    If,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Prefetch,
    Select,
    Space,
    Splat,
    Store,
)
from tilewright.compiler.kernel.verifier import verify

X = Buffer("x", f32, (4,))
Y = Buffer("y", f32, (4,))
I = Symbol("i", 0, 3)  # noqa: E741
AT = symbolic.Expr.of_atom(I)
ONE = Const(1.0, f32)


def kernel(*body, locals_=(), dims=(), parameters=None):
    found = parameters or (Parameter(X, AccessMode.READ), Parameter(Y, AccessMode.WRITE))
    return Kernel("k", found, tuple(dims), tuple(locals_), tuple(body))


def loop(*body, kind=LoopKind.SERIAL, var=I, extent=4):
    return For(var, extent, tuple(body), kind)


GOOD = Store(Y, (AT,), Load(X, (AT,)))


def test_a_well_formed_kernel_passes():
    assert complaint_of(verify, kernel(loop(GOOD, kind=LoopKind.GRID_X))) == ""


@pytest.mark.parametrize(
    ("message", "bad"),
    [
        ("'i' is not in scope", kernel(GOOD)),
        ("name 'i' is taken", kernel(loop(GOOD), loop(GOOD))),
        ("is not writable here", kernel(loop(Store(X, (AT,), ONE)))),
        ("2 indices into", kernel(Store(Y, (0, 0), ONE))),
        ("value of i32", kernel(Store(Y, (0,), Const(1, i32)))),
        ("operand of i32", kernel(Store(Y, (0,), Binary("add", Const(1, i32), ONE, f32)))),
        ("unknown operator 'plus'", kernel(Store(Y, (0,), Binary("plus", ONE, ONE, f32)))),
        (
            "operand with 1 lanes, expected 4",
            kernel(Store(Y, (0,), Binary("add", ONE, Splat(ONE, 4, f32), f32, 4))),
        ),
        (
            "mask of bool x 1 for 4 lanes",
            kernel(Store(Y, (0,), Splat(ONE, 4, f32), mask=Const(True, bool_))),
        ),
        ("condition of f32", kernel(Store(Y, (0,), Select(ONE, ONE, ONE, f32)))),
        ("not a scalar bool", kernel(If(ONE, (Store(Y, (0,), ONE),)))),
        (
            "grid loop inside other code",
            kernel(loop(loop(GOOD, kind=LoopKind.GRID_X, var=Symbol("j")))),
        ),
        ("grid loop inside other code", kernel(loop(GOOD, kind=LoopKind.GRID_X), GOOD)),
        (
            "needs a constant extent",
            kernel(
                loop(GOOD, kind=LoopKind.VECTOR, extent=symbolic.symbol("N")),
                dims=[Symbol("N")],
            ),
        ),
        (
            "unknown dimension 'N'",
            kernel(locals_=[Buffer("t", f32, (symbolic.symbol("N"),))]),
        ),
        (
            "dynamic shape",
            kernel(
                locals_=[Buffer("t", f32, (symbolic.symbol("N"),), Space.REGISTER)],
                dims=[Symbol("N")],
            ),
        ),
        (
            "dynamic shape",
            kernel(
                locals_=[Buffer("t", f32, (4, symbolic.symbol("N")), Space.REGISTER)],
                dims=[Symbol("N")],
            ),
        ),
        ("share a name", kernel(locals_=[Buffer("x", f32, (1,))])),
        ("go together", kernel(locals_=[Buffer("t", f32, (1,), Space.CONSTANT)])),
        ("has 2 values", kernel(locals_=[Buffer("t", f32, (3,), Space.CONSTANT, (1, 2))])),
        (
            "is not readable here",
            kernel(Store(Y, (0,), Load(Buffer("z", f32, (4,)), (0,)))),
        ),
        (
            "must be a scalar integer",
            kernel(Store(Y, (0,), Load(X, (symbolic.opaque(Load(X, (0,)), "x0"),)))),
        ),
    ],
)
def test_a_broken_rule_is_named(message: str, bad: Kernel):
    with pytest.raises(InternalError, match=message) as raised:
        verify(bad)
    assert "kernel 'k'" in str(raised.value)
    assert "kernel k(" in str(raised.value)  # the dump


def test_the_scope_of_a_loop_variable_ends_with_its_loop():
    shared = Load(X, (AT,))
    first = loop(Store(Y, (AT,), shared))
    with pytest.raises(InternalError, match="not in scope"):
        verify(kernel(first, Store(Y, (0,), shared)))


def test_integer_indices_may_be_loaded():
    at = Buffer("at", i64, (4,))
    index = symbolic.opaque(Load(at, (AT,)), "at[i]")
    parameters = (
        Parameter(X, AccessMode.READ),
        Parameter(at, AccessMode.READ),
        Parameter(Y, AccessMode.WRITE),
    )
    body = loop(Store(Y, (AT,), Load(X, (index,))))
    assert complaint_of(verify, kernel(body, parameters=parameters)) == ""


def test_a_hint_may_point_outside_the_buffer():
    assert complaint_of(verify, kernel(loop(Prefetch(X, (AT + 100,)), GOOD))) == ""


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (Prefetch(X, (AT,), 4), "cache level 4, expected 1, 2 or 3"),
        (Prefetch(X, (AT, AT)), "2 indices into x"),
        (Prefetch(Buffer("z", f32, (4,)), (AT,)), "z: .* is not known here"),
        (Prefetch(X, (symbolic.symbol("j"),)), "'j' is not in scope"),
    ],
)
def test_hints_are_checked_like_loads(hint, reason):
    with pytest.raises(InternalError, match=reason):
        verify(kernel(loop(hint, GOOD)))


def test_registers_are_not_fetched():
    register = Buffer("r", f32, (4,), Space.REGISTER)
    with pytest.raises(InternalError, match="registers are not cached"):
        verify(kernel(loop(Prefetch(register, (AT,)), GOOD), locals_=(register,)))


@pytest.mark.parametrize("dtype", [i64, bool_])
def test_bits_are_read_as_a_type_of_the_same_width(dtype):
    bits = Bitcast(Load(X, (0,)), dtype)
    with pytest.raises(InternalError, match="bits of f32"):
        verify(kernel(Store(Y, (0,), Cast(bits, f32))))
    verify(kernel(Store(Y, (0,), Cast(Bitcast(Load(X, (0,)), i32), f32))))
