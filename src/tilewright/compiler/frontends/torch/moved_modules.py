"""Modules that a forward pass moves to the type that they have: `self.router.to(x.dtype)`.

While torch traces, parameters stand for others, and a module whose parameters are exchanged ends the trace even where
nothing changes.  Called by `export`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import Any

import tilewright.compiler.frontends.torch.border as border


@contextlib.contextmanager
def moves_that_change() -> Generator[None]:
    """While in this context, a module that is moved to where and what it is stays untouched."""
    kind = border.load().nn.Module
    original: Callable[..., Any] = kind.to

    @functools.wraps(original)
    def to(module: Any, *args: Any, **kwargs: Any) -> Any:
        return (
            module if _is_there(module, args, kwargs) else original(module, *args, **kwargs)
        )

    kind.to = to
    try:
        yield
    finally:
        kind.to = original


def _is_there(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether all tensors of a module have the type and the device that it is moved to."""
    device, dtype, _, layout = border.load()._C._nn._parse_to(*args, **kwargs)
    if layout is not None:
        return False
    tensors = [*module.parameters(), *module.buffers()]
    return all(
        (device is None or tensor.device == device)
        and (dtype is None or tensor.dtype == dtype or not _is_cast(tensor))
        for tensor in tensors
    )


def _is_cast(tensor: Any) -> bool:
    """Whether a change of type applies to a tensor: integers stay what they are."""
    return bool(tensor.is_floating_point() or tensor.is_complex())
