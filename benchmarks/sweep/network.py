"""ONNX models written node by node, with the arrays they are called with.

What it is: a maker of small models from random numbers of a fixed seed.
What it is not: a front end; what it makes is read by the contenders like any file.
Who calls it: the tables of cases and ``blocks.py``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET: Final = 21
IR_VERSION: Final = 10
Array = np.ndarray[Any, np.dtype[Any]]
TYPES: Final[dict[str, tuple[Any, int]]] = {
    "f32": (np.float32, TensorProto.FLOAT),
    "f16": (np.float16, TensorProto.FLOAT16),
    "bf16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
    "f64": (np.float64, TensorProto.DOUBLE),
    "i64": (np.int64, TensorProto.INT64),
    "i32": (np.int32, TensorProto.INT32),
    "i16": (np.int16, TensorProto.INT16),
    "i8": (np.int8, TensorProto.INT8),
    "u8": (np.uint8, TensorProto.UINT8),
    "u32": (np.uint32, TensorProto.UINT32),
    "bool": (np.bool_, TensorProto.BOOL),
}
FLOATS: Final = ("f32", "f16", "bf16", "f64")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Numbers to be drawn: normal floats, or uniform ones from ``low`` up to below ``high``.

    Attributes:
        constant: Whether the model holds the numbers; else they are an input.
        values: Exactly these numbers instead of drawn ones.
    """

    shape: tuple[int, ...]
    dtype: str = "f32"
    low: float | None = None
    high: float | None = None
    constant: bool = False
    values: tuple[float, ...] | None = None

    def draw(self, random: np.random.Generator) -> Array:
        """Return the array."""
        kind = TYPES[self.dtype][0]
        if self.values is not None:
            return np.array(self.values).astype(kind).reshape(self.shape)
        if self.dtype == "bool":
            return random.random(self.shape) < 0.5
        if self.dtype not in FLOATS:
            low, high = int(self.low or 0), int(100 if self.high is None else self.high)
            return random.integers(low, high, self.shape).astype(kind)
        if self.low is None or self.high is None:
            return random.standard_normal(self.shape, np.float32).astype(kind)
        return random.uniform(self.low, self.high, self.shape).astype(kind)


def x(
    *shape: int, t: str = "f32", low: float | None = None, high: float | None = None
) -> Tensor:
    """Return an input of type ``t``."""
    return Tensor(shape=shape, dtype=t, low=low, high=high)


def w(
    *shape: int, t: str = "f32", low: float | None = None, high: float | None = None
) -> Tensor:
    """Return a constant of type ``t``."""
    return Tensor(shape=shape, dtype=t, low=low, high=high, constant=True)


def ints(*values: int, t: str = "i64") -> Tensor:
    """Return a constant vector: sizes, axes, indices."""
    return Tensor(shape=(len(values),), dtype=t, constant=True, values=values)


def scalar(value: float, t: str = "f32") -> Tensor:
    """Return a constant of rank 0."""
    return Tensor(shape=(), dtype=t, constant=True, values=(value,))


Operand = Tensor | str | None


class Network:
    """A model in the making.

    Args:
        name: Seeds the numbers, so that a case has the same ones in every run.
        opset: Of the default domain.
    """

    def __init__(self, name: str, opset: int = OPSET) -> None:
        self.name = name
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, Tensor] = {}
        self.feeds: dict[str, Array] = {}

    def place(self, operand: Operand) -> str:
        """Return the name of a value; a tensor becomes an input or a constant first."""
        if operand is None:
            return ""
        if isinstance(operand, str):
            return operand
        letter = "w" if operand.constant else "x"
        name = f"{letter}{len(self.tensors)}"
        self.tensors[name] = operand
        return name

    def ops(
        self,
        kind: str,
        operands: Sequence[Operand],
        *,
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Append a node and return the names of its results."""
        names = [self.place(operand) for operand in operands]
        number = len(self.nodes)
        results = tuple(f"y{number}_{index}" for index in range(outputs))
        node = helper.make_node(
            kind, names, results, name=f"{kind}_{number}", domain=domain, **attributes
        )
        self.nodes.append(node)
        return results

    def op(self, kind: str, *operands: Operand, domain: str = "", **attributes: Any) -> str:
        """Append a node with one result and return its name."""
        return self.ops(kind, operands, domain=domain, **attributes)[0]

    def model(self, results: Sequence[str]) -> onnx.ModelProto:
        """Draw all numbers and return the model; the inputs' are in ``feeds`` from here on.

        The types of ``results`` are inferred, floats where none is known.
        """
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        inputs: list[onnx.ValueInfoProto] = []
        constants: list[onnx.TensorProto] = []
        for name, tensor in self.tensors.items():
            array, element = tensor.draw(random), TYPES[tensor.dtype][1]
            sizes = list(array.shape)
            if tensor.constant:
                data = np.ascontiguousarray(array).tobytes()
                constants.append(helper.make_tensor(name, element, sizes, data, raw=True))
            else:
                inputs.append(helper.make_tensor_value_info(name, element, sizes))
                self.feeds[name] = array
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph(
            self.nodes, "case", inputs, outputs, initializer=constants
        )
        domains = [helper.make_opsetid("", self.opset)]
        if any(node.domain for node in self.nodes):
            domains.append(helper.make_opsetid("com.microsoft", 1))
        model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        for output in model.graph.output:
            if not output.type.tensor_type.elem_type:  # not of an operator that onnx knows
                output.type.tensor_type.elem_type = TensorProto.FLOAT
        return model
