"""How operators of ATen are taken apart that have no row and that torch itself leaves whole.

Each is written in operators that have rows, and runs under torch's tracing.  Not for what deserves a kernel of its
own: that has a row.  Called by `export`.

Source: the operators of ATen by name, `torch` reference pages.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.decomposed_attention import OWN as ATTENTION
from tilewright.compiler.frontends.torch.decomposed_counts import OWN as COUNTS
from tilewright.compiler.frontends.torch.decomposed_equations import OWN as EQUATIONS
from tilewright.compiler.frontends.torch.decomposed_gradients import OWN as GRADIENTS
from tilewright.compiler.frontends.torch.decomposed_quantization import OWN as QUANTIZATION
from tilewright.compiler.frontends.torch.decomposed_signals import OWN as SIGNALS

# Torch's tensors have no types that we see.
Held = Any
Decomposition = Callable[..., Any]


def _torch() -> Any:
    return border.load()


# --- distances and products ---------------------------------------------------------------------


def _norms(gap: Held, p: float) -> Held:
    if p == 0:
        return (gap != 0).sum(-1).to(gap.dtype)
    return _torch().linalg.vector_norm(gap, p, -1)


def distances(x: Held, y: Held, p: float, compute_mode: int | None = None) -> Held:
    """Of each row from each; nothing is asked of sizes that calls or data decide."""
    del compute_mode
    if border.is_known_empty(x, y):
        batches = _torch().broadcast_shapes(x.shape[:-2], y.shape[:-2])
        return x.new_zeros((*batches, x.shape[-2], y.shape[-2]))
    return _norms(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _own_distances(x: Held, p: float = 2.0) -> Held:
    count = x.shape[0]
    if isinstance(count, int) and (count <= 1 or x.shape[-1] == 0):
        return x.new_zeros((count * (count - 1) // 2,))
    first, second = _pairs(count, x)
    return _norms(x[first] - x[second], p)


def _pairs(count: Held, x: Held) -> tuple[Held, Held]:
    """All pairs of so many, in order; of as many as a call says by a formula, for torch would fix the number."""
    torch = _torch()
    if isinstance(count, int):
        return torch.triu_indices(count, count, 1)
    place = torch.arange(count * (count - 1) // 2, device=x.device)
    most = 2 * count - 1
    root = (most * most - 8 * place).to(torch.float64).sqrt()
    first = ((most - root) / 2).floor().to(torch.int64)

    def begin(first: Held) -> Held:
        return first * (most - first) // 2

    # What the root was rounded by.
    first = torch.where(begin(first) > place, first - 1, first)
    first = torch.where(begin(first + 1) <= place, first + 1, first)
    return first, place - begin(first) + first + 1


def _trilinear(
    x: Held, y: Held, z: Held, of_x: Sequence[int], of_y: Sequence[int], of_z: Sequence[int],
    summed: Sequence[int], unroll_dim: int = 1,
) -> Held:  # fmt: skip
    del unroll_dim
    parts: list[Held] = []
    for part, axes in ((x, of_x), (y, of_y), (z, of_z)):
        wide = part
        for axis in sorted(axes):
            wide = wide.unsqueeze(axis)
        parts.append(wide)
    # Sums of halves are kept in f32.
    is_half = x.dtype.itemsize == 2
    first, second, third = (part.float() if is_half else part for part in parts)
    product = first * second * third
    return (product.sum(list(summed)) if summed else product).to(x.dtype)


# --- elements at places -------------------------------------------------------------------------


def _masked_scatter(x: Held, mask: Held, source: Held) -> Held:
    torch = _torch()
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask = x.expand(shape), mask.expand(shape)
    if border.is_known_empty(source, x):
        return x.clone()
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    order = order.clamp(0, source.numel() - 1)
    return torch.where(mask, source.reshape(-1)[order].reshape(shape), x)


def _diagonal_scatter(
    x: Held, source: Held, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Held:
    places = _torch().arange(x.numel(), device=x.device).reshape(x.shape)
    return _put(x, places.diagonal(offset, dim1, dim2), source)


def _as_strided_scatter(
    x: Held, source: Held, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Held:  # fmt: skip
    places = _torch().arange(x.numel(), device=x.device)
    return _put(x, places.as_strided(size, stride, storage_offset or 0), source)


def _put(x: Held, index: Held, source: Held, accumulate: bool = False) -> Held:
    """A copy with elements at places, counted in order, replaced or added to."""
    flat, places = x.reshape(-1), (index.reshape(-1),)
    found = _torch().index_put(flat, places, source.reshape(-1), accumulate)
    return found.reshape(x.shape)


def _nonzero_static(x: Held, *, size: int, fill_value: int = -1) -> Held:
    torch = _torch()
    if x.dim() == 0 or size == 0 or border.is_known_empty(x):
        return x.new_full((size, x.dim()), fill_value, dtype=torch.int64)
    hit = (x != 0).reshape(-1)
    order = hit.to(torch.int64).cumsum(0) - 1
    target = torch.where(hit & (order < size), order, size)
    places = torch.arange(hit.shape[0], device=x.device)
    found = torch.zeros((size + 1,), dtype=torch.int64, device=x.device)
    found = found.scatter(0, target, places)[:size]
    rest, columns = found, []
    for extent in reversed(x.shape):
        columns.append(rest % extent)
        rest = rest // extent
    known = torch.arange(size, device=x.device) < hit.sum()
    table = torch.stack(columns[::-1], 1)
    return torch.where(known.unsqueeze(1), table, fill_value)


def _resize(x: Held, size: Sequence[int], *, memory_format: object = None) -> Held:
    """Elements in order, as many as there are; those that are new are zeros."""
    del memory_format
    flat, count = x.reshape(-1), math.prod(size)
    if count > x.numel():
        flat = _torch().nn.functional.pad(flat, (0, count - x.numel()))
    return flat[:count].reshape(size)


def _renormalized(weight: Held, indices: Held, max_norm: float, norm_type: float) -> Held:
    """Rows that are looked up are shortened to a length."""
    torch = _torch()
    used = torch.zeros((weight.shape[0],), dtype=torch.int64, device=weight.device)
    flat = indices.reshape(-1)
    used = used.scatter(0, flat, torch.ones_like(flat, dtype=torch.int64)) > 0
    norms = torch.linalg.vector_norm(weight, norm_type, 1)
    scale = torch.where(used & (norms > max_norm), max_norm / (norms + 1e-7), 1.0)
    return weight * scale.unsqueeze(1).to(weight.dtype)


def _embedding_bags(  # noqa: PLR0913 - the schema has that many
    weight: Held, indices: Held, offsets: Held, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Held = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Held, Held, Held, Held]:  # fmt: skip
    """Rows that are looked up, reduced bag by bag (0: sum, 1: mean, 2: the largest); empty bags are zeros."""
    del scale_grad_by_freq, sparse
    torch = _torch()
    bags = offsets.shape[0] - int(include_last_offset)
    if border.is_known_empty(indices) or (isinstance(bags, int) and not bags):
        bag = torch.zeros_like(indices)
        sizes = offsets.new_zeros((bags,))
        return weight.new_zeros((bags, weight.shape[1])), bag, sizes, sizes
    bag = _bag_of_each(indices, offsets)
    # What belongs to no bag goes behind the last one.
    target = bag if padding_idx < 0 else torch.where(indices == padding_idx, bags, bag)
    ones = torch.ones_like(target)
    sizes = target.new_zeros((bags + 1,)).index_add(0, target, ones)[:bags]
    rows = weight.index_select(0, indices)
    # Products of halves are not rounded before they are added.
    held = rows.float() if rows.dtype.itemsize == 2 else rows
    if per_sample_weights is not None:
        held = held * per_sample_weights.unsqueeze(1).to(held.dtype)
    room = held.new_zeros((bags + 1, held.shape[1]))
    bag = torch.where(bag < bags, bag, 0)
    if mode == 2:
        spread = target.unsqueeze(1).expand(held.shape)
        found = room.scatter_reduce(0, spread, held, "amax", include_self=False)[:bags]
        inside = target == torch.arange(bags, device=weight.device).unsqueeze(1)
        places = torch.where(inside.unsqueeze(2), held, -math.inf).argmax(1)
        return found.to(weight.dtype), bag, sizes, indices[places]
    found = room.index_add(0, target, held)[:bags]
    if mode == 1:
        found = found / sizes.clamp(min=1).unsqueeze(1)
    return found.to(weight.dtype), bag, sizes, sizes


def _bag_of_each(indices: Held, offsets: Held) -> Held:
    """The bag of every index: bags begin at their offsets, one after the other."""
    begins = offsets.new_zeros((indices.shape[0] + 1,))
    begins = begins.index_add(0, offsets, _torch().ones_like(offsets))
    return (begins.cumsum(0)[:-1] - 1).to(_torch().int64)


# --- images -------------------------------------------------------------------------------------


def _reflected(place: Held, low: float, high: float) -> Held:
    """A position folded back at both borders."""
    if low == high:
        return _torch().zeros_like(place)
    span = high - low
    offset = (place - low).abs()
    turns = (offset / span).floor()
    rest = offset - turns * span
    return _torch().where(turns % 2 == 0, rest + low, high - rest)


def _on_grid(place: Held, size: int, padding: int, *, align: bool) -> Held:
    """A coordinate in -1 .. 1 as a position along an axis (padding 0: zeros, 1: border, 2: reflection)."""
    found = (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2
    if padding == 2:
        ends = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        found = _reflected(found, *ends)
    return found.clamp(0, size - 1) if padding else found


def _with_places(grid: Held, padding: int, place: float) -> Held:
    """Coordinates of which those that lie nowhere (with a border no numbers, else infinite ones, too) are at `place`."""
    lost = grid.isnan() if padding == 1 else ~grid.isfinite()
    return _torch().where(lost, place, grid)


def _sampled_image(
    x: Held, grid: Held, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Held:
    """As torch takes it apart, which forgets that what is mixed by no numbers is none."""
    torch = _torch()
    how = interpolation_mode, padding_mode, align_corners
    apart = border.load("torch._decomp.decompositions")._grid_sampler_2d
    if interpolation_mode == 2:
        return apart(x, grid, *how)
    if padding_mode:  # at the first element, as torch's kernels
        return apart(x, _with_places(grid, padding_mode, -1.0), *how)
    found = apart(x, grid, *how)
    if interpolation_mode == 1:
        return found
    return torch.where(grid.isfinite().all(-1).unsqueeze(1), found, math.nan)


def _sampled_volume(
    x: Held, grid: Held, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Held:
    """Linear (0) or nearest (1) samples of volumes at computed places."""
    sizes = x.shape[2:]
    wide = grid.float() if grid.dtype.itemsize == 2 else grid
    # At the last element, as torch's kernels, or far outside.
    wide = _with_places(wide, padding_mode, 1.0 if padding_mode else 3.0)
    # The grid's last axis has the axis that changes fastest first.
    places = [
        _on_grid(wide[..., 2 - axis], size, padding_mode, align=align_corners)
        for axis, size in enumerate(sizes)
    ]
    if interpolation_mode == 1:
        return _fetched(x, [place.round() for place in places])
    total: Held = 0
    for corner in itertools.product((0, 1), repeat=3):
        at = [place.floor() + step for place, step in zip(places, corner, strict=True)]
        weight: Held = 1
        for place, whole in zip(places, at, strict=True):
            weight = weight * (1 - (place - whole).abs())
        total = total + _fetched(x, at).to(wide.dtype) * weight.unsqueeze(1)
    return total.to(x.dtype)


def _fetched(x: Held, places: Sequence[Held]) -> Held:
    """Elements at whole positions, zero outside of the volume."""
    torch = _torch()
    inside: Held = None
    index: Held = None
    for place, size in zip(places, x.shape[2:], strict=True):
        within = (place >= 0) & (place <= size - 1)
        inside = within if inside is None else inside & within
        whole = place.clamp(0, size - 1).to(torch.int64)
        index = whole if index is None else index * size + whole
    count, channels = x.shape[:2]
    flat = x.reshape(count, channels, -1)
    spread = index.reshape(count, 1, -1).expand(count, channels, -1)
    found = flat.gather(2, spread).reshape(count, channels, *index.shape[1:])
    return torch.where(inside.unsqueeze(1), found, 0)


def _max_unpool(
    x: Held, indices: Held, output_size: Sequence[int], *window: object
) -> Held:
    """Each number where its plane says: a place outside of it fails the call; torch's own writes to another plane."""
    del window
    axes = len(output_size)
    planes, size = x.shape[:-axes], math.prod(output_size)
    flat = x.new_zeros((*planes, size))
    if not border.is_known_empty(x):
        flat = flat.scatter(-1, indices.flatten(-axes), x.flatten(-axes))
    return flat.reshape((*planes, *output_size))


