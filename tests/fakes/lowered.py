"""Kernels on their way to code, by the back end that their target asks for."""

from __future__ import annotations

from tilewright.base.target import Target
from tilewright.compiler.backends import backend
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.kernel.ir import Kernel


def lower(kernel: Kernel, target: Target) -> Kernel:
    """What the last stage writes as text."""
    return backend.lower(backend_of(target), kernel, target)
