"""The inputs of a model: element types, shapes, and the symbols of dynamic dimensions.

A `dim_param` becomes a symbol of that name, an unnamed dynamic dimension one named after its
input; every symbol is at least 1 (how a call with 0 ends without running code says
`formats.plan.Dimension`) but those that assumptions know otherwise, as of a cache that begins with nothing.  The caller may fix or rename dimensions per input; a number
given for a named dimension holds for all inputs that share the name.  Not shape inference (that
is `ops`).  Called by the importer once per model.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike
from onnx import TensorShapeProto, TypeProto, ValueInfoProto

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError, TilewrightError, UserError
from tilewright.base.foreign_tensors import unmasked
from tilewright.base.symbolic import Dim
from tilewright.base.text import did_you_mean, identifier, unique
from tilewright.compiler.frontends.kit.assumptions import Assumptions
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.tensors import dtype_of
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.declaration import check_rank

InputShapes = Mapping[str, Sequence[int | str]]
InputValues = Mapping[str, ArrayLike]
_OPERATORS: Final = "+-*/%()"
MAX_DIM: Final = 1 << 48
_ANY_SIZE: Final = ("-1", "None")
"""What is written for a dimension without a name, besides signs like `?` and `*`."""


@final
class Dimensions:
    """The dynamic dimensions of a model by the name ONNX gives them."""

    __slots__ = ("_assumed", "_overrides", "_params", "_symbols")

    def __init__(
        self,
        inputs: Sequence[ValueInfoProto],
        overrides: InputShapes | None = None,
        assumed: Assumptions | None = None,
    ) -> None:
        self._assumed: Assumptions = assumed or Assumptions()
        self._overrides: InputShapes = overrides or {}
        self._symbols: set[str] = set()
        self._params: dict[str, Dim] = {}
        known = [text_of(v.name) for v in inputs]
        for name in self._overrides:
            if name not in known:
                raise UserError(
                    f"input_shapes names '{name}', which is no input of the model",
                    hint=did_you_mean(name, known) or f"inputs: {' '.join(known)}",
                )
        for value in inputs:
            self._bind(value)
        self._declare(inputs)

    def _bind(self, value: ValueInfoProto) -> None:
        """Note the numbers and names that an override gives to named dimensions."""
        given = self._overrides.get(text_of(value.name))
        dims = list(value.type.tensor_type.shape.dim)
        if given is None or not value.type.tensor_type.HasField("shape"):
            return
        where = f"input '{text_of(value.name)}'"
        if len(given) != len(dims):
            raise UserError(
                f"input_shapes has rank {len(given)}, the model has {len(dims)}",
                location=where,
            )
        for axis, (dim, wanted) in enumerate(zip(dims, given, strict=True)):
            fixed = dim.dim_value if dim.HasField("dim_value") else None
            if fixed is not None and fixed > 0 and wanted != fixed:
                raise UserError(
                    f"input_shapes has {wanted!r} for axis {axis}, the model has {fixed}",
                    location=where,
                )
            param = _name_of(dim)
            if not param:
                continue
            chosen: Dim = wanted if isinstance(wanted, int) else self._symbol(wanted)
            previous = self._params.setdefault(param, chosen)
            if previous != chosen:
                raise UserError(
                    f"input_shapes gives dimension '{param}' as {previous} and as {chosen}",
                    location=where,
                )

    def _declare(self, inputs: Sequence[ValueInfoProto]) -> None:
        """Make the symbols: plain names first, so that expressions can refer to them."""
        params = [
            _name_of(dim)
            for value in inputs
            for dim in value.type.tensor_type.shape.dim
            if _name_of(dim)
        ]
        plain = {p for p in params if not any(c in p for c in _OPERATORS)}
        expressions: dict[str, Dim] = {}
        for param in params:
            parsed = _parsed(param, plain)
            if parsed is not None:
                expressions[param] = parsed
            elif param not in self._params:
                self._params[param] = self._fresh(param)
        for param, parsed in expressions.items():
            self._params.setdefault(param, symbolic.substitute(parsed, self._params))

    def _symbol(self, name: str) -> Dim:
        cleaned = identifier(name, fallback="d")
        self._symbols.add(cleaned)
        return self._assumed.dim(cleaned)

    def _fresh(self, name: str) -> Dim:
        return self._symbol(unique(identifier(name, fallback="d"), self._symbols))

    def type_of(self, value: ValueInfoProto) -> TensorType:
        """The type of one input.

        Raises: UnsupportedError for sequences, maps, strings and inputs of unknown rank.
        """
        proto = value.type
        kind = proto.WhichOneof("value")
        if kind != "tensor_type":
            words = (kind or "unknown").removesuffix("_type").replace("_", " ")
            raise UnsupportedError(f"type {words} is not supported")
        return TensorType(dtype_of(proto.tensor_type.elem_type), self.shape_of(value))

    def shape_of(self, value: ValueInfoProto) -> tuple[Dim, ...]:
        """The shape of one input that is a tensor.  Raises: UnsupportedError for an unknown rank."""
        proto, name = value.type, text_of(value.name)
        given = self._overrides.get(name)
        if proto.tensor_type.HasField("shape"):
            dims = list(proto.tensor_type.shape.dim)
            check_rank(len(dims), "the shape has")
            words_given = given or [""] * len(dims)
            return tuple(
                self._dim(d, w, f"{name}_d{i}")
                for i, (d, w) in enumerate(zip(dims, words_given, strict=True))
            )
        if given is None:
            raise UnsupportedError(
                "shape is unknown, even its rank",
                hint=f"give it: input_shapes={{'{name}': (1, 'sequence', ...)}}",
            )
        return tuple(w if isinstance(w, int) else self._symbol(w) for w in given)

    def stated(self, value: ValueInfoProto | None) -> tuple[Dim | None, ...]:
        """The sizes that a model states of a value, in those of its inputs; None: it says nothing of one."""
        dims = () if value is None else value.type.tensor_type.shape.dim
        return tuple(
            int(dim.dim_value)
            if dim.HasField("dim_value")
            else self._params.get(_name_of(dim))
            for dim in dims
        )

    def _dim(self, dim: TensorShapeProto.Dimension, wanted: int | str, name: str) -> Dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            if dim.dim_value > MAX_DIM:
                raise ModelError(f"dimension {dim.dim_value} is too large")
            return int(dim.dim_value)
        param = _name_of(dim)
        if param:
            return self._params[param]
        if isinstance(wanted, int):
            return wanted
        return self._symbol(wanted) if wanted else self._fresh(name)


def _name_of(dim: TensorShapeProto.Dimension) -> str:
    """The name of a dynamic dimension; "" where it has none.

    Some exporters (Paddle's, for one) write a sign for "any size", which names nothing: two of them may differ.
    """
    name = text_of(dim.dim_param)
    return name if any(c.isalnum() for c in name) and name not in _ANY_SIZE else ""


def shapes_with_sizes(
    inputs: Sequence[ValueInfoProto], sizes: Mapping[str, int]
) -> dict[str, tuple[int | str, ...]]:
    """Shapes for `input_shapes` in which the dimensions that `sizes` names have those sizes.

    Inputs without such a dimension are left out; unnamed dimensions stay as they are.
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        params = [_name_of(dim) for dim in dims]
        if any(param in sizes for param in params):
            shapes[text_of(value.name)] = tuple(
                sizes.get(param, param) if param else int(dim.dim_value) or ""
                for dim, param in zip(dims, params, strict=True)
            )
    return shapes


def _parsed(param: str, plain: Container[str]) -> Dim | None:
    """`past + sequence` as an expression, when it is one of dimensions with those names."""
    if param in plain:
        return None
    try:
        parsed = symbolic.parse(param)
    except TilewrightError:
        return None
    names = [s.name for s in symbolic.symbols(parsed)]
    return parsed if names and all(n in plain for n in names) else None


def described(type_: TypeProto) -> TensorType | None:
    """The type that a `value_info` states, when it is a tensor of static or no shape issue.

    Used to go on behind a node that could not be imported, never to decide anything.
    """
    if type_.WhichOneof("value") != "tensor_type" or not type_.tensor_type.HasField(
        "shape"
    ):
        return None
    try:
        dtype = dtype_of(type_.tensor_type.elem_type)
    except TilewrightError:
        return None
    shape: list[Dim] = []
    for index, dim in enumerate(type_.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(int(dim.dim_value))
        else:
            shape.append(
                symbolic.symbol(identifier(text_of(dim.dim_param) or f"d{index}"), 0)
            )
    return TensorType(dtype, tuple(shape))


def type_proto(type_: TensorType, code: int) -> TypeProto:
    """The ONNX form of a tensor type, for functions that depend on their context."""
    proto = TypeProto()
    proto.tensor_type.elem_type = code
    proto.tensor_type.shape.SetInParent()
    for dim in type_.shape:
        added = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            added.dim_value = dim
        else:
            added.dim_param = str(dim)
    return proto


def fixed_value(name: str, value: ArrayLike, type_: TensorType) -> np.ndarray:
    """The value that a caller gives an input, as an array of the type it has; a number fills one of one element.

    Raises: UserError for another shape, and for numbers that the type does not hold.
    """
    given = unmasked(value)
    if given.ndim == 0 and all(size == 1 for size in type_.shape):
        given = given.reshape((1,) * type_.rank)
    fits = given.ndim == type_.rank and all(
        not isinstance(d, int) or d == n
        for d, n in zip(type_.shape, given.shape, strict=True)
    )
    location = f"input '{name}'"
    if not fits:
        raise UserError(
            f"input_values has shape {list(given.shape)}, expected {type_}",
            location=location,
        )
    # Types of inputs hold no complex numbers.
    is_complex = given.dtype.kind == "c"
    with np.errstate(all="ignore"):  # the result is looked at
        array = (np.real(given) if is_complex else given).astype(type_.dtype.numpy)
    if is_complex or not _holds(array, given, type_.dtype):
        raise UserError(
            f"input_values has numbers of {given.dtype} that {type_.dtype} does not hold",
            location=location,
        )
    return array


def _holds(array: np.ndarray, given: np.ndarray, dtype: DType) -> bool:
    """Whether numbers came through a cast: integers as they are, others but for rounding."""
    if array.dtype == given.dtype:
        return True
    if not dtype.is_float:
        whole = array.astype(np.int64) if array.dtype.kind == "V" else array
        return np.array_equal(whole, given)
    wide = given.astype(np.float64)
    return bool(np.all(np.isfinite(array.astype(np.float64)) | ~np.isfinite(wide)))
