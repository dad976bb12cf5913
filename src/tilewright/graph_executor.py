"""`tilewright.graph_executor`: see `tilewright.runtime.graph_executor`; the names for users."""

from tilewright.runtime.graph_executor import GraphModule, create

__all__ = ["GraphModule", "create"]
