"""Rows for random numbers: draws from distributions, and dropout while a model is trained.

Which numbers come is `kit.draws`'s: every call of a compiled model draws others, as the number of the call is state
of the program.  Torch's seeds do not fix them.

Source: the operators of ATen by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.complex_parts import Complex
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.program import Operation
from tilewright.compiler.frontends.torch.row import Build, Row, row

_TYPES: Final = ("size", "dtype", "shape")


def _wide(dtype: DType) -> DType:
    return dtypes.f64 if dtype is dtypes.f64 else dtypes.f32


def _unit(call: Call, dtype: DType) -> Tensor:
    """Numbers in [0, 1) for the result, in f32 or f64, that stay below one when they are rounded to halves."""
    e = call.maker
    drawn = call.draws.uniform(e, call.shape(), _wide(dtype))
    if dtype not in dtypes.HALVES:
        return drawn
    steps = e.scalar(2.0 ** (11 if dtype is dtypes.f16 else 8), drawn.dtype)
    return e.op("div", e.op("floor", e.op("mul", drawn, steps)), steps)


def _note(call: Call, *names: str) -> None:
    """What is asked for stands in the type of the result."""
    for name in (*_TYPES, *names):
        call.argument(name)


def _uniform(low: str = "", high: str = "") -> Build:
    def build(call: Call) -> Tensor:
        _note(call, "self", "stride")
        e, dtype = call.maker, call.dtype()
        least, most = (call.number(low), call.number(high)) if low else (0.0, 1.0)
        drawn = _unit(call, dtype)
        span = e.scalar(most - least, drawn.dtype)
        moved = e.op("add", e.op("mul", drawn, span), e.scalar(least, drawn.dtype))
        return call.finish(moved)

    return build


def _normal(call: Call) -> Tensor:
    """Mean and deviation may be tensors or missing."""
    _note(call, "self")
    e, wide = call.maker, _wide(call.dtype())
    drawn = call.draws.normal(e, call.shape(), wide)
    if call.is_complex():  # The deviation is that of the whole number.
        drawn = e.op("mul", drawn, e.scalar(math.sqrt(0.5), wide))
    for name, op in (("std", "mul"), ("mean", "add")):
        if name in call.operation.arguments:
            drawn = e.op(op, drawn, call.operand(name, wide))
    return call.finish(drawn)


def _whole(call: Call) -> Tensor:
    """Whole numbers from `low`, which may be missing, to below `high`."""
    _note(call, "self")
    e = call.maker
    low, high = call.size("low", 0), call.operand("high", dtypes.f64)
    least = e.cast(e.dim(low), dtypes.f64)
    drawn = call.draws.uniform(e, call.shape(), dtypes.f64)
    scaled = e.op("floor", e.op("mul", drawn, e.op("sub", high, least)))
    return e.cast(e.cast(e.op("add", scaled, least), dtypes.i64), call.dtype())


def _hits(call: Call, probability: Tensor, shape: Sequence[Dim]) -> Tensor:
    """Where something of a probability happens."""
    drawn = call.draws.uniform(call.maker, shape, _wide(probability.dtype))
    return call.op("less", drawn, call.maker.cast(probability, drawn.dtype))


def _bernoulli(call: Call) -> Tensor:
    e = call.maker
    if "p" in call.operation.arguments:
        call.argument("self")
        probability = call.operand("p", dtypes.f64)
    else:
        probability = call.tensor()
    return e.cast(_hits(call, probability, call.shape()), call.dtype())


def _multinomial(call: Call) -> Tensor:
    """With replacement by sums of probabilities; else the first arrivals where each has its rate."""
    e, count = call.maker, call.size("num_samples")
    weights = e.cast(call.tensor(), dtypes.f64)
    axis = weights.rank - 1
    if not call.flag("replacement"):
        drawn = call.draws.uniform(e, weights.shape, dtypes.f64)
        above_zero = e.op("sub", e.scalar(1, dtypes.f64), drawn)
        arrival = e.op("div", e.op("log", above_zero), weights)
        none = e.op("equal", weights, e.scalar(0, dtypes.f64))
        arrival = e.op("where", none, e.scalar(-math.inf, dtypes.f64), arrival)
        return e.ops("top_k", arrival, k=(count,), axis=axis, largest=True)[1]
    below = e.op("cumsum", weights, axis=axis)
    last = e.op("sub", e.dim(weights.shape[-1]), e.scalar(1, dtypes.i64))
    total = e.op("gather", below, e.reshape(last, (1,)), axis=axis)
    drawn = e.op("mul", call.draws.uniform(e, call.shape(), dtypes.f64), total)
    passed = e.op(
        "less_equal", e.unsqueeze(below, (axis,)), e.unsqueeze(drawn, (axis + 1,))
    )
    index = e.op("reduce_sum", e.cast(passed, dtypes.i64), axes=(axis + 1,), keepdims=False)
    return e.op("min", index, last)


def _permutation(call: Call) -> Tensor:
    """Places in the order of random numbers."""
    _note(call, "n")
    e, (count,) = call.maker, call.shape()
    if count == 0:
        return e.full(0, call.dtype(), (0,))
    drawn = call.draws.uniform(e, (count,), dtypes.f64)
    _, places = e.ops("top_k", drawn, k=(count,), axis=0, largest=False)
    return e.cast(places, call.dtype())


# --- dropout ------------------------------------------------------------------------------------

# The slope of SELU, to whose mean and variance alpha dropout keeps.
_ALPHA: Final = 1.7580993408473766


def _kept(call: Call, x: Tensor, lost: float, *, by_feature: bool) -> Tensor:
    """Which elements, or whole channels, are not dropped."""
    shape = (*x.shape[:2], *[1] * (x.rank - 2)) if by_feature else x.shape
    return _hits(call, call.maker.scalar(1 - lost, dtypes.f32), shape)


def dropped(call: Call, x: Tensor, lost: float, *, by_feature: bool = False) -> Tensor:
    """Elements, or whole channels, of which that share becomes zero; the others grow by as much."""
    e, kept = call.maker, _kept(call, x, lost, by_feature=by_feature)
    wide = e.cast(x, _wide(x.dtype))
    scaled = e.op("mul", wide, e.scalar(1 / (1 - lost) if lost < 1 else 0, wide.dtype))
    return e.cast(e.op("where", kept, scaled, e.scalar(0, wide.dtype)), x.dtype)


def _dropout(*, by_feature: bool = False, alpha: bool = False) -> Build:
    def build(call: Call) -> Tensor:
        e, x, lost = call.maker, call.tensor("input"), float(call.number("p"))
        if not call.flag("train") or not lost or any(size == 0 for size in x.shape):
            return x
        if not x.dtype.is_float:
            raise UnsupportedError("dropout of whole numbers is not supported")
        if lost == 1:
            return e.op("mul", x, e.scalar(0, x.dtype))
        if not alpha:
            return dropped(call, x, lost, by_feature=by_feature)
        kept = _kept(call, x, lost, by_feature=by_feature)
        wide = e.cast(x, _wide(x.dtype))
        scale = 1 / math.sqrt((_ALPHA**2 * lost + 1) * (1 - lost))
        shift = _ALPHA * scale * lost
        there = e.op(
            "add",
            e.op("mul", wide, e.scalar(scale, wide.dtype)),
            e.scalar(shift, wide.dtype),
        )
        gone = e.scalar(shift - _ALPHA * scale, wide.dtype)
        return e.cast(e.op("where", kept, there, gone), x.dtype)

    return build


def _native_dropout(call: Call) -> Sequence[Tensor]:
    """With the mask of what is kept."""
    e, x, lost = call.maker, call.tensor("input"), float(call.number("p"))
    if not call.flag("train", default=True) or not lost:
        return x, e.full(1, dtypes.bool_, x.shape)
    kept = _kept(call, x, lost, by_feature=False)
    scale = 0.0 if lost == 1 else 1 / (1 - lost)
    scaled = e.op("mul", x, e.scalar(scale, x.dtype))
    return e.op("where", kept, scaled, e.scalar(0, x.dtype)), kept


def _leaky(call: Call) -> Sequence[Tensor]:
    """Negative numbers times a random slope while a model is trained, else times the middle of all slopes."""
    e, x, noise = call.maker, call.tensor(), call.tensor("noise")
    low, high = float(call.number("lower", 0.125)), float(call.number("upper", 1 / 3))
    wide = e.cast(x, _wide(x.dtype))
    zero, one = e.scalar(0, wide.dtype), e.scalar(1, wide.dtype)
    if not call.flag("training"):
        middle = e.op("mul", wide, e.scalar((low + high) / 2, wide.dtype))
        found = e.op("where", e.op("less", wide, zero), middle, wide)
        return e.cast(found, x.dtype), noise
    drawn = call.draws.uniform(e, x.shape, wide.dtype)
    slope = e.op(
        "add",
        e.op("mul", drawn, e.scalar(high - low, wide.dtype)),
        e.scalar(low, wide.dtype),
    )
    slope = e.op("where", e.op("less_equal", wide, zero), slope, one)
    return e.cast(e.op("mul", wide, slope), x.dtype), e.cast(slope, noise.dtype)


def _of_both_parts(build: Build) -> Callable[[Call], Complex]:
    def both(call: Call) -> Complex:
        real, imaginary = build(call), build(call)
        assert isinstance(real, Tensor)
        assert isinstance(imaginary, Tensor)
        return Complex(real, imaginary)

    return both


COMPLEX: Final = {
    **dict.fromkeys(("rand", "rand_like"), _of_both_parts(_uniform())),
    **dict.fromkeys(("randn", "randn_like", "normal_functional"), _of_both_parts(_normal)),
}
"""By the names of overloads, spelled short."""
ROWS: Final[tuple[Row, ...]] = (
    row("rand rand.generator rand_like rand_like.generator", _uniform()),
    row("uniform", _uniform("from", "to")),
    row("prims::uniform", _uniform("low", "high")),
    row(
        "randn randn.generator randn_like randn_like.generator normal_functional prims::normal "
        "normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor normal.float_float",
        _normal,
    ),
    row(
        "randint randint.generator randint.low randint.low_generator randint_like "
        "randint_like.Tensor randint_like.low_dtype randint_like.generator "
        "randint_like.Tensor_generator randint_like.low_generator_dtype",
        _whole,
    ),
    row("randperm randperm.generator", _permutation),
    row("bernoulli bernoulli.p bernoulli.Tensor", _bernoulli),
    row("multinomial", _multinomial),
    row("dropout", _dropout()),
    row("feature_dropout", _dropout(by_feature=True)),
    row("alpha_dropout", _dropout(alpha=True)),
    row("feature_alpha_dropout", _dropout(by_feature=True, alpha=True)),
    row("native_dropout", _native_dropout),
    row("rrelu_with_noise_functional", _leaky),
)
_NAMES: Final = frozenset(name for entry in ROWS for name in entry.names)


def draws(operation: Operation) -> bool:
    """Whether an operator draws random numbers: dropout does not where a model is not trained."""
    if operation.arguments.get("dropout_p"):
        return True  # of attention, which asks no module
    trains = [operation.arguments.get(name, True) for name in ("train", "training")]
    return operation.target in _NAMES and all(flag is not False for flag in trains)
