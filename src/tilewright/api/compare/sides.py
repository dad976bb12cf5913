"""Ways to run a model, each of which can be asked for any tensor of it.

A side runs the model once per question and gives the tensors that were asked for, by the names they
have in the model.  An artifact knows its outputs only.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import ArrayLike

from tilewright.api import model as models
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import UserError
from tilewright.compiler.frontends import onnx
from tilewright.compiler.frontends.door import front_end_of
from tilewright.compiler.graph.copy import copy_graph
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.transforms.eliminate_dead import is_pure
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.plan_executor import Array
from tilewright.runtime.session import Session

Arrays = Mapping[str, Array]
Options = Mapping[str, Any]


class Side(Protocol):
    """One way to run the model.

    Attributes:
        title: what reports call it.
        graph: the model before any pass; None where the inside is not known.
        inputs, output_names: what the model takes and gives.
        inner_names: tensors that it can be asked for.
    """

    @property
    def title(self) -> str: ...

    @property
    def graph(self) -> Graph | None: ...

    @property
    def inputs(self) -> Sequence[TensorSpec]: ...

    @property
    def output_names(self) -> Sequence[str]: ...

    @property
    def inner_names(self) -> Container[str]: ...

    def run(self, names: Sequence[str], inputs: Arrays) -> dict[str, Array]:
        """The tensors of these names in a run on these inputs."""
        ...


class _GraphSide:
    """What sides have in common that know the inside of the model."""

    def __init__(self, graph: Graph, title: str) -> None:
        self.graph: Graph = graph
        self.title: str = title
        self.inputs: tuple[TensorSpec, ...] = tuple(
            TensorSpec(v.name, v.type.dtype, v.type.shape) for v in graph.inputs
        )
        self.output_names: tuple[str, ...] = tuple(output_names(graph))
        self.inner_names: Container[str] = values_by_name(graph)


@final
class OracleSide(_GraphSide):
    """The numpy oracles of the ops, one node after the other."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, "oracle")

    def run(self, names: Sequence[str], inputs: Arrays) -> dict[str, Array]:
        """See `Side`."""
        asked = with_outputs(self.graph, names)
        return dict(zip(names, evaluate(asked, dict(inputs)), strict=True))


@final
class CompiledSide(_GraphSide):
    """The model, compiled; tensors that are asked for are outputs of the compilation.

    Args:
        source: where the graph came from.
        options: of `compile`.
    """

    def __init__(
        self, graph: Graph, source: onnx.Source | Graph, title: str, options: Options
    ) -> None:
        super().__init__(graph, title)
        self.source: onnx.Source | Graph = source
        self._options: Options = options

    def changed(self, title: str, options: Options) -> CompiledSide:
        """The same model, compiled with other options."""
        return CompiledSide(self.graph, self.source, title, {**self._options, **options})

    def run(self, names: Sequence[str], inputs: Arrays) -> dict[str, Array]:
        """See `Side`."""
        asked = with_outputs(self.graph, names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TilewrightWarning)
            compiled = models.compile(asked, **self._options)
        results = compiled.session.executor(*(inputs[v.name] for v in asked.inputs))
        return dict(zip(names, results, strict=True))


@final
class ArtifactSide:
    """An artifact: its outputs, and nothing inside."""

    graph: None = None

    def __init__(self, session: Session) -> None:
        self._session: Session = session
        self.title: str = session.location
        self.inputs: tuple[TensorSpec, ...] = session.inputs
        self.output_names: tuple[str, ...] = session.executor.output_names
        self.inner_names: Container[str] = self.output_names

    def run(self, names: Sequence[str], inputs: Arrays) -> dict[str, Array]:
        """See `Side`; the names are those of outputs."""
        results = self._session.run(inputs)
        return {name: results[name] for name in names}


@final
class OnnxRuntimeSide(_GraphSide):
    """onnxruntime, if it is installed; tensors that are asked for become outputs of the model.

    Args:
        values: of inputs that are constants in `graph`, by name.

    Raises: UserError where it is not installed, or the model is none of ONNX.
    """

    def __init__(
        self, source: onnx.Source | Graph, graph: Graph, values: Mapping[str, ArrayLike]
    ) -> None:
        super().__init__(graph, "onnxruntime")
        kind = "graphs" if isinstance(source, Graph) else front_end_of(source).name
        if isinstance(source, Graph) or kind != "ONNX":
            raise UserError(
                f"onnxruntime runs ONNX models, not {kind}",
                location=graph.name,
                hint="compare it with oracle, O0, a target, or another model or artifact",
            )
        self._source: onnx.Source = source
        self._values: Mapping[str, ArrayLike] = values
        self._library: ModuleType = _import_onnxruntime()
        self.inner_names: Container[str] = onnx.tensor_names(source)

    def run(self, names: Sequence[str], inputs: Arrays) -> dict[str, Array]:
        """See `Side`.  Raises: UserError with the words of onnxruntime where it refuses the model."""
        model, folder = onnx.expose(self._source, names, self._values)
        options = self._library.SessionOptions()
        options.log_severity_level = 3
        if folder is not None:
            key = "session.model_external_initializers_file_folder_path"
            options.add_session_config_entry(key, str(folder))
        try:
            session = self._library.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
            results = session.run(list(names), dict(inputs))
        except Exception as error:  # its errors have no base of their own
            raise UserError(
                f"onnxruntime does not run it: {error}",
                location=self.graph.name,
                hint="compare it with oracle",
            ) from error
        return {n: np.asarray(r) for n, r in zip(names, results, strict=True)}


def with_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """A copy of the graph whose outputs are the tensors of these names, without what they do not need.

    Nodes with an effect stay: they bind the sizes that depend on data.
    """
    copied = copy_graph(graph)
    by_name = values_by_name(copied)
    copied.outputs[:] = [by_name[name] for name in names]
    copied.output_names[:] = list(names)
    needed = {value.node for value in copied.outputs}
    for node in reversed(copied.nodes):
        if node in needed or not is_pure(node):
            needed |= {node, *(value.node for value in _read_values(node))}
    copied.nodes[:] = [node for node in copied.nodes if node in needed]
    return copied


def _read_values(node: Node) -> Iterator[Value]:
    """What a node and its regions read."""
    yield from node.present_operands
    for region in node.regions:
        yield from region.outputs
        for inner in region:
            yield from _read_values(inner)


def values_by_name(graph: Graph) -> dict[str, Value]:
    """Every named tensor of the graph; outputs go by their output name, too."""
    found = {value.name: value for value in graph.inputs}
    for node in graph:
        found.update({value.name: value for value in node.results if value.name})
    found.update(zip(output_names(graph), graph.outputs, strict=True))
    return found


def output_names(graph: Graph) -> list[str]:
    """What the outputs are called."""
    return list(graph.output_names) or [value.name for value in graph.outputs]


def _import_onnxruntime() -> ModuleType:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UserError(
            "onnxruntime is not installed", hint="pip install onnxruntime"
        ) from error
