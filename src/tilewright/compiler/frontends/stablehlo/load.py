"""The front door: a module as a graph and its checks, or every reason why it is none.

Called by the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.base.input_file import why_no_file
from tilewright.compiler.frontends.kit.assumptions import Assumptions
from tilewright.compiler.frontends.kit.coverage import (
    CoverageReport,
    Imported,
    Judge,
    make_report,
)
from tilewright.compiler.frontends.kit.metadata import ModelMetadata
from tilewright.compiler.frontends.kit.model_graph import ModelGraph
from tilewright.compiler.frontends.kit.problems import MALFORMED, malformed, report
from tilewright.compiler.frontends.kit.rounds import until_settled
from tilewright.compiler.frontends.stablehlo.artifact import is_artifact, read_artifact
from tilewright.compiler.frontends.stablehlo.exported import (
    Exported,
    artifact_of,
    names_of_sizes,
)
from tilewright.compiler.frontends.stablehlo.importer import Importer, Names
from tilewright.compiler.frontends.stablehlo.parser import parse
from tilewright.compiler.frontends.stablehlo.saved_export import (
    artifact_of_saved,
    is_saved_export,
)
from tilewright.compiler.frontends.stablehlo.tree import Module

Bytes = bytes | bytearray | memoryview
Source = str | PathLike[str] | Bytes | Exported


def load(source: Source) -> ModelGraph:
    """The graph of every module in a file, one after the other: arguments, results and checks in order.

    Args:
        source: the path of a text, of a portable artifact or of what `Exported.serialize` gave, its bytes, or what
            `jax.export` gave.

    Raises: ModelError naming everything that is wrong or unsupported, in one go.
    """
    modules, file, path = read_modules(source)
    importer = import_modules(modules, file, _names(source))
    if importer.problems:
        raise report(importer.problems, file)
    # Absolute: the current folder may be another one when somebody writes.
    files = () if path is None else (path.absolute(),)
    return ModelGraph(importer.graph, files, tuple(importer.checks))


def coverage(source: Source, *, judge: Judge | None = None) -> CoverageReport:
    """Everything about the modules of a file that is unsupported or slow, in one go.

    Raises: ModelError only where the source is no module at all.
    """
    modules, file, _ = read_modules(source)
    importer = import_modules(modules, file, _names(source))
    metadata = ModelMetadata(importer.graph.name)
    found = Imported(file, importer.graph, metadata, importer.records, importer.problems)
    return make_report(found, judge)


def read_modules(source: Source) -> tuple[tuple[Module, ...], str, Path | None]:
    """The modules of a file, what to call it in messages, and its path.

    Raises: ModelError for what is no text, or no module.
    """
    if isinstance(source, Exported):
        data, file, path = artifact_of(source), source.fun_name, None
    else:
        path = None if isinstance(source, bytes | bytearray | memoryview) else Path(source)
        file = "<bytes>" if path is None else path.name
        data = _data(source, path)
    if is_saved_export(data):
        data = artifact_of_saved(data, file)
    if is_artifact(data):
        try:
            return read_artifact(data, file), file, path
        except MALFORMED as error:
            raise ModelError(
                malformed(error, "the artifact").reason, location=file
            ) from error
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(
            "is neither text nor a portable artifact", location=file
        ) from error
    modules = parse(text, file)
    if not modules:
        raise ModelError("holds no module", location=file)
    return modules, file, path


def _data(source: str | PathLike[str] | Bytes, path: Path | None) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    assert path is not None
    problem = why_no_file(path)
    if problem is not None:
        raise ModelError(problem, location=path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", location=path) from error


def _names(source: Source) -> Names:
    return names_of_sizes(source) if isinstance(source, Exported) else ()


def import_modules(modules: Sequence[Module], file: str, names: Names = ()) -> Importer:
    """Run the importer over every module; what it found wrong stands in `problems`.

    `names` says what the sizes of arguments are called, where a call decides them.
    """
    return until_settled(lambda assumed: _imported(modules, file, names, assumed))


def _imported(
    modules: Sequence[Module], file: str, names: Names, assumed: Assumptions
) -> Importer:
    importer = Importer(file, modules[0].name or "module", names, assumed)
    for module in modules:
        try:
            importer.run(module)
        except TilewrightError:
            raise
        except MALFORMED as error:
            importer.problems.append(malformed(error, "the module"))
    return importer
