"""Steps whose results are as large as the data says."""

from __future__ import annotations

import numpy as np

from fuzz.flow.elementwise import MOST_ELEMENTS
from fuzz.flow.maker import ANY, WHOLE, Maker, Shape, Step, Value, estimated_elements


def replaced(shape: Shape, axis: int, size: int | str) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def step_non_zero(m: Maker) -> None:
    """Places that are not zero; often with what stands there."""
    v = m.pick(
        lambda v: 0 < v.rank < 4 and v.is_exact and v.dtype not in ("float16", "float64")
    )
    if v is None:
        return
    found = m.new_size()
    places = m.add("NonZero", [v], v, dtype="int64", shape=(v.rank, found), kind=WHOLE,
                   bound=16.0, finite=True)  # fmt: skip
    if m.chance(0.6):
        turned = m.add("Transpose", [places], places, shape=(found, v.rank), _perm=[1, 0])
        m.add("GatherND", [v, turned], v, shape=(found,))


def step_compress(m: Maker) -> None:
    v = m.pick(lambda v: v.rank > 0)
    mask = m.pick(lambda w: w.dtype == "bool" and w.rank == 1)
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    if mask is None or mask.shape[0] != v.shape[axis]:
        mask = m.pick(lambda w: w.dtype == "bool" and w.rank == 1 and w.shape[0] in v.shape)
        if mask is None:
            return
        axis = v.shape.index(mask.shape[0])
    m.add("Compress", [v, mask], v, shape=replaced(v.shape, axis, m.new_size()), _axis=axis)


def step_slice(m: Maker) -> None:
    """From and to where the data says; the size is not known at all."""
    v = m.pick(lambda v: v.rank > 0)
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    start = m.as_vector(m.count_of(0, 2))
    end = m.as_vector(m.count_of(1, 6))
    if m.chance(0.3):
        start = m.ints(0)
    operands = [v, start, end, m.ints(axis)]
    if m.chance(0.3):
        operands.append(m.ints(m.one((1, 2))))
    m.add("Slice", operands, v, shape=replaced(v.shape, axis, m.new_size()))


def step_range(m: Maker) -> None:
    least = m.number(0, 1)
    count = m.count_of(least, 6)
    zero, one = m.scalar(0, "int64"), m.scalar(1, "int64")
    size = m.new_size(positive=least > 0)
    m.add("Range", [zero, count, one], count, shape=(size,), bound=6.0)


def step_tile(m: Maker) -> None:
    v = m.pick(
        lambda v: 0 < v.rank < 4 and estimated_elements(v.shape) < MOST_ELEMENTS // 4
    )
    if v is None:
        return
    axis, least = m.number(0, v.rank - 1), m.number(0, 1)
    count = m.as_vector(m.count_of(least, 3))
    repeats = m.joined([count if i == axis else m.ints(1) for i in range(v.rank)])
    size = m.new_size(positive=least > 0 and m.is_positive(v.shape[axis]))
    m.add("Tile", [v, repeats], v, shape=replaced(v.shape, axis, size))


def step_pad(m: Maker) -> None:
    v = m.pick(lambda v: 0 < v.rank < 4 and v.dtype not in ("bool", "float16", "uint8"))
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    none = [m.ints(0)] * v.rank
    before, after = list(none), list(none)
    before[axis] = m.as_vector(m.count_of(0, 2))
    if m.chance(0.5):
        after[axis] = m.as_vector(m.count_of(0, 2))
    size = m.new_size(positive=m.is_positive(v.shape[axis]))
    m.add("Pad", [v, m.joined([*before, *after])], v, shape=replaced(v.shape, axis, size))


def step_expand(m: Maker) -> None:
    v = m.pick(lambda v: 1 in v.shape)
    if v is None:
        return
    axis = m.one([i for i, s in enumerate(v.shape) if s == 1])
    least = m.number(0, 1)
    sizes = [m.ints(1)] * v.rank
    sizes[axis] = m.as_vector(m.count_of(least, 5))
    size = m.new_size(positive=least > 0)
    m.add("Expand", [v, m.joined(sizes)], v, shape=replaced(v.shape, axis, size))


