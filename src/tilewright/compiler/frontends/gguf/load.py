"""The front door: a file as the graph of one step, or every reason why it is none.

Called by the door of all front ends.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from tilewright.base.errors import ArchiveError, ModelError, TilewrightError, UserError
from tilewright.base.input_file import why_no_file
from tilewright.base.text import did_you_mean
from tilewright.compiler.frontends.gguf.hyperparameters import read_hyperparameters
from tilewright.compiler.frontends.gguf.transformer import (
    ROOM,
    SPAN,
    TOKENS,
    Transformer,
)
from tilewright.compiler.frontends.kit.assumptions import known_equalities
from tilewright.compiler.frontends.kit.coverage import (
    CoverageReport,
    Imported,
    Judge,
    make_report,
)
from tilewright.compiler.frontends.kit.metadata import ModelMetadata
from tilewright.compiler.frontends.kit.model_graph import ModelGraph
from tilewright.compiler.frontends.kit.problems import Problem
from tilewright.compiler.graph.ir import Graph
from tilewright.formats.gguf import GgufFile, file_count, file_names, joined, read_gguf

Source = str | PathLike[str] | bytes | bytearray | memoryview
InputShapes = Mapping[str, Sequence[int | str]]
_SIZED: Final = {TOKENS: (1, TOKENS), SPAN: (SPAN,)}


def read_model(source: Source) -> GgufFile:
    """A file, mapped: what is not looked at is not read; of several the first, with what the others have.

    Raises: ModelError for what cannot be read; ArchiveError for what is no such file.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        file = read_gguf(source, "<bytes>")
        files_of(Path(file.location), file)  # says where there are several
        return file
    path = Path(source)
    first = _mapped(path)
    others = files_of(path, first)[1:]
    return joined([first, *map(_mapped, others)]) if others else first


def files_of(path: Path, file: GgufFile) -> tuple[Path, ...]:
    """The files in which the model of a file lies.  Raises: ArchiveError as `file_names`."""
    count = file_count(file)
    if count == 1:
        return (path,)
    return tuple(path.with_name(name) for name in file_names(path.name, count))


def _mapped(path: Path) -> GgufFile:
    problem = why_no_file(path)
    if problem is not None:
        raise ModelError(problem, location=path)
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:  # of no bytes
        raise ArchiveError("is empty", location=path) from error
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", location=path) from error
    return read_gguf(mapped, path.name)


def load(source: Source, input_shapes: InputShapes | None = None) -> ModelGraph:
    """The graph of one step of a model.

    Args:
        source: the path of a file, or its bytes.
        input_shapes: sizes of `tokens`, `span` or a cache; others are those of each call.

    Raises: ModelError naming what is wrong or not supported.
    """
    file = read_model(source)
    sizes = _sizes(input_shapes or {}, file.location)
    model = Transformer(file, read_hyperparameters(file), sizes)
    try:
        model.run()
    except ModelError as error:
        error.location = error.location or file.location
        raise
    model.graph.equalities = known_equalities(model.maker.assumptions, model.graph)
    if isinstance(source, bytes | bytearray | memoryview):
        return ModelGraph(model.graph)
    return ModelGraph(model.graph, files_of(Path(source).absolute(), file))


def _sizes(shapes: InputShapes, location: str) -> dict[str, int]:
    """What a caller fixes of the dimensions of a step."""
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        is_cache = name.startswith(("key_", "value_", "row_")) and len(shape) == 4
        expected = ("", "", ROOM, "") if is_cache else _SIZED.get(name)
        if expected is None or len(expected) != len(shape):
            raise UserError(
                f"input_shapes names '{name}' with {len(shape)} dimensions, which is no input of the model",
                location=location,
                hint=did_you_mean(name, _SIZED)
                or "inputs: tokens[1, n] span[n] key_0[1, heads, room, size]",
            )
        for wanted, dim in zip(shape, expected, strict=True):
            if not isinstance(dim, str) or not dim or not isinstance(wanted, int):
                continue
            if wanted < 1 or found.setdefault(dim, wanted) != wanted:
                raise UserError(
                    f"input_shapes gives '{dim}' as {wanted}", location=location
                )
    return found


def coverage(
    source: Source, input_shapes: InputShapes | None = None, judge: Judge | None = None
) -> CoverageReport:
    """Everything about a model that is unsupported or slow, in one go.

    Raises: ArchiveError, ModelError only where the source is no GGUF file at all.
    """
    file = read_model(source)
    sizes = _sizes(input_shapes or {}, file.location)
    weight_bytes = sum(tensor.size_bytes for tensor in file.tensors.values())
    problems: list[Problem] = []
    graph, records = Graph(), []
    try:
        model = Transformer(file, read_hyperparameters(file), sizes)
        graph, records = model.graph, model.records
        model.run()
    except TilewrightError as error:
        problems.append(Problem("", "", error.message, error.hint or ""))
    name = file.metadata.get("general.name")
    metadata = ModelMetadata(name if isinstance(name, str) else "model")
    found = Imported(file.location, graph, metadata, records, problems, weight_bytes)
    return make_report(found, judge)
