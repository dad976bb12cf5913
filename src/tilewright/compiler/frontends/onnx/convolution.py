"""Rows for convolution and pooling, with ONNX's ways to say how much padding there is.

Source: ONNX operator reference (Conv, ConvTranspose, MaxPool, AveragePool, LpPool, GlobalX).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.activations import fused_activation
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.movement import pad
from tilewright.compiler.frontends.onnx.reduction import extremes, reduce
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Build, Row, row

_AUTO_PADS: Final = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@final
@record
class Window:
    """Kernel, strides, dilations per spatial axis; pads at the front of all axes, then the back."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]

    @property
    def has_fixed_pads(self) -> bool:
        return all(isinstance(p, int) and p >= 0 for p in self.pads)

    @property
    def fixed_pads(self) -> tuple[int, ...]:
        """The pads as numbers, or zeros when they are applied by a `pad` in front."""
        if not self.has_fixed_pads:
            return (0,) * len(self.pads)
        return tuple(int(p) for p in self.pads if isinstance(p, int))


def _spatial(call: Call, name: str, rank: int, default: int) -> tuple[int, ...]:
    values = call.integers(name, (default,) * rank)
    if len(values) != rank or any(v < 1 for v in values):
        raise ModelError(f"attribute '{name}' is {list(values)} for {rank} spatial axes")
    return values


def same_pads(
    size: Dim, kernel: int, stride: int, dilation: int, *, upper: bool
) -> tuple[Dim, Dim]:
    """Padding at both ends that makes the output `ceil(size / stride)` long.

    Windows shorter than their stride begin at the first element, as in ONNX's reference evaluator and in TensorFlow
    (onnxruntime crops what no window needs: pools by other amounts than convolutions).
    """
    windows = symbolic.ceildiv(size, stride)
    span = (windows - 1) * stride + (kernel - 1) * dilation + 1
    total = symbolic.maximum(0, span - size)
    small = symbolic.floordiv(total, 2)
    return (small, total - small) if upper else (total - small, small)


def window(call: Call, sizes: Sequence[Dim], kernel: Sequence[int]) -> Window:
    """The window attributes of Conv and the pools, padding worked out."""
    rank = len(sizes)
    if len(kernel) != rank or any(k < 1 for k in kernel):
        raise ModelError(f"kernel {list(kernel)} does not fit {rank} spatial axes")
    strides = _spatial(call, "strides", rank, 1)
    dilations = _spatial(call, "dilations", rank, 1)
    auto = call.choice("auto_pad", "NOTSET", _AUTO_PADS)
    pads: Sequence[Dim] = call.integers("pads", (0,) * (2 * rank))
    if auto == "VALID":
        pads = (0,) * (2 * rank)
    elif auto != "NOTSET":
        ends = [
            same_pads(s, k, t, d, upper=auto == "SAME_UPPER")
            for s, k, t, d in zip(sizes, kernel, strides, dilations, strict=True)
        ]
        pads = [e[0] for e in ends] + [e[1] for e in ends]
    if len(pads) != 2 * rank:
        raise ModelError(f"attribute 'pads' is {list(pads)} for {rank} spatial axes")
    return Window(tuple(kernel), strides, dilations, tuple(pads))


def apply_pads(e: NodeMaker, x: Tensor, found: Window, value: Tensor) -> Tensor:
    """`x` padded by an op of its own, when the pads are not plain numbers."""
    if found.has_fixed_pads:
        return x
    rank = len(found.kernel)
    amounts = (0, 0, *found.pads[:rank], 0, 0, *found.pads[rank:])
    return pad(e, x, amounts, "constant", value)


def spatial_sizes(x: Tensor) -> tuple[Dim, ...]:
    """The axes behind batch and channels."""
    if x.rank < 3:
        raise ModelError(f"operand 1 has type {x.type}, expected batch, channels and space")
    return x.shape[2:]


def weight_kernel(call: Call, w: Tensor) -> tuple[int, ...]:
    """The kernel size, from the weights; the attribute must agree.

    Raises: UnsupportedError when the weights have a dynamic size.
    """
    kernel = w.shape[2:]
    if not all(isinstance(k, int) for k in kernel):
        raise UnsupportedError(
            "weights with a dynamic kernel size are not supported", hint=FIXED_SIZE
        )
    sizes = tuple(int(k) for k in kernel if isinstance(k, int))
    stated = call.integers("kernel_shape", sizes)
    if stated != sizes:
        raise ModelError(
            f"attribute 'kernel_shape' is {list(stated)}, weights have {list(sizes)}"
        )
    return sizes


