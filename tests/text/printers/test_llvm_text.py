"""The LLVM IR of small kernels, against the `.ll` file of the same name beside this file.

`TILEWRIGHT_UPDATE_TEXT=1 pytest tests/text/printers` writes what comes out; read the difference before
committing it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.lowered import lower
from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Compare,
    Const,
    Expression,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Space,
    Statement,
    Store,
    Unary,
)
from tilewright.compiler.kernel.rewrite import as_index
from tilewright.compiler.printers.llvm_text.function import emit_kernel

UPDATE = bool(os.environ.get("TILEWRIGHT_UPDATE_TEXT"))
TARGET = Target.level("v3")
f32 = dtypes.f32
i, j, k, v = (symbol(name) for name in "ijkv")
KERNELS: dict[str, Kernel] = {}


def loop(name: str, extent: Dim, *body: Statement, kind=LoopKind.SERIAL, reduction=False):
    return For(Symbol(name), extent, body, kind, reduction)


def lanes(extent: int, *body: Statement) -> For:
    return loop("v", extent, *body, kind=LoopKind.VECTOR)


def kernel(make: Callable[[], Kernel]) -> None:
    KERNELS[make.__name__] = make()


def built(buffers, *body: Statement, locals_=(), dims=()) -> Kernel:
    *inputs, output = buffers
    parameters = [Parameter(b, AccessMode.READ) for b in inputs]
    return Kernel(
        "k", (*parameters, Parameter(output, AccessMode.WRITE)), dims, locals_, tuple(body)
    )


def add(left: Expression, right: Expression) -> Expression:
    return Binary("add", left, right, f32)


@kernel
def vector_copy_with_masked_tail() -> Kernel:
    n = symbol("n", 1)
    x, y = Buffer("x", f32, (n,)), Buffer("y", f32, (n,))
    place = i * 8 + v
    store = Store(y, (place,), Load(x, (place,)))
    body = loop(
        "i", (n + 7) // 8, lanes(8, If(Compare("lt", Index(place), Index(n)), (store,)))
    )
    return built((x, y), body, dims=(Symbol("n", 1),))


@kernel
def one_workgroup_per_row() -> Kernel:
    x, y = Buffer("x", f32, (4, 100)), Buffer("y", f32, (4, 100))
    value = Unary("neg", Load(x, (i, j)), f32)
    return built(
        (x, y), loop("i", 4, loop("j", 100, Store(y, (i, j), value)), kind=LoopKind.GRID_X)
    )


@kernel
def register_tile_of_a_product() -> Kernel:
    a, b, c = (
        Buffer("a", f32, (2, 64)),
        Buffer("b", f32, (64, 16)),
        Buffer("c", f32, (2, 16)),
    )
    tile = Buffer("t", f32, (2, 2, 8), Space.REGISTER)

    def tiled(store: Callable[[], Store]) -> For:
        inner = loop("j", 2, lanes(8, store()), kind=LoopKind.UNROLL)
        return loop("i", 2, inner, kind=LoopKind.UNROLL)

    product = Binary("mul", Load(a, (i, k)), Load(b, (k, j * 8 + v)), f32)
    return built(
        (a, b, c),
        tiled(lambda: Store(tile, (i, j, v), Const(0.0, f32))),
        loop("k", 64, tiled(lambda: Store(tile, (i, j, v), add(Load(tile, (i, j, v)), product))), reduction=True),
        tiled(lambda: Store(c, (i, j * 8 + v), Load(tile, (i, j, v)))),
        locals_=(tile,),
    )  # fmt: skip


@kernel
def sum_of_lanes() -> Kernel:
    x, y = Buffer("x", f32, (8,)), Buffer("y", f32, (1,))
    total = add(Load(y, (0,)), Load(x, (v,)))
    reduction = For(
        Symbol("v"), 8, (Store(y, (0,), total),), LoopKind.VECTOR, reduction=True
    )
    return built((x, y), Store(y, (0,), Const(0.0, f32)), reduction)


@kernel
def conditional_update_of_a_register() -> Kernel:
    x, y = Buffer("x", f32, (16,)), Buffer("y", f32, (1,))
    best = Buffer("r", f32, (1,), Space.REGISTER)
    value = Load(x, (i,))
    update = If(Compare("gt", value, Load(best, (0,))), (Store(best, (0,), value),))
    return built(
        (x, y),
        Store(best, (0,), Const(0.0, f32)),
        loop("i", 16, update),
        Store(y, (0,), Load(best, (0,))),
        locals_=(best,),
    )


@kernel
def gather_with_indices_from_memory() -> Kernel:
    x, at = Buffer("x", f32, (99,)), Buffer("at", dtypes.i32, (2,))
    y = Buffer("y", f32, (2,))
    return built((x, at, y), lanes(2, Store(y, (v,), Load(x, (as_index(Load(at, (v,))),)))))


@kernel
def exponential_of_a_vector() -> Kernel:
    x, y = Buffer("x", f32, (8,)), Buffer("y", f32, (8,))
    return built((x, y), lanes(8, Store(y, (v,), Unary("exp", Load(x, (v,)), f32))))


@pytest.mark.parametrize("name", KERNELS)
def test_the_ir_of_a_kernel_is_what_the_file_says(name: str):
    module = emit_kernel(lower(KERNELS[name], TARGET), TARGET)
    text = module.text.replace(module.symbol, "kernel")
    file = Path(__file__).parent / f"{name}.ll"
    if UPDATE:
        file.write_text(text)
    assert text == file.read_text()


def test_every_file_has_its_kernel():
    files = {file.stem for file in Path(__file__).parent.glob("*.ll")}
    assert files == set(KERNELS)
