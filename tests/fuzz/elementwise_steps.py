"""Steps of a random graph that compute element by element.

Each adds a value to the graph in the making, or gives up with None; see `graph_maker`.
"""

from __future__ import annotations

from fuzz.graph_maker import (
    FLOATS,
    INTEGERS,
    Maker,
    Steps,
    Tracked,
    broadcasts,
    joined,
)


def step_smooth(maker: Maker) -> Tracked | None:
    v = maker.pick_float()
    if v is None:
        return None
    names = ("tanh", "sigmoid", "erf", "gelu", "silu", "softplus", "sin", "cos", "atan",
             "softsign", "mish", "asinh", "hard_swish", "elu", "selu", "celu", "leaky_relu",
             "hard_sigmoid")  # fmt: skip
    return maker.add(maker.one(names), [v])


def step_positive(maker: Maker) -> Tracked | None:
    """Functions of what is at least 1."""
    v = maker.pick_float()
    if v is None:
        return None
    shifted = maker.add("add", [maker.add("abs", [v]), maker.whole(1, v.dtype)])
    return maker.add(maker.one(("sqrt", "rsqrt", "log", "reciprocal")), [shifted])


def step_exp(maker: Maker) -> Tracked | None:
    v = maker.pick_float()
    return None if v is None else maker.add("exp", [maker.tame(v)])


def step_exact_unary(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: v.dtype.is_signed or v.dtype.is_float)
    if v is None:
        return None
    names = ["neg", "abs", "relu", "identity"]
    if v.exact:
        names.append("sign")
        if v.dtype.is_float:
            names += ["floor", "ceil", "round"]
    return maker.add(maker.one(names), [v], exact=v.exact, bound=v.bound)


def step_bits(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: not v.dtype.is_float)
    if v is None:
        return None
    if v.dtype.is_bool:
        return maker.add("logical_not", [v])
    return maker.add("bitwise_not", [v], exact=True, bound=v.bound + 1)


def step_binary(maker: Maker) -> Tracked | None:
    left = maker.pick(lambda v: not v.dtype.is_bool)
    if left is None:
        return None
    right = maker.partner(left)
    name = maker.one(("add", "sub", "mul", "max", "min"))
    operands = [left, right] if maker.flip() else [right, left]
    product = left.bound * right.bound
    bound = product if name == "mul" else left.bound + right.bound
    exact = left.exact and right.exact
    made = maker.add(name, operands, exact=exact, bound=bound)
    if made is not None and made.dtype.is_float and bound > 50 and not made.exact:
        return maker.tame(made)
    return made


def step_divide(maker: Maker) -> Tracked | None:
    left = maker.pick(lambda v: not v.dtype.is_bool)
    if left is None:
        return None
    if left.dtype.is_float:
        right = maker.add("add", [maker.add("abs", [maker.partner(left)]),
                                 maker.whole(1, left.dtype)])  # fmt: skip
        return maker.add("div", [left, right], bound=left.bound)
    divisor = maker.whole(maker.number(1, 5), left.dtype)
    name = maker.one(("div", "mod"))
    return maker.add(name, [left, divisor], exact=True, bound=left.bound)


def step_compare(maker: Maker) -> Tracked | None:
    left = maker.pick(lambda v: v.exact and not v.dtype.is_bool)
    if left is None:
        return None
    right = maker.partner(left)
    if not right.exact:
        return None
    names = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
    return maker.add(maker.one(names), [left, right])


def step_logic(maker: Maker) -> Tracked | None:
    left = maker.pick(lambda v: v.dtype.is_bool)
    if left is None:
        return None
    right = maker.partner(left)
    return maker.add(maker.one(("logical_and", "logical_or", "logical_xor")), [left, right])


def step_where(maker: Maker) -> Tracked | None:
    test = maker.pick(lambda v: v.dtype.is_bool)
    if test is None:
        return None
    left = maker.pick(lambda v: broadcasts(v.shape, test.shape))
    if left is None:
        return None
    right = maker.partner(left)
    shape = joined(test.shape, left.shape)
    if not broadcasts(shape, right.shape):
        return None
    exact = left.exact and right.exact
    return maker.add("where", [test, left, right], exact=exact,
                    bound=max(left.bound, right.bound))  # fmt: skip


def step_clip(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: not v.dtype.is_bool)
    if v is None:
        return None
    low = maker.whole(0 if not v.dtype.is_signed else -2, v.dtype) if maker.flip() else None
    high = maker.whole(3, v.dtype) if maker.flip() or low is None else None
    return maker.add("clip", [v, low, high], exact=v.exact, bound=v.bound)


def step_cast(maker: Maker) -> Tracked | None:
    v = maker.pick()
    if v is None:
        return None
    kinds = [*FLOATS, *INTEGERS] if v.exact and v.bound < 64 else [*FLOATS]
    kind = maker.one(kinds)
    if not v.dtype.is_float and not v.dtype.is_bool and v.bound > 2**7:
        return None
    return maker.add("cast", [v], dtype=kind, exact=v.exact, bound=v.bound)


STEPS: Steps = (
    step_smooth,
    step_positive,
    step_exp,
    step_exact_unary,
    step_bits,
    step_binary,
    step_divide,
    step_compare,
    step_logic,
    step_where,
    step_clip,
    step_cast,
)
