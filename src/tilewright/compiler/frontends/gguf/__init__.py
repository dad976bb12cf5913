"""The GGUF front end: a language model's file in, graph IR out, or everything that stands in the way.

`load` gives the graph of one step, `coverage` what of it is fast; `read_model` a file that is mapped.
"""

from tilewright.compiler.frontends.gguf.hyperparameters import (
    ARCHITECTURES,
    Hyperparameters,
    read_hyperparameters,
)
from tilewright.compiler.frontends.gguf.load import coverage, files_of, load, read_model

__all__ = [
    "ARCHITECTURES",
    "Hyperparameters",
    "coverage",
    "files_of",
    "load",
    "read_hyperparameters",
    "read_model",
]
