"""ONNX's own test cases as data: models, inputs, recorded outputs, tolerances.

Shared by the conformance tests of the front end and by whatever runs the same models compiled.
Shape-like operands that a case feeds as inputs are fixed to their recorded values on request,
because a compiled model must know its shapes up to dynamic dimensions.

The node cases come from the files of `onnx.backend.test.case.node`, which compute every case when they are imported, seven
seconds in all.  `golden/onnx/node_cases.txt` says which file makes which case, with a star behind those that have more than
numeric tensors, so that naming the cases imports none and taking one imports one.  For another version of onnx:

    python tests/fakes/onnx_suite.py
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import unittest.mock
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
_NODE = "onnx.backend.test.case.node"
LISTED_CASES = Path(__file__).resolve().parents[1] / "golden" / "onnx" / "node_cases.txt"


@dataclass(frozen=True, eq=False)
class Case:
    """One model with recorded data; `inputs` in the order of the model's free inputs."""

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, object]
    outputs: Sequence[object]
    rtol: float
    atol: float

    @property
    def shape_like(self) -> dict[str, np.ndarray]:
        """Inputs that could be shapes, axes, sizes or flags: short vectors and scalars."""
        return {
            name: value
            for name, value in self.inputs.items()
            if isinstance(value, np.ndarray)
            and value.dtype.kind not in "OUS"
            and value.ndim <= 1
            and value.size <= 64
        }

    @property
    def tensors(self) -> list[object]:
        """The outputs as a graph has them: the items of a sequence are outputs of their own."""
        return [
            item
            for value in self.outputs
            for item in (value if isinstance(value, list) else [value])
        ]

    @property
    def is_tensors_only(self) -> bool:
        """Whether every input and output is a numeric tensor."""
        return all(
            isinstance(v, np.ndarray) and v.dtype.kind != "O"
            for v in (*self.inputs.values(), *self.outputs)
        )


def _value(raw: object) -> object:
    if isinstance(raw, onnx.TensorProto):
        return numpy_helper.to_array(raw)
    if isinstance(raw, np.generic):
        return np.asarray(raw)
    return raw


def _file_value(path: Path) -> object:
    data = path.read_bytes()
    try:
        return numpy_helper.to_array(onnx.TensorProto.FromString(data))
    except Exception:  # a sequence or an optional, which stays opaque
        return data


def _free_inputs(model: onnx.ModelProto) -> list[str]:
    held = {t.name for t in model.graph.initializer}
    return [v.name for v in model.graph.input if v.name not in held]


def _recorded(folder: Path) -> list[tuple[list[object], list[object]]]:
    found = []
    for data in sorted(folder.glob("test_data_set_*")):
        columns = [
            [
                _file_value(data / f"{kind}_{i}.pb")
                for i in range(len(list(data.glob(f"{kind}_*.pb"))))
            ]
            for kind in ("input", "output")
        ]
        found.append((columns[0], columns[1]))
    return found


@contextmanager
def _quietly() -> Iterator[None]:
    """Import onnx's files of cases: some compute with overflow, and each would quote its source for a page."""
    with (
        warnings.catch_warnings(),
        unittest.mock.patch(
            "onnx.backend.test.case.base.process_snippet", return_value=("", "")
        ),
    ):
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class ListedCase:
    """What is known of a node case before it is imported: the file of onnx that makes it, and what it computes with."""

    file: str
    is_tensors_only: bool


def _import_node_cases(module: str) -> dict[str, Any]:
    """The cases that the import of one of onnx's files adds."""
    made = importlib.import_module(_NODE)._NodeTestCases
    before = len(made)
    with _quietly():
        importlib.import_module(f"{_NODE}.{module}")
    return {case.name: case for case in made[before:]}


def made_node_cases() -> dict[str, ListedCase]:
    """Every node case, from all files; in a process that imported none before."""
    package = importlib.import_module(_NODE)
    found = {}
    for module in pkgutil.walk_packages(package.__path__, f"{_NODE}."):
        file = module.name.removeprefix(f"{_NODE}.")
        for name, raw in _import_node_cases(file).items():
            is_tensors_only = all(case.is_tensors_only for case in _cases(name, raw))
            found[name] = ListedCase(file, is_tensors_only)
    return found


