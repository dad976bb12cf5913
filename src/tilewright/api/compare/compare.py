"""`compare`: does this model compute what that one does, and if not, where does it begin to differ?

Called by users and by `tilewright compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, final

from numpy.typing import ArrayLike

from tilewright.api.compare.search import Finding, Search
from tilewright.api.compare.sides import (
    ArtifactSide,
    CompiledSide,
    OnnxRuntimeSide,
    OracleSide,
    Side,
)
from tilewright.api.load import load
from tilewright.api.model import watcher_of, with_arguments
from tilewright.api.model_inputs import Inputs, model_inputs
from tilewright.base.difference import Difference, measure
from tilewright.base.errors import InputError, TilewrightError, UserError
from tilewright.base.file_kinds import ARTIFACT_SUFFIX, is_artifact_name
from tilewright.base.options import (
    count_option,
    path_option,
    real_option,
    sizes_option,
)
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import whole_number
from tilewright.compiler import pipeline
from tilewright.compiler.frontends import onnx
from tilewright.compiler.graph.evaluator import bind_dims
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.pipeline import Progress
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.plan_executor import Array

MEMORY_LIMIT_BYTES: Final = 256 << 20
ORACLE: Final = "oracle"
ONNXRUNTIME: Final = "onnxruntime"
_SHAPING: Final = ("input_shapes", "input_values")  # options that decide the graph
_EXPORTING: Final = ("args", "kwargs", "dynamic_shapes")  # options that make a module one

Source = onnx.Source | Graph


@final
@record(kw_only=True)
class Comparison:
    """What `compare` found; true if all outputs agree, and prints as a report.

    Attributes:
        titles: what the two sides are called: the file of a model, the name of a graph, or the word given for it.
        outputs: one difference per output of the model.
        finding: the first node that differs, if one of the outputs does and the inside is known.
        path: tensors that were measured on the way, in the order of the model.
    """

    titles: tuple[str, str]
    outputs: tuple[Difference, ...]
    finding: Finding | None
    path: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether all outputs agree within their tolerance."""
        return not any(output.is_beyond for output in self.outputs)

    def __bool__(self) -> bool:
        return self.is_equal

    def __str__(self) -> str:
        verdict = "equal within tolerance" if self.is_equal else "different"
        lines = [f"{self.titles[0]} against {self.titles[1]}: {verdict}"]
        lines += [f"  output {output}" for output in self.outputs]
        if self.finding is not None:
            lines.append(f"first node that differs: {self.finding.location}")
            lines.append(f"  op '{self.finding.op}', result {self.finding.difference}")
            if not self.finding.is_confirmed:
                lines.append(
                    "  only together with its neighbours: it arises where nodes are fused"
                )
        return "\n".join(lines)


