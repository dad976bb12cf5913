"""Parameter files: names to bytes, kept outside of the program that uses them.

`read_parameters` tells .irpa, .safetensors, .gguf and .params (TVM) apart by their content and gives an index of
entries; the bytes stay where they are, usually a mapped file; `read_arrays` gives its tensors.  `scope_and_path` takes
`scope=path` apart.
`write_archive` makes .irpa files, `write_safetensors` and `write_tvm_params` the others.
Not here: what a scope holds and who may read it (`runtime.modules.io_parameters`).
"""

from __future__ import annotations

from tilewright.formats.parameters.arrays import read_arrays
from tilewright.formats.parameters.entries import (
    Entry,
    ParameterIndex,
    SplatEntry,
    StoredEntry,
)
from tilewright.formats.parameters.irpa import write_archive
from tilewright.formats.parameters.read import read_parameters, scope_and_path
from tilewright.formats.parameters.safetensors import write_safetensors
from tilewright.formats.parameters.tvm import write_params as write_tvm_params

__all__ = [
    "Entry",
    "ParameterIndex",
    "SplatEntry",
    "StoredEntry",
    "read_arrays",
    "read_parameters",
    "scope_and_path",
    "write_archive",
    "write_safetensors",
    "write_tvm_params",
]
