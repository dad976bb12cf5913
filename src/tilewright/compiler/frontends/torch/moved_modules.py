"""Modules that a forward pass moves to the type that they have: `self.router.to(x.dtype)`.

While torch traces, parameters stand for others, and a module whose parameters are exchanged ends the trace even where
nothing changes.  Called by `export`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing


def moves_that_change() -> AbstractContextManager[None]:
    """While this thread traces in this context, a module that is moved to where and what it is stays untouched.

    Contexts of several threads may overlap; what another thread moves meanwhile is moved by torch.
    """
    return _MOVES.used()


def _kind() -> Any:
    return border.load().nn.Module


def _where_it_changes(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(original)
    def to(module: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.depth and _is_there(module, args, kwargs):
            return module
        return original(module, *args, **kwargs)

    return to


_MOVES: Final = Substitute(_kind, "to", _where_it_changes)


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
