"""Operators that torch takes apart while it dispatches, before it asks a table of decompositions.

Torch registers such a decomposition as a kernel; whether a trace meets it depends on what called the operator.
Called by `export` and `torch_compile`.

Source: the operators of ATen by name, `torch._decomp`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.decompositions import margins_of_labels
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing


def own_kernels() -> AbstractContextManager[None]:
    """While this thread traces in this context, decompositions of ours stand where those of torch are wrong.

    Contexts of several threads may overlap; what another thread traces meanwhile is taken apart by torch.
    """
    return _MARGINS.used()


def _operator() -> Any:
    border.load("torch._decomp")  # registers the kernel
    return border.load().ops.aten.multilabel_margin_loss_forward.default


def _with_ours(kernels: dict[Any, Callable[..., Any]], tracing: Tracing) -> dict[Any, Any]:
    key = border.load()._C.DispatchKey.Autograd
    theirs = kernels.get(key)
    if theirs is None:
        return kernels

    @functools.wraps(theirs)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return (margins_of_labels if tracing.depth else theirs)(*args, **kwargs)

    # What was looked up before hides it; what is looked up now may stay, for it does torch's where nobody traces.
    _operator()._dispatch_cache.clear()
    return {**kernels, key: kernel}


_MARGINS: Final = Substitute(_operator, "py_kernels", _with_ours)
