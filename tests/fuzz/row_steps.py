"""Steps of a random graph along axes: reductions, positions of extremes, running sums, normalized rows."""

from __future__ import annotations

from fuzz.graph_maker import (
    Maker,
    Steps,
    Tracked,
    size_of,
)
from tilewright.compiler.graph.ir import Value


def _axes(maker: Maker, v: Tracked) -> tuple[int, ...]:
    if not v.rank:
        return ()
    count = maker.number(1, v.rank)
    return tuple(sorted(maker.choose.sample(range(v.rank), count)))


def step_reduce(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: not v.dtype.is_bool and v.rank > 0)
    if v is None:
        return None
    axes = _axes(maker, v)
    count = size_of([v.shape[a] for a in axes])
    empty = any(v.shape[a] == 0 for a in axes)
    names = ["reduce_sum"] if empty else ["reduce_sum", "reduce_max", "reduce_min"]
    if v.dtype.is_float and not empty:
        names.append("reduce_mean")
    name = maker.one(names)
    exact = v.exact and name != "reduce_mean"
    bound = v.bound * max(1, count) * 4 if name == "reduce_sum" else v.bound
    if v.dtype.name in ("f16", "bf16") and name == "reduce_sum" and not exact:
        name = "reduce_mean" if not empty else name
    made = maker.add(name, [v], axes=axes, keepdims=maker.flip(), exact=exact, bound=bound)
    if made is not None and made.dtype.is_float and bound > 50 and not made.exact:
        return maker.tame(made)
    return made


def step_arg(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.exact and not v.dtype.is_bool and v.rank > 0)
    if v is None:
        return None
    axis = maker.number(0, v.rank - 1)
    if v.shape[axis] == 0:
        return None
    return maker.add(
        maker.one(("arg_max", "arg_min")), [v], axis=axis, keepdims=maker.flip(),
        select_last=maker.flip(), bound=64,
    )  # fmt: skip


def step_cumsum(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.rank > 0 and v.dtype.name in ("f32", "f64", "i64", "i32"))
    if v is None:
        return None
    made = maker.add(
        "cumsum", [v], axis=maker.number(0, v.rank - 1), exclusive=maker.flip(),
        reverse=maker.flip(), exact=v.exact, bound=v.bound * size_of(v.shape),
    )  # fmt: skip
    return maker.tame(made) if made is not None and made.dtype.is_float else made


def step_rows(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.dtype.is_float and v.rank > 0)
    if v is None:
        return None
    axis = maker.number(-v.rank, v.rank - 1)
    if any(d == 0 for d in v.shape[axis % v.rank :]):
        return None
    name = maker.one(("softmax", "log_softmax", "layer_norm", "rms_norm"))
    if name in ("softmax", "log_softmax"):
        return maker.add(name, [v], axis=axis)
    # Variances of rows of equal numbers are noise: a large epsilon keeps it down.
    operands: list[Tracked | Value | None] = [maker.tame(v)]
    shape = v.shape[axis % v.rank :]
    if all(isinstance(d, int) for d in shape) and maker.flip():
        sizes = [d for d in shape if isinstance(d, int)]
        operands.append(maker.constant(sizes, v.dtype))
        if name == "layer_norm":
            operands.append(maker.constant(sizes, v.dtype) if maker.flip() else None)
    return maker.add(name, operands, axis=axis, epsilon=0.1)


STEPS: Steps = (
    step_reduce,
    step_arg,
    step_cumsum,
    step_rows,
)