def _fractional_max_pool(
    x: Held, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Held
) -> tuple[Held, Held]:
    """The largest of windows whose distances are drawn, and where each lies in its plane."""
    torch = _torch()
    spatial = len(kernel_size)
    wide = x if x.dim() == spatial + 2 else x.unsqueeze(0)
    sizes = wide.shape[2:]
    index: Held = 0
    for axis, (size, kernel, count) in enumerate(
        zip(sizes, kernel_size, output_size, strict=True)
    ):
        # Torch draws for images the last axis first.
        drawn = random_samples[..., axis if spatial == 3 else spatial - 1 - axis]
        starts = _starts(drawn.to(torch.float64), size, kernel, count)
        window = torch.arange(kernel, device=x.device)
        places = starts.unsqueeze(-1) + window
        shape = [1] * (2 * spatial)
        shape[axis], shape[spatial + axis] = count, kernel
        index = index * size + places.reshape(*starts.shape[:2], *shape)
    index = index.flatten(2 + spatial)
    flat = wide.flatten(2)
    taken = flat.gather(2, index.flatten(2)).reshape(index.shape)
    values, chosen = taken.max(-1)
    where = index.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    return (values, where) if wide is x else (values.squeeze(0), where.squeeze(0))


def _starts(drawn: Held, size: int, kernel: int, count: int) -> Held:
    """Where the windows of an axis begin; the last one ends where the axis does."""
    torch = _torch()
    places = torch.arange(count, device=drawn.device)
    last = torch.full_like(drawn, size - kernel, dtype=torch.int64).unsqueeze(-1)
    if count == 1:
        return last
    step = (size - kernel) / (count - 1)
    begin = (drawn * step).floor().unsqueeze(-1)
    found = ((drawn.unsqueeze(-1) + places) * step).floor() - begin
    return torch.where(places == count - 1, last, found.to(torch.int64))


