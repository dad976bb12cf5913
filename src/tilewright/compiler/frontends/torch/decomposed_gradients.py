"""Gradients that programs with `torch.func` leave as operators, taken apart.

Maps that are linear along each axis (averages, repeated and resampled elements) are turned around as matrices; what was
picked goes back to where it was.  Written in operators that have rows; they run under torch's tracing.  Called by
`decompositions`.

Source: the operators of ATen by name, `torch` reference pages of the functions that they are gradients of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any


def _torch() -> Any:
    return border.load()


# --- convolutions -------------------------------------------------------------------------------


def _of_convolution(  # noqa: PLR0913 - the schema has that many
    gradient: Held, x: Held, weight: Held, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
    groups: int, output_mask: Sequence[bool],
) -> tuple[Held, Held, Held]:  # fmt: skip
    """Of the input: the convolution turned around; of the filters: one of the input by the gradient."""
    del bias_sizes, output_padding  # the sizes say it
    torch, spatial = _torch(), x.dim() - 2
    stride, padding, dilation = (_each(n, spatial) for n in (stride, padding, dilation))
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        # What a division by the stride left over.
        rest = [
            x.shape[2 + i]
            - ((gradient.shape[2 + i] - 1) * stride[i] - 2 * padding[i]
               + dilation[i] * (weight.shape[2 + i] - 1) + 1)
            for i in range(spatial)
        ]  # fmt: skip
        rest = [0] * spatial if transposed else rest
        of_x = torch.ops.aten.convolution(
            gradient, weight, None, stride, padding, dilation, not transposed, rest, groups
        )
    if output_mask[1]:
        pair = (gradient, x) if transposed else (x, gradient)
        of_weight = _of_filters(*pair, weight.shape, stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = gradient.sum([0, *range(2, gradient.dim())])
    return of_x, of_weight, of_bias


def _each(numbers: Sequence[int], count: int) -> list[int]:
    return [*numbers] * count if len(numbers) == 1 else [*numbers]


def _of_filters(
    x: Held, gradient: Held, shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Held:  # fmt: skip
    """Sums over samples: they are the channels here, the steps of one are the distances of the other."""
    torch, count, spatial = _torch(), x.shape[0], x.dim() - 2
    outs, ins = gradient.shape[1], x.shape[1]
    grouped = x.reshape(count, groups, ins // groups, *x.shape[2:])
    # Channels of a group as samples, samples of a group as channels.
    moved = grouped.permute(2, 1, 0, *range(3, grouped.dim()))
    moved = moved.reshape(ins // groups, groups * count, *x.shape[2:])
    filters = gradient.transpose(0, 1)
    filters = filters.reshape(outs, count, *gradient.shape[2:])
    found = torch.ops.aten.convolution(
        moved, filters, None, dilation, padding, stride, False, [0] * spatial, groups
    )
    # A stride that does not divide leaves places behind those that a filter has.
    for axis, size in enumerate(shape[2:], 2):
        found = found.narrow(axis, 0, size)
    # What follows views it as torch's own lies.
    return found.transpose(0, 1).contiguous()


# --- linear along axes --------------------------------------------------------------------------


def _turned(gradient: Held, matrices: Sequence[Held]) -> Held:
    """Matrices of results by inputs, for each of the last axes, applied the other way."""
    first = gradient.dim() - len(matrices)
    for axis, matrix in enumerate(matrices, first):
        moved = gradient.movedim(axis, -1) @ matrix.to(gradient.dtype)
        gradient = moved.movedim(-1, axis)
    return gradient.contiguous()


def _places(size: Held, gradient: Held) -> Held:
    return _torch().arange(size, device=gradient.device)


def _of_adaptive_average(gradient: Held, x: Held) -> Held:
    return _adaptive(gradient, x, 2)


def _of_adaptive_average_3d(gradient: Held, x: Held) -> Held:
    return _adaptive(gradient, x, 3)


def _adaptive(gradient: Held, x: Held, spatial: int) -> Held:
    matrices: list[Held] = []
    for size, count in zip(x.shape[-spatial:], gradient.shape[-spatial:], strict=True):
        window = _places(count, gradient).unsqueeze(1)
        begin, end = window * size // count, ((window + 1) * size + count - 1) // count
        place = _places(size, gradient)
        inside = (place >= begin) & (place < end)
        matrices.append(inside / (end - begin))
    return _turned(gradient, matrices)


def _of_average(
    gradient: Held, x: Held, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Held:  # fmt: skip
    del ceil_mode
    spatial = 3 if len(kernel_size) == 3 else 2
    kernel = _each(kernel_size, spatial)
    stride, padding = _each(stride or kernel, spatial), _each(padding, spatial)
    matrices: list[Held] = []
    divisor: Held = divisor_override
    for axis in range(spatial):
        size, count = x.shape[axis - spatial], gradient.shape[axis - spatial]
        begin = (_places(count, gradient) * stride[axis] - padding[axis]).unsqueeze(1)
        end = begin + kernel[axis]
        place = _places(size, gradient)
        matrices.append((place >= begin) & (place < end))
        if divisor_override is None:
            low, high = (begin, end.clamp(max=size + padding[axis]))
            if not count_include_pad:
                low, high = begin.clamp(min=0), end.clamp(max=size)
            widths = (high - low).reshape(-1, *[1] * (spatial - 1 - axis))
            divisor = widths if divisor is None else divisor * widths
    return _turned(gradient / divisor, matrices)


def _of_nearest(
    gradient: Held,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> Held:
    return _from_nearest(gradient, output_size, input_size, scales, 0.0)


def _of_nearest_exact(
    gradient: Held,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> Held:
    return _from_nearest(gradient, output_size, input_size, scales, 0.5)


def _from_nearest(
    gradient: Held, output_size: Sequence[int], input_size: Sequence[int],
    scales: Sequence[float | None], middle: float,
) -> Held:  # fmt: skip
    torch = _torch()
    given = (*scales, *[None] * len(output_size))
    for axis, (count, scale) in enumerate(zip(output_size, given, strict=False), 2):
        size = input_size[axis]
        step = size / count if scale is None else 1 / scale
        place = (_places(count, gradient).to(torch.float32) + middle) * step
        index = place.floor().to(torch.int64).clamp(max=size - 1)
        gradient = _added(gradient, axis, index, size)
    return gradient


def _of_linear(
    gradient: Held, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool,
    *scales: float | None,
) -> Held:  # fmt: skip
    def grown(one: Held, count: int, scale: float | None) -> Held:
        grow = _torch().ops.aten.upsample_linear1d
        return grow(one.unsqueeze(0), [count], align_corners, scale).squeeze(0)

    return _from_grown(gradient, output_size, input_size, scales, grown)


def _of_cubic(
    gradient: Held, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool,
    *scales: float | None,
) -> Held:  # fmt: skip
    def grown(one: Held, count: int, scale: float | None) -> Held:
        grow, size = _torch().ops.aten.upsample_bicubic2d, one.shape[0]
        plane = one.reshape(1, size, 1, size)
        return grow(plane, [1, count], align_corners, None, scale).reshape(size, count)

    return _from_grown(gradient, output_size, input_size, scales, grown)


def _from_grown(
    gradient: Held, output_size: Sequence[int], input_size: Sequence[int],
    scales: Sequence[float | None], grown: Callable[[Held, int, float | None], Held],
) -> Held:  # fmt: skip
    """What an axis of the identity becomes says which elements each new one is made of."""
    torch = _torch()
    shares: list[Held] = []
    given = (*scales, *[None] * len(output_size))
    for size, count, scale in zip(input_size[2:], output_size, given, strict=False):
        one = torch.eye(size, dtype=gradient.dtype, device=gradient.device)
        shares.append(grown(one, count, scale).T)
    return _turned(gradient, shares)


def _of_repeated_border(gradient: Held, x: Held, padding: Sequence[int]) -> Held:
    for pair in range(len(padding) // 2):
        axis, front = x.dim() - 1 - pair, padding[2 * pair]
        size, count = x.shape[axis], gradient.shape[axis]
        index = (_places(count, gradient) - front).clamp(0, size - 1)
        gradient = _added(gradient, axis, index, size)
    return gradient


def _added(gradient: Held, axis: int, index: Held, size: int) -> Held:
    shape = (*gradient.shape[:axis], size, *gradient.shape[axis + 1 :])
    return gradient.new_zeros(shape).index_add(axis, index, gradient)


# --- what was picked, or left out ----------------------------------------------------------------------------


def _of_largest(gradient: Held, x: Held, indices: Held, spatial: int) -> Held:
    outer = x.shape[: x.dim() - spatial]
    flat = gradient.new_zeros((*outer, math.prod(x.shape[-spatial:])))
    found = flat.scatter_add(-1, indices.flatten(-spatial), gradient.flatten(-spatial))
    return found.reshape(x.shape)


def _of_largest_2d(gradient: Held, x: Held, indices: Held) -> Held:
    return _of_largest(gradient, x, indices, 2)


def _of_largest_3d(gradient: Held, x: Held, *rest: Held) -> Held:
    return _of_largest(gradient, x, rest[-1], 3)


def _of_shrinking(gradient: Held, x: Held, lambd: float) -> Held:
    return _torch().where((x >= -lambd) & (x <= lambd), 0, gradient)


def _of_masked_scatter(gradient: Held, mask: Held, sizes: Sequence[int]) -> Held:
    torch, count = _torch(), math.prod(sizes)
    hit = mask.expand(gradient.shape).reshape(-1)
    order = hit.to(torch.int64).cumsum(0) - 1
    # What was not taken from the source goes one behind.
    index = torch.where(hit, order, count)
    found = gradient.new_zeros((count + 1,)).index_add(0, index, gradient.reshape(-1))
    return found[:count].reshape(sizes)


# --- along directions ---------------------------------------------------------------------------


def _along_gated(gated: Held, x: Held, along: Held, dim: int) -> Held:
    """Of one half of x times the sigmoid of the other half."""
    _, gate = x.chunk(2, dim)
    first, second = along.chunk(2, dim)
    gate = gate.sigmoid()
    return first * gate + gated * (second - gate * second)


def _along_gradient_of_gated(
    of_x: Held, of_gated: Held, x: Held, along_of_gated: Held, along: Held, dim: int
) -> Held:
    del of_x
    value, gate = x.chunk(2, dim)
    first, second = along.chunk(2, dim)
    gate = gate.sigmoid()
    slope = gate * (1 - gate)
    steeper = slope * second
    outer = along_of_gated * value + of_gated * first
    return _torch().cat(
        [
            along_of_gated * gate + of_gated * steeper,
            outer * slope + of_gated * value * (1 - 2 * gate) * steeper,
        ],
        dim,
    )


def _zeros_like_all_of(x: Held, other: Held, *, self_num_batch_dims: int = 0) -> Held:
    """What nothing is known along: zeros of the other tensor's kind and, in front, of the first axes of this one."""
    return other.new_zeros((*x.shape[:self_num_batch_dims], *other.shape))


