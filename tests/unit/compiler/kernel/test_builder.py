from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import bf16, bool_, f16, f32, i64
from tilewright.base.errors import InternalError
from tilewright.compiler.kernel.builder import Immediate, KernelBuilder, compute_dtype
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import AccessMode, Const, For, If, Load, Select, Space
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify

N = symbolic.symbol("N", 1)


def test_a_nest_drops_loops_of_extent_one_and_yields_zero_for_them():
    b = KernelBuilder("k")
    y = b.result("y", f32, (1, 3, 1))
    with b.nest((1, 3, 1)) as (i, j, k):
        assert i == 0
        assert k == 0
        b.store(y, (i, j, k), 1.0)
    assert [loop.var.name for loop in loops(b.build().body)] == ["i1"]


def test_loop_variables_get_fresh_names_and_the_bounds_of_their_extent():
    b = KernelBuilder("k")
    y = b.result("y", f32, (4, N))
    for _ in range(2):
        with b.nest((4, N), ("m", "N")) as (m, n):
            b.store(y, (m, n), 0)
    found = loops(b.build().body)
    names = [loop.var.name for loop in found]
    assert names == ["m", "N_2", "m_2", "N_3"]
    assert (found[0].var.lower, found[0].var.upper) == (0, 3)
    assert found[1].var.upper is None


def test_dims_are_the_symbols_in_use_sorted_by_name():
    b = KernelBuilder("k", list(symbolic.symbols(N + symbolic.symbol("unused"))))
    y = b.result("y", f32, (symbolic.symbol("Z", 1), N))
    with b.nest(y.shape) as indices:
        b.store(y, indices, 0)
    assert [s.name for s in b.build().dims] == ["N", "Z"]


def test_a_result_that_is_read_back_is_a_read_write_parameter():
    b = KernelBuilder("k")
    y = b.result("y", f32, (3,))
    z = b.result("z", f32, (3,))
    with b.nest((3,)) as i:
        b.store(y, i, 0)
        with b.reduce((5,)):
            b.accumulate("add", y, i, b.const(1, f32))
    with b.nest((3,)) as i:
        b.store(z, i, 2)
    kernel = b.build()
    assert [p.access for p in kernel.parameters] == [
        AccessMode.READ_WRITE,
        AccessMode.WRITE,
    ]
    assert [loop.reduction for loop in loops(kernel.body)] == [False, True, False]


def test_read_and_write_compute_16_bit_floats_in_f32():
    b = KernelBuilder("k")
    x, y = b.parameter("x", bf16, (2,)), b.result("y", f16, (2,))
    with b.nest((2,)) as i:
        value = b.read(x, i)
        assert value.dtype is f32
        b.write(y, i, value)
    verify(b.build())
    assert compute_dtype(i64) is i64


def test_an_immediate_reads_as_a_constant():
    b = KernelBuilder("k")
    value = b.load(Immediate(3, f32, (2, 2)), (0, 1))
    assert isinstance(value, Const)
    mask = b.lt(b.index(symbolic.symbol("i", 0, 9)), b.index(4))
    assert isinstance(b.load(Immediate(3, f32, ()), (), mask), Select)


def test_constant_masks_and_guards_are_decided_at_once():
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (4,)), b.result("y", f32, (4,))
    with b.nest((4,)) as (i,):
        masked = b.load(x, (i,), b.within(i, 0, 4))
        assert isinstance(masked, Load)
        assert masked.mask is None
        with b.when(b.const(True, bool_)):
            b.store(y, (i,), masked)
        with b.when(b.const(False, bool_)):
            b.store(y, (i,), 7.0)
    (loop,) = b.build().body
    assert isinstance(loop, For)
    assert len(loop.body) == 1
    assert not isinstance(loop.body[0], If)


def test_a_table_is_a_constant_buffer_with_its_data():
    b = KernelBuilder("k")
    table, y = b.table((1.5, 2.5), f32, (2,)), b.result("y", f32, (2,))
    with b.nest((2,)) as i:
        b.store(y, i, b.load(table, i))
    kernel = b.build()
    assert kernel.locals[0].space is Space.CONSTANT
    out = np.zeros(2, np.float32)
    verify(kernel)
    evaluate(kernel, [out])
    assert out.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("fault", ["store dtype", "rank", "operand dtypes", "unclosed"])
def test_misuse_is_an_internal_error(fault: str):
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (4,)), b.result("y", f16, (4,))

    def unclosed():
        with b.nest((4,)):
            b.build()

    faults = {
        "store dtype": lambda: b.store(y, (0,), b.load(x, (0,))),
        "rank": lambda: b.load(x, (0, 0)),
        "operand dtypes": lambda: b.add(b.load(x, (0,)), b.load(y, (0,))),
        "unclosed": unclosed,
    }
    with pytest.raises(InternalError):
        faults[fault]()


def test_the_text_reads_like_python():
    b = KernelBuilder("double")
    x, y = b.parameter("x", f32, (N, 3)), b.result("y", f32, (N, 3))
    with b.nest((N, 3)) as i:
        b.store(y, i, b.mul(b.load(x, i), 2))
    assert kernel_text(b.build()) == (
        "kernel double(read x: f32[N, 3], write y: f32[N, 3], *, N: 1..):\n"
        "    for i0 in range(N):\n"
        "        for i1 in range(3):\n"
        "            y[i0, i1] = (x[i0, i1] * 2.0)\n"
    )