# --- quantization -------------------------------------------------------------------------------


def quantized_and_back(
    x: Held, scale: Held, zero_point: Held, quant_min: int, quant_max: int
) -> tuple[Held, Held]:
    """Numbers as a grid of whole ones has them, of NaN the least, and which of them the grid reaches.

    All of it is of f32 but the numbers themselves, which are so if they are halves.
    """
    scale, share = _in_single(scale)
    if border.is_instance(zero_point, "Tensor") and zero_point.is_floating_point():
        zero_point = zero_point.to(_torch().int32)
    places = (_widened(x) * share).round() + zero_point
    near, within = _nearest(places, quant_min, quant_max)
    return ((near - zero_point).float() * scale).to(x.dtype), within


def _widened(x: Held) -> Held:
    return x.to(_torch().promote_types(x.dtype, _torch().float32))


def _nearest(places: Held, quant_min: int, quant_max: int) -> tuple[Held, Held]:
    within = (places >= quant_min) & (places <= quant_max)
    held = places.clamp(quant_min, quant_max)
    return _torch().where(places == places, held, quant_min), within


def _in_single(scale: Held) -> tuple[Held, Held]:
    """A scale and its reciprocal, rounded to f32."""
    if border.is_instance(scale, "Tensor"):
        scale = scale.float()
        return scale, 1.0 / scale
    with np.errstate(divide="ignore", over="ignore"):
        near = np.float32(scale)
        return float(near), float(np.float32(1) / near)


