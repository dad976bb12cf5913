"""The front door: a model of torch as a graph, or every reason why it is none.

Called by the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.diagnostics import warn
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
from tilewright.compiler.frontends.torch.guards import guards_of
from tilewright.compiler.frontends.torch.importer import Importer
from tilewright.compiler.frontends.torch.open_sizes import OpenSizes, open_sizes
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


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """What came of exporting and importing a module.

    Attributes:
        exported, importer: the program and its graph, if torch could export it.
        refused: why it is refused, if it is.
        met: what became of sizes that calls were to decide.
    """

    exported: object = None
    importer: Importer | None = None
    refused: ModelError | None = None
    met: OpenSizes = field(default_factory=OpenSizes)


def _imported(source: object) -> tuple[object, Importer]:
    """The exported program and what came of importing it.

    Raises: ModelError where torch cannot export it.
    """
    captured = source if isinstance(source, Captured) else Captured(source)
    found = _best_attempt(captured)
    if found.importer is None:
        assert found.refused is not None, "there is no program"
        raise found.refused
    _tell_of(found.met, type(captured.model).__name__)
    return found.exported, found.importer


def _best_attempt(captured: Captured) -> _Attempt:
    """What came of it.

    Where it does not go with functions of sizes that calls compute, it is exported once more with those that Python
    computes, which fixes the sizes.
    """
    first = _attempt(captured)
    if first.refused is None or not first.met.functions_are_computed:
        return first
    again = _attempt(replace(captured, computes_functions=False))
    if again.refused is None or not is_of_ranges(again.refused):
        return again
    help_ = again.refused.hint
    if first.importer is None:
        refused = first.refused
        told = ModelError(refused.message, location=refused.location, hint=help_)
        return replace(first, refused=told)
    first.importer.problems = [
        replace(p, hint=help_ or "") for p in first.importer.problems
    ]
    return first


def _attempt(captured: Captured) -> _Attempt:
    """What came of it; without what dynamo leaves open where it does not go with that."""
    found = _attempt_once(captured)
    if found.refused is None or not found.met.is_left_open:
        return found
    return _attempt_once(replace(captured, leaves_open=False))


def _attempt_once(captured: Captured) -> _Attempt:
    with open_sizes() as met:
        exported, importer, refused = None, None, None
        try:
            exported, program = _read(captured)
            importer = import_program(program, f"<{program.name}>")
        except ModelError as error:
            refused = error
    if importer is not None and importer.problems:
        refused = report(importer.problems, importer.file)
    return _Attempt(exported, importer, refused, met)


def _tell_of(met: OpenSizes, name: str) -> None:
    """Warn of sizes that were to be open, and that the module made numbers or texts of."""
    if met.fixed:
        _warn(
            f"{name}: the module makes a number of a size that calls were to decide ({', '.join(map(str, met.fixed))}), "
            "so the compiled model takes this size alone",
            "compute with the size as it is, without what one number alone fulfils (int, range, a text, n == 8), "
            "or leave it out of dynamic_shapes",
        )
    if met.texts:
        _warn(
            f"{name}: the module makes a text of a size that calls decide (at {', '.join(met.texts)}), "
            "which holds torch's name of the size, not its number",
            "look nothing up by such a text, or leave the size out of dynamic_shapes",
        )


def _warn(message: str, hint: str) -> None:
    warn(f"{message}\nhint: {hint}")


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
