"""The ONNX front end: a model file in, graph IR out, or everything that stands in the way.

`load` imports, `coverage` reports per op what is fast, falls back to the host or is unsupported.
"""

from tilewright.compiler.frontends.onnx.load import ImportedModel, load, load_model
from tilewright.compiler.frontends.onnx.model import ModelMetadata

__all__ = ["ImportedModel", "ModelMetadata", "load", "load_model"]
