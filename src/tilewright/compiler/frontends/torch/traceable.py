"""Functions of torch that look at data while they are traced, written in those that do not.

Torch checks weights of a covariance, picks combinations by a mask, reads where a narrow part begins: that ends an
export.  Each function here gives the same without asking.  Where torch raises an error for the data, the result is
not a number, or the call fails as an index out of range.  Not for operators that an export gets through: those have
rows or decompositions.  Called by `export`.

Source: the functions' pages in `torch`'s reference.
"""

# ruff: noqa: A002 - the first parameter has the name that torch gives it

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.connectionist_loss import connectionist_loss
from tilewright.compiler.frontends.torch.decomposed_counts import (
    grid_counts_of_edges,
    grid_edges,
    histogram,
    histogram_of_edges,
)
from tilewright.compiler.frontends.torch.decompositions import (
    distances,
    quantized_and_back,
    quantized_by_channel,
)
from tilewright.compiler.frontends.torch.directional_norms import directional_norms
from tilewright.compiler.frontends.torch.layout_questions import is_contiguous
from tilewright.compiler.frontends.torch.open_counts import open_counts
from tilewright.compiler.frontends.torch.packed_sequences import first_size, zeros
from tilewright.compiler.frontends.torch.substitutes import replaced_functions

# Torch's tensors have no types that we see.
Held = Any
_MOST_CHOICES: Final = 1 << 20
_MOST_GIVEN: Final = 10
"""What `fused_moving_avg_obs_fake_quant` is given behind its switches; the last two may be left out."""
_SOME_SIZE: Final = 1 << 8
"""A size that data decides, as far as an order of products asks."""


def _torch() -> Any:
    return border.load()


def _covariance(
    input: Held, *, correction: int = 1, fweights: Held = None, aweights: Held = None
) -> Held:
    """Of rows of observations: `E[(x - E x)(x - E x)^H]`, with how often and how much each counts."""
    torch = _torch()
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    given = [weights for weights in (fweights, aweights) if weights is not None]
    weights = functools.reduce(torch.mul, given) if given else None
    total: Held = rows.shape[1] if weights is None else weights.sum()
    mean = (rows if weights is None else rows * weights).sum(1) / total
    if aweights is not None and correction:
        divisor = total - correction * (weights * aweights).sum() / total
    else:
        divisor = total - correction
    # Torch warns of too few observations, and divides by nothing.
    is_data = border.is_instance(divisor, "Tensor")
    divisor = divisor.clamp(min=0) if is_data else torch.sym_max(divisor, 0)
    rows = rows - mean.unsqueeze(1)
    other = rows if weights is None else rows * weights
    return (rows @ other.mH / divisor).squeeze()


def _correlation(input: Held) -> Held:
    torch = _torch()
    found = _covariance(input)
    if not found.dim():
        return found / found
    deviation = found.diagonal().real.sqrt()
    found = found / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if not found.is_complex():
        return found.clamp(-1, 1)
    return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))


def _combinations(input: Held, r: int = 2, with_replacement: bool = False) -> Held:
    """All choices of so many elements of a vector, in order."""
    if r <= 0 or not isinstance(input.shape[0], int):
        return NotImplemented
    choose = (
        itertools.combinations_with_replacement
        if with_replacement
        else itertools.combinations
    )
    places = list(itertools.islice(choose(range(input.shape[0]), r), _MOST_CHOICES + 1))
    if len(places) > _MOST_CHOICES:
        return NotImplemented
    if not places:
        return input.new_empty((0, r))
    return input[_torch().tensor(places, device=input.device)]


def _narrowed(input: Held, dim: int, start: Held, length: int) -> Held:
    """A part whose first place is data; it may count from the end, and before the first element it stays out of range."""
    torch = _torch()
    if not border.is_instance(start, "Tensor") or not isinstance(length, int):
        return NotImplemented
    size = input.shape[dim]
    first = torch.where((start < 0) & (start >= -size), start + size, start)
    places = first.reshape(1) + torch.arange(length, device=input.device)
    return input.index_select(dim, places)


