"""What of an ONNX model is fast, what is slow, what runs on the host and what is unsupported.

Never raises on a model that parses.  Called by `pipeline.coverage`.
"""

from __future__ import annotations

from tilewright.compiler.frontends.kit.coverage import (
    CoverageReport,
    Imported,
    Judge,
    make_report,
)
from tilewright.compiler.frontends.onnx.load import import_model
from tilewright.compiler.frontends.onnx.model import Source, metadata_of, open_model
from tilewright.compiler.frontends.onnx.signature import InputShapes, InputValues


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
    found = Imported(
        model.file,
        importer.graph,
        metadata_of(model),
        importer.records,
        importer.problems,
        importer.weight_bytes,
    )
    return make_report(found, judge)