def as_listed(listed: Mapping[str, ListedCase]) -> str:
    """The text of the list: the version of onnx, then a line for each file."""
    lines = {}
    for name, case in sorted(listed.items()):
        word = name if case.is_tensors_only else f"{name}*"
        lines.setdefault(case.file, [f"{case.file}:"]).append(word)
    rows = (" ".join(words) for _, words in sorted(lines.items()))
    return "\n".join((f"onnx {onnx.__version__}", *rows, ""))


@functools.cache
def listed_node_cases() -> dict[str, ListedCase]:
    """Every node case; the list's, if it is of this version."""
    version, *lines = LISTED_CASES.read_text(encoding="utf-8").splitlines()
    if version != f"onnx {onnx.__version__}":
        return made_node_cases()
    rows = (line.split(": ", 1) for line in lines)
    return {
        word.rstrip("*"): ListedCase(file, not word.endswith("*"))
        for file, words in rows
        for word in words.split()
    }


_NODE_CASES: dict[str, Any] = {}


def _node_case(name: str) -> Any:
    if name not in _NODE_CASES:
        # What is imported already, by another file or for another list, is there, too.
        _import_node_cases(listed_node_cases()[name].file)
        made = importlib.import_module(_NODE)._NodeTestCases
        _NODE_CASES.update((case.name, case) for case in made[len(_NODE_CASES) :])
    return _NODE_CASES[name]


@functools.cache
def _cases_of_files(kind: str) -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    return {c.name: c for c in load_model_tests(kind=kind)}


def raw_case(kind: str, name: str) -> Any:
    """A case as onnx's own runner takes it."""
    return _node_case(name) if kind == "node" else _cases_of_files(kind)[name]


def names(kind: str) -> list[str]:
    """The cases of one kind."""
    return sorted(listed_node_cases() if kind == "node" else _cases_of_files(kind))


def is_tensors_only(kind: str, name: str) -> bool:
    """Whether a case computes with numeric tensors alone; of a node case nothing is imported."""
    if kind == "node":
        return listed_node_cases()[name].is_tensors_only
    return all(case.is_tensors_only for case in cases(kind, name))


def cases(kind: str, name: str) -> list[Case]:
    """All recorded data sets of one case."""
    return _cases(name, raw_case(kind, name))


def _cases(name: str, raw: Any) -> list[Case]:
    model = raw.model
    if model is None:
        model = onnx.load(Path(raw.model_dir) / "model.onnx")
    sets = _recorded(Path(raw.model_dir)) if raw.data_sets is None else raw.data_sets
    free = _free_inputs(model)
    every = [v.name for v in model.graph.input]
    found = []
    for inputs, outputs in sets:
        order = every if len(inputs) == len(every) else free
        fed = {n: _value(v) for n, v in zip(order, inputs, strict=False) if n in free}
        found.append(
            Case(name, model, fed, [_value(v) for v in outputs], raw.rtol, raw.atol)
        )
    return found


def light_models() -> list[Path]:
    """The nine networks whose weights are generated, with outputs recorded by ONNX."""
    return sorted((_DATA / "light").glob("*.onnx"))


def light_case(path: Path) -> Case:
    """A light model with the ramp that ONNX recorded its output for."""
    model = onnx.load(path)
    fed = {}
    for value in model.graph.input:
        if value.name in {t.name for t in model.graph.initializer}:
            continue
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        fed[value.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
    outputs = sorted(path.parent.glob(f"{path.stem}_output_*.pb"))
    return Case(path.stem, model, fed, [_file_value(p) for p in outputs], 1e-3, 1e-5)


def assert_close(actual: np.ndarray, expected: object, rtol: float, atol: float) -> None:
    """Equal shape, type and elements; 16-bit floats get two units in the last place."""
    assert isinstance(expected, np.ndarray), f"expected {type(expected)}, got a tensor"
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.dtype.kind not in "fbiu" or actual.dtype.name == "bfloat16":
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
        rtol = max(rtol, 2**-6)
    if actual.dtype == np.float16:
        rtol = max(rtol, 2**-9)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


if __name__ == "__main__":
    LISTED_CASES.write_text(as_listed(made_node_cases()), encoding="utf-8")