def step_reshape(m: Maker) -> None:
    """To a shape of which data decides one size that divides the other."""
    v = m.pick(
        lambda v: v.rank in (1, 2, 3) and m.has_elements(v) and v.shape[-1] in (4, 6, 8, 12)
    )
    if v is None:
        # There is always something: twelve places.
        v = m.weights((12,), m.one(("float32", "int64")))
    rows = m.as_vector(m.count_of(1, 2))
    sizes = [*(m.dim(v, i) for i in range(v.rank - 1)), rows, m.ints(-1)]
    shape = (*v.shape[:-1], m.new_size(positive=True), m.new_size(positive=True))
    m.add("Reshape", [v, m.joined(sizes)], v, shape=shape)


def step_largest(m: Maker) -> None:
    """As many of the largest as data says; where elements are equal any order of indices is right."""
    v = m.pick(
        lambda v: (
            v.rank > 0 and v.is_exact and v.finite
            and v.dtype in ("float32", "float64", "int64", "int32")
        )
    )  # fmt: skip
    if v is None:
        return
    axis = v.rank - 1 if m.chance(0.6) else m.number(0, v.rank - 1)
    most = m.as_vector(m.count_of(0, 4))
    count = m.vector(m.node("Min", [most, m.dim(v, axis)])[0], 1)
    shape = replaced(v.shape, axis, m.new_size())
    values, places = m.node("TopK", [v, count], 2, axis=axis, largest=m.number(0, 1))
    m.keep(Value(values, v.dtype, shape, v.kind, v.bound, True))
    m.keep(Value(places, "int64", shape, WHOLE, 16.0, True))


def step_filled(m: Maker) -> None:
    least = m.number(0, 1)
    shape = m.as_vector(m.count_of(least, 5))
    size = m.new_size(positive=least > 0)
    made = Value("", "float32", (size,), WHOLE, 0.0)
    m.add("ConstantOfShape", [shape], made)


def step_split(m: Maker) -> None:
    """In two where data says."""
    v = m.pick(lambda v: v.rank > 0 and v.dtype != "bool")
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    size = m.dim(v, axis)
    first = m.vector(m.node("Min", [m.as_vector(m.count_of(0, 3)), size])[0], 1)
    rest = m.vector(m.node("Sub", [size, first])[0], 1)
    names = m.node("Split", [v, m.joined([first, rest])], 2, axis=axis)
    for name in names:
        shape = replaced(v.shape, axis, m.new_size())
        m.keep(Value(name, v.dtype, shape, v.kind, v.bound, v.finite))


def step_one_hot(m: Maker) -> None:
    v = m.pick(lambda v: v.dtype == "int64" and 0 < v.rank < 3)
    if v is None:
        return
    depth = m.count_of(1, 4)
    values = m.constant(np.array([0, 1], np.float32))
    made = Value("", "float32", (*v.shape, m.new_size(positive=True)), WHOLE, 1.0)
    m.add("OneHot", [v, depth, values], made)


def step_unique(m: Maker) -> None:
    v = m.pick(
        lambda v: v.is_exact and v.finite and v.dtype in ("float32", "float64", "int64")
        and m.has_elements(v)
    )  # fmt: skip
    if v is None or m.chance(0.8):
        return
    found = m.new_size(positive=True)
    count = m.node("Unique", [v], 4, sorted=1)
    m.keep(Value(count[0], v.dtype, (found,), v.kind, v.bound, True))
    m.keep(Value(count[3], "int64", (found,), WHOLE, ANY, True))


def step_boxes(m: Maker) -> None:
    """Boxes that do not overlap too much: as many as data allows, of several classes and scores apart."""
    if m.chance(0.5):
        return
    count, classes = m.number(1, 6), m.number(1, 2)
    corners = m.numbers.uniform(0, 4, (1, count, 2))
    boxes = np.concatenate(
        [corners, corners + m.numbers.uniform(0.5, 3, corners.shape)], -1
    )
    scores = m.numbers.permutation(count * classes).reshape(1, classes, count) / 10
    most = m.as_vector(m.count_of(0, 3))
    operands = [
        m.constant(boxes.astype(np.float32)),
        m.constant(scores.astype(np.float32)),
        most,
        m.constant(np.asarray([0.37], np.float32)),
        m.constant(np.asarray([0.25], np.float32)),
    ]
    made = Value("", "int64", (m.new_size(), 3), WHOLE, 6.0)
    m.add("NonMaxSuppression", operands, made)


STEPS: tuple[Step, ...] = (
    step_boxes, step_non_zero, step_non_zero, step_compress, step_compress, step_slice, step_slice, step_range,
    step_tile, step_pad, step_expand, step_reshape, step_largest, step_filled, step_split,
    step_one_hot, step_unique,
)  # fmt: skip
