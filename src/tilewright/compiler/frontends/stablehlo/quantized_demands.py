"""What the specification demands of quantized types beyond one type for all: axes that move, and products.

Source: StableHLO specification, "broadcast_in_dim" (C6), "reshape" (C3), "transpose" (C4), "dot_general" (C13 to C20),
"convolution" (C27 to C34), "uniform_quantize" (C2), "uniform_dequantize" (C2).
"""

from __future__ import annotations

import math

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.call import Call, listed
from tilewright.compiler.frontends.stablehlo.demands import (
    kind_of,
    tensor_of,
    tensors,
)
from tilewright.compiler.frontends.stablehlo.tree import (
    Element,
    Labels,
    QuantizedType,
    TensorType,
)


def _types(call: Call) -> list[TensorType]:
    return tensors(call, (), results=True)


def _along_axis(
    call: Call,
) -> tuple[TensorType, QuantizedType, TensorType, QuantizedType] | None:
    """Operand and result with their elements, where these are quantized along an axis."""
    operand = tensor_of(call.operation.operands[0].type, "operand 0")
    before = operand.element
    if not isinstance(before, QuantizedType):
        return None
    result = tensor_of(call.operation.results[0].type, "result 0")
    after = result.element
    if not isinstance(after, QuantizedType):
        return None
    if before.axis is None or after.axis is None:
        return None
    return operand, before, result, after


def _moved(expected: object, found: object) -> None:
    if expected != found:
        raise ModelError(
            f"the result is quantized along dimension {found}, expected {expected}"
        )


def _same_scales(before: QuantizedType, after: QuantizedType) -> None:
    if (before.scales, before.zero_points) != (after.scales, after.zero_points):
        raise ModelError("the result has other scales or zero points than the operand")


def axis_is_broadcast(call: Call) -> None:
    """The axis of scales is the one that it is broadcast to; the scale of one element is that of all."""
    found = _along_axis(call)
    if found is None:
        return
    operand, before, _, after = found
    axes = call.integers("broadcast_dimensions")
    axis = before.axis or 0
    _moved(axes[axis] if axis < len(axes) else None, after.axis)
    if operand.shape is None or operand.shape[axis] != 1:
        _same_scales(before, after)
    elif {*after.scales} != {before.scales[0]} or {*after.zero_points} != {
        before.zero_points[0]
    }:
        raise ModelError(
            "the result has other scales or zero points than the one element it repeats"
        )


def axis_is_reshaped(call: Call) -> None:
    """As many elements lie before the axis of scales as in the operand, and along it."""
    found = _along_axis(call)
    if found is None:
        return
    operand, before, result, after = found
    _same_scales(before, after)
    shapes = [(t.shape, q.axis) for t, q in ((operand, before), (result, after))]
    if any(shape is None or None in shape for shape, _ in shapes):
        return
    counts = [
        (math.prod(n or 0 for n in (shape or ())[:axis]), (shape or ())[axis or 0])
        for shape, axis in shapes
    ]
    if counts[0] != counts[1]:
        raise ModelError(
            f"the axis of scales has {counts[1][0]} x {counts[1][1]} elements up to its end, expected"
            f" {counts[0][0]} x {counts[0][1]}"
        )


def axis_is_moved(call: Call) -> None:
    """The axis of scales goes where its dimension goes."""
    found = _along_axis(call)
    if found is None:
        return
    _, before, _, after = found
    order = call.integers("permutation")
    _moved(order.index(before.axis) if before.axis in order else None, after.axis)
    _same_scales(before, after)


def numbers_fit(call: Call) -> None:
    """What quantized elements stand for is the type of the floats on the other side."""
    before, after = (_stands_for(type_.element) for type_ in _types(call))
    if before != after:
        raise ModelError(
            f"operand 0 stands for {before}, the result for {after}, expected one type",
            hint="convert the floats first, with stablehlo.convert",
        )


def _stands_for(element: Element) -> Element:
    return element.expressed if isinstance(element, QuantizedType) else element


