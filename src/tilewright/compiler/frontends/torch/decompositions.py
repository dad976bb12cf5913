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

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any
Decomposition = Callable[..., Any]


def _torch() -> Any:
    return border.load()


# --- systems of equations -----------------------------------------------------------------------


def _turned(x: Held) -> Held:
    return x.transpose(-1, -2)


def _check_errors(info: Held, api_name: str, *, is_matrix: bool) -> None:
    del info, api_name, is_matrix


def _cholesky(x: Held, upper: bool = False) -> Held:
    return _torch().linalg.cholesky_ex(x, upper=upper)[0]


def _triangular(a: Held, b: Held, *, upper: bool, unit: bool = False) -> Held:
    return _torch().linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)


def _cholesky_solve(b: Held, factor: Held, upper: bool = False) -> Held:
    batch = _torch().broadcast_shapes(b.shape[:-2], factor.shape[:-2])
    b = b.expand(*batch, *b.shape[-2:])
    lower = _turned(factor) if upper else factor
    return _triangular(_turned(lower), _triangular(lower, b, upper=False), upper=True)


def _eye_like(x: Held) -> Held:
    eye = _torch().eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return eye.expand(x.shape)


def _cholesky_inverse(factor: Held, upper: bool = False) -> Held:
    return _cholesky_solve(_eye_like(factor), factor, upper)


def _triangular_solve(
    b: Held,
    a: Held,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Held, Held]:
    batch = _torch().broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = a.expand(*batch, *a.shape[-2:])
    b = b.expand(*batch, *b.shape[-2:])
    matrix, is_upper = (_turned(a), not upper) if transpose else (a, upper)
    return _triangular(matrix, b, upper=is_upper, unit=unitriangular), a.clone()


def _lu(x: Held, *, pivot: bool = True) -> tuple[Held, Held, Held]:
    torch = _torch()
    packed, pivots, _ = torch.linalg.lu_factor_ex(x, pivot=pivot)
    permutation, lower, upper = torch.lu_unpack(packed, pivots)
    return (permutation if pivot else x.new_empty((0,))), lower, upper


def _lu_solve(
    packed: Held, pivots: Held, b: Held, *, left: bool = True, adjoint: bool = False
) -> Held:
    torch = _torch()
    batch = torch.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    permutation, _, _ = torch.lu_unpack(packed, pivots, unpack_data=False)
    permutation = permutation.expand(*batch, *permutation.shape[-2:])
    packed = packed.expand(*batch, *packed.shape[-2:])
    b = b.expand(*batch, *b.shape[-2:])
    if not left:
        return _turned(_solved(packed, permutation, _turned(b), adjoint=not adjoint))
    return _solved(packed, permutation, b, adjoint=adjoint)


def _solved(packed: Held, permutation: Held, b: Held, *, adjoint: bool) -> Held:
    """X of `P L U x = b`, or of the turned matrix."""
    if adjoint:
        found = _triangular(_turned(packed), b, upper=False)
        found = _triangular(_turned(packed), found, upper=True, unit=True)
        return permutation @ found
    found = _triangular(packed, _turned(permutation) @ b, upper=False, unit=True)
    return _triangular(packed, found, upper=True)


def _sign_of(pivots: Held, dtype: Any) -> Held:
    """The sign that exchanges of rows give a determinant."""
    places = _torch().arange(1, pivots.shape[-1] + 1, device=pivots.device)
    moved = (pivots != places).sum(-1)
    return (1 - 2 * (moved % 2)).to(dtype)


def _diagonal_product(packed: Held, pivots: Held) -> Held:
    return packed.diagonal(0, -2, -1).prod(-1) * _sign_of(pivots, packed.dtype)


def _det(x: Held) -> tuple[Held, Held, Held]:
    packed, pivots, _ = _torch().linalg.lu_factor_ex(x)
    return _diagonal_product(packed, pivots), packed, pivots


def _slogdet(x: Held) -> tuple[Held, Held, Held, Held]:
    packed, pivots, _ = _torch().linalg.lu_factor_ex(x)
    diagonal = packed.diagonal(0, -2, -1)
    sign = diagonal.sign().prod(-1) * _sign_of(pivots, packed.dtype)
    return sign, diagonal.abs().log().sum(-1), packed, pivots


def _inverse(x: Held, *, check_errors: bool = False) -> tuple[Held, Held]:
    del check_errors
    packed, pivots, info = _torch().linalg.lu_factor_ex(x)
    return _lu_solve(packed, pivots, _eye_like(x)), info


