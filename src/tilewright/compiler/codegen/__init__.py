"""Code generators: kernels in, bytes of a target's executable out.  One folder per target.

A backend is an ordered tuple of named stages; each stage's product can be looked at, written to a file
and tested alone.  Siblings never meet: what two backends share lives in `lowering`.  Called by the
pipeline.
"""

from tilewright.compiler.codegen.backend import Backend, Stage, show
from tilewright.compiler.codegen.cache import CompilationCache

__all__ = ["Backend", "CompilationCache", "Stage", "show"]
