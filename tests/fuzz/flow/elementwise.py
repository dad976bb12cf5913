"""Steps of element by element: arithmetic, comparisons, functions, conversions, choices."""

from __future__ import annotations

import numpy as np
from onnx import helper

from fuzz.flow.maker import (
    ANY,
    FLOATS,
    INTEGERS,
    ROUGH,
    SAME,
    WHOLE,
    Maker,
    Step,
    Value,
    estimated_elements,
    joined_shape,
)

MOST_ELEMENTS = 1 << 12
SMOOTH = ("Tanh", "Sigmoid", "Sin", "Cos", "Atan", "Erf", "Softsign", "Elu", "Selu",
          "Softplus", "Mish", "HardSwish", "Asinh", "Celu", "ThresholdedRelu")  # fmt: skip
COMPARISONS = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")


def partner(m: Maker, left: Value) -> tuple[Value, tuple] | None:
    """A value of the same type that broadcasts with `left`, and what they broadcast to."""
    fits = [
        v
        for v in m.frame.visible()
        if v.dtype == left.dtype and joined_shape(v.shape, left.shape) is not None
    ]
    if not fits or m.chance(0.25):
        last = left.shape[-1] if left.rank else 1
        shape = (last,) if isinstance(last, int) and m.chance(0.5) else ()
        found = m.weights(shape, left.dtype)
    else:
        found = m.one(fits[-6:] if m.chance(0.5) else fits)
    shape = joined_shape(found.shape, left.shape)
    assert shape is not None
    return (found, shape) if estimated_elements(shape) <= MOST_ELEMENTS else None


def step_arithmetic(m: Maker) -> None:
    left = m.pick(lambda v: v.dtype != "bool")
    found = left and partner(m, left)
    if not left or not found:
        return
    op = m.one(("Add", "Sub", "Mul"))
    right, shape = found
    if op == "Mul" and left.is_float:
        left, right = m.tame(left, 16.0), m.tame(right, 16.0)
    if left.is_float:
        kinds = {left.kind, right.kind}
        kind = WHOLE if kinds == {WHOLE} else ROUGH
        bound = left.bound * right.bound if op == "Mul" else left.bound + right.bound
    else:
        kind, bound = WHOLE, ANY
    first, second = (left, right) if m.chance(0.5) else (right, left)
    m.add(op, [first, second], left, shape=shape, kind=kind, bound=bound,
          finite=left.finite and right.finite)  # fmt: skip


def step_extreme(m: Maker) -> None:
    left = m.pick(lambda v: v.dtype != "bool")
    found = left and partner(m, left)
    if not left or not found:
        return
    right, shape = found
    m.add(m.one(("Max", "Min")), [left, right], left, shape=shape, kind=max(left.kind, right.kind),
          bound=max(left.bound, right.bound), finite=left.finite and right.finite)  # fmt: skip


def step_compare(m: Maker) -> None:
    left = m.pick(lambda v: v.is_exact and v.dtype != "bool")
    found = left and partner(m, left)
    if not left or not found or not found[0].is_exact:
        return
    right, shape = found
    m.add(m.one(COMPARISONS), [left, right], left, shape=shape, dtype="bool", kind=WHOLE,
          bound=1.0, finite=True)  # fmt: skip


def step_logic(m: Maker) -> None:
    left = m.pick(lambda v: v.dtype == "bool")
    if left is None:
        return
    if m.chance(0.3):
        m.add("Not", [left], left)
        return
    found = partner(m, left)
    if found:
        m.add(m.one(("And", "Or", "Xor")), [left, found[0]], left, shape=found[1])


def step_choose(m: Maker) -> None:
    chosen = m.pick(lambda v: v.dtype == "bool")
    left = m.pick(lambda v: v.dtype not in ("float16", "bool"))
    found = left and partner(m, left)
    if chosen is None or not left or not found:
        return
    right, shape = found
    both = joined_shape(chosen.shape, shape)
    if both is None or estimated_elements(both) > MOST_ELEMENTS:
        return
    m.add("Where", [chosen, left, right], left, shape=both, kind=max(left.kind, right.kind),
          bound=max(left.bound, right.bound), finite=left.finite and right.finite)  # fmt: skip


