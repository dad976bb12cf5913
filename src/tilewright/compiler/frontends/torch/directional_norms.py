"""Normalizations of open sizes, written in operators whose derivatives along a direction ask no size.

The formulas of torch's core for these derivatives (`jvp`, `jacfwd`, `hessian`) make numbers of sizes.  Where no such
derivative is taken, or all sizes are known, torch's own functions run.  Called by `traceable`.

Source: `torch.nn.functional` reference pages.
"""

# ruff: noqa: A002 - parameters have the names that torch gives them

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any


def directional_norms() -> dict[Any, Callable[..., Any]]:
    """By what modules call: functions."""
    torch = border.load()
    functional = torch.nn.functional
    return {
        functional.batch_norm: _batch_norm,
        functional.group_norm: _group_norm,
        functional.instance_norm: _instance_norm,
        functional.layer_norm: _layer_norm,
        torch.group_norm: _group_norm,
        torch.layer_norm: _layer_norm,
    }


def _is_torchs(x: Held) -> bool:
    """Whether torch's own function is right: no derivative along a direction is taken, or no size is open."""
    level = border.load("torch.autograd.forward_ad")._current_level
    return level < 0 or all(isinstance(size, int) for size in x.shape)


def _layer_norm(
    input: Held, normalized_shape: Sequence[Held], weight: Held = None, bias: Held = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Held:  # fmt: skip
    del cudnn_enable
    axes = range(input.dim() - len(normalized_shape), input.dim())
    # Where the last sizes are others, torch says so.
    if _is_torchs(input) or list(input.shape[axes.start :]) != list(normalized_shape):
        return NotImplemented
    found = _scaled(_normalized(input, list(axes), eps), weight, bias)
    return found.to(input.dtype)


def _group_norm(
    input: Held, num_groups: int, weight: Held = None, bias: Held = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Held:  # fmt: skip
    del cudnn_enabled
    channels = input.shape[1]
    if _is_torchs(input) or not isinstance(channels, int) or channels % num_groups:
        return NotImplemented
    grouped = input.unflatten(1, (num_groups, channels // num_groups))
    axes = list(range(2, grouped.dim()))
    found = _normalized(grouped, axes, eps).flatten(1, 2)
    return _by_channel(found, weight, bias).to(input.dtype)


def _instance_norm(
    input: Held, running_mean: Held = None, running_var: Held = None, weight: Held = None, bias: Held = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Held:  # fmt: skip
    del momentum
    is_kept = running_mean is not None or running_var is not None
    if _is_torchs(input) or is_kept or not use_input_stats:
        return NotImplemented
    found = _normalized(input, list(range(2, input.dim())), eps)
    return _by_channel(found, weight, bias).to(input.dtype)


def _batch_norm(
    input: Held, running_mean: Held, running_var: Held, weight: Held = None, bias: Held = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Held:  # fmt: skip
    """By the statistics that are kept, or by those of the batch where none are."""
    del momentum
    kept = [part for part in (running_mean, running_var) if part is not None]
    # In training those that are kept would be written to.
    if _is_torchs(input) or len(kept) != (0 if training else 2):
        return NotImplemented
    if kept:
        centred = _by_channel(_wide(input), None, -running_mean)
        found = _by_channel(centred, (running_var + eps).rsqrt(), None)
    else:
        axes = [axis for axis in range(input.dim()) if axis != 1]
        found = _normalized(input, axes, eps)
    return _by_channel(found, weight, bias).to(input.dtype)


def _wide(x: Held) -> Held:
    """In f32 at least."""
    return x.float() if x.dtype.itemsize < border.load().float32.itemsize else x


def _normalized(x: Held, axes: list[int], eps: float) -> Held:
    x = _wide(x)
    centred = x - x.mean(axes, keepdim=True)
    return centred * ((centred * centred).mean(axes, keepdim=True) + eps).rsqrt()


def _by_channel(x: Held, weight: Held, bias: Held) -> Held:
    ones = [1] * (x.dim() - 2)
    parts = (part if part is None else part.reshape(-1, *ones) for part in (weight, bias))
    return _scaled(x, *parts)


def _scaled(x: Held, weight: Held, bias: Held) -> Held:
    found = x if weight is None else x * weight
    return found if bias is None else found + bias