# --- distances and attention --------------------------------------------------------------------


def _of_distances(gradient: Held, x: Held, y: Held, p: float, distances: Held) -> Held:
    torch = _torch()
    gap = x.unsqueeze(-2) - y.unsqueeze(-3)
    whole = distances.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        slope = gap.sign()
    elif math.isinf(p):
        slope = gap.sign() * (gap.abs() == whole)
    elif p == 2:
        slope = torch.where(whole == 0, 0, gap / whole)
    else:
        power = gap.sign() * gap.abs() ** (p - 1) / whole ** (p - 1)
        slope = torch.where((whole == 0) | ((p < 1) & (gap == 0)), 0, power)
    return (gradient.unsqueeze(-1) * slope).sum(-2)


def _of_attention(  # noqa: PLR0913 - the schema has that many
    gradient: Held, query: Held, key: Held, value: Held, out: Held, logsumexp: Held, dropout_p: float,
    is_causal: bool, *, attn_mask: Held = None, scale: float | None = None,
) -> tuple[Held, Held, Held]:  # fmt: skip
    """Shares of keys are computed once more, and the sums of their rows with them."""
    del out, logsumexp, dropout_p
    torch = _torch()
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * factor
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    # Rows that see nothing have shares of 0.
    shares = torch.ops.aten._safe_softmax(scores, -1)
    of_shares = gradient @ value.mT
    of_scores = shares * (of_shares - (of_shares * shares).sum(-1, keepdim=True)) * factor
    return of_scores @ key, of_scores.mT @ query, shares.mT @ gradient


