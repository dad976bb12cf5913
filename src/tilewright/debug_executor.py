"""`tilewright.debug_executor`: see `tilewright.runtime.debug_executor`; the names for users."""

from tilewright.runtime.debug_executor import (
    DebugNode,
    DebugResult,
    Divergence,
    GraphModuleDebug,
    create,
    first_divergence,
)

__all__ = [
    "DebugNode",
    "DebugResult",
    "Divergence",
    "GraphModuleDebug",
    "create",
    "first_divergence",
]