def _solve(
    x: Held, b: Held, *, left: bool = True, check_errors: bool = False
) -> tuple[Held, Held, Held, Held]:
    del check_errors
    torch = _torch()
    packed, pivots, info = torch.linalg.lu_factor_ex(x)
    is_vector = b.dim() == 1 or (x.dim() - 1 == b.dim() and x.shape[:-1] == b.shape)
    right = b.unsqueeze(-1) if is_vector else b
    found = _lu_solve(packed, pivots, right, left=left)
    return (found.squeeze(-1) if is_vector else found), packed, pivots, info


def _qr(x: Held, mode: str = "reduced") -> tuple[Held, Held]:
    torch = _torch()
    rows, columns = x.shape[-2:]
    count = min(rows, columns)
    vectors, scales = torch.geqrf(x)
    if mode == "r":
        return x.new_empty((0,)), vectors[..., :count, :].triu()
    if mode == "complete" and rows != count:
        wide = torch.nn.functional.pad(vectors, (0, rows - columns))
        return torch.linalg.householder_product(wide, scales), vectors.triu()
    front = vectors[..., :, :count]
    return torch.linalg.householder_product(front, scales), vectors[..., :count, :].triu()


def _apply_reflections(
    vectors: Held, scales: Held, x: Held, left: bool = True, transpose: bool = False
) -> Held:
    torch = _torch()
    missing = vectors.shape[-2] - vectors.shape[-1]
    whole = torch.nn.functional.pad(vectors, (0, missing)) if missing > 0 else vectors
    q = torch.linalg.householder_product(whole, scales)
    q = _turned(q) if transpose else q
    return q @ x if left else x @ q


def _pseudo_inverse(
    x: Held, *, atol: Held = None, rtol: Held = None, hermitian: bool = False
) -> Held:
    torch = _torch()
    if x.numel() == 0:
        return x.new_zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]))
    if hermitian:
        values, vectors = torch.linalg.eigh(x)
        left, right, sizes = vectors, _turned(vectors), values.abs()
    else:
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        sizes = values
    limit = sizes.amax(-1, keepdim=True)
    if rtol is None:
        small = torch.finfo(x.dtype).eps * max(x.shape[-2:])
        rtol = torch.full((), small, dtype=x.dtype, device=x.device)
        if atol is not None:
            rtol = torch.where(atol > 0, torch.zeros_like(rtol), rtol)
    atol = torch.zeros_like(rtol) if atol is None else atol
    limit = torch.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * limit)
    inverse = torch.where(sizes > limit, 1 / values, torch.zeros_like(values))
    return _turned(right) @ (inverse.unsqueeze(-1) * _turned(left))


_TAYLOR: Final = 18
_SQUARINGS: Final = 12


def _matrix_exponential(x: Held) -> Held:
    """Taylor's series of the matrix divided by 2^s, squared s times; s follows from its norm."""
    torch = _torch()
    if x.numel() == 0:
        return x.clone()
    wide = x.to(torch.float64)
    norm = wide.abs().sum(-1).amax(-1)
    squarings = norm.clamp(min=1.0).log2().ceil().clamp(max=_SQUARINGS)[..., None, None]
    scaled = wide / torch.exp2(squarings)
    term = found = _eye_like(scaled)
    for step in range(1, _TAYLOR + 1):
        term = term @ scaled / step
        found = found + term
    for step in range(_SQUARINGS):
        found = torch.where(squarings > step, found @ found, found)
    return found.to(x.dtype)


# --- distances and products ---------------------------------------------------------------------


def _norms(gap: Held, p: float) -> Held:
    if p == 0:
        return (gap != 0).sum(-1).to(gap.dtype)
    return _torch().linalg.vector_norm(gap, p, -1)


