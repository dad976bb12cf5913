"""Nodes of opsets 1 to 5 as those of opset 6, which is the oldest that rows know.

Most operators lost `consumed_inputs` there and nothing else; some had other attributes, or operands where later ones have
attributes.  Called by the importer.

Source: ONNX operator reference, versions 1 to 6 of each operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import numpy as np
from onnx import AttributeProto, TensorProto, helper

from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attributes import AttributeReader
from tilewright.compiler.frontends.onnx.model import OLDEST_OPSET
from tilewright.compiler.frontends.onnx.schemas import is_unchanged
from tilewright.compiler.frontends.onnx.values import Held


@final
@record
class _Node:
    """A node whose attributes and operands are copies, to be changed."""

    maker: NodeMaker
    attributes: dict[str, AttributeProto]
    inputs: list[Held | None]

    @property
    def reader(self) -> AttributeReader:
        """Its attributes by type."""
        return AttributeReader(self.attributes)

    def set(self, name: str, value: object) -> None:
        """Give an attribute a value."""
        self.attributes[name] = helper.make_attribute(name, value)


_Form = Callable[[_Node], None]


def as_of_oldest(
    e: NodeMaker,
    op: str,
    opset: int,
    attributes: Mapping[str, AttributeProto],
    inputs: Sequence[Held | None],
) -> tuple[Mapping[str, AttributeProto], Sequence[Held | None]]:
    """The attributes and operands that a node of ONNX's own domain has in opset 6.

    Raises: UnsupportedError, ModelError for what has no meaning there.
    """
    form = _FORMS.get(op)
    if form is None or is_unchanged(op, opset, OLDEST_OPSET):
        return attributes, inputs
    node = _Node(e, dict(attributes), list(inputs))
    node.attributes.pop("consumed_inputs", None)  # where results may lie is ours to decide
    form(node)
    return node.attributes, node.inputs


def _same(_: _Node) -> None:
    """Nothing else was different."""


def _default(name: str, value: object) -> _Form:
    """An attribute has another value where it is left out."""

    def form(node: _Node) -> None:
        if name not in node.attributes:
            node.set(name, value)

    return form


def _selu(node: _Node) -> None:
    """Both numbers had fewer digits."""
    _default("alpha", 1.6732)(node)
    _default("gamma", 1.0507)(node)


def _renamed(old: str, new: str) -> _Form:
    def form(node: _Node) -> None:
        held = node.attributes.pop(old, None)
        if held is not None:
            copy = AttributeProto()
            copy.CopyFrom(held)
            copy.name = new
            node.attributes[new] = copy

    return form


def _as_integer(name: str) -> _Form:
    """A float that is a whole number."""

    def form(node: _Node) -> None:
        value = node.reader.float(name)
        if value is None:
            return
        if value != int(value):
            raise UnsupportedError(
                f"attribute '{name}' is {value}, expected a whole number"
            )
        node.set(name, int(value))

    return form


def _cast(node: _Node) -> None:
    """The type was a word."""
    word = node.reader.string("to")
    names = list(TensorProto.DataType.keys())
    if word is None or word.upper() not in names:
        raise ModelError(f"attribute 'to' is '{word}', which is no type")
    node.set("to", TensorProto.DataType.Value(word.upper()))


def _reshape(node: _Node) -> None:
    """The shape was an attribute."""
    shape = node.reader.integers("shape")
    node.attributes.pop("shape", None)
    if shape is None:
        raise ModelError("attribute 'shape' is missing")
    node.inputs.append(node.maker.constant(np.array(shape, np.int64)))


def _split(node: _Node) -> None:
    """The sizes could be an operand, of the type of what is split."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        sizes = _known(node.inputs[1], "the sizes")
        node.set("split", sizes)
        del node.inputs[1:]


def _tile(node: _Node) -> None:
    """One axis was repeated, as often as an operand says."""
    x, tiles, axis = node.inputs
    if not isinstance(x, Tensor):
        raise ModelError("operand 1 is not a tensor")
    (count,), (place,) = _known(tiles, "the count"), _known(axis, "the axis")
    repeats = np.ones(x.rank, np.int64)
    repeats[place] = count
    node.inputs[1:] = [node.maker.constant(repeats)]


def _known(held: Held | None, subject: str) -> list[int]:
    if not isinstance(held, Tensor) or held.array is None:
        raise UnsupportedError(f"{subject} of an operator of such an opset is no constant")
    return [int(number) for number in held.array.reshape(-1).tolist()]


_FORMS: Final[dict[str, _Form]] = {
    **dict.fromkeys(
        (
            "Abs", "Add", "BatchNormalization", "Ceil", "Clip", "Div", "Dropout", "Elu", "Exp",
            "Floor", "GRU", "Gemm", "HardSigmoid", "InstanceNormalization", "LeakyRelu", "Log",
            "Max", "Mean", "Min", "Mul", "Neg", "PRelu", "Reciprocal", "Relu", "Sigmoid",
            "Sqrt", "Sub", "Sum", "Tanh",
        ),
        _same,
    ),
    "Cast": _cast,
    "Concat": _default("axis", 1),
    "GlobalLpPool": _as_integer("p"),
    "LpPool": _as_integer("p"),
    "Pad": _renamed("paddings", "pads"),
    "Reshape": _reshape,
    "Selu": _selu,
    "Split": _split,
    "Tile": _tile,
}  # fmt: skip
