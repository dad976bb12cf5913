"""Layers of transformers whose mask is compared with a causal one, which is data, while they are traced.

`nn.Transformer` and its parts ask whether a mask is causal to call a faster kernel; the mask is applied either way.  Nobody
need know while tracing, where the answer would be data and end the export.  Called by `export`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing


def masks_as_given() -> AbstractContextManager[None]:
    """While this thread traces in this context, a mask is causal where the caller says so.  Contexts of several threads may overlap."""
    return _DETECTIONS.used()


def _module() -> Any:
    return border.load("torch.nn.modules.transformer")


def _as_told(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(original)
    def detect(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        if tracing.depth and is_causal is None and mask is not None:
            return False
        return bool(original(mask, is_causal, size))

    return detect


_DETECTIONS: Final = Substitute(_module, "_detect_is_causal_mask", _as_told)