def _distances(x: Held, y: Held, p: float, compute_mode: int | None = None) -> Held:
    del compute_mode
    torch = _torch()
    shape = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*shape, x.shape[-2], y.shape[-2])
    if 0 in shape or x.shape[-1] == 0:
        return x.new_zeros(shape)
    return _norms(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _own_distances(x: Held, p: float = 2.0) -> Held:
    count = x.shape[0]
    if count <= 1 or x.shape[-1] == 0:
        return x.new_zeros((count * (count - 1) // 2,))
    first, second = _torch().triu_indices(count, count, 1)
    return _norms(x[first] - x[second], p)


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


# --- running and counted things -----------------------------------------------------------------


def _running_logsumexp(x: Held, dim: int) -> Held:
    torch = _torch()
    if x.dim() == 0 or x.numel() == 0:
        return x.clone()
    last = x.movedim(dim, -1)
    count = last.shape[-1]
    seen = torch.ones((count, count), dtype=torch.bool, device=x.device).tril()
    wide = last.unsqueeze(-2).masked_fill(~seen, -math.inf)
    return torch.logsumexp(wide, -1).movedim(-1, dim)


def _mode(x: Held, dim: int = -1, keepdim: bool = False) -> tuple[Held, Held]:
    """The smallest of the most frequent elements, and the last place where it is."""
    torch = _torch()
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    last = x.movedim(dim, -1)
    numbers = last.to(torch.uint8) if x.dtype == torch.bool else last
    counts = (last.unsqueeze(-1) == last.unsqueeze(-2)).sum(-1)
    most = counts == counts.amax(-1, keepdim=True)
    largest = numbers.amax(-1, keepdim=True)
    value = torch.where(most, numbers, largest).amin(-1, keepdim=True)
    places = torch.arange(last.shape[-1], device=x.device)
    place = torch.where(numbers == value, places, -1).amax(-1, keepdim=True)
    value, place = (part.movedim(-1, dim) for part in (value.to(x.dtype), place))
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _bins(x: Held, low: Held, high: Held, bins: int) -> Held:
    """The bin of each of a line of elements; what is outside of all goes to one behind."""
    torch = _torch()
    place = ((x - low) / (high - low) * bins).floor().to(torch.int64).clamp(0, bins - 1)
    inside = (x >= low) & (x <= high)
    return torch.where(inside, place, bins)


def _limits(x: Held, low: float, high: float, widened: float) -> tuple[Held, Held]:
    """Given limits, or those of the elements where both are equal; what is still equal is moved apart."""
    torch = _torch()
    if low == high and x.numel():
        least, most = x.amin(), x.amax()
        wide = (least == most).to(x.dtype) * widened
        return least - wide, most + wide
    step = widened if low == high else 0.0
    numbers = (low - step, high + step)
    least, most = (torch.full((), n, dtype=x.dtype, device=x.device) for n in numbers)
    return least, most


def _counts(place: Held, weight: Held, bins: int) -> Held:
    counts = weight.new_zeros((bins + 1,)).index_add(0, place, weight)
    return counts[:bins]


def _histogram_counts(x: Held, bins: int = 100, min: float = 0, max: float = 0) -> Held:  # noqa: A002 - as in the schema
    torch = _torch()
    flat = x.reshape(-1)
    low, high = _limits(flat, min, max, 1.0)
    return _counts(_bins(flat, low, high, bins), torch.ones_like(flat), bins)


def _edges(low: Held, high: Held, bins: int) -> Held:
    torch = _torch()
    steps = torch.arange(bins + 1, dtype=low.dtype, device=low.device)
    step = (high - low) / bins
    forward, back = low + step * steps, high - step * (bins - steps)
    return torch.where(steps < (bins + 1) // 2, forward, back)


def _histogram(
    x: Held, bins: int = 100, *, range: Sequence[float] | None = None,  # noqa: A002 - as in the schema
    weight: Held = None, density: bool = False,
) -> tuple[Held, Held]:  # fmt: skip
    torch = _torch()
    flat = x.reshape(-1)
    given = range or (0.0, 0.0)
    low, high = _limits(flat, given[0], given[1], 0.5)
    weights = torch.ones_like(flat) if weight is None else weight.reshape(-1)
    edges = _edges(low, high, bins)
    counts = _counts(_bin_of(flat, edges), weights, bins)
    return (_dense(counts, edges) if density else counts), edges


def _bin_of(x: Held, edges: Held) -> Held:
    """The bin between two edges, the last one with its end; what is outside goes to one behind."""
    torch = _torch()
    bins = edges.shape[0] - 1
    place = torch.searchsorted(edges, x.contiguous(), right=True) - 1
    place = torch.where(x == edges[-1], bins - 1, place)
    inside = (x >= edges[0]) & (x <= edges[-1])
    return torch.where(inside, place.clamp(0, bins - 1), bins)


def _dense(counts: Held, *edges: Held) -> Held:
    found = counts / counts.sum()
    for axis, edge in enumerate(edges):
        widths = edge[1:] - edge[:-1]
        found = found / widths.reshape([-1, *[1] * (counts.dim() - axis - 1)])
    return found


def _histogram_of_edges(
    x: Held, bins: Held, *, weight: Held = None, density: bool = False
) -> tuple[Held, Held]:
    torch = _torch()
    flat = x.reshape(-1)
    weights = torch.ones_like(flat) if weight is None else weight.reshape(-1)
    counts = _counts(_bin_of(flat, bins), weights, bins.shape[0] - 1)
    return (_dense(counts, bins) if density else counts), bins.clone()


def _grid_edges(
    x: Held, bins: Sequence[int], *, range: Sequence[float] | None = None,  # noqa: A002 - as in the schema
    weight: Held = None, density: bool = False,
) -> list[Held]:  # fmt: skip
    del weight, density
    rows = x.reshape(-1, x.shape[-1])
    found: list[Held] = []
    for axis, count in enumerate(bins):
        pair = (0.0, 0.0) if range is None else range[2 * axis : 2 * axis + 2]
        found.append(_edges(*_limits(rows[:, axis], pair[0], pair[1], 0.5), count))
    return found


def _grid_counts(
    x: Held, bins: Sequence[int], *, range: Sequence[float] | None = None,  # noqa: A002 - as in the schema
    weight: Held = None, density: bool = False,
) -> Held:  # fmt: skip
    edges = _grid_edges(x, bins, range=range)
    return _grid_counts_of_edges(x, edges, weight=weight, density=density)


def _grid_counts_of_edges(
    x: Held, bins: Sequence[Held], *, weight: Held = None, density: bool = False
) -> Held:
    torch = _torch()
    rows = x.reshape(-1, x.shape[-1])
    weights = torch.ones_like(rows[:, 0]) if weight is None else weight.reshape(-1)
    sizes = [edges.shape[0] - 1 for edges in bins]
    total, outside = math.prod(sizes), None
    place: Held = 0
    for axis, (edges, size) in enumerate(zip(bins, sizes, strict=True)):
        found = _bin_of(rows[:, axis], edges)
        lost = found == size
        outside = lost if outside is None else outside | lost
        place = place * size + found
    counts = _counts(torch.where(outside, total, place), weights, total).reshape(sizes)
    return _dense(counts, *bins) if density else counts


# --- segments -----------------------------------------------------------------------------------

_NOTHING: Final = {
    "sum": 0.0,
    "mean": math.nan,
    "max": -math.inf,
    "min": math.inf,
    "prod": 1.0,
}


def _segment_reduce(
    data: Held, reduce: str, *, lengths: Held = None, indices: Held = None,
    offsets: Held = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Held:  # fmt: skip
    del indices, unsafe
    torch = _torch()
    if offsets is None:
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    else:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    places = torch.arange(data.shape[axis], device=data.device)
    inside = (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    inside = inside.reshape(*inside.shape, *[1] * (data.dim() - axis - 1))
    wide = data.unsqueeze(axis)
    nothing = _NOTHING[reduce] if reduce != "mean" else 0.0
    begin = nothing if initial is None or reduce == "mean" else float(initial)
    held = torch.where(inside, wide, nothing)
    along = axis + 1
    if reduce == "sum":
        return held.sum(along) + begin
    if reduce == "prod":
        return held.prod(along) * begin
    if reduce == "max":
        return _with_nan(wide, inside, held.amax(along).clamp(min=begin), along)
    if reduce == "min":
        return _with_nan(wide, inside, held.amin(along).clamp(max=begin), along)
    count = inside.sum(along).to(data.dtype)
    total = held.sum(along) + (0.0 if initial is None else float(initial))
    empty = math.nan if initial is None else float(initial)
    return torch.where(count > 0, total / count, empty)


def _with_nan(wide: Held, inside: Held, found: Held, along: int) -> Held:
    torch = _torch()
    lost = (inside & wide.isnan()).any(along)
    return torch.where(lost, math.nan, found)


# --- elements at places -------------------------------------------------------------------------


def _masked_scatter(x: Held, mask: Held, source: Held) -> Held:
    torch = _torch()
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask = x.expand(shape), mask.expand(shape)
    if source.numel() == 0 or x.numel() == 0:
        return x.clone()
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    order = order.clamp(0, source.numel() - 1)
    return torch.where(mask, source.reshape(-1)[order].reshape(shape), x)


def _written(x: Held, places: Held, source: Held) -> Held:
    """A copy with elements at places, counted in order, replaced."""
    flat = x.reshape(-1)
    index = (places.reshape(-1),)
    return _torch().index_put(flat, index, source.reshape(-1)).reshape(x.shape)


def _diagonal_scatter(
    x: Held, source: Held, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Held:
    places = _torch().arange(x.numel(), device=x.device).reshape(x.shape)
    return _written(x, places.diagonal(offset, dim1, dim2), source)


def _as_strided_scatter(
    x: Held, source: Held, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Held:  # fmt: skip
    places = _torch().arange(x.numel(), device=x.device)
    return _written(x, places.as_strided(size, stride, storage_offset or 0), source)


def _put(x: Held, index: Held, source: Held, accumulate: bool = False) -> Held:
    flat, places = x.reshape(-1), (index.reshape(-1),)
    found = _torch().index_put(flat, places, source.reshape(-1), accumulate)
    return found.reshape(x.shape)


def _nonzero_static(x: Held, *, size: int, fill_value: int = -1) -> Held:
    torch = _torch()
    if x.dim() == 0 or x.numel() == 0 or size == 0:
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
    count = indices.shape[0]
    starts = offsets[:-1] if include_last_offset else offsets
    ends = offsets[1:]
    if not include_last_offset:
        ends = torch.cat([ends, torch.full_like(offsets[:1], count)])
    places = torch.arange(count, device=weight.device)
    inside = (places >= starts.unsqueeze(1)) & (places < ends.unsqueeze(1))
    bag = inside.to(torch.int64).argmax(0) if count and starts.shape[0] else places
    if padding_idx >= 0:
        inside = inside & (indices != padding_idx)
    sizes = inside.sum(1)
    if not count or not starts.shape[0]:
        empty = weight.new_zeros((starts.shape[0], weight.shape[1]))
        return empty, bag, sizes, sizes
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    held = rows.float() if rows.dtype.itemsize == 2 else rows
    held, chosen = held.unsqueeze(0), inside.unsqueeze(2)
    if mode == 2:
        lowest = torch.where(chosen, held, -math.inf)
        found = torch.where(sizes.unsqueeze(1) > 0, lowest.amax(1), 0.0)
        return found.to(weight.dtype), bag, sizes, indices[lowest.argmax(1)]
    found = torch.where(chosen, held, 0.0).sum(1)
    if mode == 1:
        found = found / sizes.clamp(min=1).unsqueeze(1)
    return found.to(weight.dtype), bag, sizes, sizes


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


def _sampled_volume(
    x: Held, grid: Held, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Held:
    """Linear (0) or nearest (1) samples of volumes at computed places."""
    sizes = x.shape[2:]
    wide = grid.float() if grid.dtype.itemsize == 2 else grid
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
        whole = place.clamp(0, size - 1).nan_to_num().to(torch.int64)
        index = whole if index is None else index * size + whole
    count, channels = x.shape[:2]
    flat = x.reshape(count, channels, -1)
    spread = index.reshape(count, 1, -1).expand(count, channels, -1)
    found = flat.gather(2, spread).reshape(count, channels, *index.shape[1:])
    return torch.where(inside.unsqueeze(1), found, 0)


# --- losses -------------------------------------------------------------------------------------


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
    "_cdist_forward": _distances,
    "_embedding_bag": _embedding_bags,
    "_embedding_bag_forward_only": _embedding_bags,
    "_histogramdd_bin_edges": _grid_edges,
    "_histogramdd_from_bin_cts": _grid_counts,
    "_histogramdd_from_bin_tensors": _grid_counts_of_edges,
    "_linalg_check_errors": _check_errors,
    "_linalg_det": _det,
    "_linalg_slogdet": _slogdet,
    "_linalg_solve_ex": _solve,
    "_pdist_forward": _own_distances,
    "_trilinear": _trilinear,
    "as_strided_scatter": _as_strided_scatter,
    "cholesky": _cholesky,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "diagonal_scatter": _diagonal_scatter,
    "embedding_renorm": _renormalized,
    "grid_sampler_3d": _sampled_volume,
    "histc": _histogram_counts,
    "histogram.bin_ct": _histogram,
    "histogram.bins_tensor": _histogram_of_edges,
    "linalg_inv_ex": _inverse,
    "linalg_lu": _lu,
    "linalg_lu_solve": _lu_solve,
    "linalg_matrix_exp": _matrix_exponential,
    "linalg_pinv.atol_rtol_tensor": _pseudo_inverse,
    "linalg_qr": _qr,
    "logcumsumexp": _running_logsumexp,
    "masked_scatter": _masked_scatter,
    "mode": _mode,
    "nonzero_static": _nonzero_static,
    "ormqr": _apply_reflections,
    "put": _put,
    "resize": _resize,
    "segment_reduce": _segment_reduce,
    "triangular_solve": _triangular_solve,
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


def _overload(library: Any, name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(library, packet, None), overload or "default", None)
