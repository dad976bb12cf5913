"""What `jax.export` gives, known by its attributes, so that JAX is not imported.

Called by the door and by `load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Exported(Protocol):
    """A `jax.export.Exported`: a function as a portable artifact, and how it is called."""

    fun_name: str
    in_tree: Any
    out_tree: Any
    out_avals: Sequence[Any]
    module_kept_var_idx: Sequence[int]
    mlir_module_serialized: bytes


def is_exported(source: object) -> bool:
    """Whether an object is what `jax.export` gave."""
    return isinstance(source, Exported)


def artifact_of(exported: Exported) -> bytes:
    """The portable artifact that it holds."""
    return bytes(exported.mlir_module_serialized)
