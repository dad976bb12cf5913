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


def names_of_sizes(exported: Exported) -> tuple[tuple[str, ...], ...]:
    """For every argument of the module, what its sizes are called; a size without a name of its own: empty."""
    types: Sequence[Any] = getattr(exported, "in_avals", ())
    kept = [types[index] for index in exported.module_kept_var_idx if index < len(types)]
    return tuple(tuple(map(_name_of, each.shape)) for each in kept)


def _name_of(size: Any) -> str:
    return "" if isinstance(size, int) or not str(size).isidentifier() else str(size)


def artifact_of(exported: Exported) -> bytes:
    """The portable artifact that it holds."""
    return bytes(exported.mlir_module_serialized)
