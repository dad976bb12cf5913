"""The ONNX front end: a model file in, graph IR out, or everything that stands in the way.

`load` imports, `coverage` reports per op how it runs, falls back to the host or is unsupported.
"""

import importlib

from tilewright.base.interrupts import deferred

with deferred():  # its extension module dies of an exception in the middle of its import
    importlib.import_module("onnx")

from tilewright.compiler.frontends.kit.coverage import (
    CoverageReport,
    Judged,
    OpCoverage,
    Reason,
    Status,
)
from tilewright.compiler.frontends.kit.metadata import ModelMetadata
from tilewright.compiler.frontends.onnx.border import (
    Items,
    items_of,
    needs_items,
    put_together,
)
from tilewright.compiler.frontends.onnx.coverage import coverage
from tilewright.compiler.frontends.onnx.expose import expose, tensor_names
from tilewright.compiler.frontends.onnx.load import (
    ImportedModel,
    load,
    load_model,
    needed_inputs,
    shapes_with,
)
from tilewright.compiler.frontends.onnx.model import (
    Source,
    defaults_of,
    read_metadata,
)

__all__ = [
    "CoverageReport",
    "ImportedModel",
    "Items",
    "Judged",
    "ModelMetadata",
    "OpCoverage",
    "Reason",
    "Source",
    "Status",
    "coverage",
    "defaults_of",
    "expose",
    "items_of",
    "load",
    "load_model",
    "needed_inputs",
    "needs_items",
    "put_together",
    "read_metadata",
    "shapes_with",
    "tensor_names",
]
