"""Steps along axes: reductions, normalized rows, products of matrices, sorted and running values."""

from __future__ import annotations

from fuzz.flow.elementwise import MOST_ELEMENTS
from fuzz.flow.maker import (
    ANY,
    FLOATS,
    ROUGH,
    WHOLE,
    Maker,
    Shape,
    Step,
    Value,
    estimated_elements,
)

LONGEST = 16


def length_bound(v: Value, axes: list[int]) -> float:
    """How many elements are summed at most, roughly."""
    count = 1
    for axis in axes:
        size = v.shape[axis]
        count *= size if isinstance(size, int) else LONGEST
    return float(count)


def step_reduce(m: Maker) -> None:
    v = m.pick(lambda v: v.rank > 0 and v.dtype not in ("bool", "uint8"))
    if v is None:
        return
    axes = sorted(m.choose.sample(range(v.rank), m.number(1, v.rank)))
    ops = ["ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2"]
    if not v.is_float:
        ops = ["ReduceSum"]
    if v.finite and all(m.is_positive(v.shape[a]) for a in axes):
        ops += ["ReduceMax", "ReduceMin"] * 2
    reduce(m, v, m.one(ops), axes)


def reduce(m: Maker, v: Value, op: str, axes: list[int]) -> Value | None:
    """Reduce a value; the mean of nothing is not asked for."""
    if op == "ReduceMean" and not all(m.is_positive(v.shape[a]) for a in axes):
        return None
    if op in ("ReduceSumSquare", "ReduceL1", "ReduceL2"):
        v = m.tame(v)
    keep = m.chance(0.4)
    shape: Shape = tuple(
        1 if i in axes else s for i, s in enumerate(v.shape) if keep or i not in axes
    )
    grown = length_bound(v, axes) * (
        v.bound if op in ("ReduceSum", "ReduceL1") else v.bound**2
    )
    if op in ("ReduceMax", "ReduceMin"):
        kind, bound = v.kind, v.bound
    elif op in ("ReduceMean", "ReduceL2"):
        kind, bound = ROUGH, v.bound if op == "ReduceMean" else grown
    else:
        kind = WHOLE if v.kind == WHOLE else ROUGH
        bound = grown if v.is_float else ANY
    listed = m.ints(*(a - v.rank if m.chance(0.3) else a for a in axes))
    return m.add(
        op, [v, listed], v, shape=shape, kind=kind, bound=bound, _keepdims=int(keep)
    )


def step_arg(m: Maker) -> None:
    v = m.pick(
        lambda v: (
            v.rank > 0 and v.is_exact and v.finite and v.dtype in (*FLOATS, "int32")
            and all(m.is_positive(s) for s in v.shape)
        )
    )  # fmt: skip
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    shape = tuple(1 if i == axis else s for i, s in enumerate(v.shape))
    m.add(m.one(("ArgMax", "ArgMin")), [v], v, dtype="int64", shape=shape, kind=WHOLE,
          bound=float(LONGEST), _axis=axis, _keepdims=1)  # fmt: skip


def step_softmax(m: Maker) -> None:
    v = m.pick(lambda v: v.is_float and v.rank > 0)
    if v is None:
        return
    axis = m.number(-v.rank, v.rank - 1)
    v = m.tame(v, 16.0)
    if not m.is_positive(v.shape[axis]):
        return
    m.add(m.one(("Softmax", "Softmax", "LogSoftmax")), [v], v, kind=ROUGH, bound=32.0,
          _axis=axis)  # fmt: skip


def step_norm(m: Maker) -> None:
    v = m.pick(
        lambda v: (
            v.is_float and v.rank > 1 and isinstance(v.shape[-1], int) and v.shape[-1] > 1
        )
    )
    if v is None:
        return
    v = m.tame(v, 8.0)
    scale = m.weights((int(v.shape[-1]),), v.dtype)
    m.add(
        "LayerNormalization", [v, scale], v, kind=ROUGH, bound=8.0, _axis=-1, _epsilon=0.25
    )


def step_product(m: Maker) -> None:
    """A product of matrices: with a constant, or of two values that fit."""
    v = m.pick(lambda v: v.is_float and v.rank in (2, 3))
    if v is None:
        return
    v = m.tame(v)
    fits = [
        w
        for w in m.frame.visible()
        if w.dtype == v.dtype and w.rank == 2 and w.shape[0] == v.shape[-1]
    ]
    if fits and m.chance(0.5):
        right = m.tame(m.one(fits))
    elif isinstance(v.shape[-1], int):
        right = m.weights((v.shape[-1], m.one((1, 2, 3, 5))), v.dtype)
    else:
        return
    shape = (*v.shape[:-1], right.shape[1])
    if estimated_elements(shape) > MOST_ELEMENTS:
        return
    bound = length_bound(v, [v.rank - 1]) * v.bound * right.bound
    kind = WHOLE if v.kind == right.kind == WHOLE else ROUGH
    finite = v.finite and right.finite
    if v.rank == 2 and m.chance(0.3):
        bias = m.weights((1,), v.dtype)
        m.add(
            "Gemm",
            [v, right, bias],
            v,
            shape=shape,
            kind=kind,
            bound=bound + 4,
            finite=finite,
        )
    else:
        m.add("MatMul", [v, right], v, shape=shape, kind=kind, bound=bound, finite=finite)


def step_running(m: Maker) -> None:
    v = m.pick(lambda v: v.rank > 0 and v.dtype in ("float32", "float64", "int32", "int64"))
    if v is None:
        return
    v = m.tame(v)
    axis = m.number(0, v.rank - 1)
    bound = length_bound(v, [axis]) * v.bound if v.is_float else ANY
    m.add("CumSum", [v, m.scalar(axis, "int64")], v, bound=bound,
          kind=WHOLE if v.kind == WHOLE else ROUGH, _exclusive=m.number(0, 1),
          _reverse=m.number(0, 1))  # fmt: skip


STEPS: tuple[Step, ...] = (
    step_reduce, step_reduce, step_reduce, step_arg, step_softmax, step_norm, step_product,
    step_product, step_running,
)  # fmt: skip
