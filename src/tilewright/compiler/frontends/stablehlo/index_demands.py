"""What the specification demands of gathers, scatters and slices whose places are data.

Source: StableHLO specification, "gather", "scatter", "dynamic_slice", "dynamic_update_slice".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.text import plural
from tilewright.compiler.frontends.stablehlo.attribute_demands import (
    known_fields,
)
from tilewright.compiler.frontends.stablehlo.call import Call, integer_of, listed
from tilewright.compiler.frontends.stablehlo.demands import Demand, kind_of, tensor_of
from tilewright.compiler.frontends.stablehlo.region_demands import combined, one_shape_of

_GATHER: Final = "dimension_numbers"
_SCATTER: Final = "scatter_dimension_numbers"


def _joined(call: Call, field: str, names: Sequence[str]) -> list[int]:
    fields = call.fields(field)
    return [axis for name in names for axis in listed(fields, name)]


def _once(field: str, *names: str) -> Demand:
    """No dimension stands twice in these lists."""

    def check(call: Call) -> None:
        found = _joined(call, field, names)
        if len(set(found)) != len(found):
            raise ModelError(f"{' and '.join(names)} {found} name a dimension twice")

    return check


def _ordered(field: str, *names: str) -> Demand:
    """Each of these lists is in order."""

    def check(call: Call) -> None:
        for name in names:
            found = _joined(call, field, (name,))
            if found != sorted(found):
                raise ModelError(f"{name} {found} are not in order")

    return check


def _within(field: str, operand: int, *names: str, result: bool = False) -> Demand:
    """Dimensions in these lists are those of an operand, or of the result."""

    def check(call: Call) -> None:
        values = call.operation.results if result else call.operation.operands
        type_ = tensor_of(values[operand].type, f"operand {operand}")
        count = len(type_.shape or ())
        for name in names:
            found = _joined(call, field, (name,))
            if type_.shape is not None and any(not 0 <= axis < count for axis in found):
                raise ModelError(f"{name} {found} do not fit {type_}")

    return check


def _apart(field: str, name: str) -> Demand:
    """The axis of index vectors is none of the batch."""

    def check(call: Call) -> None:
        fields = call.fields(field)
        found = fields.get("index_vector_dim")
        axis = 0 if found is None else integer_of("index_vector_dim", found)
        if axis in listed(fields, name):
            raise ModelError(
                f"{name} {list(listed(fields, name))} name the axis of index vectors"
            )

    return check


def _whole(field: str, *names: str) -> Demand:
    """Every dimension of operand 0 is in one of the lists."""

    def check(call: Call) -> None:
        shape = tensor_of(call.operation.operands[0].type, "operand 0").shape
        count = len(_joined(call, field, names))
        if shape is not None and len(shape) != count:
            raise ModelError(
                f"{', '.join(names)} name {plural(count, 'dimension')}, operand 0 has {len(shape)}"
            )

    return check


def _batches_fit(field: str, own: str, of_indices: str) -> Demand:
    """Dimensions of batches come in pairs of one size, of operand 0 and of the indices."""

    def check(call: Call) -> None:
        fields, values = call.fields(field), call.operation.operands
        place = 1 if field == _GATHER else (len(values) - 1) // 2
        shapes = [tensor_of(values[n].type, f"operand {n}").shape or () for n in (0, place)]
        pairs = [listed(fields, own), listed(fields, of_indices)]
        if len(pairs[0]) != len(pairs[1]):
            raise ModelError(
                f"{own} {list(pairs[0])} and {of_indices} {list(pairs[1])} are no pairs"
            )
        for axis, other in zip(*pairs, strict=True):
            sizes = [
                s[a] if 0 <= a < len(s) else None
                for s, a in zip(shapes, (axis, other), strict=True)
            ]
            if None not in sizes and sizes[0] != sizes[1]:
                raise ModelError(
                    f"batches of {sizes[0]} and {sizes[1]} elements are no pair"
                )

    return check


GATHERED: Final[tuple[Demand, ...]] = (
    known_fields(_GATHER),
    _whole(_GATHER, "offset_dims", "collapsed_slice_dims", "operand_batching_dims"),
    _once(_GATHER, "offset_dims"),
    _once(_GATHER, "collapsed_slice_dims", "operand_batching_dims"),
    _once(_GATHER, "start_indices_batching_dims"),
    _once(_GATHER, "start_index_map", "operand_batching_dims"),
    _ordered(_GATHER, "offset_dims", "collapsed_slice_dims", "operand_batching_dims"),
    _within(_GATHER, 0, "collapsed_slice_dims", "operand_batching_dims", "start_index_map"),
    _within(_GATHER, 1, "start_indices_batching_dims"),
    _within(_GATHER, 0, "offset_dims", result=True),
    _apart(_GATHER, "start_indices_batching_dims"),
    _batches_fit(_GATHER, "operand_batching_dims", "start_indices_batching_dims"),
)  # fmt: skip


def scatters(call: Call) -> None:
    """Inputs and updates are of one shape each, an update has the elements of its input, and the region combines them."""
    types = [v.type for v in call.operation.operands]
    count = (len(types) - 1) // 2
    if len(types) != 2 * count + 1 or not count:
        raise ModelError(f"has {plural(len(types), 'operand')}, expected pairs and indices")
    inputs = [tensor_of(t, "an input") for t in types[:count]]
    updates = [tensor_of(t, "an update") for t in types[count + 1 :]]
    indices = tensor_of(types[count], "the indices")
    if kind_of(indices.element) not in "su":
        raise ModelError(f"the indices are {indices}, expected whole numbers")
    for place, (input_, update) in enumerate(zip(inputs, updates, strict=True)):
        if input_.element != update.element:
            raise ModelError(
                f"input {place} has elements {input_.element}, its update {update.element}, expected one type",
                hint="convert the update first, with stablehlo.convert",
            )
    one_shape_of(inputs)
    one_shape_of(updates)
    combined(call, 0, types[:count], call.operation.results)


def _windows_fit(call: Call) -> None:
    """Windows of updates are no larger than what they are written to."""
    types = [v.type for v in call.operation.operands]
    count = (len(types) - 1) // 2
    shape = tensor_of(types[0], "operand 0").shape or ()
    given = tensor_of(types[count + 1], "an update").shape or ()
    left_out = _joined(call, _SCATTER, ("inserted_window_dims", "input_batching_dims"))
    windowed = [size for axis, size in enumerate(shape) if axis not in left_out]
    for size, own in zip(
        windowed, _joined(call, _SCATTER, ("update_window_dims",)), strict=False
    ):
        window = given[own] if 0 <= own < len(given) else None
        if size is not None and window is not None and window > size:
            raise ModelError(f"updates have {window} elements where the operand has {size}")


SCATTERED: Final[tuple[Demand, ...]] = (
    known_fields(_SCATTER),
    scatters,
    _whole(_SCATTER, "update_window_dims", "inserted_window_dims", "input_batching_dims"),
    _once(_SCATTER, "update_window_dims"),
    _once(_SCATTER, "inserted_window_dims", "input_batching_dims"),
    _once(_SCATTER, "scatter_indices_batching_dims"),
    _once(_SCATTER, "scatter_dims_to_operand_dims", "input_batching_dims"),
    _ordered(_SCATTER, "update_window_dims", "inserted_window_dims", "input_batching_dims"),
    _within(_SCATTER, 0, "inserted_window_dims", "input_batching_dims", "scatter_dims_to_operand_dims"),
    _apart(_SCATTER, "scatter_indices_batching_dims"),
    _batches_fit(_SCATTER, "input_batching_dims", "scatter_indices_batching_dims"),
    _windows_fit,
)  # fmt: skip


def starts_along_all(first: int) -> Demand:
    """A start for every dimension of operand 0, from one operand on."""

    def check(call: Call) -> None:
        shape = tensor_of(call.operation.operands[0].type, "operand 0").shape
        count = len(call.operation.operands) - first
        if shape is not None and count != len(shape):
            raise ModelError(
                f"has {plural(count, 'start')} for {plural(len(shape), 'dimension')}"
            )

    return check
