"""What the specification demands of attributes that change no result here, or that several families have.

Precision, algorithms and accuracy ask nothing of us, as results are as exact as their types; what is stated must still
be something that the specification knows.

Source: StableHLO specification, "dot_general" (C11, C21 to C24), "convolution" (C2 to C9, C21 to C24), "send" (C5),
"dynamic_broadcast_in_dim" (C8 to C10), "Accuracy".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import Demand, tensor_of
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Dense,
    Fields,
    Keyword,
    Number,
)

_PRECISIONS: Final = ("DEFAULT", "HIGH", "HIGHEST")
_COUNTS: Final = ("lhs_component_count", "rhs_component_count", "num_primitive_operations")
_TOLERANCES: Final = ("atol", "rtol", "ulps")
_DEVICE_TO_DEVICE: Final = 1
_HOST_TYPES: Final = (2, 3)
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "dot_dimension_numbers": frozenset({
        "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    }),
    "dimension_numbers": frozenset({
        "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims", "start_index_map", "index_vector_dim",
    }),
    "scatter_dimension_numbers": frozenset({
        "update_window_dims", "inserted_window_dims", "input_batching_dims",
        "scatter_indices_batching_dims", "scatter_dims_to_operand_dims", "index_vector_dim",
    }),
    "channel_handle": frozenset({"handle", "type"}),
}  # fmt: skip


def known_fields(name: str) -> Demand:
    """An attribute has no fields but those that the specification lists."""

    def check(call: Call) -> None:
        unknown = [field for field in call.fields(name) if field not in _FIELDS[name]]
        if unknown:
            raise ModelError(
                f"attribute '{name}' has a field '{unknown[0]}'",
                hint=f"its fields are {', '.join(sorted(_FIELDS[name]))}",
            )

    return check


def precision(call: Call) -> None:
    """No precision is stated, or one for each of two operands; with an algorithm the default."""
    found = call.attribute("precision_config")
    stated = found if isinstance(found, tuple) else () if found is None else (found,)
    words = [each.word if isinstance(each, Keyword) else "" for each in stated]
    if len(words) > 2 or any(word not in _PRECISIONS for word in words):
        raise ModelError(
            f"precision_config is [{', '.join(words)}], expected two of {', '.join(_PRECISIONS)}"
        )
    algorithm = call.operation.attributes.get("algorithm")
    if not isinstance(algorithm, Fields):
        return
    if any(word != "DEFAULT" for word in words):
        raise ModelError("states an algorithm and a precision, expected one of them")
    for name in _COUNTS:
        count = algorithm.named.get(name)
        if isinstance(count, Number) and count.value < 1:
            raise ModelError(f"{name} is {count.value}, expected 1 or more")


def accuracy(call: Call) -> None:
    """Tolerances are stated where the mode is TOLERANCE, and none is negative."""
    found = call.attribute("result_accuracy")
    if not isinstance(found, Fields):
        return
    numbers = {name: _value(found.named.get(name)) for name in _TOLERANCES}
    mode = found.named.get("mode")
    while isinstance(mode, Fields) and mode.items:
        mode = mode.items[0]
    word = mode.word if isinstance(mode, Keyword) else "DEFAULT"
    wrong = [
        name
        for name, number in numbers.items()
        if number < 0 or (number and word != "TOLERANCE")
    ]
    if word not in ("DEFAULT", "HIGHEST", "TOLERANCE") or wrong:
        listed = ", ".join(f"{name} = {number}" for name, number in numbers.items())
        raise ModelError(
            f"result_accuracy is {word} with {listed}, expected tolerances for TOLERANCE only"
        )


def _value(attribute: Attribute | None) -> float:
    return attribute.value if isinstance(attribute, Number) else 0


def window(call: Call) -> None:
    """Strides, dilations, padding and reversals are one for each dimension of space, groups 1 or more."""
    count = len(tensor_of(call.operation.operands[0].type, "operand 0").shape or ()) - 2
    sizes = {
        name: call.integers(name, (1,) * count)
        for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    }
    for name, found in sizes.items():
        if len(found) != count or any(n < 1 for n in found):
            raise ModelError(
                f"{name} is {list(found)}, expected {count} numbers of 1 or more"
            )
    for name, wanted in (("window_reversal", (count,)), ("padding", (count, 2))):
        shape = _shape_of(call.operation.attributes.get(name))
        if shape not in ((), wanted) and count:
            raise ModelError(f"{name} has the shape {list(shape)}, expected {list(wanted)}")
    groups = [
        call.integer(name, 1) for name in ("feature_group_count", "batch_group_count")
    ]
    if min(groups) < 1 or 1 not in groups:
        raise ModelError(
            f"groups of features and of batches are {groups}, expected 1 or more, one of them 1"
        )


def _shape_of(attribute: Attribute | None) -> tuple[int, ...]:
    """The shape of a literal or of a list; nothing for a splat and for none."""
    if isinstance(attribute, Dense):
        shape = attribute.type.shape or ()
        return tuple(n or 0 for n in shape)
    if isinstance(attribute, tuple):
        return (
            len(attribute),
            *(
                _shape_of(attribute[0])
                if attribute and isinstance(attribute[0], tuple)
                else ()
            ),
        )
    return ()


def channel(call: Call) -> None:
    """Messages between devices and messages to a host say so twice."""
    found = call.fields("channel_handle").get("type")
    is_host = call.flag("is_host_transfer")
    if isinstance(found, Number) and (found.value in _HOST_TYPES) != is_host:
        expected = "2 or 3" if is_host else str(_DEVICE_TO_DEVICE)
        raise ModelError(f"the type of the channel is {found.value}, expected {expected}")


def hints_fit(call: Call) -> None:
    """Dimensions that are known to be repeated, or not to be, are those of the operand, each once."""
    shape = tensor_of(call.operation.operands[0].type, "operand 0").shape or ()
    names = ("known_expanding_dimensions", "known_nonexpanding_dimensions")
    found = [axis for name in names for axis in call.integers(name, ())]
    if len(set(found)) != len(found) or any(not 0 <= axis < len(shape) for axis in found):
        raise ModelError(
            f"{' and '.join(names)} {found} do not fit {len(shape)} dimensions"
        )
