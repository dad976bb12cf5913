"""Steps that move elements: axes, pieces, repetitions, indices; with sizes that the shapes say."""

from __future__ import annotations

import numpy as np

from fuzz.flow.elementwise import MOST_ELEMENTS
from fuzz.flow.maker import MOST_RANK, Maker, Size, Step, Value, estimated_elements


def step_transpose(m: Maker) -> None:
    v = m.pick(lambda v: v.rank > 1)
    if v is not None:
        order = list(range(v.rank))
        m.choose.shuffle(order)
        m.add("Transpose", [v], v, shape=tuple(v.shape[a] for a in order), _perm=order)


def step_unsqueeze(m: Maker) -> None:
    v = m.pick(lambda v: v.rank < MOST_RANK)
    if v is not None:
        axis = m.number(0, v.rank)
        m.add(
            "Unsqueeze", [v, m.ints(axis)], v, shape=(*v.shape[:axis], 1, *v.shape[axis:])
        )


def step_squeeze(m: Maker) -> None:
    v = m.pick(lambda v: 1 in v.shape)
    if v is not None:
        axis = m.one([i for i, s in enumerate(v.shape) if s == 1])
        m.add(
            "Squeeze", [v, m.ints(axis)], v, shape=(*v.shape[:axis], *v.shape[axis + 1 :])
        )


def step_reshape(m: Maker) -> None:
    """Two axes become one, or the last one several: the shape is known or computed of the sizes."""
    v = m.pick(lambda v: v.rank > 1)
    if v is None:
        return
    axis = m.number(0, v.rank - 2)
    pair = v.shape[axis], v.shape[axis + 1]
    merged: Size
    if isinstance(pair[0], int) and isinstance(pair[1], int):
        merged = pair[0] * pair[1]
    else:
        merged = m.new_size(positive=all(m.is_positive(s) for s in pair))
    shape = (*v.shape[:axis], merged, *v.shape[axis + 2 :])
    if not all(m.is_positive(s) for s in v.shape):
        # -1 says nothing where there are no elements: all sizes are said.
        sizes = [m.dim(v, i) for i in range(v.rank)]
        product = m.vector(m.node("Mul", sizes[axis : axis + 2])[0], 1)
        wanted = m.joined([*sizes[:axis], product, *sizes[axis + 2 :]])
        m.add("Reshape", [v, wanted], v, shape=shape, _allowzero=1)
        return
    if m.chance(0.5):
        numbers = [0 if i < axis else -1 if i == axis else 0 for i in range(len(shape))]
        if all(isinstance(s, int) for s in v.shape[axis + 2 :]):
            numbers[axis + 1 :] = [int(s) for s in v.shape[axis + 2 :]]
            m.add("Reshape", [v, m.ints(*numbers)], v, shape=shape)
            return
    parts = [m.dim(v, i) for i in range(v.rank)]
    wanted = m.joined([*parts[:axis], m.ints(-1), *parts[axis + 2 :]])
    m.add("Reshape", [v, wanted], v, shape=shape)


