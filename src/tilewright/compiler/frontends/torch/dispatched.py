"""Operators that torch takes apart while it dispatches, before it asks a table of decompositions.

Torch registers such a decomposition as a kernel; whether a trace meets it depends on what called the operator.
Called by `export` and `torch_compile`.

Source: the operators of ATen by name, `torch._decomp`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
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
    with _MARGINS.used(), _ONES.used(), typed_reflectors():
        yield


def typed_reflectors() -> AbstractContextManager[None]:
    """While this thread traces in this context, torch knows the types of `geqrf`, which it finds by running it.

    Contexts of several threads may overlap; a trace of another thread gets the same types without running it.
    """
    return _REFLECTORS.used()


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


@final
class _Types:
    """What says which types the results of an operator have, as an attribute."""

    def __init__(self, name: str) -> None:
        self._operator: Any = getattr(border.load().ops.aten, name).default
        self._known: Any = border.load(
            "torch._subclasses.fake_impls"
        ).op_implementations_dict

    @property
    def types(self) -> Any:
        """None where torch has none."""
        return self._known.get(self._operator)

    @types.setter
    def types(self, types: Any) -> None:
        if types is None:
            self._known.pop(self._operator, None)
        else:
            self._known[self._operator] = types


def _reflectors(theirs: Any, tracing: Tracing) -> Any:
    del tracing

    def types(mode: Any, function: Any, x: Any) -> tuple[Any, Any]:
        """Of a matrix [m, n] its factors, column by column, and [min(m, n)] scales."""
        del function
        torch = border.load()
        with mode:
            count = torch.sym_min(*x.shape[-2:])
            factors = torch.empty_like(x.mT, memory_format=torch.contiguous_format).mT
            return factors, x.new_empty((*x.shape[:-2], count))

    return types if theirs is None else theirs


def _substitute(name: str, key: str, ours: Callable[..., Any]) -> Substitute:
    def build(theirs: Any, tracing: Tracing) -> Any:
        if theirs is None:
            return None

        @functools.wraps(theirs)
        def kernel(*args: Any, **kwargs: Any) -> Any:
            return (ours if tracing.depth else theirs)(*args, **kwargs)

        return kernel

    return Substitute(lambda: _Slot(name, key), "kernel", build)


_REFLECTORS: Final = Substitute(lambda: _Types("geqrf"), "types", _reflectors)
_MARGINS: Final = _substitute(
    "multilabel_margin_loss_forward", "Autograd", margins_of_labels
)
_ONES: Final = _substitute("one_hot", "CompositeImplicitAutograd", ones_of_classes)
