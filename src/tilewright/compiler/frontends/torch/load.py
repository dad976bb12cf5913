"""The front door: a model of torch as a graph, or every reason why it is none.

Called by the pipeline.
"""

from __future__ import annotations

from dataclasses import replace

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.assumptions import known_equalities
from tilewright.compiler.frontends.kit.coverage import (
    CoverageReport,
    Imported,
    Judge,
    make_report,
)
from tilewright.compiler.frontends.kit.metadata import ModelMetadata
from tilewright.compiler.frontends.kit.model_graph import ModelGraph
from tilewright.compiler.frontends.kit.problems import report
from tilewright.compiler.frontends.torch.calling import Calling
from tilewright.compiler.frontends.torch.export import (
    Captured,
    export,
    is_program,
    resolve,
)
from tilewright.compiler.frontends.torch.failed_exports import is_of_ranges
from tilewright.compiler.frontends.torch.functions_of_sizes import (
    forget_functions,
    functions_were_computed,
)
from tilewright.compiler.frontends.torch.guards import guards_of
from tilewright.compiler.frontends.torch.importer import Importer
from tilewright.compiler.frontends.torch.program import Program, Role
from tilewright.compiler.frontends.torch.questions import asked
from tilewright.compiler.frontends.torch.reader import read_exported
from tilewright.compiler.frontends.torch.view_choices import choices_that_matter


def is_model(source: object) -> bool:
    """Whether it is a model of torch, with or without arguments."""
    return isinstance(source, Captured) or _is_bare(source)


def _is_bare(source: object) -> bool:
    return is_program(source) or border.is_instance(source, "nn.Module")


def load(source: object) -> ModelGraph:
    """The graph of an exported program or a module with arguments, and how it is called.

    Raises: ModelError naming everything that is wrong or unsupported, in one go; UserError for arguments
    that are missing.
    """
    exported, importer = _imported(source)
    if importer.problems:
        raise report(importer.problems, importer.file)
    return ModelGraph(importer.graph, calling=Calling.of(exported, importer.program))


def load_program(program: Program) -> ModelGraph:
    """The graph of a program that was read already.  Raises: as `load`."""
    importer = import_program(program, f"<{program.name}>")
    if importer.problems:
        raise report(importer.problems, f"<{program.name}>")
    return ModelGraph(importer.graph)


def coverage(source: object, *, judge: Judge | None = None) -> CoverageReport:
    """Everything about a model of torch that is unsupported or slow, in one go.

    Raises: ModelError only where torch cannot export it at all; UserError for arguments that are missing.
    """
    _, importer = _imported(source)
    program = importer.program
    size = sum(
        entry.array.nbytes
        for entry in program.inputs
        if entry.role is Role.WEIGHT and entry.array is not None
    )
    found = Imported(
        importer.file, importer.graph, ModelMetadata(program.name, producer="torch.export"),
        importer.records, importer.problems, size,
    )  # fmt: skip
    return make_report(found, judge)


def _imported(source: object) -> tuple[object, Importer]:
    """The exported program and what came of importing it.

    Where it does not go with functions of sizes that calls compute, it is exported once more with those that Python
    computes, which fixes the sizes.

    Raises: ModelError where torch cannot export it.
    """
    captured = source if isinstance(source, Captured) else Captured(source)
    forget_functions()
    found, refused = _attempt(captured)
    if refused is not None and functions_were_computed():
        again, remains = _attempt(replace(captured, computes_functions=False))
        if remains is None:
            return _made(again)
        if not is_of_ranges(remains):
            found, refused = again, remains
        elif found is None:
            raise ModelError(refused.message, location=refused.location, hint=remains.hint)
        else:
            _, importer = found
            importer.problems = [
                replace(p, hint=remains.hint or "") for p in importer.problems
            ]
    if found is None and refused is not None:
        raise refused
    return _made(found)


def _made(found: tuple[object, Importer] | None) -> tuple[object, Importer]:
    assert found is not None, "nothing was refused"
    return found


def _attempt(
    captured: Captured,
) -> tuple[tuple[object, Importer] | None, ModelError | None]:
    """What came of it, if anything, and why it is refused, if it is."""
    try:
        exported, program = _read(captured)
        importer = import_program(program, f"<{program.name}>")
    except ModelError as error:
        return None, error
    refused = report(importer.problems, importer.file) if importer.problems else None
    return (exported, importer), refused


def _read(captured: Captured) -> tuple[object, Program]:
    """The exported program in operators that have rows, and what is read of it."""
    model = captured.model
    name = "module" if is_program(model) else type(model).__name__
    with asked() as questions:
        traced = export(captured)
        questions.are_of_operators = True
        questions.choices = choices_that_matter(traced)
        exported = resolve(traced)
    # A program that is given was traced before: nobody heard what was asked.
    guards = guards_of(traced) if traced is model else ()
    return exported, read_exported(exported, name, guards, questions)


def import_program(program: Program, file: str) -> Importer:
    """Run the importer; what it found wrong stands in `problems`."""
    importer = Importer(program, file)
    importer.run()
    importer.graph.equalities = known_equalities(importer.maker.assumptions, importer.graph)
    return importer