def step_split_axis(m: Maker) -> None:
    """A known size becomes two, by a constant shape."""

    def fits(v: Value) -> bool:
        return (
            0 < v.rank < MOST_RANK
            and isinstance(v.shape[-1], int)
            and v.shape[-1] > 1
            and all(m.is_positive(s) for s in v.shape)
        )

    v = m.pick(fits)
    if v is None:
        return
    last = int(v.shape[-1])
    left = m.one([n for n in range(1, last + 1) if last % n == 0])
    numbers = [0] * (v.rank - 1) + [left, -1]
    m.add("Reshape", [v, m.ints(*numbers)], v, shape=(*v.shape[:-1], left, last // left))


def step_concat(m: Maker) -> None:
    left = m.pick(lambda v: v.rank > 0)
    if left is None:
        return
    axis = m.number(0, left.rank - 1)
    fits = [
        v
        for v in m.frame.visible()
        if v.dtype == left.dtype and v.rank == left.rank
        and all(a == b for i, (a, b) in enumerate(zip(v.shape, left.shape, strict=True)) if i != axis)
    ]  # fmt: skip
    right = m.one(fits)
    sizes = left.shape[axis], right.shape[axis]
    size: Size
    if isinstance(sizes[0], int) and isinstance(sizes[1], int):
        size = sizes[0] + sizes[1]
    else:
        size = m.new_size(positive=any(m.is_positive(s) for s in sizes))
    shape = (*left.shape[:axis], size, *left.shape[axis + 1 :])
    if estimated_elements(shape) <= MOST_ELEMENTS:
        m.add("Concat", [left, right], left, shape=shape, kind=max(left.kind, right.kind),
              bound=max(left.bound, right.bound), finite=left.finite and right.finite,
              _axis=axis)  # fmt: skip


def step_slice(m: Maker) -> None:
    """A piece with constant ends, of an axis whose size need not be known."""
    v = m.pick(lambda v: v.rank > 0)
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    size = v.shape[axis]
    start, end, step = m.number(-3, 2), m.number(-2, 9), m.one((1, 1, 2, -1))
    found: Size
    if isinstance(size, int):
        found = len(range(size)[slice(start, end, step)])
    else:
        found = m.new_size()
    axes, steps = m.ints(axis), m.ints(step)
    m.add("Slice", [v, m.ints(start), m.ints(end), axes, steps], v,
          shape=(*v.shape[:axis], found, *v.shape[axis + 1 :]))  # fmt: skip


def step_gather(m: Maker) -> None:
    """Elements at constant places, or at places that data decides."""
    v = m.pick(lambda v: v.rank > 0 and all(m.is_positive(s) for s in v.shape))
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    size = v.shape[axis]
    if m.chance(0.5):
        limit = size if isinstance(size, int) else 1
        places = m.numbers.integers(-limit, limit, m.one(((), (1,), (3,), (2, 2))))
        index = m.constant(np.asarray(places).astype(np.int64))
    else:
        found = m.pick(lambda w: w.dtype in ("int64", "int32") and w.rank < 3)
        if found is None:
            return
        number = m.node("Squeeze", [m.dim(v, axis), m.ints(0)])[0]
        if found.dtype != "int64":
            number = m.node("Cast", [number], to=6)[0]
        index = m.add("Mod", [found, number], found, bound=8.0)
    shape = (*v.shape[:axis], *index.shape, *v.shape[axis + 1 :])
    if len(shape) <= MOST_RANK and estimated_elements(shape) <= MOST_ELEMENTS:
        m.add("Gather", [v, index], v, shape=shape, _axis=axis)


def step_expand(m: Maker) -> None:
    v = m.pick(lambda v: v.rank > 0 and 1 in v.shape)
    if v is None:
        return
    axis = m.one([i for i, s in enumerate(v.shape) if s == 1])
    other = m.pick(lambda w: w.rank > 0)
    assert other is not None
    theirs = m.number(0, other.rank - 1)
    sizes = [m.ints(1) for _ in range(v.rank)]
    sizes[axis] = m.dim(other, theirs)
    shape = (*v.shape[:axis], other.shape[theirs], *v.shape[axis + 1 :])
    if estimated_elements(shape) <= MOST_ELEMENTS:
        m.add("Expand", [v, m.joined(sizes)], v, shape=shape)


def step_pad(m: Maker) -> None:
    v = m.pick(lambda v: v.rank in (1, 2) and v.dtype != "bool")
    if v is None:
        return
    before, after = m.number(0, 2), m.number(0, 2)
    size = v.shape[-1]
    pads = m.ints(*([0] * (v.rank - 1)), before, *([0] * (v.rank - 1)), after)
    if isinstance(size, int):
        padded: Size = size + before + after
    else:
        padded = m.new_size(positive=m.is_positive(size) or before + after > 0)
    m.add("Pad", [v, pads], v, shape=(*v.shape[:-1], padded))


def step_split(m: Maker) -> None:
    v = m.pick(lambda v: any(isinstance(s, int) and s > 1 for s in v.shape))
    if v is None:
        return
    axis = m.one([i for i, s in enumerate(v.shape) if isinstance(s, int) and s > 1])
    size = int(v.shape[axis])
    first = m.number(0, size)
    names = m.node("Split", [v, m.ints(first, size - first)], 2, axis=axis)
    for name, part in zip(names, (first, size - first), strict=True):
        shape = (*v.shape[:axis], part, *v.shape[axis + 1 :])
        m.keep(Value(name, v.dtype, shape, v.kind, v.bound, v.finite))


def step_trilu(m: Maker) -> None:
    v = m.pick(lambda v: v.rank > 1 and v.dtype in ("float32", "float64", "int64"))
    if v is not None:
        m.add("Trilu", [v], v, _upper=m.number(0, 1))


def step_identity(m: Maker) -> None:
    v = m.pick()
    if v is not None:
        m.add("Identity", [v], v)


def step_shape(m: Maker) -> None:
    """The sizes of a value as data."""
    v = m.pick(lambda v: v.rank > 0)
    if v is not None:
        m.add(
            "Shape", [v], v, dtype="int64", shape=(v.rank,), kind=0, bound=1e4, finite=True
        )


STEPS: tuple[Step, ...] = (
    step_transpose, step_unsqueeze, step_squeeze, step_reshape, step_reshape, step_split_axis,
    step_concat, step_concat, step_slice, step_slice, step_gather, step_gather, step_expand,
    step_pad, step_split, step_trilu, step_identity, step_shape,
)  # fmt: skip
