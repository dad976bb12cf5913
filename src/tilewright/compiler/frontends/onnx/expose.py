"""A model whose inner tensors are outputs, for whoever runs it elsewhere and wants to see them.

Not the importer: the model stays ONNX.  Called by comparisons with other runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from google.protobuf.message import DecodeError, EncodeError
from onnx import GraphProto, ModelProto, ValueInfoProto, numpy_helper

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.model import Source, open_model
from tilewright.compiler.frontends.onnx.signature import (
    Dimensions,
    InputValues,
    fixed_value,
)


def expose(
    source: Source, names: Sequence[str], values: InputValues
) -> tuple[bytes, Path | None]:
    """The model with the tensors of these names as further outputs, and inputs of these values as constants.

    Returns: its bytes, and the folder in which files of weights are looked for (None: it has none).
    Raises: ModelError when it cannot be read, or is too large for one piece.
    """
    model = open_model(source)
    folder = None if model.path is None else model.path.parent
    known = {output.name for output in model.proto.graph.output}
    try:
        proto = _with_weights(source, model.path)
        _fix_inputs(proto.graph, values)
        proto.graph.output.extend(
            ValueInfoProto(name=name) for name in names if name not in known
        )
        return proto.SerializeToString(), folder
    except (DecodeError, EncodeError, ValueError) as error:
        raise ModelError(
            "cannot be handed over in one piece: it has 2 GB or more",
            location=model.file,
            hint="keep its weights in a file of their own",
        ) from error


def _fix_inputs(graph: GraphProto, values: InputValues) -> None:
    """Let inputs be initializers, also those that are one already."""
    dimensions = Dimensions(graph.input)
    for info in [info for info in graph.input if info.name in values]:
        array = fixed_value(info.name, values[info.name], dimensions.type_of(info))
        graph.input.remove(info)
        for replaced in [each for each in graph.initializer if each.name == info.name]:
            graph.initializer.remove(replaced)
        graph.initializer.append(numpy_helper.from_array(array, info.name))


def tensor_names(source: Source) -> frozenset[str]:
    """The tensors that nodes of the main graph make.

    Raises: ModelError when the model cannot be read.
    """
    nodes = open_model(source).proto.graph.node
    return frozenset(text_of(name) for node in nodes for name in node.output if name)


def _with_weights(source: Source, path: Path | None) -> ModelProto:
    """The whole of a model that `open_model` accepts: a copy, for it will be changed."""
    if isinstance(source, ModelProto):
        proto = ModelProto()
        proto.CopyFrom(source)
        return proto
    data = path.read_bytes() if path is not None else bytes(cast("bytes", source))
    return ModelProto.FromString(data)
