"""Nodes with other attributes or inputs, as copies: those of a model stay as they are.

Called by the importer.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import AttributeProto, NodeProto

from tilewright.compiler.frontends.onnx.attributes import text_of


def with_attributes(node: NodeProto, attributes: Mapping[str, AttributeProto]) -> NodeProto:
    """`node` carrying resolved attributes, for bodies that are made from the node itself."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for name, attribute in attributes.items():
        added = copy.attribute.add()
        added.CopyFrom(attribute)
        added.name = name
    return copy


def without(node: NodeProto, absent: set[str]) -> NodeProto:
    """`node` with inputs that the caller left out spelled as left out."""
    if not absent.intersection(map(text_of, node.input)):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    for index, raw in enumerate(node.input):
        if text_of(raw) in absent:
            copy.input[index] = ""
    return copy
