"""Kernels that are handed to a worker whole, and what it makes of them: LLVM IR, and the object.

Both sides of it: pickles between a process and its own children.  A kernel that cannot be handed over, or that a worker cannot
write, is written by the process that wants it, so its errors are raised there.  Called by `compile` and `worker`.
"""

from __future__ import annotations

import pickle
import time
from typing import NamedTuple, cast, final

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.target import Target
from tilewright.compiler.backends.cpu.llvm_binding import Settings, generate
from tilewright.compiler.backends.cpu.version import object_key
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.printers.llvm_text.module import KernelModule


@final
class Made(NamedTuple):
    """A kernel as LLVM IR and its object; `seconds` of LLVM, 0 where the cache had it."""

    module: KernelModule
    code: bytes
    seconds: float


def packed(kernel: Kernel, target: Target, cache: CompilationCache | None) -> bytes | None:
    """The bytes that a worker reads; None for a kernel that has no such form."""
    try:
        return pickle.dumps((kernel, target, cache), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None


def answer(data: bytes, settings: Settings) -> bytes:
    """What a worker makes of a kernel.  Raises: as `generate`."""
    try:
        kernel, target, cache = cast(
            "tuple[Kernel, Target, CompilationCache | None]",
            pickle.loads(data),  # noqa: S301 - our parent's
        )
        # Where a cache holds all kernels of a model, none goes through them.
        from tilewright.compiler.backends.cpu.stages import write_kernel  # noqa: PLC0415

        module = write_kernel(kernel, target)
    except Exception:  # whoever wants the kernel tries again, and says what is wrong
        return pickle.dumps(None)
    known = None if cache is None else cache.get(object_key(module.text, settings))
    started = time.perf_counter()
    code = known or generate("object", module.text, settings)
    seconds = 0.0 if known else time.perf_counter() - started
    return pickle.dumps(Made(module, code, seconds), pickle.HIGHEST_PROTOCOL)


def unpacked(payload: bytes) -> Made | None:
    """What a worker made of a kernel; None where it could not write it."""
    return cast("Made | None", pickle.loads(payload))  # noqa: S301 - our child's
