"""What a model takes and gives that is no plain tensor: sequences, optionals, strings, maps.

A compiled graph has tensors only.  A sequence is as many tensors as it has items, which the caller says
before the model is compiled; an optional is there or not; strings and maps stay with the host.  Called by
the importer for inputs and outputs, and by who calls such a model to take values apart and put them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from onnx import TensorProto, TypeProto, ValueInfoProto

from tilewright.base.errors import InputError, ModelError
from tilewright.base.foreign_tensors import unmasked
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.host import HostProgram, HostStep, as_text
from tilewright.compiler.frontends.onnx.signature import Dimensions
from tilewright.compiler.frontends.onnx.tensors import dtype_of
from tilewright.compiler.frontends.onnx.values import (
    ChosenOptional,
    Held,
    HostValue,
    JoinedSequence,
    Nothing,
    StackedSequence,
    TensorSequence,
)
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType

# What is known of a value that is no plain tensor: None: absent; a tuple of numbers: a tensor of that shape;
# a list: a sequence of so many items.
Items = None | tuple[int, ...] | list[Any]
# The keys of a value's tensors: one, one per item, or None where it is absent.
Structure = str | tuple["Structure", ...] | None


@final
@record(frozen=False)
class Border:
    """The inputs and outputs of one model, by the keys of their tensors."""

    items: Mapping[str, Items] = field(default_factory=dict[str, Items])
    host: HostProgram = field(default_factory=HostProgram)
    inputs: dict[str, Structure] = field(default_factory=dict[str, Structure])
    outputs: dict[str, Structure] = field(default_factory=dict[str, Structure])
    texts: dict[str, tuple[Dim, ...]] = field(default_factory=dict[str, tuple[Dim, ...]])

    def take(self, name: str, value: Any, found: dict[str, Any]) -> None:
        """Put the tensors of an input's value under their keys.

        Raises: InputError for another structure than the model is compiled for, or strings of another shape.
        """
        if name not in self.texts:
            take_apart(value, self.inputs[name], found)
            return
        found[name] = text = as_text(np.asarray(unmasked(value), object))
        shape = self.texts[name]
        pairs = zip(text.shape, shape, strict=False)
        if text.ndim != len(shape) or any(isinstance(d, int) and n != d for n, d in pairs):
            wanted = ", ".join(map(str, shape))
            raise InputError(
                f"got strings of shape {list(text.shape)}, expected [{wanted}]"
            )

    def bind(self, info: ValueInfoProto, dimensions: Dimensions, maker: NodeMaker) -> Held:
        """What an input stands for; its tensors become inputs of the graph.

        Raises: UnsupportedError where the number of items, or whether there are any, is not known.
        """
        name = text_of(info.name)
        kind = info.type.WhichOneof("value")
        self.inputs[name] = name
        if kind == "map_type" or _is_sequence_of_maps(info.type):
            return HostValue(name)
        if kind == "tensor_type":
            if info.type.tensor_type.elem_type == TensorProto.STRING:
                self.texts[name] = dimensions.shape_of(info)
                return HostValue(name, self.texts[name])
            value = Value(dimensions.type_of(info), name)
            maker.graph.inputs.append(value)
            return maker.of_value(value)
        if name not in self.items:
            words = (kind or "unknown").removesuffix("_type").replace("_", " ")
            raise UnsupportedError(
                f"type {words} is not supported without its items",
                hint="tilewright.onnx_backend.prepare(model) takes the items from the values of a call",
            )
        held, self.inputs[name] = self._made(info.type, name, self.items[name], maker)
        return held

    def _made(
        self, type_: TypeProto, name: str, items: Items, maker: NodeMaker
    ) -> tuple[Held, Structure]:
        kind = type_.WhichOneof("value")
        if kind == "optional_type":
            if items is None:
                return Nothing(), None
            return self._made(type_.optional_type.elem_type, name, items, maker)
        if kind == "sequence_type":
            element = type_.sequence_type.elem_type
            made = [
                self._made(element, f"{name}.{i}", item, maker)
                for i, item in enumerate(items if isinstance(items, list) else [])
            ]
            tensors = [held for held, _ in made if isinstance(held, Tensor)]
            if len(tensors) != len(made):
                raise UnsupportedError("sequences of other than tensors are not supported")
            dtype = dtype_of(element.tensor_type.elem_type)
            return TensorSequence(tuple(tensors), dtype), tuple(s for _, s in made)
        if kind != "tensor_type" or not isinstance(items, tuple):
            raise ModelError(f"type {kind} does not fit what is given")
        value = Value(TensorType(dtype_of(type_.tensor_type.elem_type), items), name)
        maker.graph.inputs.append(value)
        return maker.of_value(value), name

    def expose(self, held: Held, name: str, output: Any) -> Structure:
        """The keys of an output's tensors; `output(tensor, key)` makes one an output of the graph.

        Raises: UnsupportedError for a sequence whose length a call decides.
        """
        if isinstance(held, Tensor):
            output(held, name)
            return name
        if isinstance(held, Nothing):
            return None
        if isinstance(held, ChosenOptional):
            raise UnsupportedError(
                "an output is an optional that is there or not, depending on data",
                hint="let the model return a tensor beside a truth value (OptionalHasElement)",
            )
        if isinstance(held, StackedSequence | JoinedSequence):
            raise UnsupportedError(
                "an output is a sequence whose length depends on data",
                hint="let the model return its items as one tensor (ConcatFromSequence)",
            )
        if isinstance(held, TensorSequence):
            keys = [f"{name}.{i}" for i in range(len(held.items))]
            for item, key in zip(held.items, keys, strict=True):
                output(item, key)
            return tuple(keys)
        if held.constant is None:
            return held.name
        constant = held.constant
        self.host.after.append(HostStep(lambda: (constant,), (), (name,)))
        return name


def _is_sequence_of_maps(type_: TypeProto) -> bool:
    return type_.WhichOneof("value") == "sequence_type" and (
        type_.sequence_type.elem_type.WhichOneof("value") == "map_type"
    )


def items_of(value: object) -> Items:
    """What there is to know of a value before a model is compiled for it."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [items_of(one) for one in value]
    return unmasked(value).shape


def needs_items(type_: TypeProto) -> bool:
    """Whether an input is compiled for what a call gives."""
    kind = type_.WhichOneof("value")
    return kind == "optional_type" or (
        kind == "sequence_type" and not _is_sequence_of_maps(type_)
    )


def take_apart(value: Any, structure: Structure, found: dict[str, Any]) -> None:
    """Put the tensors of a value under their keys.

    Raises: InputError for another structure than the model is compiled for.
    """
    if isinstance(structure, str):
        if isinstance(value, dict | list):
            found[structure] = value
            return
        array = unmasked(value)
        found[structure] = as_text(array) if array.dtype.kind in "OUS" else array
        return
    given = [] if value is None else list(value)
    expected = () if structure is None else structure
    if len(given) != len(expected):
        raise InputError(f"has {len(given)} items, expected {len(expected)}")
    for one, key in zip(given, expected, strict=True):
        take_apart(one, key, found)


def put_together(structure: Structure, found: Mapping[str, Any]) -> Any:
    """The value of an output."""
    if isinstance(structure, str):
        return found[structure]
    return None if structure is None else [put_together(one, found) for one in structure]
