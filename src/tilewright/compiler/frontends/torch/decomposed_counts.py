"""Counts taken apart: running sums of powers, the most frequent elements, histograms, segments, rows of unlike lengths.

Written in operators that have rows; they run under torch's tracing.  Called by `decompositions`.

Source: the operators of ATen by name, `torch` reference pages.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any


def _torch() -> Any:
    return border.load()


# --- running and counted things -----------------------------------------------------------------


def _running_logsumexp(x: Held, dim: int) -> Held:
    torch = _torch()
    if x.dim() == 0 or border.is_known_empty(x):
        return x.clone()
    last = x.movedim(dim, -1)
    count = last.shape[-1]
    seen = torch.ones((count, count), dtype=torch.bool, device=x.device).tril()
    wide = last.unsqueeze(-2).masked_fill(~seen, -math.inf)
    return torch.logsumexp(wide, -1).movedim(-1, dim)


def _hash(
    x: Held, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> Held:
    """All elements as 64 bits, combined by exclusive or (mode 0, the only one): every bit is the parity of a sum."""
    del mode
    torch = _torch()
    wide = x.to(torch.float64) if x.dtype.is_floating_point else x.to(torch.int64)
    places = torch.arange(64, device=x.device)
    bits = (wide.view(torch.int64).unsqueeze(-1) >> places) & 1
    axes = [axis % max(x.dim(), 1) for axis in dim] or [*range(x.dim())]
    odd = bits.sum(axes, keepdim=keepdim) & 1 if x.dim() else bits
    # The last place is the sign: sums of other powers of two do not reach it.
    return (odd << places).sum(-1).view(torch.uint64)


def _padded_sequences(
    sequences: Sequence[Held], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Held:  # fmt: skip
    """As long as the longest each, whichever that is in a call; torch's own asks the example."""
    torch = _torch()
    longest = functools.reduce(torch.sym_max, (part.shape[0] for part in sequences))
    rows: list[Held] = []
    for part in sequences:
        missing = longest - part.shape[0]
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        border_ = (*[0] * (2 * (part.dim() - 1)), *ends)
        rows.append(torch.nn.functional.pad(part, border_, value=padding_value))
    return torch.stack(rows, 0 if batch_first else 1)


def _is_among(
    elements: Held, test_elements: Held, *, assume_unique: bool = False, invert: bool = False
) -> Held:  # fmt: skip
    """Whether each is one of some others, by their order; torch compares all where there are few, as the example has it."""
    torch = _torch()
    sizes = (*elements.shape, *test_elements.shape)
    if all(isinstance(size, int) for size in sizes):
        own = border.load("torch._decomp.decompositions").isin
        return own(elements, test_elements, assume_unique=assume_unique, invert=invert)
    dtype = torch.result_type(elements, test_elements)
    wanted, given = elements.to(dtype), test_elements.reshape(-1).to(dtype).sort()[0]
    place = torch.searchsorted(given, wanted)
    # Behind the last there is one more, which is none of them.
    found = torch.cat((given, given.new_zeros((1,))))[place] == wanted
    found = found & (place < given.shape[0])
    return ~found if invert else found


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


def histogram(
    x: Held, bins: int = 100, *, range: Sequence[float] | None = None,  # noqa: A002 - as in the schema
    weight: Held = None, density: bool = False,
) -> tuple[Held, Held]:  # fmt: skip
    """Counts or weights of a line of elements in bins of one width, and where the bins end."""
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


def histogram_of_edges(
    x: Held, bins: Held, *, weight: Held = None, density: bool = False
) -> tuple[Held, Held]:
    """The same in bins between given edges."""
    torch = _torch()
    flat = x.reshape(-1)
    weights = torch.ones_like(flat) if weight is None else weight.reshape(-1)
    counts = _counts(_bin_of(flat, bins), weights, bins.shape[0] - 1)
    return (_dense(counts, bins) if density else counts), bins.clone()


