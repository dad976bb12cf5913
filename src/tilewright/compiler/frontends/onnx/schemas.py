"""What the package onnx says of an op: its schema, and the function body that some schemas carry.

The last resort of the importer, for ops without a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import FunctionProto, NodeProto, TypeProto, defs

from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.signature import type_proto
from tilewright.compiler.frontends.onnx.tensors import CODES
from tilewright.compiler.frontends.onnx.values import Held, TensorSequence


def schema_of(domain: str, op: str, opset: int) -> Any:
    """The ONNX schema of an op, or None; onnx's type stubs lack its function methods."""
    try:
        return defs.get_schema(op, opset, domain)
    except (defs.SchemaError, ValueError, TypeError):
        return None


def is_unchanged(op: str, opset: int, later: int) -> bool:
    """Whether an op of ONNX is the same in two opsets."""
    one, other = (schema_of("", op, version) for version in (opset, later))
    if one is None or other is None:
        return False
    return bool(one.since_version == other.since_version)


def schema_function(
    node: NodeProto, domain: str, op: str, opset: int, inputs: Sequence[Held | None]
) -> FunctionProto | None:
    """The body that the schema of a node's op carries, or None."""
    schema = schema_of(domain, op, opset)
    versions = [] if schema is None else list(schema.all_function_opset_versions)
    if schema is None or not versions:
        return None
    version = max((v for v in versions if v <= opset), default=min(versions))
    if version in schema.context_dependent_function_opset_versions:
        types = [_type_bytes(held) for held in inputs]
        data = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), types
        )
    else:
        data = schema.get_function_with_opset_version(version)
    return FunctionProto.FromString(data) if data else None


def _type_bytes(held: Held | None) -> bytes:
    proto = TypeProto()
    if isinstance(held, Tensor):
        proto = type_proto(held.type, CODES[held.dtype])
    elif isinstance(held, TensorSequence) and held.items:
        first = held.items[0].type
        proto.sequence_type.elem_type.CopyFrom(type_proto(first, CODES[first.dtype]))
    return proto.SerializeToString()