def compare(
    model: Source,
    against: str | PathLike[str] | Graph = ORACLE,
    *,
    inputs: Inputs | Callable[[Sequence[TensorSpec]], Inputs] = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Comparison:
    """Run a model in two ways and say whether, and from which node on, they differ.

    Args:
        model: what `compile` takes, which is compiled; or the path of an artifact.
        against: `"oracle"` (numpy), `"onnxruntime"` (of ONNX models), `"O0"` (another optimization level), a target
            (`"x86_64-v2"`), or the path of a model or artifact.
        inputs: arrays by position or name, or a function that makes them of names and types (`TensorSpec`); default:
            random ones.
        dims: sizes of dynamic dimensions for random inputs; others are 1.
        seed: of the random inputs.
        tolerance: the largest error that passes, relative to the largest magnitude of a tensor;
            default: 1e-4 for f32, and by type.
        limit_bytes: memory for inner tensors of one run and side.
        progress: as for `compile`.
        options: those of `compile`, for `model`.

    Returns: what was found; true if all outputs agree.
    Raises: UserError for what cannot be compared; what compiling and loading raise.
    """
    _check(tolerance, seed, limit_bytes)
    with watcher_of(progress) as watch:
        watch.phase("import")
        first = _open(model, options)
        second = _other(first, against, options.get("input_values") or {})
        arrays = _arrays(first, inputs, sizes_option("dims", dims or {}), seed)
        return _compared(first, second, arrays, watch, tolerance, limit_bytes)


def _compared(
    first: Side,
    second: Side,
    arrays: dict[str, Array],
    watch: Progress,
    tolerance: float | None,
    limit_bytes: int,
) -> Comparison:
    names = _common_outputs(first, second)

    def ask(wanted: Sequence[str]) -> list[Difference]:
        watch.phase(f"run {first.title}")
        mine = first.run(wanted, arrays)
        watch.phase(f"run {second.title}")
        theirs = second.run(wanted, arrays)
        return [measure(name, mine[name], theirs[name], tolerance) for name in wanted]

    outputs = tuple(ask(names))
    titles = (first.title, second.title)
    worst = next((output for output in outputs if output.is_beyond), None)
    if worst is None or first.graph is None or second.graph is not first.graph:
        return Comparison(titles=titles, outputs=outputs, finding=None)
    graph = first.graph
    shapes = [arrays[value.name].shape for value in graph.inputs]
    sizes = bind_dims(graph.inputs, shapes, outputs=graph.outputs)
    search = Search(graph, ask, sizes, second.inner_names, limit_bytes)
    finding = search.find(worst)
    return Comparison(titles=titles, outputs=outputs, finding=finding, path=search.seen)


def _check(tolerance: float | None, seed: int, limit_bytes: int) -> None:
    if tolerance is not None:
        real_option("tolerance", tolerance)
    count_option("seed", seed, least=0)
    count_option("limit_bytes", limit_bytes)


def _open(model: Source, options: Mapping[str, Any]) -> Side:
    """The side of a model that is compiled, or of an artifact."""
    if isinstance(model, str | PathLike) and is_artifact_name(fspath(model)):
        if options:
            raise UserError(
                f"an artifact is compiled already, '{next(iter(options))}' has no effect on it",
                location=fspath(model),
            )
        return ArtifactSide(load(fspath(model)))
    shaping = {key: options[key] for key in _SHAPING if key in options}
    source = with_arguments(model, *(options.get(key) for key in _EXPORTING))
    graph = pipeline.import_model(
        source, pipeline.CompileOptions(targets=(), **shaping)
    ).graph
    consumed = (*_SHAPING, *_EXPORTING)
    rest = {key: value for key, value in options.items() if key not in consumed}
    title = fspath(model) if isinstance(model, str | PathLike) else graph.name
    return CompiledSide(graph, source, title, rest)


def _other(
    first: Side, against: str | PathLike[str] | Graph, values: Mapping[str, ArrayLike]
) -> Side:
    """The side that the user names; words and targets are about the first side's model, and so are `values`."""
    if not isinstance(against, Graph):
        path_option("against", against)
    if isinstance(against, Graph | PathLike) or Path(against).is_file():
        return _open(against, {})
    if Path(against).suffix.lower() in (ARTIFACT_SUFFIX, ".onnx"):
        raise UserError("no such file", location=against)
    if not isinstance(first, CompiledSide):
        raise UserError(
            f"the inside of an artifact is not known, so there is no '{against}' of it",
            location=first.title,
            hint="compare it with the model, or the model with that",
        )
    if against == ORACLE:
        return OracleSide(first.graph)
    if against == ONNXRUNTIME:
        return OnnxRuntimeSide(first.source, first.graph, values)
    return first.changed(against, _change(against))


def _change(word: str) -> dict[str, Any]:
    """The option of `compile` that `O0` or a target stands for."""
    level = whole_number(word[1:]) if word[:1] == "O" else None
    if level is not None:
        return {"opt_level": level}
    try:
        return {"target": Target.parse(word)}
    except TilewrightError as error:
        raise UserError(
            f"do not know what to compare with: '{word}' is no file, level or target ({error.message})",
            hint="known: oracle, onnxruntime, O0, a target such as x86_64-v2, or a file",
        ) from error


def _common_outputs(first: Side, second: Side) -> tuple[str, ...]:
    """The outputs of both.  Raises: UserError if the sides have different ones."""
    if set(first.output_names) != set(second.output_names):
        raise UserError(
            f"outputs {list(first.output_names)} and {list(second.output_names)} are not the same",
            location=f"{first.title}, {second.title}",
        )
    return tuple(first.output_names)


def _arrays(
    side: Side,
    inputs: Inputs | Callable[[Sequence[TensorSpec]], Inputs],
    dims: Mapping[str, int],
    seed: int,
) -> dict[str, Array]:
    """One array per input, by name.  Raises: InputError for too many, too few or unknown ones."""
    names = [spec.name for spec in side.inputs]
    told = inputs(side.inputs) if callable(inputs) else inputs
    arrays = model_inputs(side.inputs, told, dims, seed)
    if len(arrays) != len(names):
        raise InputError(
            f"got {len(arrays)} inputs, expected {len(names)}: {', '.join(names) or 'none'}"
        )
    return dict(zip(names, arrays, strict=True))
