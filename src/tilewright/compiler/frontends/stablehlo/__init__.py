"""The StableHLO front end: modules as text or portable artifacts in, graph IR out, or everything that stands in the way.

`load` imports, `coverage` reports per operation how it runs or why it does not.  No package of MLIR or
JAX is needed.
"""

from tilewright.compiler.frontends.stablehlo.exported import is_exported
from tilewright.compiler.frontends.stablehlo.load import coverage, load

__all__ = ["coverage", "is_exported", "load"]