def grid_edges(
    x: Held, bins: Sequence[int], *, range: Sequence[float] | None = None,  # noqa: A002 - as in the schema
    weight: Held = None, density: bool = False,
) -> list[Held]:  # fmt: skip
    """Where the bins of a grid end, along each of its axes, for rows of coordinates."""
    del weight, density
    rows = x.reshape(-1, x.shape[-1])
    found: list[Held] = []
    for axis, count in enumerate(bins):
        pair = (0.0, 0.0) if range is None else range[2 * axis : 2 * axis + 2]
        found.append(_edges(*_limits(rows[:, axis], pair[0], pair[1], 0.5), count))
    return found


def grid_counts(
    x: Held, bins: Sequence[int], *, range: Sequence[float] | None = None,  # noqa: A002 - as in the schema
    weight: Held = None, density: bool = False,
) -> Held:  # fmt: skip
    """Counts or weights of rows of coordinates in the cells of a grid."""
    edges = grid_edges(x, bins, range=range)
    return grid_counts_of_edges(x, edges, weight=weight, density=density)


def grid_counts_of_edges(
    x: Held, bins: Sequence[Held], *, weight: Held = None, density: bool = False
) -> Held:
    """The same in cells between given edges."""
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
    "mean": 0.0,
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
    nothing = _NOTHING[reduce]
    begin = nothing if initial is None else float(initial)
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
    total = held.sum(along) + begin
    empty = math.nan if initial is None else float(initial)
    return torch.where(count > 0, total / count, empty)


def _with_nan(wide: Held, inside: Held, found: Held, along: int) -> Held:
    torch = _torch()
    lost = (inside & wide.isnan()).any(along)
    return torch.where(lost, math.nan, found)


# --- rows of unlike lengths ---------------------------------------------------------------------


def _padded_rows(
    values: Held,
    offsets: Sequence[Held],
    max_lengths: Sequence[int],
    padding_value: float = 0.0,
) -> Held:
    """Rows that lie one behind the other, each as long as the longest may be; what is longer is cut off."""
    torch = _torch()
    (begins,), (length,) = offsets, max_lengths
    counts = (begins[1:] - begins[:-1]).unsqueeze(1)
    steps = torch.arange(length, device=values.device)
    places = begins[:-1].unsqueeze(1) + steps
    border = values.new_full((1, *values.shape[1:]), padding_value)
    known = torch.cat([values, border])
    return known[torch.where(steps < counts, places, values.shape[0])]


def _rows_of_padded(
    dense: Held,
    offsets: Sequence[Held],
    total_L: int | None = None,  # noqa: N803 - the schema's name
) -> Held:
    """The elements of rows of a batch, one behind the other; how many there are is data where nobody says it."""
    torch = _torch()
    (begins,) = offsets
    count = begins[-1].item() if total_L is None else total_L
    places = torch.arange(count, device=dense.device)
    row = torch.searchsorted(begins, places, right=True) - 1
    # What nobody gave is whatever lies at the end of a row.
    row = row.clamp(0, dense.shape[0] - 1)
    step = places - begins[row]
    return dense[row, step.clamp(0, dense.shape[1] - 1)]


OWN: Final[dict[str, Callable[..., Any]]] = {
    "_histogramdd_bin_edges": grid_edges,
    "_histogramdd_from_bin_cts": grid_counts,
    "_histogramdd_from_bin_tensors": grid_counts_of_edges,
    "histc": _histogram_counts,
    "histogram.bin_ct": histogram,
    "histogram.bins_tensor": histogram_of_edges,
    "_jagged_to_padded_dense_forward": _padded_rows,
    "_padded_dense_to_jagged_forward": _rows_of_padded,
    "hash_tensor": _hash,
    "isin.Tensor_Tensor": _is_among,
    "logcumsumexp": _running_logsumexp,
    "pad_sequence": _padded_sequences,
    "mode": _mode,
    "segment_reduce": _segment_reduce,
}
"""By the names of overloads."""