OWN: Final[dict[str, Callable[..., Any]]] = {
    "_adaptive_avg_pool2d_backward": _of_adaptive_average,
    "_adaptive_avg_pool3d_backward": _of_adaptive_average_3d,
    "_cdist_backward": _of_distances,
    "_new_zeros_with_same_feature_meta": _zeros_like_all_of,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _of_attention,
    "_upsample_nearest_exact2d_backward": _of_nearest_exact,
    "adaptive_max_pool2d_backward": _of_largest_2d,
    "adaptive_max_pool3d_backward": _of_largest_3d,
    "avg_pool2d_backward": _of_average,
    "avg_pool3d_backward": _of_average,
    "convolution_backward": _of_convolution,
    "glu_backward_jvp": _along_gradient_of_gated,
    "glu_jvp": _along_gated,
    "masked_scatter_backward": _of_masked_scatter,
    "max_pool3d_with_indices_backward": _of_largest_3d,
    "replication_pad1d_backward": _of_repeated_border,
    "replication_pad2d_backward": _of_repeated_border,
    "replication_pad3d_backward": _of_repeated_border,
    "softshrink_backward": _of_shrinking,
    "upsample_bicubic2d_backward": _of_cubic,
    "upsample_bilinear2d_backward": _of_linear,
    "upsample_linear1d_backward": _of_linear,
    "upsample_nearest2d_backward": _of_nearest,
    "upsample_trilinear3d_backward": _of_linear,
}
"""By the names of overloads."""