def quantized_by_channel(
    x: Held, scale: Held, zero_point: Held, axis: int, quant_min: int, quant_max: int
) -> tuple[Held, Held]:
    """The same with a grid of its own for each place along an axis; zero points of floats are added before rounding."""
    shape = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    zero_point = zero_point.reshape(shape)
    scale, share = _in_single(scale.reshape(shape))
    if zero_point.is_floating_point():
        places = (x.float() * share + zero_point).round()
        near, within = _nearest(places, quant_min, quant_max)
        gap = near.double() - zero_point.double()
        return (gap * scale.double()).to(x.dtype), within
    places = (_widened(x) * share).round() + zero_point
    near, within = _nearest(places, quant_min, quant_max)
    return ((near - zero_point) * scale).to(x.dtype), within


def _quantized_if_enabled(
    x: Held, scale: Held, zero_point: Held, fake_quant_enabled: Held, quant_min: int, quant_max: int
) -> tuple[Held, Held]:  # fmt: skip
    found, within = quantized_and_back(x, scale, zero_point, quant_min, quant_max)
    is_on = fake_quant_enabled[0] >= 1
    torch = _torch()
    return torch.where(is_on, found, x), within | ~is_on


def ones_of_classes(classes: Held, num_classes: int = -1) -> Held:
    """`one_hot`, where a class that there is not fails the call; torch's own leaves it without a one."""
    torch = _torch()
    if num_classes == -1:
        num_classes = int(classes.max().item()) + 1
    known = torch.arange(num_classes, dtype=classes.dtype, device=classes.device)
    found = known.index_select(0, classes.reshape(-1)).reshape(classes.shape)
    return (found.unsqueeze(-1) == known).to(torch.int64)


# --- losses -------------------------------------------------------------------------------------


