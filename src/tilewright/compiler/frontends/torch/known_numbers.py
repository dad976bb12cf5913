"""Whole numbers that modules keep as buffers (strides and paddings of codecs), as numbers that an export can read.

Torch traces buffers without their elements, so lengths computed from them look as if data decided them.  Constants
that a trace makes itself keep what they are.  Buffers that a state dict has stay buffers, for calls change such ones,
but for the switches of torch's modules that quantize; whether a trace changed one of the others is told.  Called by `export`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.substitutes import Tracing

_SWITCHES: Final = frozenset(("fake_quant_enabled", "observer_enabled"))
"""What `torch.ao.quantization.FakeQuantize` asks before it does anything; no call changes them."""
_EXPORTS: Final = threading.RLock()
"""One export at a time gives modules other classes: the last that ends must be the first that began."""


@final
class KnownNumbers:
    """Buffers of a module that are constants for now, for the thread that made this.

    Attributes:
        is_empty: whether there are none.
    """

    def __init__(self) -> None:
        self.is_empty: bool = True
        self._own: Tracing = Tracing()
        self._own.depth = 1
        self._made: list[tuple[Any, int]] = []  # constants, and how often each was written

    def were_read(self) -> bool:
        """Whether the module read one of them, as far as it ran itself and was not looked into by dynamo."""
        return bool(self._made)

    def were_written(self) -> bool:
        """Whether the module wrote to one of them, which the module itself then knows nothing of."""
        return any(tensor._version != version for tensor, version in self._made)

    def replace(self, part: Any, names: frozenset[str]) -> None:
        """Make some buffers of a module constants.  A property is found before buffers, and only a class has one.

        The buffers stay where they are, so a thread that serves the module meanwhile reads and writes those.
        """
        self.is_empty = False
        kind: Any = type(part)

        def write(part: Any, name: str, value: Any) -> None:
            if name in names and self._own.depth:
                raise AttributeError(f"{name} is a constant while its module is exported")
            kind.__setattr__(part, name, value)

        members = {name: self._constant(part, name) for name in names}
        part.__class__ = type(kind.__name__, (kind,), {**members, "__setattr__": write})

    def _constant(self, part: Any, name: str) -> property:
        buffer = part._buffers[name]
        number, dtype = buffer.tolist(), buffer.dtype

        def read(part: Any) -> Any:
            if not self._own.depth:
                return part._buffers[name]
            made = border.load().tensor(number, dtype=dtype)
            self._made.append((made, made._version))
            return made

        return property(read)


@contextlib.contextmanager
def known_numbers(model: Any) -> Generator[KnownNumbers]:
    """While in this context, each such buffer of a module is a constant for this thread, made when it is read.

    Raises: what a buffer without an element raises, or a class that cannot have a subclass like any other.

    Thread-safety: waits for the contexts of other threads.
    """
    with _EXPORTS:
        known = KnownNumbers()
        changed: list[tuple[Any, type]] = []
        try:
            for part in model.modules():
                names = _numbers(part)
                if names:
                    changed.append((part, type(part)))
                    known.replace(part, names)
            yield known
        finally:
            for part, kind in changed:
                part.__class__ = kind


def _numbers(part: Any) -> frozenset[str]:
    """The buffers of a module that hold one whole number and are in no state dict, and its switches."""
    if border.is_instance(part, "jit.ScriptModule"):
        return frozenset()
    if border.is_instance(part, "ao.quantization.FakeQuantizeBase"):
        return _SWITCHES & frozenset(part._buffers)
    return frozenset(
        name
        for name, buffer in part._buffers.items()
        if name in part._non_persistent_buffers_set
        and buffer is not None
        and buffer.dim() == 0
        and not (buffer.is_floating_point() or buffer.is_complex())
    )
