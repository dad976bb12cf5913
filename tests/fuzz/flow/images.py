"""Steps on images and signals: windows of every kind, sizes that change, and what networks put behind them."""

from __future__ import annotations

import math

import numpy as np

from fuzz.flow.elementwise import MOST_ELEMENTS
from fuzz.flow.maker import (
    ROUGH,
    WHOLE,
    Maker,
    Shape,
    Size,
    Step,
    Value,
    estimated_elements,
)

MOST_CHANNELS = 16
# Of the rest onnxruntime rounds places on a boundary its own way.
ROUNDINGS = ("round_prefer_floor", "floor", "ceil")
NEAREST_COORDINATES = ("half_pixel", "asymmetric", "pytorch_half_pixel")
COORDINATES = (*NEAREST_COORDINATES, "align_corners", "half_pixel_symmetric")


def is_image(v: Value) -> bool:
    """Whether windows can be taken: a batch, known channels, then one to three axes that are not empty."""
    return (
        v.dtype == "float32" and v.rank in (3, 4, 5)
        and isinstance(v.shape[1], int) and 0 < v.shape[1] <= MOST_CHANNELS
    )  # fmt: skip


def image(m: Maker) -> Value | None:
    found = m.pick(
        lambda v: is_image(v) and v.finite and all(m.is_positive(s) for s in v.shape[2:])
    )
    return None if found is None else m.tame(found)


def window(m: Maker, v: Value, most: int, *, dilated: bool = True) -> dict[str, list[int]]:
    """Taps, strides, dilations and pads, with which at least one window fits."""
    found: dict[str, list[int]] = {"k": [], "s": [], "d": [], "before": [], "after": []}
    for size in v.shape[2:]:
        taps, stride = m.number(1, most), m.one((1, 1, 2, 3))
        dilation = m.one((1, 1, 1, 2)) if dilated else 1
        reach = dilation * (taps - 1)
        before, after = m.number(0, taps - 1), m.number(0, taps - 1)
        least = size if isinstance(size, int) else 1
        if least + before + after <= reach:
            before, after = min(reach, taps - 1), taps - 1
        if least + before + after <= reach:
            dilation = 1
        numbers = (taps, stride, dilation, before, after)
        for held, number in zip(found.values(), numbers, strict=True):
            held.append(number)
    return found


