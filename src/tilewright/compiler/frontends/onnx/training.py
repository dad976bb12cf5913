"""Rows for steps of optimizers: parameters, gradients and what an optimizer remembers, one step on.

Source: ONNX operator reference, domain ai.onnx.preview.training (Adagrad, Adam, Momentum).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row

TRAINING: Final = "ai.onnx.preview.training"
# One parameter, its gradient and what is remembered of it -> what they become, the gradient left out.
Step = Callable[[Tensor, Tensor, list[Tensor]], list[Tensor]]


def _groups(call: Call, kinds: int) -> list[list[Tensor]]:
    """The tensors of every parameter; the operands are sorted by kind."""
    rest = call.tensors()[2:]
    if not rest or len(rest) % kinds:
        raise ModelError(f"has {len(rest)} tensors, expected a multiple of {kinds}")
    count = len(rest) // kinds
    return [rest[place::count] for place in range(count)]


def _apply(call: Call, kinds: int, step: Step) -> list[Tensor]:
    """The results, sorted by kind again."""
    made = [step(x, g, rest) for x, g, *rest in _groups(call, kinds)]
    return [result for kind in zip(*made, strict=True) for result in kind]


def _regularized(call: Call, x: Tensor, gradient: Tensor, factor: float) -> Tensor:
    e = call.maker
    if not factor:
        return gradient
    return e.op("add", e.op("mul", x, e.scalar(factor, x.dtype)), gradient)


def _mixed(call: Call, old: Tensor, keep: float, new: Tensor, take: float) -> Tensor:
    e = call.maker
    kept = e.op("mul", old, e.scalar(keep, old.dtype))
    return e.op("add", kept, e.op("mul", new, e.scalar(take, new.dtype)))


def _rate(call: Call, x: Tensor) -> Tensor:
    e = call.maker
    return e.cast(e.reshape(call.tensor(0), ()), x.dtype)


def _count(call: Call, x: Tensor) -> Tensor:
    e = call.maker
    return e.cast(e.reshape(call.tensor(1), ()), x.dtype)


def _adagrad(call: Call) -> list[Tensor]:
    e = call.maker
    decay, epsilon = call.float("decay_factor", 0.0), call.float("epsilon", 0.0)
    norm = call.float("norm_coefficient", 0.0)

    def step(x: Tensor, g: Tensor, rest: list[Tensor]) -> list[Tensor]:
        g = _regularized(call, x, g, norm)
        grown = e.op("mul", _count(call, x), e.scalar(decay, x.dtype))
        rate = e.op("div", _rate(call, x), e.op("add", grown, e.scalar(1, x.dtype)))
        square = e.op("add", rest[0], e.op("mul", g, g))
        below = e.op("add", e.op("sqrt", square), e.scalar(epsilon, x.dtype))
        moved = e.op("div", e.op("mul", rate, g), below)
        return [e.op("sub", x, moved), square]

    return _apply(call, 3, step)


def _adam(call: Call) -> list[Tensor]:
    e = call.maker
    alpha, beta = call.float("alpha", 0.9), call.float("beta", 0.999)
    epsilon, norm = call.float("epsilon", 0.0), call.float("norm_coefficient", 0.0)
    after = call.float("norm_coefficient_post", 0.0)

    def unbiased(factor: float, count: Tensor) -> Tensor:
        one = e.scalar(1, count.dtype)
        return e.op("sub", one, e.op("pow", e.scalar(factor, count.dtype), count))

    def step(x: Tensor, g: Tensor, rest: list[Tensor]) -> list[Tensor]:
        g = _regularized(call, x, g, norm)
        mean = _mixed(call, rest[0], alpha, g, 1 - alpha)
        square = _mixed(call, rest[1], beta, e.op("mul", g, g), 1 - beta)
        below = e.op("add", e.op("sqrt", square), e.scalar(epsilon, x.dtype))
        rate, count = _rate(call, x), _count(call, x)
        grown = e.op("sqrt", unbiased(beta, count))
        later = e.op("div", e.op("mul", rate, grown), unbiased(alpha, count))
        begun = e.op("greater", count, e.scalar(0, count.dtype))
        rate = e.op("where", begun, later, rate)
        moved = e.op("sub", x, e.op("div", e.op("mul", rate, mean), below))
        return [e.op("mul", moved, e.scalar(1 - after, x.dtype)), mean, square]

    return _apply(call, 4, step)


def _momentum(call: Call) -> list[Tensor]:
    e = call.maker
    alpha, beta = call.float("alpha"), call.float("beta")
    norm = call.float("norm_coefficient")
    mode = call.choice("mode", "standard", ("standard", "nesterov"))

    def step(x: Tensor, g: Tensor, rest: list[Tensor]) -> list[Tensor]:
        g = _regularized(call, x, g, norm)
        count = _count(call, x)
        begun = e.op("greater", count, e.scalar(0, count.dtype))
        factor = e.op("where", begun, e.scalar(beta, x.dtype), e.scalar(1, x.dtype))
        kept = e.op("mul", rest[0], e.scalar(alpha, x.dtype))
        speed = e.op("add", kept, e.op("mul", factor, g))
        way = speed
        if mode == "nesterov":
            way = e.op("add", g, e.op("mul", speed, e.scalar(alpha, x.dtype)))
        return [e.op("sub", x, e.op("mul", _rate(call, x), way)), speed]

    return _apply(call, 3, step)


ROWS: Final[tuple[Row, ...]] = (
    row("Adagrad", _adagrad, domain=TRAINING),
    row("Adam", _adam, domain=TRAINING),
    row("Momentum", _momentum, domain=TRAINING),
)
