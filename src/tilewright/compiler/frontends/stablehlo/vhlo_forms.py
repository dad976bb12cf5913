"""Attributes of VHLO's operations in the form that StableHLO's text has.

VHLO writes the fields of dimension numbers as attributes of their own, symbols as texts, channels as numbers,
and attributes that are not there as empty ones.  Called by the reader of artifacts.

Source: StableHLO, the legalization from VHLO to StableHLO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Attributes,
    Dense,
    Fields,
    Labels,
    Number,
    ScalarType,
    Symbol,
    TypeAttribute,
    Unit,
)

_DOT: Final = tuple(
    f"{side}_{kind}_dimensions"
    for side in ("lhs", "rhs")
    for kind in ("batching", "contracting")
)
_GATHER: Final = (
    "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
    "start_indices_batching_dims", "start_index_map", "index_vector_dim",
)  # fmt: skip
_SCATTER: Final = (
    "update_window_dims", "inserted_window_dims", "input_batching_dims",
    "scatter_indices_batching_dims", "scatter_dims_to_operand_dims", "index_vector_dim",
)  # fmt: skip
_ALGORITHM: Final = (
    "lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count",
    "rhs_component_count", "num_primitive_operations", "allow_imprecise_accumulation",
)  # fmt: skip
_FIELDS: Final[Mapping[str, tuple[tuple[str, Sequence[str]], ...]]] = {
    "stablehlo.dot_general": (
        ("dot_dimension_numbers", _DOT),
        ("algorithm", _ALGORITHM),
    ),
    "stablehlo.gather": (("dimension_numbers", _GATHER),),
    "stablehlo.dynamic_gather": (("dimension_numbers", _GATHER),),
    "stablehlo.scatter": (("scatter_dimension_numbers", _SCATTER),),
}
_SYMBOLS: Final = ("callee", "decomposition")
_UNITS: Final = ("use_global_device_ids", "has_dynamic_root")
_SIDES: Final = {
    "input": ("batch", "feature"),
    "kernel": ("output_feature", "input_feature"),
    "output": ("batch", "feature"),
}
_LETTERS: Final = {"input": ("b", "f"), "kernel": ("o", "i"), "output": ("b", "f")}
_CONVOLUTIONS: Final = ("stablehlo.convolution", "stablehlo.dynamic_conv")


def stablehlo_attributes(operation: str, given: Attributes) -> Attributes:
    """The attributes of an operation of StableHLO from those of VHLO's.

    Raises: ModelError where they are not of the form that VHLO has.
    """
    found = dict(given)
    for name, fields in _FIELDS.get(operation, ()):
        named = {field: found.pop(field) for field in fields if field in found}
        if named and not all(map(_is_nothing, named.values())):
            found[name] = Fields(
                f"stablehlo.{name}", (), {n: _listed(v) for n, v in named.items()}
            )
    if operation in _CONVOLUTIONS:
        found["dimension_numbers"] = _labels(found)
    if "channel_id" in found:
        named = {
            "handle": found.pop("channel_id"),
            "type": found.pop("channel_type", Number(0)),
        }
        found["channel_handle"] = Fields("stablehlo.channel_handle", (), named)
    for name in _SYMBOLS:
        symbol = found.get(name)
        if isinstance(symbol, str):
            found[name] = Symbol(symbol)
    for name in _UNITS:
        if isinstance(found.get(name), bool):
            is_there = found.pop(name)
            if is_there:
                found[name] = Unit()
    return {name: value for name, value in found.items() if not _is_empty(value)}


def _is_nothing(value: Attribute) -> bool:
    """Whether an attribute says that there is none."""
    return isinstance(value, TypeAttribute) and value.type == ScalarType("none")


def _is_empty(value: Attribute) -> bool:
    if isinstance(value, str | tuple | Mapping):
        return not value
    return _is_nothing(value)


def _listed(value: Attribute) -> Attribute:
    """A literal of whole numbers as the list that text has."""
    if not isinstance(value, Dense):
        return value
    numbers = np.asarray(value.array, np.int64).reshape(-1).tolist()
    return tuple(Number(int(n)) for n in numbers)


def _labels(found: dict[str, Attribute]) -> Labels:
    """The letters of every axis; each field is taken out."""
    sides: list[tuple[str, ...]] = []
    for side, (first, second) in _SIDES.items():
        places = {
            letter: _number(found.pop(f"{side}_{name}_dimension", None))
            for letter, name in zip(_LETTERS[side], (first, second), strict=True)
        }
        space = _listed(found.pop(f"{side}_spatial_dimensions", ()))
        for index, axis in enumerate(space if isinstance(space, tuple) else ()):
            places[str(index)] = _number(axis)
        by_axis = {axis: letter for letter, axis in places.items()}
        if sorted(by_axis) != list(range(len(places))):
            raise ModelError("dimension numbers of a convolution are damaged")
        sides.append(tuple(by_axis[axis] for axis in range(len(places))))
    return Labels(*sides)


def _number(value: Attribute | None) -> int:
    if not isinstance(value, Number) or not isinstance(value.value, int):
        raise ModelError("dimension numbers of a convolution are damaged")
    return value.value
