"""What of an ONNX model is fast, what is slow, what runs on the host and what is unsupported.

A model whose strings and maps the host computes does not compile, but runs through
`tilewright.onnx_backend`; the report is then of what that runs, and says so.

Never raises on a model that parses.  Called by `pipeline.coverage`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from onnx import TensorProto, TypeProto, ValueInfoProto

from tilewright.compiler.frontends.kit.coverage import (
    CoverageReport,
    Imported,
    Judge,
    make_report,
)
from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.importer import Importer
from tilewright.compiler.frontends.onnx.load import import_model
from tilewright.compiler.frontends.onnx.model import (
    OpenModel,
    Source,
    metadata_of,
    open_model,
)
from tilewright.compiler.frontends.onnx.signature import InputShapes, InputValues
from tilewright.compiler.frontends.onnx.tensors import dtype_of


def coverage(
    source: Source,
    *,
    input_shapes: InputShapes | None = None,
    input_values: InputValues | None = None,
    judge: Judge | None = None,
) -> CoverageReport:
    """Everything about a model that is unsupported or slow, in one go.

    `judge` is asked only about models that are supported.

    Raises: ModelError only when the source is no ONNX model at all.
    """
    model = open_model(source)
    importer = import_model(model, input_shapes, input_values)
    needs_host = False
    if importer.problems:
        with_host = import_model(model, input_shapes, input_values, {})
        needs_host = not with_host.problems
        importer = with_host if needs_host else importer
    found = Imported(
        model.file,
        importer.graph,
        metadata_of(model),
        importer.records,
        importer.problems,
        importer.weight_bytes,
        importer.border.host.nodes,
        _border(model, importer) if needs_host else None,
    )
    return make_report(found, judge)


def _border(
    model: OpenModel, importer: Importer
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The inputs and the outputs of a model, as text: the compiled part has others."""
    graph, proto = importer.graph, model.proto.graph
    types: dict[str, object] = {v.name: v.type for v in graph.inputs}
    types |= dict(zip(graph.output_names, (v.type for v in graph.outputs), strict=True))

    def listed(infos: Iterable[ValueInfoProto], held: Container[str]) -> tuple[str, ...]:
        named = [(text_of(info.name), info.type) for info in infos]
        return tuple(f"{n}: {types.get(n) or _kind(t)}" for n, t in named if n in held)

    border = importer.border
    return listed(proto.input, border.inputs), listed(proto.output, border.outputs)


def _kind(type_: TypeProto) -> str:
    """What a value is that is no tensor of the compiled part, in words."""
    match type_.WhichOneof("value"):
        case "tensor_type":
            tensor = type_.tensor_type
            if tensor.elem_type != TensorProto.STRING:
                return f"{dtype_of(tensor.elem_type)}, of the host"
            dims = (
                d.dim_value if d.HasField("dim_value") else d.dim_param or "?"
                for d in tensor.shape.dim
            )
            return f"string[{', '.join(map(str, dims))}]"
        case "sequence_type":
            return f"sequence of {_kind(type_.sequence_type.elem_type)}"
        case kind:
            return (kind or "unknown").removesuffix("_type")
