"""Steps of a random graph that move elements, make indices, or run on the host."""

from __future__ import annotations

import numpy as np

from fuzz.graph_maker import (
    Maker,
    Steps,
    Tracked,
    has_zero,
    is_size,
)
from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Value


def _move(
    maker: Maker, v: Tracked, op: str, *more: Tracked | Value, **attributes: object
) -> Tracked | None:
    return maker.add(op, [v, *more], exact=v.exact, bound=v.bound, **attributes)


def step_transpose(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.rank > 1)
    if v is None:
        return None
    perm = tuple(maker.choose.sample(range(v.rank), v.rank))
    return _move(maker, v, "transpose", perm=perm)


def step_reshape(maker: Maker) -> Tracked | None:
    v = maker.pick()
    if v is None:
        return None
    shape = list(v.shape)
    choice = maker.one(("merge", "split", "unit", "squeeze", "flat"))
    if choice == "merge" and len(shape) > 1:
        at = maker.number(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif choice == "split":
        places = [i for i, d in enumerate(shape) if is_size(d) and d > 1]
        if places:
            at = maker.one(places)
            part = next(p for p in (2, 3, 5, 7, shape[at]) if shape[at] % p == 0)
            pair = [shape[at] // part, part]
            shape[at : at + 1] = pair if maker.flip() else pair[::-1]
    elif choice == "squeeze" and 1 in shape:
        shape.remove(1)
    elif choice == "flat":
        total: Dim = 1
        for dim in shape:
            total = total * dim
        shape = [total]
    else:
        shape.insert(maker.number(0, len(shape)), 1)
    return _move(maker, v, "reshape", shape=tuple(shape)) if len(shape) <= 5 else None


def step_slice(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: any(is_size(d) and d > 1 for d in v.shape))
    if v is None:
        return None
    axis = maker.one([i for i, d in enumerate(v.shape) if is_size(d) and d > 1])
    extent = v.shape[axis]
    assert isinstance(extent, int)
    step = maker.one((1, 1, 1, 2, -1, -2, 3))
    start = maker.number(0, extent - 1)
    room = (extent - start if step > 0 else start + 1) + abs(step) - 1
    size = maker.number(0 if maker.number(0, 9) == 0 else 1, room // abs(step))
    return _move(
        maker, v, "slice", axes=(axis,), starts=(start,), sizes=(size,), steps=(step,)
    )


def step_parts(maker: Maker) -> Tracked | None:
    """Slices of one value, put together in another order."""
    v = maker.pick(lambda v: any(is_size(d) and d > 1 for d in v.shape))
    if v is None:
        return None
    axis = maker.one([i for i, d in enumerate(v.shape) if is_size(d) and d > 1])
    extent = v.shape[axis]
    assert isinstance(extent, int)
    cut = maker.number(1, extent - 1)
    parts = []
    for start, size in ((0, cut), (cut, extent - cut)):
        parts.append(
            _move(
                maker, v, "slice", axes=(axis,), starts=(start,), sizes=(size,), steps=(1,)
            )
        )
    head, tail = parts
    if head is None or tail is None:
        return None
    if v.dtype.is_float and maker.flip():
        tail = maker.add("neg", [tail], exact=v.exact, bound=v.bound)
    return _move(maker, tail, "concat", head, axis=axis)


def step_concat(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.rank > 0)
    if v is None:
        return None
    axis = maker.number(0, v.rank - 1)
    fits = [
        w
        for w in maker.values
        if w.dtype is v.dtype
        and w.rank == v.rank
        and all(
            a == b
            for i, (a, b) in enumerate(zip(w.shape, v.shape, strict=True))
            if i != axis
        )
    ]
    others = [maker.one(fits) for _ in range(maker.number(1, 2))]
    exact = v.exact and all(w.exact for w in others)
    bound = max(v.bound, *(w.bound for w in others))
    return maker.add("concat", [v, *others], axis=axis, exact=exact, bound=bound)


def step_pad(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.rank > 0)
    if v is None:
        return None
    pads = tuple(maker.number(0, 2) for _ in range(2 * v.rank))
    mode = maker.one(("constant", "constant", "edge"))
    if mode == "edge" and has_zero(v.shape):
        mode = "constant"
    return _move(maker, v, "pad", pads=pads, mode=mode)


def step_expand(maker: Maker) -> Tracked | None:
    v = maker.pick()
    if v is None:
        return None
    shape = [maker.one(maker.dims) if d == 1 else d for d in v.shape]
    if maker.flip():
        shape.insert(0, maker.one(maker.dims))
    return _move(maker, v, "broadcast_to", shape=tuple(shape)) if len(shape) <= 5 else None


def step_tile(maker: Maker) -> Tracked | None:
    v = maker.pick()
    if v is None:
        return None
    return _move(maker, v, "tile", repeats=tuple(maker.number(1, 2) for _ in v.shape))


def step_gather(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: any(is_size(d) and d > 0 for d in v.shape))
    if v is None:
        return None
    axis = maker.one([i for i, d in enumerate(v.shape) if is_size(d) and d > 0])
    extent = v.shape[axis]
    assert isinstance(extent, int)
    indices = _indices(maker, extent)
    if indices is None or v.rank - 1 + len(indices.type.shape) > 5:
        return None
    return _move(maker, v, "gather", indices, axis=axis)


def _indices(maker: Maker, extent: int) -> Value | None:
    """Integers in [-extent, extent): constants, or computed."""
    made = maker.pick(lambda v: v.dtype in (dtypes.i64, dtypes.i32) and v.rank <= 2)
    if made is not None and maker.flip():
        inside = maker.add("clip", [made, maker.whole(-extent, made.dtype),
                                   maker.whole(extent - 1, made.dtype)])  # fmt: skip
        return None if inside is None else inside.value
    shape = maker.one(((), (3,), (2, 3), (1,)))
    return maker.builder.constant(np.asarray(maker.random.integers(-extent, extent, shape)))


def step_trilu(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.rank >= 2)
    return None if v is None else _move(maker, v, "trilu", upper=maker.flip())


def step_iota(maker: Maker) -> Tracked | None:
    rank = maker.number(1, 2)
    shape = tuple(maker.one(maker.dims) for _ in range(rank))
    return maker.add("iota", [], shape=shape, axis=maker.number(0, rank - 1), bound=64)


def step_host(maker: Maker) -> Tracked | None:
    """An op without a kernel, between kernels."""
    v = maker.pick(lambda v: v.exact and not v.dtype.is_bool and v.rank > 0)
    if v is None or v.dtype.name not in ("f32", "i64", "i32"):
        return None
    axis = maker.number(0, v.rank - 1)
    extent = v.shape[axis]
    if not is_size(extent) or extent == 0:
        return None
    count = maker.number(1, extent)
    made = maker.builder.op("top_k", [v.value], {"k": (count,), "axis": axis})
    maker.keep(Tracked(made[1], True, 64))
    return maker.keep(Tracked(made[0], True, v.bound))


STEPS: Steps = (
    step_transpose,
    step_reshape,
    step_slice,
    step_parts,
    step_concat,
    step_pad,
    step_expand,
    step_tile,
    step_gather,
    step_trilu,
    step_iota,
    step_host,
)
