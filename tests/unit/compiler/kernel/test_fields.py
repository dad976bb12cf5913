"""What nodes hold, and the walks that are derived from it."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i32, i64
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.fields import (
    Fields,
    Mutator,
    Role,
    children,
    dims_of,
    fields_of,
    operands_of,
    with_children,
    with_inner,
)
from tilewright.compiler.kernel.ir import (
    Barrier,
    Binary,
    Buffer,
    Call,
    Const,
    Expression,
    Fma,
    For,
    Function,
    Index,
    Load,
    LoopKind,
    Permuted,
    Select,
    Statement,
    Store,
    Transposed,
    Unary,
)

PLACE = symbolic.symbol("i", 0, 7)
X = Buffer("x", f32, (8,))


def number(value: float) -> Const:
    return Const(value, f32)


def test_every_field_of_every_kind_has_a_role():
    for kind in (*get_args(Expression), *get_args(Statement)):
        names = [field.name for field in dataclasses.fields(kind)]
        assert list(fields_of(kind).roles) == names


def test_a_field_of_an_unknown_type_is_refused_by_name():
    @dataclasses.dataclass
    class Strange:
        operand: Expression
        tiles: set[int]

    with pytest.raises(InternalError, match=r"Strange\.tiles is of type 'set\[int\]'"):
        Fields(Strange)


def test_the_roles_follow_from_the_types():
    assert fields_of(Store).roles == {
        "buffer": Role.BUFFER,
        "indices": Role.INDICES,
        "value": Role.OPERAND,
        "stride": Role.DATA,
        "mask": Role.OPTIONAL,
    }
    assert fields_of(For).roles["body"] is Role.BODY
    assert fields_of(For).data == ("kind", "reduction")


def test_children_are_the_operands_in_order():
    a, b, c = number(1), number(2), number(3)
    assert children(Fma(a, b, c, f32)) == (a, b, c)
    assert children(Transposed((a, b), 0, f32, 2)) == (a, b)
    assert children(Call(Function("g", (f32, f32), f32), (a, b))) == (a, b)
    assert children(number(1)) == ()


def test_an_operand_that_is_not_there_is_no_child():
    mask = Const(True, i32)
    assert children(Load(X, (PLACE,))) == ()
    assert children(Load(X, (PLACE,), mask=mask)) == (mask,)
    assert operands_of(Store(X, (PLACE,), number(1))) != ()


def test_indices_are_found_in_expressions_and_statements():
    assert dims_of(Load(X, (PLACE, 3))) == (PLACE, 3)
    assert dims_of(Index(PLACE)) == (PLACE,)
    assert dims_of(For(symbolic.Symbol("k"), 5, ())) == (5,)
    assert dims_of(Barrier()) == ()


@pytest.mark.parametrize(
    "value",
    [
        Binary("add", number(1), number(2), f32),
        Fma(number(1), number(2), number(3), f32),
        Select(Const(True, i32), number(1), number(2), f32),
        Transposed((number(1), number(2)), 1, f32, 2),
        Permuted(Const(1.0, f32, 2), (1, 0, 1), f32, 3),
        Load(X, (PLACE,), mask=Const(True, i32)),
        Load(X, (PLACE,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_children_leave_the_rest_as_it_was(value: Expression):
    fresh = [number(10 + i) for i in range(len(children(value)))]
    image = with_children(value, fresh)
    assert children(image) == tuple(fresh)
    for name in fields_of(value).data:
        assert getattr(image, name) == getattr(value, name)


class Doubled(Mutator):
    """Doubles indices and numbers, and drops barriers."""

    def expression(self, value: Expression) -> Expression:
        if isinstance(value, Const):
            return Const(2 * value.value, value.dtype)
        return self.rebuilt(value)

    def dim(self, dim: Dim) -> Dim:
        return dim * 2

    def statement(self, statement: Statement) -> Any:
        return () if isinstance(statement, Barrier) else super().statement(statement)


def test_a_mutator_reaches_operands_indices_and_bodies():
    store = Store(X, (PLACE,), Unary("neg", number(3), f32), mask=Const(1, i32))
    (loop,) = Doubled().statement(
        For(symbolic.Symbol("i"), 4, (Barrier(), store), LoopKind.UNROLL)
    )
    assert isinstance(loop, For)
    assert (loop.extent, loop.kind) == (8, LoopKind.UNROLL)
    (image,) = loop.body
    assert isinstance(image, Store)
    assert image.indices == (PLACE * 2,)
    assert isinstance(image.value, Unary)
    assert isinstance(image.value.operand, Const)
    assert image.value.operand.value == 6
    assert isinstance(image.mask, Const)
    assert image.mask.value == 2


def test_an_expression_that_holds_the_same_parts_is_the_same_node():
    value = Binary("add", Load(X, (PLACE,)), Index(PLACE, i64), f32)
    assert Mutator().expression(value) is value


def test_a_loop_around_another_body_keeps_its_marks():
    loop = For(symbolic.Symbol("k"), 3, (), LoopKind.VECTOR, reduction=True)
    inside = (Barrier(),)
    image = with_inner(loop, inside)
    assert image.body == inside
    assert isinstance(image, For)
    assert (image.kind, image.reduction, image.extent) == (LoopKind.VECTOR, True, 3)
