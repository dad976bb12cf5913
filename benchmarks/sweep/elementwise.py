"""Elementwise functions, comparisons, selections and casts.

What it is: rows of the op sweep, one per function, type and form of broadcasting.
What it is not: an accuracy test; the contenders' results are compared, as for all rows.
Who calls it: ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any, Final

from sweep.case import Case, single, word
from sweep.network import scalar, w, x

SHAPE: Final = (1, 64, 56, 56)
ROW: Final = (128, 768)
# Each: operator, least and greatest operand, attributes.
FUNCTIONS: Final[tuple[tuple[str, float, float, dict[str, Any]], ...]] = (
    ("Abs", -3, 3, {}),
    ("Acos", -1, 1, {}),
    ("Acosh", 1, 5, {}),
    ("Asin", -1, 1, {}),
    ("Asinh", -3, 3, {}),
    ("Atan", -3, 3, {}),
    ("Atanh", -0.9, 0.9, {}),
    ("Ceil", -3, 3, {}),
    ("Celu", -3, 3, {"alpha": 2.0}),
    ("Cos", -3, 3, {}),
    ("Cosh", -3, 3, {}),
    ("Elu", -3, 3, {}),
    ("Erf", -3, 3, {}),
    ("Exp", -3, 3, {}),
    ("Floor", -3, 3, {}),
    ("Gelu", -3, 3, {}),
    ("HardSigmoid", -4, 4, {}),
    ("HardSwish", -4, 4, {}),
    ("Identity", -3, 3, {}),
    ("LeakyRelu", -3, 3, {}),
    ("Log", 0.1, 9, {}),
    ("Mish", -3, 3, {}),
    ("Neg", -3, 3, {}),
    ("Reciprocal", 0.1, 9, {}),
    ("Relu", -3, 3, {}),
    ("Round", -3, 3, {}),
    ("Selu", -3, 3, {}),
    ("Shrink", -3, 3, {}),
    ("Sigmoid", -5, 5, {}),
    ("Sign", -3, 3, {}),
    ("Sin", -3, 3, {}),
    ("Sinh", -3, 3, {}),
    ("Softplus", -5, 5, {}),
    ("Softsign", -3, 3, {}),
    ("Sqrt", 0.1, 9, {}),
    ("Tan", -1, 1, {}),
    ("Tanh", -3, 3, {}),
    ("ThresholdedRelu", -3, 3, {}),
)
TRANSFORMER_FUNCTIONS: Final = ("Erf", "Exp", "Gelu", "Relu", "Sigmoid", "Tanh", "Sqrt")
ARITHMETIC: Final = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
COMPARISONS: Final = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
# (left, right): forms of broadcasting that models have
BROADCASTS: Final = (
    ((1, 64, 56, 56), (1, 64, 1, 1)),
    ((1, 64, 56, 56), (1, 1, 56, 56)),
    ((128, 768), (768,)),
    ((128, 768), (128, 1)),
    ((12, 128, 1), (12, 1, 128)),
    ((1, 12, 128, 128), (1, 1, 1, 128)),
    ((1, 1, 64, 1), (8, 12, 1, 33)),
    ((512, 1), (1, 511)),
)


def functions() -> Iterator[Case]:
    """Yield functions of one operand."""
    for kind, low, high, attributes in FUNCTIONS:
        operand = x(*SHAPE, low=low, high=high)
        yield single(f"elementwise/{kind} {word(SHAPE)}", kind, operand, **attributes)
    for kind in TRANSFORMER_FUNCTIONS:
        for t in ("f16", "f64"):
            operand = x(*ROW, t=t, low=0.1, high=3)
            yield single(f"elementwise/{kind} {t} {word(ROW)}", kind, operand)
    for t in ("i32", "i64", "i8"):
        yield single(f"elementwise/Abs {t}", "Abs", x(*ROW, t=t, low=-9, high=9))
        yield single(f"elementwise/Neg {t}", "Neg", x(*ROW, t=t, low=-9, high=9))
    yield single("elementwise/Gelu tanh", "Gelu", x(*ROW), approximate="tanh")
    yield single("elementwise/Swish", "Swish", x(*SHAPE), opset=24)
    yield single("elementwise/PRelu", "PRelu", x(*SHAPE), w(64, 1, 1))
    yield single("elementwise/Clip", "Clip", x(*SHAPE), scalar(0), scalar(6))
    yield single(
        "elementwise/Clip computed bounds", "Clip", x(*SHAPE), x(low=-1, high=0), x()
    )
    yield single("elementwise/Clip i64", "Clip", x(*ROW, t="i64"), scalar(3, "i64"))
    yield single("elementwise/IsNaN", "IsNaN", x(*SHAPE))
    yield single("elementwise/IsInf", "IsInf", x(*SHAPE))
    yield single("elementwise/Not", "Not", x(*ROW, t="bool"))
    yield single("elementwise/BitwiseNot", "BitwiseNot", x(*ROW, t="i32"))
    yield single("elementwise/Relu 7", "Relu", x(7))
    yield single("elementwise/Relu 1000003", "Relu", x(1000003))
    yield single("elementwise/Exp 999", "Exp", x(999))


def pairs() -> Iterator[Case]:
    """Yield functions of two operands and their broadcasting."""
    for kind in ARITHMETIC:
        left, right = x(*SHAPE, low=0.5, high=2), x(*SHAPE, low=0.5, high=2)
        yield single(f"elementwise/{kind} same", kind, left, right)
        yield single(f"elementwise/{kind} scalar", kind, left, scalar(1.5))
    for kind in ("Add", "Mul"):
        for left, right in BROADCASTS:
            yield single(
                f"elementwise/{kind} {word(left, right)}", kind, x(*left), x(*right)
            )
    for t in ("f16", "bf16", "f64", "i32", "i64", "u8"):
        for kind in ("Add", "Mul", "Div", "Max"):
            left, right = x(*ROW, t=t, low=1, high=9), x(*ROW, t=t, low=1, high=9)
            yield single(f"elementwise/{kind} {t}", kind, left, right)
    for kind in COMPARISONS:
        yield single(f"elementwise/{kind} f32", kind, x(*SHAPE), x(*SHAPE))
    for t in ("i64", "i32", "f16"):
        yield single(
            f"elementwise/Equal {t}", "Equal", x(*ROW, t=t, low=0, high=3), scalar(1, t)
        )
        yield single(
            f"elementwise/Less {t} 512x1 by 1x511",
            "Less",
            x(512, 1, t=t, low=0, high=99),
            x(1, 511, t=t, low=0, high=99),
        )
    for exponent in (2.0, 3.0, 0.5):
        operand = x(*SHAPE, low=0.5, high=2)
        yield single(f"elementwise/Pow {exponent}", "Pow", operand, scalar(exponent))
    for kind in ("Sum", "Mean", "Max", "Min"):
        yield single(f"elementwise/{kind} of 3", kind, x(*SHAPE), x(*SHAPE), x(*SHAPE))


def bits_and_remainders() -> Iterator[Case]:
    """Yield functions of two whole numbers or truth values."""
    for kind in ("And", "Or", "Xor"):
        yield single(f"elementwise/{kind}", kind, x(*ROW, t="bool"), x(*ROW, t="bool"))
    for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield single(f"elementwise/{kind}", kind, x(*ROW, t="i32"), x(*ROW, t="i32"))
    for direction in ("LEFT", "RIGHT"):
        yield single(
            f"elementwise/BitShift {direction}",
            "BitShift",
            x(*ROW, t="u32"),
            x(*ROW, t="u32", high=9),
            direction=direction,
        )
    for t, fmod in (("i64", 0), ("i32", 0), ("f32", 1)):
        left = x(*ROW, t=t, low=-50, high=50)
        yield single(
            f"elementwise/Mod {t}", "Mod", left, x(*ROW, t=t, low=1, high=9), fmod=fmod
        )


def selections_and_casts() -> Iterator[Case]:
    """Yield Where and Cast."""
    for t in ("f32", "f16", "i64"):
        condition = x(*ROW, t="bool")
        yield single(
            f"elementwise/Where {t}", "Where", condition, x(*ROW, t=t), x(*ROW, t=t)
        )
    yield single(
        "elementwise/Where mask 1x1x128x128",
        "Where",
        x(1, 1, 128, 128, t="bool"),
        x(1, 12, 128, 128),
        scalar(-1e9),
    )
    kinds = {"f32": 1, "u8": 2, "i8": 3, "i32": 6, "i64": 7, "bool": 9}
    kinds |= {"f16": 10, "f64": 11, "bf16": 16}
    for source, target in permutations(kinds, 2):
        operand = x(*SHAPE, t=source, low=0, high=99)
        yield single(f"cast/{source} to {target}", "Cast", operand, to=kinds[target])
    yield single("cast/like", "CastLike", x(*ROW), x(1, t="i32"))


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from functions()
    yield from pairs()
    yield from bits_and_remainders()
    yield from selections_and_casts()