def margins_of_labels(x: Held, target: Held, reduction: int) -> tuple[Held, Held]:
    """Labels of a row end at the first negative one; what torch's own decomposition makes of those behind it is wrong."""
    torch = _torch()
    shape, (x, target) = target.shape, torch.atleast_1d(x, target)
    places = torch.arange(x.shape[-1], device=x.device)
    counts = (target < 0).to(torch.int64).cumsum(-1) == 0
    label = torch.where(counts, target, 0)
    hit = ((label.unsqueeze(-1) == places) & counts.unsqueeze(-1)).any(-2)
    gap = 1 - x.gather(-1, label).unsqueeze(-1) + x.unsqueeze(-2)
    held = counts.unsqueeze(-1) & ~hit.unsqueeze(-2)
    loss = torch.where(held, gap.clamp(min=0), 0).sum((-1, -2)) / x.shape[-1]
    total = {0: loss, 1: loss.mean(), 2: loss.sum()}[reduction]
    return total, hit.to(x.dtype).reshape(shape)


def _linear_loss(
    x: Held, linear_weight: Held, target: Held, bias: Held, weight: Held, reduction: str,
    ignore_index: int, label_smoothing: float,
) -> Held:  # fmt: skip
    functional = _torch().nn.functional
    scores = functional.linear(x, linear_weight, bias)
    return functional.cross_entropy(
        scores, target, weight=weight, reduction=reduction, ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )  # fmt: skip


def _in_chunks_unreduced(
    x: Held, linear_weight: Held, target: Held, bias: Held, weight: Held, ignore_index: int,
    label_smoothing: float, *rest: object,
) -> Held:  # fmt: skip
    del rest
    return _linear_loss(
        x, linear_weight, target, bias, weight, "none", ignore_index, label_smoothing
    )


def _in_chunks(
    x: Held, linear_weight: Held, target: Held, bias: Held, weight: Held, reduction: str,
    ignore_index: int, label_smoothing: float, *rest: object,
) -> tuple[Held, Held, Held, Held]:  # fmt: skip
    """The loss; the gradients that stand beside it are of training."""
    del rest
    loss = _linear_loss(
        x, linear_weight, target, bias, weight, reduction, ignore_index, label_smoothing
    )
    return loss, x.new_empty((0, 0)), x.new_empty((0, 0)), x.new_empty((0,))


_OWN: Final[dict[str, Decomposition]] = {
    **ATTENTION,
    **COUNTS,
    **EQUATIONS,
    **GRADIENTS,
    **SIGNALS,
    "_cdist_forward": distances,
    "_embedding_bag": _embedding_bags,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _quantized_if_enabled,
    "fake_quantize_per_channel_affine_cachemask": quantized_by_channel,
    "fake_quantize_per_tensor_affine_cachemask": quantized_and_back,
    "_embedding_bag_forward_only": _embedding_bags,
    "_pdist_forward": _own_distances,
    "_trilinear": _trilinear,
    "as_strided_scatter": _as_strided_scatter,
    "diagonal_scatter": _diagonal_scatter,
    "embedding_renorm": _renormalized,
    "fractional_max_pool2d": _fractional_max_pool,
    "fractional_max_pool3d": _fractional_max_pool,
    "grid_sampler_2d": _sampled_image,
    "grid_sampler_3d": _sampled_volume,
    "masked_scatter": _masked_scatter,
    "max_unpool2d": _max_unpool,
    "max_unpool3d": _max_unpool,
    "multilabel_margin_loss_forward": margins_of_labels,
    "nonzero_static": _nonzero_static,
    "put": _put,
    "resize": _resize,
}
_OF_NETWORKS: Final[dict[str, Decomposition]] = {
    "_linear_cross_entropy_batch_chunked": _in_chunks,
    "_linear_cross_entropy_batch_chunked_no_reduction": _in_chunks_unreduced,
}


def own() -> dict[Any, Decomposition]:
    """Decompositions by overload, of those operators that this torch has."""
    torch = _torch()
    with contextlib.suppress(ImportError):  # older ones do not have it
        border.load("torch.nn.modules.linear_cross_entropy")
    found = {_overload(torch.ops.aten, name): build for name, build in _OWN.items()}
    for name, build in _OF_NETWORKS.items():
        found[_overload(torch.ops.torch_nn, name)] = build
    return {operator: build for operator, build in found.items() if operator is not None}


def of_quantization() -> dict[Any, Decomposition]:
    """Those of operators of quantized programs, where they are loaded: who has such a program has loaded them."""
    library = _torch().ops.quantized_decomposed
    found = {_overload(library, name): build for name, build in QUANTIZATION.items()}
    return {operator: build for operator, build in found.items() if operator is not None}


def _overload(library: Any, name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(library, packet, None), overload or "default", None)