def _evenly_split(
    input: Held, indices_or_sections: Held = None, dim: int = 0, **named: Held
) -> Held:
    """Into parts of which the first are longer by one: torch fixes which, as the example has it.

    Torch has three more names for what comes second: `sections`, `indices` and `tensor_indices_or_sections`.
    """
    count, extent = named.get("sections", indices_or_sections), input.shape[dim]
    if not isinstance(count, int) or count < 1 or isinstance(extent, int):
        return NotImplemented
    return input.split([(extent + count - 1 - i) // count for i in range(count)], dim)


def _distances(x1: Held, x2: Held, p: float = 2.0, compute_mode: str | None = None) -> Held:
    """Torch computes many rows in another way, and so wants to know how many there are."""
    del compute_mode
    if not x1.is_floating_point() or x1.dtype != x2.dtype or p < 0:
        return NotImplemented
    return distances(x1, x2, p)


def _affine_grid(
    theta: Held, size: Sequence[Held], align_corners: bool | None = None
) -> Held:
    """Where images are read that matrices move: torch fixes the sizes of the example."""
    torch = _torch()
    if all(isinstance(n, int) for n in size) or len(size) not in (4, 5):
        return NotImplemented
    count, _, *sides = size
    axes = [_centres(n, theta, is_aligned=bool(align_corners)) for n in sides]
    planes = torch.meshgrid(*axes, indexing="ij")[::-1]  # x comes first
    places = torch.stack((*planes, torch.ones_like(planes[0])), -1)
    moved = places.reshape(-1, len(sides) + 1) @ theta.mT
    return moved.view(count, *sides, len(sides))


def _centres(count: Held, like: Held, *, is_aligned: bool) -> Held:
    """Of so many elements from -1 to 1, which are the first and the last centre, or the outer borders."""
    torch = _torch()
    doubled = 2 * torch.arange(count, dtype=like.dtype, device=like.device) - (count - 1)
    return doubled / (torch.sym_max(count - 1, 1) if is_aligned else count)


def _write_item(input: Held, index: Held, value: Held) -> Held:
    """Where a scalar says; torch would want to know it."""
    if not border.is_instance(index, "Tensor") or index.dim():
        return NotImplemented
    if index.dtype in (_torch().bool, _torch().uint8):
        return NotImplemented
    input[index.reshape(1)] = value
    return None


def _unlike_neighbours(
    input: Held, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Held:  # fmt: skip
    """Of slices along an axis that is counted from the end, of which torch has the sizes wrong."""
    if dim is None or not -input.dim() <= dim < 0:
        return NotImplemented
    wanted = {"return_inverse": return_inverse, "return_counts": return_counts}
    return _torch().unique_consecutive(input, dim=dim + input.dim(), **wanted)


def _gaussian_loss(
    input: Held, target: Held, var: Held, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Held:  # fmt: skip
    torch = _torch()
    if isinstance(var, float) or reduction not in _REDUCTIONS:
        return NotImplemented
    is_wrong = (var < 0).any()
    if var.shape != input.shape and input.shape[:-1] == var.shape:
        var = var.unsqueeze(-1)
    var = torch.where(is_wrong, math.nan, var).clamp(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _REDUCTIONS[reduction](loss)


_REDUCTIONS: Final[dict[str, Callable[[Held], Held]]] = {
    "none": lambda loss: loss,
    "mean": lambda loss: loss.mean(),
    "sum": lambda loss: loss.sum(),
}


def _are_equal(input: Held, other: Held) -> Held:
    """Whether all elements are: a truth value of the data, which results may be and `torch.cond` may ask."""
    if _differ(input.shape, other.shape):
        return False
    torch = _torch()
    found = (input == other).all()
    for pair in zip(input.shape, other.shape, strict=True):
        if not all(isinstance(size, int) for size in pair):
            # Else one row would be as good as all rows that are like it.
            left, right = (torch.scalar_tensor(size, dtype=torch.int64) for size in pair)
            found = found & (left == right)
    return found.item()


def _are_close(
    input: Held, other: Held, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Held:  # fmt: skip
    return _torch().isclose(input, other, rtol, atol, equal_nan).all().item()


def _fake_quantized(
    input: Held, scale: Held, zero_point: Held, quant_min: int, quant_max: int
) -> Held:
    """Torch finds the type only by running it, which open sizes do not let it."""
    if all(isinstance(size, int) for size in input.shape):
        return NotImplemented
    return quantized_and_back(input, scale, zero_point, quant_min, quant_max)[0]


def _fake_quantized_by_channel(
    input: Held, scale: Held, zero_point: Held, axis: int, quant_min: int, quant_max: int
) -> Held:
    if all(isinstance(size, int) for size in input.shape):
        return NotImplemented
    found, _ = quantized_by_channel(input, scale, zero_point, axis, quant_min, quant_max)
    return found


def _observed_and_quantized(
    input: Held, observer_on: Held, fake_quant_on: Held, *given: Held, **named: Held
) -> Held:
    """Where nothing is observed any more, which known switches tell."""
    if named or not _MOST_GIVEN - 2 <= len(given) <= _MOST_GIVEN:
        return NotImplemented
    _, _, scale, zero_point, _, quant_min, quant_max, ch_axis, *is_by_row = given
    is_observed, is_on = observer_on.item(), fake_quant_on.item()
    if not isinstance(is_observed, int) or not isinstance(is_on, int) or is_observed:
        return NotImplemented
    if not is_on:
        return input.clone()
    torch, limits = _torch(), (quant_min, quant_max)
    if is_by_row and is_by_row[0]:
        given = (input, scale, zero_point, ch_axis, *limits)
        functions = _fake_quantized_by_channel, torch.fake_quantize_per_channel_affine
    else:
        given = (input, scale, zero_point, *limits)
        functions = _fake_quantized, torch.fake_quantize_per_tensor_affine
    found = functions[0](*given)
    return functions[1](*given) if found is NotImplemented else found


def _contracted(equation: Held, *operands: Held) -> Held:
    """Of three and more, in the order that is good for the example: torch would know all sizes to choose one."""
    torch = _torch()
    backend = border.load("torch.backends.opt_einsum")
    is_chosen = backend.enabled and backend.is_available()
    sizes = [n for x in operands for n in getattr(x, "shape", ())]
    if not isinstance(equation, str) or len(operands) < 3 or not is_chosen:
        return NotImplemented
    if all(isinstance(n, int) for n in sizes):
        return NotImplemented
    hint = border.load("torch.fx.experimental.symbolic_shapes").optimization_hint
    shapes = [tuple(hint(n, fallback=_SOME_SIZE) for n in x.shape) for x in operands]
    choose = backend.get_opt_einsum().contract_path
    pairs, _ = choose(equation, *shapes, shapes=True, optimize=backend.strategy)
    return torch.functional._VF.einsum(
        equation, operands, path=[n for p in pairs for n in p]
    )


def _histogram(input: Held, bins: Held, **given: Held) -> Held:
    """Torch finds the type only by running it, which open sizes do not let it."""
    torch = _torch()
    is_given = border.is_instance(bins, "Tensor")
    if _is_known(input, bins, given.get("weight")):
        return NotImplemented
    found = (histogram_of_edges if is_given else histogram)(input, bins, **given)
    return torch.return_types.histogram(found)


def _grid(
    input: Held, bins: Held, range: Held = None, weight: Held = None, density: bool = False
) -> Held:
    torch = _torch()
    if _is_known(input, weight):
        return NotImplemented
    counts = [bins] * input.shape[-1] if isinstance(bins, int) else bins
    options = {"weight": weight, "density": density}
    if all(border.is_instance(edges, "Tensor") for edges in counts):
        edges, found = counts, grid_counts_of_edges(input, counts, **options)
    else:
        edges = grid_edges(input, counts, range=range)
        found = grid_counts_of_edges(input, edges, **options)
    return torch.return_types.histogramdd((found, tuple(edges)))


def _is_known(*given: Held) -> bool:
    """Whether no size of tensors is open."""
    sizes = [n for x in given if border.is_instance(x, "Tensor") for n in x.shape]
    return all(isinstance(n, int) for n in sizes)


def _differ(shape: Sequence[Held], other: Sequence[Held]) -> bool:
    """Whether shapes surely differ."""
    pairs = zip(shape, other, strict=False)
    return len(shape) != len(other) or any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
    )


@functools.cache
def _functions() -> dict[Any, Callable[..., Any]]:
    """By what modules call: functions and methods."""
    torch = _torch()
    return {
        **directional_norms(),
        **open_counts(),
        torch.affine_grid_generator: _affine_grid,
        torch.allclose: _are_close,
        torch.cdist: _distances,
        torch.combinations: _combinations,
        torch.corrcoef: _correlation,
        torch.cov: _covariance,
        torch.einsum: _contracted,
        torch.equal: _are_equal,
        torch.fake_quantize_per_channel_affine: _fake_quantized_by_channel,
        torch.fake_quantize_per_tensor_affine: _fake_quantized,
        torch.histogram: _histogram,
        torch.histogramdd: _grid,
        torch.Tensor.histogram: _histogram,
        torch.fused_moving_avg_obs_fake_quant: _observed_and_quantized,
        torch.narrow: _narrowed,
        torch.nn.functional.affine_grid: _affine_grid,
        torch.nn.functional.ctc_loss: connectionist_loss,
        torch.nn.functional.gaussian_nll_loss: _gaussian_loss,
        torch.tensor_split: _evenly_split,
        torch.zeros: zeros,
        torch.unique_consecutive: _unlike_neighbours,
        torch.Tensor.unique_consecutive: _unlike_neighbours,
        torch.Tensor.__getitem__: first_size,
        torch.Tensor.__setitem__: _write_item,
        torch.Tensor.allclose: _are_close,
        torch.Tensor.corrcoef: _correlation,
        torch.Tensor.cov: _covariance,
        torch.Tensor.equal: _are_equal,
        torch.Tensor.is_contiguous: is_contiguous,
        torch.Tensor.narrow: _narrowed,
        torch.Tensor.tensor_split: _evenly_split,
    }


def traceable_functions() -> AbstractContextManager[None]:
    """While this thread traces in this context, functions that look at data are those of this file."""
    return replaced_functions(_functions())
