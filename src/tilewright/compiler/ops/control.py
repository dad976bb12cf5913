"""Constants, generated tensors, and the ops that hold regions (fused, if, while)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base.dtypes import ALL, ANY, NUMERIC, DType, bool_, i64
from tilewright.base.errors import InputError, InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import (
    Array,
    Attributes,
    OperandSpec,
    OpSchema,
    Role,
    TensorType,
    Trait,
)
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.ops import contents, ranges
from tilewright.compiler.ops.bodies import Operands, Results
from tilewright.compiler.ops.declaration import (
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    type_of,
    variadic,
)
from tilewright.compiler.ops.shapes import first, normal_axis

Regions = Sequence[Callable[[Sequence[Array]], list[Array]]]

# --- constants -------------------------------------------------------------------------------


def _constant_infer(_: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    return (type_of(cast("Array", attributes["value"])),)


constant: Final = declare(
    name="constant",
    summary="A tensor known at compile time",
    operands=(),
    attributes=(attr("value", "array"),),
    infer=_constant_infer,
    evaluate=lambda *, value: value,
    traits=Trait.PURE | Trait.CONSTANT,
)


def _shape_tensor_infer(_: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    return (TensorType(i64, (len(cast("tuple[Dim, ...]", attributes["values"])),)),)


def _shape_tensor_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """One nest, so that a kernel that reads a size holds it as one of its own."""
    del operands
    values = cast("tuple[Dim, ...]", attributes["values"])
    if not values:
        return
    with b.nest(results[0].shape) as (place,):
        found = b.index(values[-1])
        for position, dim in enumerate(values[:-1]):
            found = b.select(b.eq(b.index(place), position), b.index(dim), found)
        b.store(results[0], (place,), found)


shape_tensor: Final = declare(
    name="shape_tensor",
    summary="A vector of dimensions, as data",
    operands=(),
    attributes=(attr("values", "dims"),),
    infer=_shape_tensor_infer,
    evaluate=lambda *, values: np.asarray(values, np.int64),
    body=_shape_tensor_body,
    role=Role.MAP,
    ranges=ranges.listed,
    cases=("; values=(3,5,7)", "; values=()"),
)


def _full_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    return (first(types).with_shape(cast("tuple[Dim, ...]", attributes["shape"])),)


full: Final = declare(
    name="full",
    contents=contents.filled,
    summary="A tensor of `shape` whose elements all are the scalar operand",
    operands=(operand("value"),),
    attributes=(attr("shape", "dims"),),
    infer=_full_infer,
    evaluate=lambda value, *, shape: np.full(shape, value, value.dtype),
    traits=Trait.PURE | Trait.MOVEMENT,
    places=lambda *_: (),
    cases=("[]; shape=(3,5)", "[]; shape=()", "[]; shape=(0,2)"),
    source="ONNX ConstantOfShape, opset 9",
)


def _iota_infer(_: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    shape = cast("tuple[Dim, ...]", attributes["shape"])
    normal_axis(cast("int", attributes["axis"]), len(shape))
    return (TensorType(cast("DType", attributes["dtype"]), shape),)


def _iota_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    del operands
    (result,) = results
    axis = normal_axis(cast("int", attributes["axis"]), len(result.shape))
    with b.nest(result.shape) as indices:
        b.store(result, indices, b.cast(b.index(indices[axis]), result.dtype))


def _iota_oracle(*, shape: tuple[int, ...], dtype: DType, axis: int) -> Any:
    axis = normal_axis(axis, len(shape))
    row = np.arange(shape[axis]).astype(dtype.numpy)
    lined = row.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(lined, shape)


iota: Final = declare(
    name="iota",
    summary="The position along `axis`, counted from 0",
    operands=(),
    attributes=(attr("shape", "dims"), attr("dtype", "dtype", i64), attr("axis", "int", 0)),
    infer=_iota_infer,
    evaluate=_iota_oracle,
    body=_iota_body,
    role=Role.MAP,
    ranges=ranges.counted,
    cases=(*(f"; shape=(3,5) axis=1 dtype={t.name}" for t in NUMERIC), "; shape=(7,)"),
)


def _eye_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    del operands
    (result,) = results
    offset = cast("int", attributes["offset"])
    with b.nest(result.shape) as (row, column):
        hit = b.eq(b.index(row + offset), b.index(column))
        b.store(result, (row, column), b.cast(hit, result.dtype))


def _eye_oracle(*, shape: tuple[int, int], dtype: DType, offset: int) -> Any:
    return np.eye(shape[0], shape[1], offset).astype(dtype.numpy)


eye: Final = declare(
    name="eye",
    summary="Ones on diagonal `offset`, zeros elsewhere",
    operands=(),
    attributes=(attr("shape", "dims"), attr("dtype", "dtype"), attr("offset", "int", 0)),
    infer=lambda _, attributes: (
        TensorType(
            cast("DType", attributes["dtype"]), cast("tuple[Dim, ...]", attributes["shape"])
        ),
    ),
    evaluate=_eye_oracle,
    body=_eye_body,
    role=Role.MAP,
    cases=(
        *(f"; shape=(4,6) offset=1 dtype={t.name}" for t in ANY),
        "; shape=(5,3) offset=-2 dtype=f32",
    ),
    source="ONNX EyeLike, opset 22",
)

# --- regions ---------------------------------------------------------------------------------


def _no_inference(name: str) -> Callable[[Types, Attributes], tuple[TensorType, ...]]:
    def infer(_types: Types, _attributes: Attributes) -> tuple[TensorType, ...]:
        raise InternalError(f"the result types of '{name}' are those of its regions")

    return infer


def _region_op(
    name: str,
    summary: str,
    operands: tuple[OperandSpec, ...],
    evaluate: Callable[[Sequence[Array | None], Attributes], tuple[Array, ...]],
    *,
    regions: int,
    attributes: tuple[Any, ...],
    traits: Trait,
    source: str = "",
) -> OpDecl:
    role = Role.ALONE if Trait.SEALED in traits else Role.NONE
    schema = OpSchema(
        name, summary, operands, attributes, (), _no_inference(name), evaluate, traits,
        regions, source, role,
    )  # fmt: skip
    return OpDecl(schema, None, ())


def _regions(attributes: Attributes) -> Regions:
    found = attributes.get("regions")
    if found is None:
        raise InternalError("an op with regions is run by the graph evaluator")
    return cast("Regions", found)


def _fused_evaluate(
    arrays: Sequence[Array | None], attributes: Attributes
) -> tuple[Array, ...]:
    return tuple(_regions(attributes)[0]([a for a in arrays if a is not None]))


fused: Final = _region_op(
    "fused",
    "One kernel: the region takes the operands and yields the results",
    (variadic("operands", ALL),),
    _fused_evaluate,
    regions=1,
    attributes=(attr("name", "string", ""), attr("kind", "string", "")),
    traits=Trait.SEALED | Trait.KERNEL,
)

external: Final = _region_op(
    "external",
    "A call of the packed function `symbol`, which the code generator `codegen` makes of the region",
    (variadic("operands", ALL),),
    _fused_evaluate,
    regions=1,
    attributes=(attr("symbol", "string"), attr("codegen", "string", "")),
    traits=Trait.SEALED | Trait.CALL,
)


def _operands_of_any_type(name: str) -> OperandSpec:
    return OperandSpec(name, ALL, optional=True, variadic=True)


def _if_evaluate(
    arrays: Sequence[Array | None], attributes: Attributes
) -> tuple[Array, ...]:
    condition, *captured = arrays
    assert condition is not None
    chosen = _regions(attributes)[0 if bool(np.all(condition)) else 1]
    return tuple(chosen([a for a in captured if a is not None]))


if_: Final = _region_op(
    "if",
    "The results of region 0 when the condition holds, else of region 1; both take the captures. `sizes` are "
    "symbols of the results: sizes of what the region yields that ran",
    (operand("condition", (bool_,)), _operands_of_any_type("captures")),
    _if_evaluate,
    regions=2,
    attributes=(attr("sizes", "dims", ()),),
    traits=Trait.BRANCH,
    source="ONNX If, opset 21",
)


def _while_evaluate(
    arrays: Sequence[Array | None], attributes: Attributes
) -> tuple[Array, ...]:
    go_on, body = _regions(attributes)
    count = cast("int", attributes["carried"])
    state = [a for a in arrays if a is not None]
    captured = state[count:]
    state = state[:count]
    while bool(go_on([*state, *captured])[0]):
        state = body([*state, *captured])
    return tuple(state)


while_: Final = _region_op(
    "while",
    "Region 1 turns the first `carried` operands into their next values as long as region 0 says so; "
    "both take (carried…, captures…). `trip_sizes` are symbols of what the regions take, sizes that change from trip "
    "to trip; `sizes` are symbols of the results, such sizes when the loop ends",
    (_operands_of_any_type("values"),),
    _while_evaluate,
    regions=2,
    attributes=(
        attr("carried", "int"),
        attr("sizes", "dims", ()),
        attr("trip_sizes", "dims", ()),
    ),
    traits=Trait.LOOP,
    source="StableHLO while; ONNX Loop, opset 21",
)


def _bind_sizes_evaluate(
    values: Sequence[Array | None], attributes: Attributes
) -> tuple[Array, ...]:
    del values, attributes
    return ()


bind_sizes: Final = OpDecl(
    OpSchema(
        "bind_sizes",
        "From here on the symbols `sizes` are the elements of the operand: the host reads them",
        (operand("values", (i64,)),),
        (attr("sizes", "dims"),),
        (),
        lambda _types, _attributes: (),
        _bind_sizes_evaluate,
        Trait.BINDS,
        role=Role.NONE,
    ),
    None,
    (),
)


def _expect_sizes_evaluate(
    values: Sequence[Array | None], attributes: Attributes
) -> tuple[Array, ...]:
    del values
    sides = (cast("tuple[Dim, ...]", attributes[side]) for side in ("left", "right"))
    for left, right in zip(*sides, strict=True):
        if isinstance(left, int) and isinstance(right, int) and left != right:
            raise InputError(f"sizes do not agree: {left} and {right}")
    return ()


expect_sizes: Final = OpDecl(
    OpSchema(
        "expect_sizes",
        "The sizes `left` and `right` are equal in pairs wherever this runs, or the call fails",
        (),
        (attr("left", "dims"), attr("right", "dims")),
        (),
        lambda _types, _attributes: (),
        _expect_sizes_evaluate,
        Trait.AGREES,
        role=Role.NONE,
    ),
    None,
    (),
)


OPS: Final = (
    constant, shape_tensor, full, iota, eye, fused, external, if_, while_, bind_sizes,
    expect_sizes,
)  # fmt: skip
