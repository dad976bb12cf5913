"""How scales and zero points are chosen from data, and groups of rows quantized, taken apart.

Written in operators that have rows; they run under torch's tracing.  What is quantized with what was chosen has rows
in `quantization`.  Called by `decompositions`.

Source: `torch.ao.quantization.fx._decomposed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors and types have no types that we see.
Held = Any
_BYTE_ZERO: Final = 128


def _torch() -> Any:
    return border.load()


def _limits(x: Held) -> tuple[Held, Held]:
    """The least and the largest element; zero lies between them."""
    low, high = _torch().aminmax(x)
    return low.clamp(max=0), high.clamp(min=0)


def _at_least(scale: Held, eps: float) -> Held:
    return scale.reshape(1).to(_torch().float32).clamp(min=eps)


def _chosen(
    x: Held, quant_min: int, quant_max: int, eps: float, dtype: Held
) -> tuple[Held, Held]:
    """The whole range of elements onto the whole range of numbers."""
    del dtype
    torch = _torch()
    low, high = _limits(x)
    scale = _at_least((high - low) / float(quant_max - quant_min), eps)
    zero = quant_min - (low / scale).round().to(torch.int64)
    return scale.to(torch.float64), zero.clamp(quant_min, quant_max)


def _chosen_around_zero(
    x: Held, quant_min: int, quant_max: int, eps: float, dtype: Held
) -> tuple[Held, Held]:
    torch = _torch()
    low, high = _limits(x)
    half = float(quant_max - quant_min) / 2
    scale = _at_least(torch.maximum(-low, high) / half, eps)
    middle = _BYTE_ZERO if dtype == torch.uint8 else 0
    return scale.to(torch.float64), torch.full((1,), middle, dtype=torch.int64)


def _chosen_by_rows(x: Held, dtype: Held) -> tuple[Held, Held]:
    """Each row by its largest magnitude."""
    torch = _torch()
    if dtype != torch.int8:
        raise NotImplementedError(f"rows of {dtype}")
    most = x.abs().amax(-1, keepdim=True)
    most = most.float() if x.dtype == torch.float16 else most
    scales = most.clamp(min=1e-5).div(127)
    return scales, torch.zeros_like(scales)


def _chosen_by_rows_apart(x: Held, dtype: Held) -> tuple[Held, Held]:
    """Each row by its range, as XNNPACK does: the zero point is rounded where less is lost."""
    del dtype
    torch = _torch()
    least, most = -128, 127
    low = x.amin(-1, keepdim=True).clamp(max=0)
    high = x.amax(-1, keepdim=True).clamp(min=0)
    scale = (high - low) / float(most - least)
    scale = scale.clamp(min=torch.finfo(torch.float32).eps)
    below, above = low / scale, high / scale
    is_below = (least + below) + (most + above) > 0
    zero = torch.where(is_below, least - below, most - above)
    zero = zero.clamp(least, most).round()
    return scale.to(torch.float64), zero.to(torch.int64)


def _quantized_groups(
    x: Held, scales: Held, zero_points: Held, quant_min: int, quant_max: int, dtype: Held,
    group_size: int = 128,
) -> Held:  # fmt: skip
    if group_size > x.shape[-1] and scales.shape[-1] == 1:
        group_size = x.shape[-1]
    grouped = x.reshape(-1, group_size)
    scales, zeros = scales.reshape(-1, 1), zero_points.reshape(-1, 1)
    places = (grouped * (1.0 / scales) + zeros).round()
    return places.clamp(quant_min, quant_max).to(dtype).reshape(x.shape)


def _quantized_and_back_by_channel(
    x: Held, scales: Held, zero_points: Held, axis: int, quant_min: int, quant_max: int
) -> Held:
    shape = [-1 if i == axis else 1 for i in range(x.dim())]
    scales, zeros = scales.float().reshape(shape), zero_points.reshape(shape)
    places = (x * (1.0 / scales)).round() + zeros
    return (places.clamp(quant_min, quant_max) - zeros) * scales


def _converted(x: Held, dtype: Held) -> Held:
    return x.to(dtype)


OWN: Final[dict[str, Callable[..., Any]]] = {
    "_choose_qparams_per_token_asymmetric_impl": _chosen_by_rows_apart,
    "choose_qparams.tensor": _chosen,
    "choose_qparams_per_token": _chosen_by_rows,
    "choose_qparams_per_token_asymmetric": _chosen_by_rows_apart,
    "choose_qparams_symmetric.tensor": _chosen_around_zero,
    "convert_element_type.no_fuse": _converted,
    "fake_quant_per_channel": _quantized_and_back_by_channel,
    "quantize_per_channel_group": _quantized_groups,
}
"""By the names of overloads of the library `quantized_decomposed`."""