def step_sign(m: Maker) -> None:
    """What keeps every digit."""
    v = m.pick(lambda v: v.dtype not in ("bool", "uint8"))
    if v is not None:
        m.add(m.one(("Neg", "Abs", "Relu")) if v.dtype != "int64" else m.one(("Neg", "Abs")),
              [v], v)  # fmt: skip


def step_round(m: Maker) -> None:
    v = m.pick(lambda v: v.is_float and v.is_exact)
    if v is not None:
        m.add(
            m.one(("Floor", "Ceil", "Round", "Sign")), [v], v, kind=WHOLE, bound=v.bound + 1
        )


def step_clip(m: Maker) -> None:
    v = m.pick(lambda v: v.dtype not in ("bool", "uint8"))
    if v is not None:
        low, high = m.scalar(-m.number(0, 2), v.dtype), m.scalar(m.number(1, 3), v.dtype)
        m.add("Clip", [v, low, high], v, bound=max(3.0, 0.0))


def step_smooth(m: Maker) -> None:
    v = m.pick(lambda v: v.is_float)
    if v is None:
        return
    v = m.tame(v, 16.0)
    names = SMOOTH if v.dtype != "float16" else [n for n in SMOOTH if n != "Celu"]
    m.add(m.one(names), [v], v, kind=ROUGH, bound=max(20.0, v.bound))


def step_guarded(m: Maker) -> None:
    """Functions that are defined on some numbers only, of what is among them."""
    v = m.pick(lambda v: v.is_float)
    if v is None:
        return
    v = m.tame(v, 16.0)
    size = m.add("Abs", [v], v)
    more = m.add("Add", [size, m.scalar(1, v.dtype)], size, bound=v.bound + 1)
    kind = m.number(0, 3)
    if kind == 0:
        m.add(m.one(("Sqrt", "Log", "Reciprocal")), [more], more, kind=ROUGH, bound=8.0)
    elif kind == 1:
        m.add("Div", [v, more], more, kind=ROUGH, bound=1.0, finite=v.finite)
    elif kind == 2:
        m.add("Pow", [more, m.scalar(0.5, v.dtype)], more, kind=ROUGH, bound=8.0)
    else:
        calm = m.add("Tanh", [v], v, kind=ROUGH, bound=1.0)
        m.add("Exp", [calm], calm, bound=3.0)


def step_whole_quotient(m: Maker) -> None:
    v = m.pick(lambda v: v.dtype in ("int64", "int32"))
    if v is None:
        return
    divisor = m.scalar(m.one((2, 3, 5)), v.dtype)
    op = m.one(("Div", "Mod"))
    m.add(op, [v, divisor], v, bound=v.bound if op == "Div" else 4.0)


def step_is_nan(m: Maker) -> None:
    v = m.pick(lambda v: v.is_float)
    if v is not None:
        m.add(m.one(("IsNaN", "IsInf")) if v.is_exact else "IsNaN", [v], v, dtype="bool",
              kind=WHOLE, bound=1.0, finite=True)  # fmt: skip


def step_cast(m: Maker) -> None:
    v = m.pick()
    if v is None:
        return
    target = m.one([t for t in (*FLOATS, *INTEGERS, "bool") if t != v.dtype])
    cast(m, v, target)


def cast(m: Maker, v: Value, target: str) -> Value | None:
    """The value in another type, where that is defined."""
    if v.is_float and target not in FLOATS:
        if not v.is_exact or not v.finite:
            return None
        v = m.tame(v, 64.0)
        if target == "uint8":
            v = m.add("Abs", [v], v)
    if target in FLOATS and v.dtype in INTEGERS:
        v = m.tame(v, 64.0)
    kind = v.kind if v.is_float and target in FLOATS else WHOLE
    narrower = FLOATS.index(target) if target in FLOATS else 0
    if kind == SAME and narrower == 2:
        kind = ROUGH  # a tie may be broken in two ways on the way through a third type
    bound = v.bound if target in FLOATS or v.is_float else ANY
    bound = 1.0 if "bool" in (target, v.dtype) else bound
    number = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    return m.add("Cast", [v], v, dtype=target, kind=kind, bound=bound, _to=number)


STEPS: tuple[Step, ...] = (
    step_arithmetic, step_arithmetic, step_arithmetic, step_extreme, step_compare, step_compare,
    step_logic, step_choose, step_sign, step_round, step_clip, step_smooth, step_smooth,
    step_guarded, step_whole_quotient, step_is_nan, step_cast, step_cast,
)  # fmt: skip
