"""Operators that torch takes apart while it dispatches, before it asks a table of decompositions.

Torch registers such a decomposition as a kernel; whether a trace meets it depends on what called the operator.
Called by `export` and `torch_compile`.

Source: the operators of ATen by name, `torch._decomp`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.decompositions import (
    margins_of_labels,
    ones_of_classes,
)
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing


@contextlib.contextmanager
def own_kernels() -> Generator[None]:
    """While this thread traces in this context, decompositions of ours stand where those of torch are wrong.

    Contexts of several threads may overlap; what another thread traces meanwhile is taken apart by torch.
    """
    with _MARGINS.used(), _ONES.used():
        yield


@final
class _Slot:
    """One kernel of an operator as an attribute: whatever else is registered there meanwhile stays."""

    def __init__(self, name: str, key: str) -> None:
        border.load("torch._decomp")  # registers the kernels
        self._operator: Any = getattr(border.load().ops.aten, name).default
        self._key: Any = getattr(border.load()._C.DispatchKey, key)

    @property
    def kernel(self) -> Any:
        """None where torch has none."""
        return self._operator.py_kernels.get(self._key)

    @kernel.setter
    def kernel(self, kernel: Any) -> None:
        if kernel is not None:
            self._operator.py_kernels[self._key] = kernel
        # What was looked up before hides it.
        self._operator._dispatch_cache.clear()


def _substitute(name: str, key: str, ours: Callable[..., Any]) -> Substitute:
    def build(theirs: Any, tracing: Tracing) -> Any:
        if theirs is None:
            return None

        @functools.wraps(theirs)
        def kernel(*args: Any, **kwargs: Any) -> Any:
            return (ours if tracing.depth else theirs)(*args, **kwargs)

        return kernel

    return Substitute(lambda: _Slot(name, key), "kernel", build)


_MARGINS: Final = _substitute(
    "multilabel_margin_loss_forward", "Autograd", margins_of_labels
)
_ONES: Final = _substitute("one_hot", "CompositeImplicitAutograd", ones_of_classes)
