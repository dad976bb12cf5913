"""A handful of op schemas for tests of the graph room, which knows no catalogue."""

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.schema import (
    AttributeSpec,
    OperandSpec,
    OpSchema,
    TensorType,
    Trait,
)


def _broadcast(shapes):
    rank = max(map(len, shapes))
    result = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(sizes) > 1:
            raise ModelError(f"shapes {shapes} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def _elementwise(types, attributes):
    present = [t for t in types if t is not None]
    return (TensorType(present[0].dtype, _broadcast([t.shape for t in present])),)


def _binary(name, function, traits=Trait.NONE):
    return OpSchema(
        name,
        f"test {name}",
        (OperandSpec("x", dtypes.NUMERIC), OperandSpec("y", dtypes.NUMERIC, like="x")),
        (),
        ("z",),
        _elementwise,
        lambda arrays, attributes: (function(arrays[0], arrays[1]),),
        Trait.PURE | Trait.ELEMENTWISE | traits,
    )


add = _binary("add", np.add, Trait.COMMUTATIVE)
mul = _binary("mul", np.multiply, Trait.COMMUTATIVE)
sub = _binary("sub", np.subtract)
neg = OpSchema(
    "neg",
    "test neg",
    (OperandSpec("x", dtypes.NUMERIC),),
    (),
    ("z",),
    _elementwise,
    lambda arrays, attributes: (np.negative(arrays[0]),),
    Trait.PURE | Trait.ELEMENTWISE,
)
clip = OpSchema(
    "clip",
    "test clip with optional operands",
    (
        OperandSpec("x", dtypes.NUMERIC),
        OperandSpec("lo", dtypes.NUMERIC, optional=True, like="x"),
        OperandSpec("hi", dtypes.NUMERIC, optional=True, like="x"),
    ),
    (),
    ("z",),
    lambda types, attributes: (types[0],),
    lambda arrays, attributes: (
        np.clip(arrays[0], *[*arrays[1:], None, None][:2]).astype(arrays[0].dtype),
    ),
    Trait.PURE | Trait.ELEMENTWISE,
)
concat = OpSchema(
    "concat",
    "test concat",
    (OperandSpec("xs", dtypes.ANY, variadic=True),),
    (AttributeSpec("axis", "int", required=True),),
    ("z",),
    lambda types, attributes: (
        types[0].with_shape(
            [
                sum((t.shape[i] for t in types[1:]), types[0].shape[i])
                if i == attributes["axis"]
                else d
                for i, d in enumerate(types[0].shape)
            ]
        ),
    ),
    lambda arrays, attributes: (np.concatenate(arrays, attributes["axis"]),),
    Trait.PURE | Trait.MOVEMENT,
)
split = OpSchema(
    "split",
    "test op with two results: the halves of axis 0",
    (OperandSpec("x", dtypes.ANY),),
    (),
    ("low", "high"),
    lambda types, attributes: (
        (types[0].with_shape((types[0].shape[0] // 2, *types[0].shape[1:])),) * 2
    ),
    lambda arrays, attributes: tuple(np.split(arrays[0], 2)),
    Trait.PURE,
)
reshape = OpSchema(
    "reshape",
    "test reshape",
    (OperandSpec("x", dtypes.ANY),),
    (AttributeSpec("shape", "dims", required=True),),
    ("z",),
    lambda types, attributes: (types[0].with_shape(attributes["shape"]),),
    lambda arrays, attributes: (arrays[0].reshape(attributes["shape"]),),
    Trait.PURE | Trait.MOVEMENT | Trait.VIEW,
)
nonzero = OpSchema(
    "nonzero",
    "test op with a size that only the data decides",
    (OperandSpec("x", dtypes.ANY),),
    (AttributeSpec("count", "dims", required=True),),
    ("z",),
    lambda types, attributes: (TensorType(dtypes.i64, attributes["count"]),),
    lambda arrays, attributes: (np.flatnonzero(arrays[0]).astype(np.int64),),
    Trait.PURE,
)
constant = OpSchema(
    "constant",
    "test constant",
    (),
    (AttributeSpec("value", "array", required=True),),
    ("z",),
    lambda types, attributes: (
        TensorType(
            dtypes.from_numpy(attributes["value"].dtype), tuple(attributes["value"].shape)
        ),
    ),
    lambda arrays, attributes: (attributes["value"],),
    Trait.PURE | Trait.CONSTANT,
)
knobs = OpSchema(
    "knobs",
    "test op with every kind of attribute",
    (OperandSpec("x", dtypes.ANY),),
    (
        AttributeSpec("count", "int", 1),
        AttributeSpec("ratio", "float", 0.5),
        AttributeSpec("mode", "string", "edge"),
        AttributeSpec("flag", "bool", False),
        AttributeSpec("type", "dtype", None),
        AttributeSpec("dims", "dims", ()),
        AttributeSpec("axes", "ints", ()),
        AttributeSpec("scales", "floats", ()),
        AttributeSpec("table", "array", None),
    ),
    ("z",),
    lambda types, attributes: (types[0],),
    lambda arrays, attributes: (arrays[0],),
    Trait.PURE,
)
fused = OpSchema(
    "fused",
    "test op with a region",
    (OperandSpec("xs", dtypes.ANY, variadic=True),),
    (AttributeSpec("name", "string", ""),),
    (),
    lambda types, attributes: (),
    lambda arrays, attributes: tuple(attributes["regions"][0](arrays)),
    Trait.PURE | Trait.SEALED,
    region_count=1,
)
impure = OpSchema(
    "impure",
    "test op that must stay",
    (OperandSpec("x", dtypes.ANY),),
    (),
    ("z",),
    lambda types, attributes: (types[0],),
    lambda arrays, attributes: (arrays[0],),
    Trait.NONE,
)

branch = OpSchema(
    "branch",
    "test op of control flow",
    fused.operands,
    (),
    (),
    fused.infer,
    fused.evaluate,
    Trait.PURE,
    region_count=1,
)

TABLE = {
    s.name: s
    for s in (
        add, mul, sub, neg, clip, concat, split, reshape, nonzero, constant, knobs, fused,
        impure, branch,
    )
}  # fmt: skip


def lookup(name):
    if name not in TABLE:
        raise ModelError(f"unknown op '{name}'")
    return TABLE[name]


N = symbolic.symbol("N", 1)
