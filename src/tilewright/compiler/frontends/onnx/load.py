"""The front door: a model as a graph, or every reason why it is none.

Called by the pipeline and the API.  Not coverage reports (see `coverage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import final

from tilewright.base.errors import TilewrightError
from tilewright.base.record import field, record
from tilewright.compiler.frontends.kit.assumptions import Equality
from tilewright.compiler.frontends.kit.metadata import ModelMetadata
from tilewright.compiler.frontends.kit.problems import MALFORMED, malformed, report
from tilewright.compiler.frontends.kit.rounds import until_settled
from tilewright.compiler.frontends.onnx.border import Border, Items
from tilewright.compiler.frontends.onnx.importer import Importer
from tilewright.compiler.frontends.onnx.model import (
    OpenModel,
    Source,
    metadata_of,
    open_model,
    warn_of_versions,
)
from tilewright.compiler.frontends.onnx.signature import (
    InputShapes,
    InputValues,
    shapes_with_sizes,
)
from tilewright.compiler.graph.ir import Graph


@final
@record
class ImportedModel:
    """A graph and what the model said about itself.

    `assumptions` are dimensions that must be equal in a run but that the input types do not tie
    together; a runtime that does not check them may read past the end of a tensor.  `files` are
    those that the model lies in, which nobody may write over.  `border` says what of the model's inputs and
    outputs the tensors of the graph are.
    """

    graph: Graph
    metadata: ModelMetadata
    assumptions: tuple[Equality, ...] = ()
    files: tuple[Path, ...] = ()
    border: Border = field(default_factory=Border)


def load(
    source: Source,
    *,
    input_shapes: InputShapes | None = None,
    input_values: InputValues | None = None,
) -> Graph:
    """The graph of an ONNX model.

    Args:
        source: a path, the bytes of a model, or a `ModelProto`.
        input_shapes: sizes (int) or names (str) of the dimensions of some inputs; a size fixes
            a dynamic dimension wherever the model uses its name.
        input_values: inputs that become constants, such as a shape that the model takes as data.

    Raises: ModelError naming everything that is wrong or unsupported, in one go.
    """
    return load_model(source, input_shapes=input_shapes, input_values=input_values).graph


def shapes_with(source: Source, sizes: Mapping[str, int]) -> InputShapes:
    """The `input_shapes` that fix named dimensions of a model, whichever inputs have them.

    Raises: ModelError when there is no such file or it is not an ONNX model.
    """
    graph = open_model(source).proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    return shapes_with_sizes(inputs, sizes)


def load_model(
    source: Source,
    *,
    input_shapes: InputShapes | None = None,
    input_values: InputValues | None = None,
    items: Mapping[str, Items] | None = None,
) -> ImportedModel:
    """Like `load`, with the model's name, opsets and producer.

    `items` says what sequences and optionals are compiled for; who gives it runs the host's steps, too.
    """
    model = open_model(source)
    importer = import_model(model, input_shapes, input_values, items)
    if importer.problems:
        raise report(importer.problems, model.file)
    assumptions = importer.graph.equalities
    files = (*([] if model.path is None else [model.path]), *model.storage.files)
    return ImportedModel(
        importer.graph, metadata_of(model), assumptions, files, importer.border
    )


def needed_inputs(
    source: Source,
    *,
    input_values: InputValues | None = None,
    items: Mapping[str, Items] | None = None,
) -> tuple[str, ...]:
    """The inputs without whose values shapes of the model are not known."""
    importer = import_model(open_model(source), None, input_values, items)
    return tuple(v.name for v in importer.graph.inputs if v.name in importer.maker.needed)


def import_model(
    model: OpenModel,
    input_shapes: InputShapes | None = None,
    input_values: InputValues | None = None,
    items: Mapping[str, Items] | None = None,
) -> Importer:
    """Run the importer; what it found wrong stands in `problems`.

    Raises: UserError when `input_shapes` or `input_values` do not fit the model.
    """
    warn_of_versions(model)
    return until_settled(
        lambda assumed: _run(Importer(model, input_shapes, input_values, assumed, items))
    )


def _run(importer: Importer) -> Importer:
    try:
        importer.run()
    except TilewrightError:
        raise
    except MALFORMED as error:
        # Bytes that protobuf accepts but that make no sense as a model.
        importer.problems.append(malformed(error, "the model"))
    return importer