def windows(m: Maker, v: Value, w: dict[str, list[int]], *, ceil: bool = False) -> Shape:
    """How many windows fit along each axis."""
    sizes: list[Size] = []
    for axis, size in enumerate(v.shape[2:]):
        if not isinstance(size, int):
            sizes.append(m.new_size(positive=True))
            continue
        room = (
            size
            + w["before"][axis]
            + w["after"][axis]
            - w["d"][axis] * (w["k"][axis] - 1)
            - 1
        )
        stride = w["s"][axis]
        count = (math.ceil(room / stride) if ceil else room // stride) + 1
        if ceil and (count - 1) * stride >= size + w["before"][axis]:
            count -= 1  # a window that begins behind the data is none
        sizes.append(count)
    return tuple(sizes)


def padding(m: Maker, v: Value, w: dict[str, list[int]]) -> tuple[dict[str, object], Shape]:
    """The attributes for pads, and the sizes that result: said, or by a rule."""
    rule = m.one(("", "", "", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if rule == "VALID":
        w["before"] = w["after"] = [0] * len(w["k"])
        known = [s for s in v.shape[2:] if isinstance(s, int)]
        reach = [d * (k - 1) for d, k in zip(w["d"], w["k"], strict=True)]
        if len(known) < len(reach) or any(
            s <= r for s, r in zip(known, reach, strict=True)
        ):
            w["k"] = [1] * len(reach)
        return {"_auto_pad": rule}, windows(m, v, w)
    if rule:
        w["d"] = [1] * len(w["k"])  # onnxruntime knows no dilation beside the rule
        sizes = [
            -(-size // stride) if isinstance(size, int) else m.new_size(positive=True)
            for size, stride in zip(v.shape[2:], w["s"], strict=True)
        ]
        return {"_auto_pad": rule}, tuple(sizes)
    return {"_pads": [*w["before"], *w["after"]]}, windows(m, v, w)


def rough_weights(m: Maker, shape: tuple[int, ...], dtype: str = "float32") -> Value:
    """Weights as training makes them, a sum over which stays small."""
    array = m.numbers.standard_normal(shape) / math.sqrt(math.prod(shape[1:]) or 1)
    return m.constant(np.asarray(array).astype(dtype))


def step_convolution(m: Maker) -> None:
    v = image(m)
    if v is None:
        return
    channels = int(v.shape[1])
    groups = m.one([g for g in {1, 2, 3, channels} if channels % g == 0])
    filters = groups * m.one((1, 2, 3, 5, 8))
    w = window(m, v, 3 if v.rank == 4 else 2 if v.rank == 5 else 5)
    pads, sizes = padding(m, v, w)
    shape = (v.shape[0], filters, *sizes)
    if estimated_elements(shape) > MOST_ELEMENTS:
        return
    taps = (filters, channels // groups, *w["k"])
    whole = m.chance(0.3)
    weights = m.weights(taps, v.dtype) if whole else rough_weights(m, taps)
    operands = [v, weights]
    if m.chance(0.5):
        operands.append(m.weights((filters,), v.dtype))
    made = m.add(
        "Conv", operands, v, shape=shape, kind=WHOLE if whole and v.kind == WHOLE else ROUGH,
        bound=2 + v.bound * 2 * math.prod(taps[1:]), _group=groups, _strides=w["s"],
        _dilations=w["d"], **({"_kernel_shape": w["k"]} if m.chance(0.5) else {}), **pads,
    )  # fmt: skip
    followed(m, made)


def followed(m: Maker, v: Value) -> Value:
    """What networks put behind a sum: norms, activations, what was there before."""
    for _ in range(m.number(0, 3)):
        v = m.one((normalized, activated, activated, added, scaled))(m, v)
    return v


def normalized(m: Maker, v: Value) -> Value:
    if v.rank < 3 or not isinstance(v.shape[1], int):
        return activated(m, v)
    channels = v.shape[1]
    scale, bias, mean = (m.weights((channels,), v.dtype) for _ in range(3))
    variance = m.constant(np.abs(m.numbers.standard_normal(channels)).astype(v.dtype) + 0.5)
    return m.add("BatchNormalization", [v, scale, bias, mean, variance], v, kind=ROUGH,
                 bound=4 * v.bound + 8)  # fmt: skip


def activated(m: Maker, v: Value) -> Value:
    kind = m.one(
        ("Relu", "Clip", "swish", "HardSwish", "LeakyRelu", "PRelu", "Tanh", "gelu")
    )
    if kind == "Clip":
        limits = m.scalar(0, v.dtype), m.scalar(6, v.dtype)
        return m.add("Clip", [v, *limits], v, bound=6.0)
    if kind == "PRelu":
        slope = m.weights((int(v.shape[1]), *[1] * (v.rank - 2)), v.dtype) if (
            v.rank > 2 and isinstance(v.shape[1], int)
        ) else m.scalar(0.5, v.dtype)  # fmt: skip
        return m.add("PRelu", [v, slope], v, kind=ROUGH, bound=2 * v.bound)
    if kind == "swish":
        gate = m.add(m.one(("Sigmoid", "HardSigmoid")), [v], v, kind=ROUGH, bound=1.0)
        return m.add("Mul", [v, gate], v, kind=ROUGH)
    if kind == "gelu":
        return gelu(m, v)
    return m.add(kind, [v], v, kind=v.kind if kind == "Relu" else ROUGH)


def gelu(m: Maker, v: Value) -> Value:
    """Written out, as exporters do, with the error function or the tangent."""
    if m.chance(0.5):
        inner = m.add("Div", [v, m.scalar(math.sqrt(2), v.dtype)], v, kind=ROUGH)
        inner = m.add("Erf", [inner], inner, bound=1.0)
    else:
        v = m.tame(v, 8.0)
        cube = m.add("Pow", [v, m.scalar(3, v.dtype)], v, kind=ROUGH, bound=v.bound**3)
        part = m.add("Mul", [cube, m.scalar(0.044715, v.dtype)], cube)
        whole = m.add("Add", [v, part], part, bound=v.bound + part.bound)
        inner = m.add("Mul", [whole, m.scalar(math.sqrt(2 / math.pi), v.dtype)], whole)
        inner = m.add("Tanh", [inner], inner, bound=1.0)
    more = m.add("Add", [inner, m.scalar(1, v.dtype)], inner, bound=2.0)
    product = m.add("Mul", [v, more], v, kind=ROUGH, bound=2 * v.bound)
    return m.add("Mul", [product, m.scalar(0.5, v.dtype)], product, bound=v.bound)


def added(m: Maker, v: Value) -> Value:
    """A residual: something of the same shape, or one number of each channel."""
    others = [
        w for w in m.frame.visible()
        if w is not v and w.dtype == v.dtype and w.shape == v.shape and w.finite
    ]  # fmt: skip
    if not others:
        return scaled(m, v)
    other = m.one(others)
    return m.add("Add", [v, other] if m.chance(0.5) else [other, v], v,
                 kind=max(v.kind, other.kind), bound=v.bound + other.bound)  # fmt: skip


def scaled(m: Maker, v: Value) -> Value:
    shape = (v.shape[1], *[1] * (v.rank - 2)) if v.rank > 2 else v.shape[-1:]
    if not all(isinstance(s, int) for s in shape):
        shape = ()
    other = m.weights([int(s) for s in shape], v.dtype)
    op = m.one(("Mul", "Add", "Sub"))
    return m.add(op, [v, other], v, bound=2 * v.bound + 2)


def step_deconvolution(m: Maker) -> None:
    v = image(m)
    if v is None or v.rank == 5:
        return
    channels = int(v.shape[1])
    groups = m.one([g for g in {1, 2, channels} if channels % g == 0])
    w = window(m, v, 3)
    extra = [m.number(0, max(s, d) - 1) for s, d in zip(w["s"], w["d"], strict=True)]
    sizes: list[Size] = []
    for axis, size in enumerate(v.shape[2:]):
        reach = w["d"][axis] * (w["k"][axis] - 1)
        w["before"][axis] = w["after"][axis] = min(w["before"][axis], reach // 2)
        if not isinstance(size, int):
            sizes.append(m.new_size(positive=True))
            continue
        crop = w["before"][axis] + w["after"][axis]
        sizes.append((size - 1) * w["s"][axis] + reach + 1 + extra[axis] - crop)
    columns = m.one((1, 2, 3))
    shape = (v.shape[0], groups * columns, *sizes)
    if estimated_elements(shape) > MOST_ELEMENTS:
        return
    weights = rough_weights(m, (channels, columns, *w["k"]))
    made = m.add(
        "ConvTranspose", [v, weights], v, shape=shape, kind=ROUGH, bound=8 * v.bound,
        _group=groups, _strides=w["s"], _dilations=w["d"], _output_padding=extra,
        _pads=[*w["before"], *w["after"]],
    )  # fmt: skip
    followed(m, made)


def step_pool(m: Maker) -> None:
    v = image(m)
    if v is None:
        return
    op = m.one(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    # A window with nothing but pads has no largest element: of few places each is taken.
    many = all(isinstance(s, int) and s > 2 for s in v.shape[2:])
    w = window(m, v, 3, dilated=op == "MaxPool" and many)
    ceil = m.chance(0.5) and op != "LpPool"
    attributes: dict[str, object] = {"_pads": [*w["before"], *w["after"]]}
    sizes = windows(m, v, w, ceil=ceil)
    if op == "MaxPool" and m.chance(0.7):
        attributes["_dilations"] = w["d"]
    elif op == "MaxPool":
        w["d"] = [1] * len(w["d"])
        sizes = windows(m, v, w, ceil=ceil)
    if op == "AveragePool":
        attributes["_count_include_pad"] = m.number(0, 1)
    if op == "LpPool":
        attributes["_p"] = m.one((1, 2))
    else:
        attributes["_ceil_mode"] = int(ceil)
    m.add(op, [v], v, shape=(*v.shape[:2], *sizes), kind=v.kind if op == "MaxPool" else ROUGH,
          bound=9 * v.bound, _kernel_shape=w["k"], _strides=w["s"], **attributes)  # fmt: skip


def step_global_pool(m: Maker) -> None:
    v = image(m)
    if v is None:
        return
    op = m.one(("GlobalAveragePool", "GlobalMaxPool"))
    m.add(op, [v], v, shape=(*v.shape[:2], *[1] * (v.rank - 2)),
          kind=v.kind if op == "GlobalMaxPool" else ROUGH)  # fmt: skip


def step_excited(m: Maker) -> None:
    """Squeeze and excite: a number of each channel, made of all places."""
    v = image(m)
    if v is None:
        return
    channels = int(v.shape[1])
    axes = m.ints(*range(2, v.rank))
    pooled = m.add("ReduceMean", [v, axes], v, shape=(*v.shape[:2], *[1] * (v.rank - 2)),
                   kind=ROUGH, _keepdims=1)  # fmt: skip
    inner = m.one((1, 2, 4))
    ones = [1] * (v.rank - 2)
    down = m.add("Conv", [pooled, rough_weights(m, (inner, channels, *ones))], pooled,
                 shape=(v.shape[0], inner, *ones), bound=16.0)  # fmt: skip
    calm = m.add("Relu", [down], down)
    back = m.add(
        "Conv", [calm, rough_weights(m, (channels, inner, *ones))], pooled, bound=32.0
    )
    gate = m.add(m.one(("Sigmoid", "HardSigmoid")), [back], back, bound=1.0)
    m.add("Mul", [v, gate], v, kind=ROUGH)


def step_resize(m: Maker) -> None:
    v = image(m)
    if v is None or v.rank == 5 or not m.has_elements(v):
        return
    if not all(isinstance(s, int) for s in v.shape[2:]):
        return
    mode = m.one(("nearest", "nearest", "linear", "linear", "cubic"))
    coordinates = m.one(NEAREST_COORDINATES if mode == "nearest" else COORDINATES)
    scales = [m.one((0.5, 0.75, 1.0, 1.5, 2.0, 3.0)) for _ in v.shape[2:]]
    pairs = list(zip((int(s) for s in v.shape[2:]), scales, strict=True))
    sizes = [max(1, math.floor(size * factor)) for size, factor in pairs]
    by_sizes = m.chance(0.5) or coordinates == "align_corners"
    if any(
        factor * size < 1 or size == math.floor(factor * size) for size, factor in pairs
    ):
        by_sizes = True  # what keeps its size onnxruntime copies, whatever the scale
    attributes: dict[str, object] = {
        "_mode": mode, "_coordinate_transformation_mode": coordinates,
    }  # fmt: skip
    if mode == "nearest":
        attributes["_nearest_mode"] = m.one(ROUNDINGS)
    if mode == "cubic":
        attributes["_cubic_coeff_a"] = m.one((-0.5, -0.75))
        attributes["_exclude_outside"] = m.number(0, 1)
    if mode != "nearest" and coordinates == "half_pixel" and m.chance(0.3):
        attributes["_antialias"] = 1
    shape = (*v.shape[:2], *sizes)
    if estimated_elements(shape) > MOST_ELEMENTS:
        return
    if by_sizes:
        attributes["_axes"] = list(range(2, v.rank))
        operands: list[Value | str] = [v, "", "", m.ints(*sizes)]
    else:
        factors = np.array([1, 1, *scales], np.float32)
        operands = [v, "", m.constant(factors)]
    m.add("Resize", operands, v, shape=shape, kind=v.kind if mode == "nearest" else ROUGH,
          bound=3 * v.bound, **attributes)  # fmt: skip


def step_blocks(m: Maker) -> None:
    """Channels to places, or back."""
    v = m.pick(lambda v: is_image(v) and v.rank == 4)
    if v is None:
        return
    batch, channels, *places = v.shape
    assert isinstance(channels, int)
    if channels % 4 == 0 and m.chance(0.7):
        sizes = [s * 2 if isinstance(s, int) else m.new_size(positive=m.is_positive(s))
                 for s in places]  # fmt: skip
        m.add("DepthToSpace", [v], v, shape=(batch, channels // 4, *sizes), _blocksize=2,
              _mode=m.one(("DCR", "CRD")))  # fmt: skip
    elif all(isinstance(s, int) and s % 2 == 0 and s for s in places):
        halves = [int(s) // 2 for s in places]
        m.add("SpaceToDepth", [v], v, shape=(batch, channels * 4, *halves), _blocksize=2)


def step_normalized_image(m: Maker) -> None:
    v = image(m)
    if v is None or not m.has_elements(v):
        return
    channels = int(v.shape[1])
    scale, bias = m.weights((channels,), v.dtype), m.weights((channels,), v.dtype)
    kind = m.one(("InstanceNormalization", "LRN", "groups", "MeanVarianceNormalization"))
    if kind == "LRN" and v.rank == 4:
        m.add("LRN", [v], v, kind=ROUGH, _size=m.one((1, 3, 5)), _alpha=0.1)
    elif kind == "InstanceNormalization":
        m.add(kind, [v, scale, bias], v, kind=ROUGH, bound=16.0, _epsilon=0.25)
    elif kind == "groups":
        groups_normalized(m, v)
    elif v.rank == 4 and kind != "LRN":
        calm = m.add("Add", [v, rough_weights(m, (channels, 1, 1))], v, kind=ROUGH)
        m.add(kind, [calm], calm, kind=ROUGH, bound=32.0) if all(
            isinstance(s, int) and s > 1 for s in v.shape[2:]
        ) else None  # fmt: skip


def groups_normalized(m: Maker, v: Value) -> None:
    """As exporters write it: rows of groups, the norm of each, and the shape as it was."""
    channels = int(v.shape[1])
    groups = m.one([g for g in (1, 2, 3, 4, channels) if channels % g == 0])
    rows = m.add("Reshape", [v, m.ints(0, groups, -1)], v,
                 shape=(v.shape[0], groups, m.new_size(positive=True)))  # fmt: skip
    ones = m.constant(np.ones(groups, np.float32)), m.constant(np.zeros(groups, np.float32))
    calm = m.add("InstanceNormalization", [rows, *ones], rows, kind=ROUGH, bound=16.0,
                 _epsilon=0.25)  # fmt: skip
    (sizes,) = m.node("Shape", [v])
    back = m.add("Reshape", [calm, sizes], v, kind=ROUGH, bound=16.0)
    tail = (channels, *[1] * (v.rank - 2))
    made = m.add("Mul", [back, m.weights(tail, v.dtype)], back, bound=32.0)
    m.add("Add", [made, m.weights(tail, v.dtype)], made, bound=34.0)


STEPS: tuple[Step, ...] = (
    step_convolution, step_convolution, step_convolution, step_convolution, step_deconvolution,
    step_pool, step_pool, step_global_pool, step_excited, step_resize, step_resize, step_blocks,
    step_normalized_image,
)  # fmt: skip
