"""The PyTorch front end: an exported program in, graph IR out, or everything that stands in the way.

`load` imports, `coverage` reports per operator how it runs or why it does not.  Torch is loaded by whoever
has a model of it; nothing here imports it before.
"""

from tilewright.compiler.frontends.torch.load import (
    Captured,
    coverage,
    is_model,
    load,
    load_program,
)

__all__ = ["Captured", "coverage", "is_model", "load", "load_program"]
