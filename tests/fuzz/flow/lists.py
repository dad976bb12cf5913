"""Steps through what is no tensor of numbers: lists of lengths that shapes or data say, optionals, text."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from fuzz.flow.elementwise import MOST_ELEMENTS
from fuzz.flow.maker import Maker, Size, Step, Value, estimated_elements
from fuzz.flow.sizes import replaced


def step_split_and_join(m: Maker) -> None:
    """Pieces of one or two rows, joined again along an axis, or one of them."""
    v = m.pick(lambda v: v.rank > 0 and v.dtype != "bool" and m.has_elements(v))
    if v is None:
        return
    axis = m.number(0, v.rank - 1)
    if m.chance(0.5):
        (pieces,) = m.node(
            "SplitToSequence", [v, m.scalar(m.number(1, 2), "int64")], axis=axis
        )
        m.add("ConcatFromSequence", [pieces], v, _axis=axis)
        return
    (pieces,) = m.node("SplitToSequence", [v], axis=axis, keepdims=1)
    if m.chance(0.5):
        m.add("ConcatFromSequence", [pieces], v, _axis=axis)
    else:
        place = m.scalar(m.one((0, -1)), "int64")
        m.add("SequenceAt", [pieces, place], v, shape=replaced(v.shape, axis, 1))


def step_stack(m: Maker) -> None:
    """Tensors of one shape as a list, of which one is put in where data says, on a new axis."""
    v = m.pick(lambda v: v.rank < 4 and v.dtype != "bool")
    if v is None or estimated_elements(v.shape) > MOST_ELEMENTS // 4:
        return
    others = [w for w in m.frame.visible() if (w.dtype, w.shape) == (v.dtype, v.shape)]
    items = [m.one(others) for _ in range(m.number(1, 2))]
    (held,) = m.node("SequenceConstruct", [v, *items])
    if m.chance(0.5):
        (held,) = m.node("SequenceInsert", [held, v, m.count_of(0, len(items))])
        items.append(v)
    if m.chance(0.3):
        (held,) = m.node("SequenceErase", [held, m.scalar(0, "int64")])
        items.pop()
    both = [v, *items]
    count: Size = len(both)
    facts = {
        "kind": max(w.kind for w in others), "bound": max(w.bound for w in others),
        "finite": all(w.finite for w in others),
    }  # fmt: skip
    if m.chance(0.4):
        m.add("SequenceAt", [held, m.count_of(0, len(both) - 1)], v, **facts)
    else:
        axis = m.number(0, v.rank)
        shape = (*v.shape[:axis], count, *v.shape[axis:])
        m.add(
            "ConcatFromSequence", [held], v, shape=shape, _axis=axis, _new_axis=1, **facts
        )


def step_length(m: Maker) -> None:
    """How many pieces there are."""
    v = m.pick(lambda v: v.rank > 0 and v.dtype != "bool" and m.has_elements(v))
    if v is None:
        return
    (pieces,) = m.node("SplitToSequence", [v], axis=m.number(0, v.rank - 1), keepdims=0)
    count = Value("", "int64", (), bound=1e4)
    m.add("SequenceLength", [pieces], count)


def step_as_bytes(m: Maker) -> None:
    """Quantized with an odd zero point and back: whole numbers, so that no two ways round apart."""
    v = m.pick(lambda v: v.dtype == "float32" and v.is_exact and v.kind == 0 and v.finite)
    if v is None:
        return
    v = m.tame(v, 64.0)
    kind = m.one((np.uint8, np.int8))
    zero = m.one((3, 77, 128) if kind is np.uint8 else (-128, -5, 0, 77))
    scale = m.scalar(m.one((1.0, 2.0, 0.5)), "float32")
    point = m.constant(np.asarray(zero, kind))
    (held,) = m.node("QuantizeLinear", [v, scale, point])
    m.add("DequantizeLinear", [held, scale, point], v, bound=512.0)


def step_optional(m: Maker) -> None:
    """Put into an optional, asked for and taken out again."""
    v = m.pick()
    if v is None:
        return
    (held,) = m.node("Optional", [v])
    m.add("OptionalGetElement", [held], v)
    if m.chance(0.5):
        there = Value("", "bool", (), bound=1.0)
        m.add("OptionalHasElement", [held], there)


def step_text(m: Maker) -> None:
    """Numbers as text, put together and compared, or read again."""
    v = m.pick(lambda v: v.dtype in ("int64", "int32"))
    if v is None or m.opset < 20:
        return
    small = m.tame(v, 16.0)
    (text,) = m.node("Cast", [small], to=TensorProto.STRING)
    if m.chance(0.5):
        m.add("Cast", [text], small, _to=helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype)))
    ending = m.constant(np.asarray(m.one(("", "1", "x")), object))
    (longer,) = m.node("StringConcat", [text, ending])
    wanted = m.constant(np.asarray(str(m.number(0, 3)) + m.one(("", "1", "x")), object))
    m.add("Equal", [longer, wanted], small, dtype="bool", bound=1.0)


STEPS: tuple[Step, ...] = (
    step_split_and_join,
    step_stack,
    step_length,
    step_as_bytes,
    step_optional,
    step_text,
)
