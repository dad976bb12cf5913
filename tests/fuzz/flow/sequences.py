"""Steps on sequences of rows: attention with every mask, norms as exporters write them, sums by letters."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from fuzz.flow.elementwise import MOST_ELEMENTS
from fuzz.flow.images import followed, rough_weights
from fuzz.flow.maker import ROUGH, Maker, Shape, Size, Step, Value, estimated_elements

DARK = (-1e4, -1e9, float(np.finfo(np.float32).min), -np.inf)


def rows(
    m: Maker, rank: int | None = None, kinds: tuple[str, ...] = ("float32",)
) -> Value | None:
    """Finite rows of known length."""
    found = m.pick(
        lambda v: v.dtype in kinds and v.finite and v.rank > 1
        and (rank is None or v.rank == rank) and isinstance(v.shape[-1], int) and v.shape[-1] > 0
    )  # fmt: skip
    return None if found is None else m.tame(found)


def linear(m: Maker, v: Value, columns: int) -> Value:
    depth = int(v.shape[-1])
    weights = rough_weights(m, (columns, depth), v.dtype)
    turned = m.add("Transpose", [weights], weights, shape=(depth, columns), _perm=[1, 0])
    made = m.add("MatMul", [v, turned], v, shape=(*v.shape[:-1], columns), kind=ROUGH,
                 bound=3 * v.bound * math.sqrt(depth))  # fmt: skip
    if m.chance(0.6):
        made = m.add(
            "Add", [made, m.weights((columns,), v.dtype)], made, bound=made.bound + 2
        )
    return made


def step_linear(m: Maker) -> None:
    v = rows(m, kinds=("float32", "float64"))
    columns = m.one((1, 2, 4, 7, 8, 16, 24))
    if v is None or estimated_elements((*v.shape[:-1], columns)) > MOST_ELEMENTS:
        return
    followed(m, linear(m, v, columns))


def step_gated(m: Maker) -> None:
    """A gated layer between two: as the language models of today have it."""
    v = rows(m, kinds=("float32", "float64"))
    if v is None or estimated_elements((*v.shape[:-1], 16)) > MOST_ELEMENTS:
        return
    inner = m.one((3, 8, 16))
    gate, up = linear(m, v, inner), linear(m, v, inner)
    gate = m.tame(gate, 16.0)
    bent = m.add("Sigmoid", [gate], gate, kind=ROUGH, bound=1.0)
    opened = m.add("Mul", [gate, bent], gate)
    both = m.add("Mul", [opened, up], up, bound=opened.bound * up.bound)
    both = m.tame(both, 8.0)
    down = linear(m, both, int(v.shape[-1]))
    m.add("Add", [v, down], v, kind=ROUGH, bound=v.bound + down.bound)


def step_norm(m: Maker) -> None:
    """The norm of rows in the words of an exporter."""
    v = rows(m, kinds=("float32", "float64"))
    if v is None or int(v.shape[-1]) < 2:
        return
    power = m.chance(0.5)
    axis = m.ints(-1)
    single = (*v.shape[:-1], 1)
    center = v
    with_mean = m.chance(0.5)
    if with_mean:
        mean = m.add("ReduceMean", [v, axis], v, shape=single, kind=ROUGH, _keepdims=1)
        center = m.add("Sub", [v, mean], v, kind=ROUGH, bound=2 * v.bound)
    square = (
        m.add(
            "Pow", [center, m.scalar(2, v.dtype)], center, kind=ROUGH, bound=center.bound**2
        )
        if power
        else m.add("Mul", [center, center], center, bound=center.bound**2)
    )
    spread = m.add(
        "ReduceMean", [square, axis], square, shape=single, kind=ROUGH, _keepdims=1
    )
    more = m.add("Add", [spread, m.scalar(0.25, v.dtype)], spread)
    root = m.add("Sqrt", [more], more)
    if m.chance(0.5):
        made = m.add("Div", [center, root], center, kind=ROUGH)
    else:
        inverse = m.add("Reciprocal", [root], root, bound=4.0)
        made = m.add("Mul", [center, inverse], center, kind=ROUGH)
    length = int(v.shape[-1])
    made = m.add("Mul", [made, m.weights((length,), v.dtype)], made, bound=8.0)
    if with_mean or m.chance(0.3):
        m.add("Add", [made, m.weights((length,), v.dtype)], made, bound=10.0)


def step_norm_operator(m: Maker) -> None:
    """The norms that are operators, of Microsoft and of ONNX, with what is added before."""
    v = rows(m, 3)
    if v is None or not m.has_elements(v):
        return
    length = int(v.shape[-1])
    scale = m.weights((length,), v.dtype)
    kind = m.one(("Skip", "SkipSimplified", "Simplified", "Simplified", "Lp"))
    if kind == "Lp":
        calm = m.add(
            "Add", [m.add("Abs", [v], v), m.scalar(1, v.dtype)], v, bound=v.bound + 1
        )
        m.add("LpNormalization", [calm], calm, kind=ROUGH, bound=1.0, _axis=m.one((-1, 1)),
              _p=m.one((1, 2)))  # fmt: skip
    elif kind == "Simplified":
        if m.opset >= 23:
            m.add("RMSNormalization", [v, scale], v, kind=ROUGH, bound=16.0, _axis=-1,
                  _epsilon=0.25)  # fmt: skip
    else:
        others = [w for w in m.frame.visible()
                  if (w.dtype, w.shape) == (v.dtype, v.shape) and w.finite]  # fmt: skip
        other = m.tame(m.one(others) if others else v)
        bias = m.weights((length,), v.dtype)
        operands = (
            [v, other, scale] if kind == "SkipSimplified" else [v, other, scale, bias]
        )
        stem = (
            "SkipLayerNormalization"
            if kind == "Skip"
            else "SkipSimplifiedLayerNormalization"
        )
        m.add(stem, operands, v, kind=ROUGH, bound=16.0, _epsilon=0.25,
              _domain="com.microsoft")  # fmt: skip


# --- attention ----------------------------------------------------------------------------------


def step_attention(m: Maker) -> None:
    """Written out: heads apart, scores, a mask, weights, values; keys shared by some heads."""
    v = rows(m, 3)
    if (
        v is None
        or not m.has_elements(v)
        or estimated_elements(v.shape) > MOST_ELEMENTS // 8
    ):
        return
    batch, length, _ = v.shape
    heads, depth = m.one((1, 2, 4)), m.one((2, 3, 4, 8))
    shared = m.one([g for g in (1, 2, 4) if heads % g == 0])
    q = heads_of(m, linear(m, v, heads * depth), heads, depth)
    k = heads_of(m, linear(m, v, heads // shared * depth), heads // shared, depth)
    values = heads_of(m, linear(m, v, heads // shared * depth), heads // shared, depth)
    if shared > 1:
        k, values = repeated(m, k, shared), repeated(m, values, shared)
    turned = m.add(
        "Transpose", [k], k, shape=(batch, heads, depth, length), _perm=[0, 1, 3, 2]
    )
    scale = m.scalar(1 / math.sqrt(depth), v.dtype)
    if m.chance(0.3):
        q = m.add("Mul", [q, scale], q, kind=ROUGH)
    scores = m.add("MatMul", [q, turned], q, shape=(batch, heads, length, length), kind=ROUGH,
                   bound=depth * q.bound * k.bound)  # fmt: skip
    scores = m.add(m.one(("Mul", "Div")), [scores, scale], scores, bound=3 * scores.bound)
    scores = masked(m, scores, v)
    weights = m.add("Softmax", [scores], scores, kind=ROUGH, bound=1.0, _axis=-1)
    mixed = m.add("MatMul", [weights, values], values, kind=ROUGH, bound=values.bound,
                  shape=(batch, heads, length, depth), finite=weights.finite)  # fmt: skip
    mixed = m.add("Transpose", [mixed], mixed, shape=(batch, length, heads, depth),
                  _perm=[0, 2, 1, 3])  # fmt: skip
    joined = m.add("Reshape", [mixed, m.ints(0, 0, heads * depth)], mixed,
                   shape=(batch, length, heads * depth))  # fmt: skip
    out = linear(m, m.tame(joined), int(v.shape[-1]))
    m.add("Add", [v, out], out, bound=v.bound + out.bound)


def heads_of(m: Maker, v: Value, heads: int, depth: int) -> Value:
    v = m.tame(v)
    parted = m.add("Reshape", [v, m.ints(0, 0, heads, depth)], v,
                   shape=(*v.shape[:2], heads, depth))  # fmt: skip
    return m.add("Transpose", [parted], parted, _perm=[0, 2, 1, 3],
                 shape=(v.shape[0], heads, v.shape[1], depth))  # fmt: skip


def repeated(m: Maker, v: Value, times: int) -> Value:
    """Each head several times: expanded behind its axis, which then is one with it."""
    batch, heads, length, depth = v.shape
    assert isinstance(heads, int)
    wide = m.add("Unsqueeze", [v, m.ints(2)], v, shape=(batch, heads, 1, length, depth))
    sizes = m.joined([m.ints(1, 1, times, 1, 1)])
    wide = m.add("Expand", [wide, sizes], wide, shape=(batch, heads, times, length, depth))
    ends = m.joined([m.dim(v, 0), m.ints(heads * times), m.dim(v, 2), m.dim(v, 3)])
    return m.add("Reshape", [wide, ends], v, shape=(batch, heads * times, length, depth))


def masked(m: Maker, scores: Value, v: Value) -> Value:
    kind = m.one(("none", "causal", "causal where", "padding", "padding where", "distance"))
    if kind == "none":
        return scores
    dark = m.one(DARK)
    length = v.shape[1]
    size = m.dim(v, 1)
    if kind == "distance":
        return m.add(
            "Add", [scores, distances(m, size, length)], scores, bound=scores.bound + 32
        )
    if kind.startswith("causal"):
        wide = m.joined([size, size])
        ones = m.add("ConstantOfShape", [wide], Value("", "float32", (length, length)),
                     _value=_one())  # fmt: skip
        seen = m.add("Trilu", [ones], ones, _upper=0)
    else:
        seen = padding_mask(m, v)
    lit = m.add("Cast", [seen], seen, dtype="bool", bound=1.0, _to=9)
    facts = {"kind": ROUGH, "finite": dark != -np.inf or kind.startswith("causal")}
    if kind.endswith("where"):
        return m.add("Where", [lit, scores, m.scalar(dark, "float32")], scores, **facts)
    zero = m.scalar(0, "float32")
    added = m.add("Where", [lit, zero, m.scalar(dark, "float32")], seen, bound=abs(dark))
    return m.add("Add", [scores, added], scores, bound=4e38, **facts)


def _one() -> object:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ones(1, np.float32))


def padding_mask(m: Maker, v: Value) -> Value:
    """[B, 1, 1, L]: which rows are there, of something that was computed of each row."""
    summed = m.add("ReduceSum", [v, m.ints(-1)], v, shape=v.shape[:2], kind=v.kind,
                   bound=32 * v.bound, _keepdims=0)  # fmt: skip
    if not summed.is_exact:
        # What is rounded must not decide: every other row, by its number.
        count = m.joined([m.dim(v, 1)])
        ones = m.add("ConstantOfShape", [count], Value("", "float32", (v.shape[1],)),
                     _value=_one())  # fmt: skip
        number = m.add("CumSum", [ones, m.scalar(0, "int64")], ones, bound=32.0)
        odd = m.add("Mod", [number, m.scalar(2, "float32")], number, bound=2.0, _fmod=1)
        summed = m.add("Unsqueeze", [odd, m.ints(0)], odd, shape=(1, v.shape[1]))
    there = m.add(
        "Greater", [summed, m.scalar(0, "float32")], summed, dtype="bool", bound=1.0
    )
    return m.add("Unsqueeze", [there, m.ints(1, 2)], there,
                 shape=(summed.shape[0], 1, 1, v.shape[1]))  # fmt: skip


def distances(m: Maker, size: Value, length: Size) -> Value:
    """[H, L, L]: how far apart, times the slope of the head (1: for all heads)."""
    (count,) = m.node("Squeeze", [size, m.ints(0)])
    zero, one = m.scalar(0, "int64"), m.scalar(1, "int64")
    number = m.add("Range", [zero, count, one], Value("", "int64", (length,)), bound=16.0)
    column = m.add("Unsqueeze", [number, m.ints(1)], number, shape=(length, 1))
    apart = m.add("Sub", [number, column], number, shape=(length, length))
    real = m.add("Cast", [apart], apart, dtype="float32", _to=1)
    slope = m.constant(np.asarray(0.25, np.float32).reshape(1, 1, 1))
    return m.add("Mul", [real, slope], real, shape=(1, length, length), kind=ROUGH)


def step_attention_operator(m: Maker) -> None:
    """The operator of Microsoft, with a bias or a mask of its own."""
    v = rows(m, 3)
    if (
        v is None
        or not m.has_elements(v)
        or estimated_elements(v.shape) > MOST_ELEMENTS // 8
    ):
        return
    heads, depth = m.one((1, 2, 4)), m.one((2, 4, 8))
    q, k, values = (m.tame(linear(m, v, heads * depth)) for _ in range(3))
    attributes: dict[str, object] = {"_num_heads": heads}
    if m.chance(0.4):
        attributes["_unidirectional"] = 1
    if m.chance(0.3):
        attributes["_scale"] = 0.5
    m.add("MultiHeadAttention", [q, k, values], q, kind=ROUGH, _domain="com.microsoft",
          **attributes)  # fmt: skip


def step_attention_of_onnx(m: Maker) -> None:
    """The operator of opset 23: three axes or four, a mask, keys shared by heads."""
    v = rows(m, 3)
    if m.opset < 23 or v is None or not m.has_elements(v):
        return
    if estimated_elements(v.shape) > MOST_ELEMENTS // 8:
        return
    shared, fewer, depth = m.one((1, 1, 2)), m.one((1, 2)), m.one((2, 4, 8))
    heads = shared * fewer
    q = m.tame(linear(m, v, heads * depth))
    k, values = (m.tame(linear(m, v, fewer * depth)) for _ in range(2))
    attributes: dict[str, object] = {}
    if m.chance(0.5):
        attributes["_is_causal"] = 1
    if m.chance(0.3):
        attributes["_softcap"] = 2.0
    shape: Shape = (*v.shape[:2], heads * depth)
    if m.chance(0.5):
        q, k, values = (
            heads_of(m, t, h, depth) for t, h in ((q, heads), (k, fewer), (values, fewer))
        )
        shape = q.shape
    else:
        attributes |= {"_q_num_heads": heads, "_kv_num_heads": fewer}
    m.add("Attention", [q, k, values], q, shape=shape, kind=ROUGH, **attributes)


def step_grouped_attention(m: Maker) -> None:
    """The operator of language models as they begin: keys for groups of heads, kept; turned or not; a window."""
    v = rows(m, 3)
    if v is None or not m.has_elements(v):
        return
    if estimated_elements(v.shape) > MOST_ELEMENTS // 8:
        return
    batch, length, _ = v.shape
    fewer, shared, depth = m.one((1, 2)), m.one((1, 2)), 16
    heads = fewer * shared
    q = m.tame(linear(m, v, heads * depth))
    k, values = (m.tame(linear(m, v, fewer * depth)) for _ in range(2))
    (total,) = m.node("Cast", [m.dim(v, 1)], to=TensorProto.INT32)
    last = m.node("Sub", [total, m.constant(np.asarray([1], np.int32))])[0]
    lengths = m.node("Expand", [last, m.dim(v, 0)])[0]
    number = m.node("Squeeze", [total, m.ints(0)])[0]
    operands: list[Value | str] = [q, k, values, "", "", lengths, number]
    attributes: dict[str, object] = {"num_heads": heads, "kv_num_heads": fewer}
    if m.chance(0.5):
        angles = np.arange(32)[:, None] / 10 ** np.arange(depth // 2)
        operands += [m.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": m.number(0, 1)}
    if m.chance(0.3):
        attributes["local_window_size"] = m.one((1, 2, 5))
    if m.chance(0.3):
        attributes["softcap"] = 2.0
    names = m.node("GroupQueryAttention", operands, 3, domain="com.microsoft", **attributes)
    m.keep(Value(names[0], "float32", (batch, length, heads * depth), ROUGH, values.bound))
    for name, bound in zip(names[1:], (2 * k.bound, values.bound), strict=True):
        m.keep(Value(name, "float32", (batch, fewer, length, depth), ROUGH, bound))


# --- sums by letters ----------------------------------------------------------------------------


def step_einsum(m: Maker) -> None:
    """A product whose equation is made of the sizes: letters of two values, some of them summed."""
    v = m.pick(lambda v: v.dtype in ("float32", "float64") and 0 < v.rank < 4 and v.finite)
    if v is None:
        return
    left = m.tame(v)
    letters = "abcd"[: left.rank]
    size_of: dict[str, Size] = dict(zip(letters, left.shape, strict=True))
    fixed = [c for c in letters if isinstance(size_of[c], int)]
    other = m.choose.sample(fixed, m.number(0, min(2, len(fixed))))
    size_of["e"] = m.one((1, 2, 5))
    other.insert(m.number(0, len(other)), "e")
    right = m.weights([int(size_of[c]) for c in other], v.dtype)
    used = sorted({*letters, *other})
    result = m.choose.sample(used, m.number(0, min(4, len(used))))
    shape = tuple(size_of[c] for c in result)
    summed = [size_of[c] for c in used if c not in result]
    if not all(m.is_positive(s) for s in (*left.shape, *summed)):
        return
    if estimated_elements([size_of[c] for c in used]) > MOST_ELEMENTS:
        return
    equation = f"{letters},{''.join(other)}->{''.join(result)}"
    m.add("Einsum", [left, right], left, shape=shape, kind=ROUGH,
          bound=2 * left.bound * 16 ** len(summed), _equation=equation)  # fmt: skip


def step_embedding(m: Maker) -> None:
    v = m.pick(lambda v: v.dtype in ("int64", "int32") and 0 < v.rank < 3)
    if v is None:
        return
    count, depth = m.one((3, 8)), m.one((2, 4, 8))
    divisor = m.scalar(count, v.dtype)
    places = m.add("Mod", [v, divisor], v, bound=float(count))
    table = rough_weights(m, (count, depth))
    m.add(
        "Gather", [table, places], table, shape=(*v.shape, depth), kind=ROUGH, finite=True
    )


STEPS: tuple[Step, ...] = (
    step_linear, step_linear, step_gated, step_norm, step_norm, step_norm_operator,
    step_attention, step_attention, step_attention_operator, step_attention_of_onnx,
    step_grouped_attention, step_einsum, step_einsum, step_embedding,
)  # fmt: skip
