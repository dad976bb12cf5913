"""Steps of a random graph that sum products or windows: matmul, convolutions, pools."""

from __future__ import annotations

from fuzz.graph_maker import (
    Maker,
    Steps,
    Tracked,
    broadcasts,
    is_image,
    is_size,
)


def step_linear(maker: Maker) -> Tracked | None:
    """A product with weights, often followed by a bias and an activation."""
    v = maker.pick(lambda v: v.dtype.is_float and v.rank >= 1 and is_size(v.shape[-1]))
    if v is None:
        return None
    columns = maker.one((1, 2, 5, 16, 31, 40))
    if v.rank < 2:
        return None
    depth = v.shape[-1]
    assert isinstance(depth, int)
    weights = maker.constant((depth, columns), v.dtype)
    made = maker.add("matmul", [maker.tame(v), weights])
    if made is not None and maker.flip():
        made = maker.add("add", [made, maker.constant((columns,), v.dtype)])
    return None if made is None else maker.add(maker.one(("relu", "tanh", "gelu")), [made])


def step_product(maker: Maker) -> Tracked | None:
    """A product of two computed values."""
    a = maker.pick(lambda v: v.dtype.is_float and v.rank >= 2)
    if a is None:
        return None
    others = [
        v
        for v in maker.values
        if v.dtype is a.dtype and v.rank >= 2 and broadcasts(v.shape[:-2], a.shape[:-2])
    ]
    b = maker.one(others)
    if b.shape[-2] != a.shape[-1]:
        if b.shape[-1] != a.shape[-1]:
            return None
        perm = (*range(b.rank - 2), b.rank - 1, b.rank - 2)
        turned = maker.add("transpose", [b], perm=perm, exact=b.exact, bound=b.bound)
        if turned is None:
            return None
        b = turned
    made = maker.add("matmul", [maker.tame(a), maker.tame(b)])
    return None if made is None else maker.tame(made)


def step_convolution(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: is_image(v, 1))
    if v is None:
        return None
    channels, spatial = v.shape[1], v.rank - 2
    assert isinstance(channels, int)
    groups = maker.one([g for g in {1, channels, 2} if channels % g == 0])
    taps = maker.one((1, 2, 3))
    dilation = maker.one((1, 1, 2))
    reach = dilation * (taps - 1)
    filters = groups * maker.one((1, 3, 8))
    pads = tuple(maker.number(0, 2) for _ in range(2 * spatial))
    low = min((d for d in v.shape[2:] if isinstance(d, int)), default=1)
    if low + min(pads) * 2 <= reach or (
        any(not is_size(d) for d in v.shape[2:]) and (1 + min(pads) * 2 <= reach)
    ):
        pads = (reach,) * (2 * spatial)
    weights = maker.constant((filters, channels // groups, *([taps] * spatial)), v.dtype)
    bias = maker.constant((filters,), v.dtype) if maker.flip() else None
    made = maker.add(
        "conv", [maker.tame(v), weights, bias], groups=groups, pads=pads,
        strides=tuple(maker.number(1, 2) for _ in range(spatial)),
        dilations=(dilation,) * spatial,
    )  # fmt: skip
    return None if made is None else maker.add(maker.one(("relu", "tanh")), [made])


def step_deconvolution(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: is_image(v, 1) and v.rank == 4)
    if v is None:
        return None
    channels = v.shape[1]
    assert isinstance(channels, int)
    weights = maker.constant((channels, 2, 3, 3), v.dtype)
    stride = maker.number(1, 2)
    made = maker.add("conv_transpose", [maker.tame(v), weights], strides=(stride, stride),
                    pads=(1, 1, 1, 1))  # fmt: skip
    return None if made is None else maker.tame(made)


def step_pool(maker: Maker) -> Tracked | None:
    v = maker.pick(lambda v: is_image(v, 2))
    if v is None:
        return None
    spatial = v.rank - 2
    name = maker.one(("max_pool", "average_pool"))
    exact = v.exact and name == "max_pool"
    return maker.add(
        name, [v], kernel=(2,) * spatial, pads=tuple(maker.number(0, 1) for _ in range(2 * spatial)),
        strides=(maker.number(1, 2),) * spatial, exact=exact, bound=v.bound,
        ceil_mode=maker.flip(),
    )  # fmt: skip


STEPS: Steps = (
    step_linear,
    step_product,
    step_convolution,
    step_deconvolution,
    step_pool,
)
