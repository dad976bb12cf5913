"""Small naive kernels and the check that a rewrite kept what they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fakes.contractions import Form
from tilewright.base import symbolic
from tilewright.base.dtypes import DType, f32
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import AccessMode, Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.ops import catalogue


def run(
    kernel: Kernel, dims: Mapping[str, int] | None = None, seed: int = 0
) -> list[np.ndarray]:
    """The written parameters after one evaluation on data made of `seed`."""
    env = {s.name: (dims or {})[s.name] for s in kernel.dims}
    generator = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    for parameter in kernel.parameters:
        shape = tuple(symbolic.evaluate(d, env) for d in parameter.buffer.shape)
        dtype = parameter.buffer.dtype
        data = generator.integers(-4, 5, shape)
        arrays.append(np.asarray(data).astype(dtype.numpy).copy())
    evaluate(kernel, arrays, env)
    pairs = zip(kernel.parameters, arrays, strict=True)
    return [a for p, a in pairs if p.access is not AccessMode.READ]


def assert_same(
    before: Kernel, after: Kernel, dims: Mapping[str, int] | None = None, exact: bool = True
) -> None:
    """Both are well formed and compute the same; `exact` allows no rounding difference."""
    verify(after)
    for wanted, got in zip(run(before, dims), run(after, dims), strict=True):
        if exact:
            np.testing.assert_array_equal(got, wanted, err_msg=kernel_text(after))
        else:
            np.testing.assert_allclose(
                got.astype(np.float64),
                wanted.astype(np.float64),
                rtol=1e-4,
                atol=1e-4 * float(np.abs(wanted.astype(np.float64)).max(initial=1)),
                err_msg=kernel_text(after),
            )


def body_text(kernel: Kernel) -> str:
    """The statements of a kernel as text, without its header and locals."""
    lines = kernel_text(kernel).splitlines()[1:]
    kept = [line for line in lines if not line.startswith(("    local ", "    # note"))]
    return "\n".join(line[4:] for line in kept).strip()


def emit(
    b: KernelBuilder, op: str, attributes: Mapping[str, object] | Form, operands, result
) -> None:
    """Add the naive nests of an op."""
    row = catalogue.lookup(op)
    assert row.body is not None
    if callable(attributes):
        attributes = attributes([operand.shape for operand in operands])
    row.body.emit(b, row.complete(dict(attributes)), list(operands), [result])


def op_kernel(
    op: str,
    shapes: Sequence[Sequence[Dim]],
    result: Sequence[Dim],
    attributes: Mapping[str, object] | Form | None = None,
    dtype: DType = f32,
) -> Kernel:
    """The kernel of one op."""
    b = KernelBuilder(op)
    operands = [b.parameter(f"x{n}", dtype, tuple(s)) for n, s in enumerate(shapes)]
    emit(b, op, attributes or {}, operands, b.result("y", dtype, tuple(result)))
    return b.build()


def doubled(extent: Dim = 10) -> Kernel:
    """`for i: y[i] = x[i] * 2`."""
    b = KernelBuilder("doubled")
    x, y = b.parameter("x", f32, (extent,)), b.result("y", f32, (extent,))
    with b.nest((extent,), ("i",)) as (i,):
        b.store(y, (i,), b.mul(b.load(x, (i,)), 2))
    return b.build()


def product(rows: Dim = 5, columns: Dim = 7, depth: Dim = 6) -> Kernel:
    """`for i, j: y[i, j] = sum_k a[i, k] * w[k, j]`, the accumulator being the result."""
    b = KernelBuilder("product")
    a = b.parameter("a", f32, (rows, depth))
    w = b.parameter("w", f32, (depth, columns))
    y = b.result("y", f32, (rows, columns))
    with b.nest((rows, columns), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((depth,), ("k",)) as (k,):
            b.accumulate("add", y, (i, j), b.mul(b.load(a, (i, k)), b.load(w, (k, j))))
    return b.build()


def chained(extent: Dim = 9) -> Kernel:
    """`t = x + 1; y = t * t`, through a temporary."""
    b = KernelBuilder("chained")
    x, y = b.parameter("x", f32, (extent,)), b.result("y", f32, (extent,))
    t = b.temporary(f32, (extent,), "t")
    with b.nest((extent,), ("i",)) as (i,):
        b.store(t, (i,), b.add(b.load(x, (i,)), 1))
    with b.nest((extent,), ("j",)) as (j,):
        b.store(y, (j,), b.mul(b.load(t, (j,)), b.load(t, (j,))))
    return b.build()


def row_sums(rows: Dim = 3, columns: Dim = 11) -> Kernel:
    """`for i: y[i] = sum_k x[i, k]`, the total in a temporary."""
    b = KernelBuilder("row_sums")
    x, y = b.parameter("x", f32, (rows, columns)), b.result("y", f32, (rows,))
    t = b.temporary(f32, (rows,), "t")
    with b.nest((rows,), ("i",)) as (i,):
        b.store(t, (i,), 0)
        with b.reduce((columns,), ("k",)) as (k,):
            b.accumulate("add", t, (i,), b.load(x, (i, k)))
    with b.nest((rows,), ("j",)) as (j,):
        b.store(y, (j,), b.load(t, (j,)))
    return b.build()
