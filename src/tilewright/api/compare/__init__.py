"""Compare two ways to run a model, and find the first node where they part.

`compare` is the front door; `sides` are the ways, `search` finds the node, `difference` measures.
"""

from tilewright.api.compare.compare import Comparison, compare
from tilewright.api.compare.search import Finding
from tilewright.base.difference import Difference

__all__ = ["Comparison", "Difference", "Finding", "compare"]