def conv(call: Call, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution that the attributes of `call` describe, of these operands."""
    e = call.maker
    found = window(call, spatial_sizes(x), weight_kernel(call, w))
    padded = apply_pads(e, x, found, e.scalar(0, x.dtype))
    return e.op(
        "conv",
        padded,
        w,
        bias,
        strides=found.strides,
        pads=found.fixed_pads,
        dilations=found.dilations,
        groups=call.integer("group", 1),
    )


def _conv(call: Call) -> Tensor:
    return conv(call, call.tensor(0), call.tensor(1), call.optional(2))


def _fused_conv(call: Call) -> Tensor:
    """Convolution, a sum and an activation in one node."""
    e, total = call.maker, conv(call, call.tensor(0), call.tensor(1), call.optional(2))
    extra = call.optional(3)
    total = total if extra is None else e.op("add", total, extra)
    numbers = call.attributes.floats("activation_params") or ()
    return fused_activation(e, total, call.string("activation", ""), numbers)


def channels_first(e: NodeMaker, x: Tensor) -> Tensor:
    """Images whose channels come last as ONNX has them."""
    return e.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def channels_last(e: NodeMaker, x: Tensor) -> Tensor:
    """The inverse of `channels_first`."""
    return e.transpose(x, (0, *range(2, x.rank), 1))


def _nhwc_conv(call: Call) -> Tensor:
    """Images and filters with channels last: what onnxruntime's optimizer writes for diffusion models."""
    e, x, w = call.maker, call.tensor(0), call.tensor(1)
    result = conv(call, channels_first(e, x), channels_first(e, w), call.optional(2))
    return channels_last(e, result)


def _nhwc_fused_conv(call: Call) -> Tensor:
    """Images with channels last, filters as ONNX has them; a sum and an activation."""
    e, x, extra = call.maker, call.tensor(0), call.optional(3)
    result = conv(call, channels_first(e, x), call.tensor(1), call.optional(2))
    total = channels_last(e, result)
    total = total if extra is None else e.op("add", total, extra)
    numbers = call.attributes.floats("activation_params") or ()
    return fused_activation(e, total, call.string("activation", ""), numbers)


def _conv_transpose_dynamic_pads(call: Call) -> Tensor:
    """Padding as an operand, which is known while the model is imported."""
    if call.optional(2) is None:
        return _transposed(call, call.optional(3), None)
    return _transposed(call, call.optional(3), call.numbers(2, "the padding"))


# --- transposed


def _transpose_pads(
    call: Call, x: Tensor, found: Window, extra: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Cropping at both ends and extra size at the back, from whichever attribute says it."""
    rank = len(found.kernel)
    auto = call.choice("auto_pad", "NOTSET", _AUTO_PADS)
    wanted = call.attributes.integers("output_shape")
    if wanted is None and auto in ("NOTSET", "VALID"):
        given = call.integers("pads", (0,) * (2 * rank))
        return list((0,) * (2 * rank) if auto == "VALID" else given), list(extra)
    if wanted is not None and len(wanted) > rank:
        wanted = wanted[-rank:]
    begins, ends, rest = [0] * rank, [0] * rank, list(extra)
    for axis in range(rank):
        size, stride = x.shape[2 + axis], found.strides[axis]
        full = (size - 1) * stride + (found.kernel[axis] - 1) * found.dilations[axis] + 1
        target = size * stride if wanted is None else wanted[axis]
        total = full + extra[axis] - target
        if not isinstance(total, int):
            raise UnsupportedError(
                "'output_shape' with a dynamic input is not supported", hint=FIXED_SIZE
            )
        if total < 0:
            rest[axis], total = extra[axis] - total, 0
        small = total // 2
        begins[axis] = small if auto == "SAME_UPPER" else total - small
        ends[axis] = total - begins[axis]
    return begins + ends, rest


def _conv_transpose(call: Call) -> Tensor:
    return _transposed(call, call.optional(2), None)


def _transposed(call: Call, bias: Tensor | None, given: Sequence[int] | None) -> Tensor:
    """The transposed convolution that the attributes of `call` describe, with `given` for their padding."""
    e, x, w = call.maker, call.tensor(0), call.tensor(1)
    rank = len(spatial_sizes(x))
    kernel = weight_kernel(call, w)
    strides = _spatial(call, "strides", rank, 1)
    dilations = _spatial(call, "dilations", rank, 1)
    found = Window(kernel, strides, dilations, (0,) * (2 * rank))
    extra = call.integers("output_padding", (0,) * rank)
    if len(extra) != rank:
        raise ModelError(f"attribute 'output_padding' is {list(extra)}")
    if given is None:
        pads, rest = _transpose_pads(call, x, found, extra)
    else:
        pads, rest = list(given), list(extra)
    return e.op(
        "conv_transpose", x, w, bias, strides=strides, pads=tuple(pads), dilations=dilations,
        groups=call.integer("group", 1), output_padding=tuple(rest),
    )  # fmt: skip


# --- pools


def _max_pool(call: Call) -> list[Tensor | None]:
    e, x = call.maker, call.tensor(0)
    found = window(call, spatial_sizes(x), call.integers("kernel_shape"))
    ceil_mode = call.flag("ceil_mode")
    attributes = {
        "kernel": found.kernel,
        "strides": found.strides,
        "pads": found.fixed_pads,
        "dilations": found.dilations,
        "ceil_mode": ceil_mode,
    }
    column_major = call.integer("storage_order", 0)
    if not call.wants(1):
        padded = apply_pads(e, x, found, extremes(e, x.dtype)[0])
        return [e.op("max_pool", padded, **attributes)]
    if not found.has_fixed_pads:
        raise UnsupportedError("indices with 'auto_pad' of a dynamic dimension")
    return list(e.ops("max_pool_indices", x, storage_order=column_major, **attributes))


def _nhwc_max_pool(call: Call) -> Tensor:
    e, x = call.maker, channels_first(call.maker, call.tensor(0))
    found = window(call, spatial_sizes(x), call.integers("kernel_shape"))
    padded = apply_pads(e, x, found, extremes(e, x.dtype)[0])
    pooled = e.op(
        "max_pool", padded, kernel=found.kernel, strides=found.strides, pads=found.fixed_pads,
        dilations=found.dilations, ceil_mode=call.flag("ceil_mode"),
    )  # fmt: skip
    return channels_last(e, pooled)


def _max_unpool(call: Call) -> Tensor:
    e, x, indices = call.maker, call.tensor(0), call.tensor(1)
    sizes = spatial_sizes(x)
    kernel = call.integers("kernel_shape")
    strides = _spatial(call, "strides", len(sizes), 1)
    pads = call.integers("pads", (0,) * (2 * len(sizes)))
    own = [
        (size - 1) * strides[i] + kernel[i] - pads[i] - pads[len(sizes) + i]
        for i, size in enumerate(sizes)
    ]
    source = (*x.shape[:2], *own)
    shape = source if call.is_nothing(2) else call.sized(2, "the shape")
    return e.op("max_unpool", x, e.cast(indices, dtypes.i64), shape=shape, source=source)


def _average_pool(call: Call) -> Tensor:
    return average_pool(call, call.tensor(0))


def average_pool(call: Call, x: Tensor) -> Tensor:
    """The means of the windows that the attributes of `call` describe."""
    e = call.maker
    found = window(call, spatial_sizes(x), call.integers("kernel_shape"))
    include = call.flag("count_include_pad")

    def pooled(image: Tensor) -> Tensor:
        return e.op(
            "average_pool", apply_pads(e, image, found, e.scalar(0, image.dtype)), kernel=found.kernel,
            strides=found.strides, pads=found.fixed_pads, dilations=found.dilations,
            ceil_mode=call.flag("ceil_mode"), count_include_pad=include,
        )  # fmt: skip

    if found.has_fixed_pads or include:
        return pooled(x)
    # The border is part of the image by now: what it is of a window is the rest of its share of ones.
    # The share is no mean yet: in few bits it would be rounded, and so would be what it is divided by.
    wide = x if x.dtype == dtypes.f64 else e.cast(x, dtypes.f32)
    ones = e.full(1, wide.dtype, (1, 1, *spatial_sizes(x)))
    return e.cast(e.op("div", pooled(wide), pooled(ones)), x.dtype)


def _lp_pool(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    found = window(call, spatial_sizes(x), call.integers("kernel_shape"))
    padded = apply_pads(e, x, found, e.scalar(0, x.dtype))
    return e.op(
        "lp_pool", padded, kernel=found.kernel, strides=found.strides, pads=found.fixed_pads,
        dilations=found.dilations, ceil_mode=call.flag("ceil_mode"), p=call.integer("p", 2),
    )  # fmt: skip


def _global(op: str) -> Build:
    def build(call: Call) -> Tensor:
        x = call.tensor(0)
        axes = range(2, 2 + len(spatial_sizes(x)))
        return reduce(call.maker, op, x, axes, keepdims=True)

    return build


def _global_lp_pool(call: Call) -> Tensor:
    e, x, p = call.maker, call.tensor(0), call.integer("p", 2)
    power = e.scalar(p, x.dtype)
    axes = range(2, 2 + len(spatial_sizes(x)))
    total = reduce(e, "reduce_sum", e.op("pow", e.op("abs", x), power), axes, keepdims=True)
    return e.op("pow", total, e.op("div", e.scalar(1, x.dtype), power))


ROWS: Final[tuple[Row, ...]] = (
    row("AveragePool", _average_pool),
    row("Conv", _conv),
    row("ConvTranspose", _conv_transpose),
    row("GlobalAveragePool", _global("reduce_mean")),
    row("GlobalLpPool", _global_lp_pool),
    row("GlobalMaxPool", _global("reduce_max")),
    row("LpPool", _lp_pool),
    row("MaxPool", _max_pool),
    row("MaxUnpool", _max_unpool),
    row("ConvTransposeWithDynamicPads", _conv_transpose_dynamic_pads, domain=MICROSOFT),
    row("FusedConv", _fused_conv, domain=MICROSOFT),
    row("NhwcConv", _nhwc_conv, domain=MICROSOFT),
    row("NhwcFusedConv", _nhwc_fused_conv, domain=MICROSOFT),
    row("NhwcMaxPool", _nhwc_max_pool, domain=MICROSOFT),
)
