"""ONNX's own test cases as data: models, inputs, recorded outputs, tolerances.

Shared by the conformance tests of the front end and by whatever runs the same models compiled.
Shape-like operands that a case feeds as inputs are fixed to their recorded values on request,
because a compiled model must know its shapes up to dynamic dimensions.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


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


@functools.cache
def _raw_cases(kind: str) -> dict[str, object]:
    # The cases compute their expected outputs when they are loaded, some of them with overflow.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {c.name: c for c in load_model_tests(kind=kind)}


def names(kind: str) -> list[str]:
    """The cases of one kind."""
    return sorted(_raw_cases(kind))


def cases(kind: str, name: str) -> list[Case]:
    """All recorded data sets of one case."""
    raw = _raw_cases(kind)[name]
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