def axes_agree(call: Call) -> None:
    """The result of a sum is quantized along an axis where an operand is, and along the same one."""
    *given, result = [type_.element for type_ in _types(call)]
    if not isinstance(result, QuantizedType):
        return
    found = {each.axis for each in given if isinstance(each, QuantizedType)} - {None}
    own = result.axis
    if found != ({own} - {None}):
        raise ModelError(
            f"operands are quantized along {sorted(map(str, found))}, the result along {own},"
            " expected one dimension for all"
        )


# --- products ----------------------------------------------------------------------------------


def factors_fit(call: Call) -> None:
    """Factors of a dot_general are both complex or both real; real ones may be of two types.

    The specification demands one type. JAX writes two for TPUs, also beside other platforms, and means each as it is.
    """
    left, right, result = (type_.element for type_ in _types(call))
    if isinstance(left, QuantizedType) or isinstance(right, QuantizedType):
        quantized_factors_fit(left, right, result)
        return
    if left != right and "c" in (kind_of(left), kind_of(right)):
        raise ModelError(
            f"multiplies {left} and {right}, expected one type",
            hint="convert one of them first, with stablehlo.convert",
        )
    product_fits(left, result)
    product_fits(right, result)


def product_fits(factor: Element, result: Element) -> None:
    """Raise ModelError where sums of products have elements that cannot be these."""
    kinds = kind_of(factor), kind_of(result)
    if (kinds[0] == "c") != (kinds[1] == "c") or (
        kinds[0] == "f" and kinds[1] not in "fqQ"
    ):
        raise ModelError(f"multiplies {factor}, its result has {result}")


def quantized_factors_fit(left: Element, right: Element, result: Element) -> None:
    """Raise ModelError unless the second factor is quantized, and the first one like the result."""
    if not isinstance(right, QuantizedType) or (
        isinstance(left, QuantizedType) != isinstance(result, QuantizedType)
    ):
        raise ModelError(
            f"multiplies {left} and {right} to {result}, expected a quantized second factor and,"
            " as the first one is, a result that is quantized or not"
        )
    stands = {str(_stands_for(each)) for each in (left, right, result)}
    if len(stands) != 1:
        raise ModelError(
            f"{left}, {right} and {result} stand for {', '.join(sorted(stands))}"
        )
    if isinstance(left, QuantizedType) and isinstance(result, QuantizedType):
        if left.storage != right.storage:
            raise ModelError(
                f"{left} and {right} are stored differently, expected one type"
            )
        if kind_of(right) == "q" != kind_of(result):
            raise ModelError(f"{right} has one scale, its result {result} several")


def zero_points_are_zero(call: Call) -> None:
    """The second factor of a dot_general stands for zero where it is zero, and has scales along no axis that is summed."""
    element = _types(call)[1].element
    if not isinstance(element, QuantizedType):
        return
    if any(element.zero_points):
        raise ModelError(
            f"zero points of {element} are {list(element.zero_points)}, expected 0"
        )
    summed = listed(call.fields("dot_dimension_numbers"), "rhs_contracting_dimensions")
    if element.axis in summed:
        raise ModelError(
            f"{element} has scales along dimension {element.axis}, which is summed"
        )


def kernel_fits(call: Call) -> None:
    """Both factors of a convolution have elements of one type; scales lie along its output features."""
    types = [tensor_of(v.type, "a value") for v in call.operation.operands[:2]]
    result = tensor_of(call.operation.results[0].type, "result 0").element
    left, right = (type_.element for type_ in types)
    if not (isinstance(left, QuantizedType) or isinstance(right, QuantizedType)):
        if left != right:
            raise ModelError(
                f"convolves {left} and {right}, expected one type",
                hint="convert one of them first, with stablehlo.convert",
            )
        product_fits(left, result)
        return
    quantized_factors_fit(left, right, result)
    labels = call.attribute("dimension_numbers")
    if not isinstance(labels, Labels):
        return
    for element, letters, letter in (
        (right, labels.kernel, "o"),
        (result, labels.output, "f"),
    ):
        axis = element.axis if isinstance(element, QuantizedType) else None
        if axis is not None and letters.index(letter) != axis:
            raise ModelError(
                f"{element} has scales along dimension {axis}, expected the output features"
            )
