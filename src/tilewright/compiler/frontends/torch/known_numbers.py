"""Whole numbers that modules keep as buffers (strides and paddings of codecs), as numbers that an export can read.

Torch traces buffers without their elements, so lengths computed from them look as if data decided them.  Constants
that a trace makes itself keep what they are.  Buffers that a state dict has stay buffers, for calls change such ones;
whether a trace changed one of the others is told.  Called by `export`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, final

import tilewright.compiler.frontends.torch.border as border


@final
class KnownNumbers:
    """Buffers of a module that are constants for now.

    Attributes:
        is_empty: whether there are none.
    """

    def __init__(self) -> None:
        self.is_empty: bool = True
        self._made: list[tuple[Any, int]] = []  # constants, and how often each was written

    def were_written(self) -> bool:
        """Whether the module wrote to one of them, which the module itself then knows nothing of."""
        return any(tensor._version != version for tensor, version in self._made)

    def replace(self, part: Any, names: frozenset[str]) -> None:
        """Make some buffers of a module constants.  A property is found before buffers, and only a class has one."""
        self.is_empty = False
        kind = type(part)
        members = {name: self._constant(part._buffers[name]) for name in names}
        part._buffers = {n: b for n, b in part._buffers.items() if n not in names}
        part.__class__ = type(kind.__name__, (kind,), members)

    def _constant(self, buffer: Any) -> property:
        number, dtype = buffer.item(), buffer.dtype

        def read(part: object) -> Any:
            del part
            made = border.load().tensor(number, dtype=dtype)
            self._made.append((made, made._version))
            return made

        return property(read)


@contextlib.contextmanager
def known_numbers(model: Any) -> Generator[KnownNumbers]:
    """While in this context, each such buffer of a module is a constant, made when it is read."""
    known = KnownNumbers()
    changed: list[tuple[Any, type, dict[str, Any]]] = []
    try:
        for part in model.modules():
            names = _numbers(part)
            if names:
                changed.append((part, type(part), part._buffers))
                known.replace(part, names)
        yield known
    finally:
        for part, kind, buffers in changed:
            part.__class__ = kind
            part._buffers = buffers


def _numbers(part: Any) -> frozenset[str]:
    """The buffers of a module that hold one whole number and are in no state dict."""
    if border.is_instance(part, "jit.ScriptModule"):
        return frozenset()
    return frozenset(
        name
        for name, buffer in part._buffers.items()
        if name in part._non_persistent_buffers_set
        and buffer is not None
        and buffer.dim() == 0
        and not (buffer.is_floating_point() or buffer.is_complex())
    )
