"""The front door: a module as a graph and its checks, or every reason why it is none.

Called by the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.base.input_file import why_no_file
from tilewright.compiler.frontends.kit.output_checks import Check
from tilewright.compiler.frontends.kit.problems import Problem, report
from tilewright.compiler.frontends.stablehlo.importer import Importer
from tilewright.compiler.frontends.stablehlo.parser import parse
from tilewright.compiler.frontends.stablehlo.tree import Module
from tilewright.compiler.graph.ir import Graph

Source = str | PathLike[str]
_MALFORMED: Final = (
    ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError,
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class ImportedModules:
    """A graph, and what its outputs must be to each other; `files` are those that were read."""

    graph: Graph
    checks: tuple[Check, ...] = ()
    files: tuple[Path, ...] = ()


def load_modules(source: Source) -> ImportedModules:
    """The graph of every module in a file, one after the other: arguments, results and checks in order.

    Raises: ModelError naming everything that is wrong or unsupported, in one go.
    """
    path = Path(source)
    modules = read_modules(path)
    importer = import_modules(modules, path.name)
    if importer.problems:
        raise report(importer.problems, path.name)
    # Absolute: the current folder may be another one when somebody writes.
    return ImportedModules(importer.graph, tuple(importer.checks), (path.absolute(),))


def read_modules(path: Path) -> tuple[Module, ...]:
    """The modules that a file holds.  Raises: ModelError for what is no text, or no module."""
    problem = why_no_file(path)
    if problem is not None:
        raise ModelError(problem, location=path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", location=path) from error
    except UnicodeDecodeError as error:
        hint = "modules as bytecode or portable artifacts are not read: print them as text"
        raise ModelError("is no text", location=path.name, hint=hint) from error
    modules = parse(text, path.name)
    if not modules:
        raise ModelError("holds no module", location=path.name)
    return modules


def import_modules(modules: Sequence[Module], file: str) -> Importer:
    """Run the importer over every module; what it found wrong stands in `problems`."""
    importer = Importer(file, modules[0].name or "module")
    for module in modules:
        try:
            importer.run(module)
        except TilewrightError:
            raise
        except _MALFORMED as error:
            text = f"the module is malformed ({type(error).__name__}: {error})"
            importer.problems.append(Problem("", "", text.split("\n", maxsplit=1)[0][:200]))
    return importer
