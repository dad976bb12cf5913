"""What one row of the catalogue consists of, and the checks every row gets for free.

`declare` wraps the row's `infer` and `evaluate` with operand and attribute checks, defaults and
result types, so families state only what is particular to an op.  Not here: the rows (one file
per family) and how bodies are written (`bodies`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError, ModelError, index_error
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr, is_deep
from tilewright.base.text import beginning
from tilewright.compiler.graph.contents import Follow
from tilewright.compiler.graph.schema import (
    AddsBorder,
    Array,
    Attributes,
    AttributeSpec,
    Equalities,
    Evaluate,
    Infer,
    Layout,
    OperandSpec,
    OpSchema,
    Places,
    Ranges,
    Role,
    TensorType,
    Trait,
    Work,
)
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.ir import (
    Binary,
    Buffer,
    Cast,
    Compare,
    Expression,
    Select,
    Unary,
)
from tilewright.compiler.kernel.rewrite import subexpressions
from tilewright.compiler.ops.layouts import BROADCAST
from tilewright.compiler.ops.ranges import moved
from tilewright.compiler.ops.shapes import broadcast_sizes, like_broadcast

Types = Sequence[TensorType | None]
# (builder, attributes, operands: None where absent, results)
Emit = Callable[
    [KernelBuilder, Attributes, Sequence[Source | None], Sequence[Buffer]], None
]
Supports = Callable[[Types, Attributes], bool]
# (builder, operand values, None where absent, attributes) -> value
Pointwise = Callable[[KernelBuilder, Sequence[Expression | None], Attributes], Expression]

_MOST_BYTES: Final = (1 << 63) - 1
_MOST_AXES: Final = 64
"""Of numpy's arrays, which calls take and give, and evaluators compute with."""
_ROLES: Final = {
    Trait.VIEW: Role.VIEW,
    Trait.ELEMENTWISE: Role.POINTWISE,
    Trait.CONTRACTION: Role.CONTRACTION,
    Trait.ROWWISE: Role.ROWS,
    Trait.GUARD: Role.REDUCTION,
    Trait.CONSTANT: Role.NONE,
}
_SHOWN_LETTERS: Final = 200
ATTRIBUTE_KINDS: Final = (
    "int", "float", "string", "bool", "dtype", "dims", "ints", "floats", "array",
)  # fmt: skip


def supports_all(types: Types, attributes: Attributes) -> bool:
    """Most bodies exist for every type the op takes."""
    del types, attributes
    return True


@final
@record(eq=False)
class Body:
    """How an op becomes naive loop nests.

    `supports` says for which types and attributes; where it says no, the oracle runs on the host.
    `pointwise` makes one element of the result of those of the operands, where that is all.
    """

    emit: Emit
    supports: Supports = supports_all
    pointwise: Pointwise | None = None


@final
@record
class IndexRange:
    """Where the elements of an operand, or a number, must lie: `low .. high`, both included.

    Attributes:
        operand: the position of the operand; None: what must lie there is `number`.
        axis: the axis of x that the elements are places on, of size `size`; 0 for places in what
            is taken for one line.
        column: which place of the operand's last axis is meant; None: all elements.
        number: what attributes say, of an axis whose size a call decides.
    """

    operand: int | None
    axis: int
    size: Dim
    low: Dim
    high: Dim
    column: int | None = None
    number: Dim = 0


IndexRanges = Callable[[Types, Attributes], "tuple[IndexRange, ...]"]
# (types, attributes, operand) -> those of its axes that may be empty where the result has elements: the kernel asks
EmptyAxes = Callable[[Types, Attributes, int], "Sequence[int]"]


@final
@record(eq=False)
class OpDecl:
    """One op: its schema, its kernel body (None: only the oracle) and its test cases.

    `indices` says which operands hold places and in what range; the oracle raises outside of it,
    the kernel body clamps.  `on_host` is the reason why an op has no body.  `empty_axes` says which sizes of
    operands need not be at least 1: none where it is absent.
    """

    schema: OpSchema
    body: Body | None
    cases: tuple[str, ...]
    indices: IndexRanges | None = None
    on_host: str = ""
    empty_axes: EmptyAxes | None = None

    @property
    def name(self) -> str:
        return self.schema.name

    def complete(self, attributes: Attributes) -> dict[str, object]:
        """`attributes` with defaults filled in, checked against the declared kinds."""
        return complete_attributes(self.schema.name, self.schema.attributes, attributes)

    def supports(self, types: Types, attributes: Attributes) -> bool:
        """Whether a kernel can be built for these operand types."""
        if self.body is None:
            return False
        padded = _padded(self.schema.operands, types)
        return self.body.supports(padded, self.complete(attributes))

    def is_cheap(self, types: Types, attributes: Attributes) -> bool:
        """Whether computing an element again costs no more than loading it."""
        parts = self._parts(types, attributes)
        return bool(parts) and all(map(_is_one_instruction, parts))

    def operations(self, types: Types, attributes: Attributes) -> int:
        """Operations that an element of an elementwise op takes; 0 for other ops."""
        parts = self._parts(types, attributes)
        return sum(
            isinstance(part, Unary | Binary | Compare | Select | Cast) for part in parts
        )

    def _parts(self, types: Types, attributes: Attributes) -> list[Expression]:
        """What an element of an elementwise op is made of."""
        if self.body is None or self.body.pointwise is None:
            return []
        b = KernelBuilder(self.name)
        values = [
            None if t is None else b.read(b.parameter("x", t.dtype, ()), ())
            for t in _padded(self.schema.operands, types)
        ]
        value = self.body.pointwise(b, values, self.complete(attributes))
        return list(subexpressions(value))


def _is_one_instruction(part: Expression) -> bool:
    return not isinstance(part, Unary | Binary) or part.op in numerics.ONE_INSTRUCTION


def operand(
    name: str, allowed: tuple[DType, ...] = dtypes.ANY, *, like: str | None = None
) -> OperandSpec:
    """A required operand; `like` names an earlier one whose dtype it shares."""
    return OperandSpec(name, allowed, like=like)


def optional(
    name: str, allowed: tuple[DType, ...] = dtypes.ALL, *, like: str | None = None
) -> OperandSpec:
    """An operand that may be absent."""
    return OperandSpec(name, allowed, optional=True, like=like)


def variadic(name: str, allowed: tuple[DType, ...] = dtypes.ANY) -> OperandSpec:
    """The last operand, any number of times."""
    return OperandSpec(name, allowed, variadic=True)


_REQUIRED: Final = object()


def attr(name: str, kind: str, default: object = _REQUIRED) -> AttributeSpec:
    """An attribute; required when no default is given."""
    if kind not in ATTRIBUTE_KINDS:
        raise InternalError(f"attribute kind '{kind}' of '{name}' is unknown")
    required = default is _REQUIRED
    return AttributeSpec(name, kind, None if required else default, required)


def declare(  # noqa: PLR0913 - a row has that many columns
    *,
    name: str,
    summary: str,
    operands: tuple[OperandSpec, ...],
    evaluate: Callable[..., Any],
    infer: Infer | None = None,
    attributes: tuple[AttributeSpec, ...] = (),
    results: tuple[str, ...] = ("result",),
    body: Body | Emit | None = None,
    traits: Trait = Trait.PURE,
    cases: tuple[str, ...] = (),
    regions: int = 0,
    source: str = "",
    indices: IndexRanges | None = None,
    on_host: str = "",
    empty_axes: EmptyAxes | None = None,
    role: Role | None = None,
    places: Places | None = None,
    adds_border: AddsBorder | None = None,
    work: Work | None = None,
    ranges: Ranges | None = None,
    layout: Layout | None = None,
    equal_sizes: Equalities | None = None,
    title: Callable[[Attributes], str] | None = None,
    contents: Follow | None = None,
) -> OpDecl:
    """One row.

    `infer` gets operand types (absent ones as None, checked) and complete attributes.
    `evaluate(*arrays, **attributes)` returns an array or a tuple; its results are converted to
    the inferred dtypes.  It is not called when an index lies outside its range.

    Where the body is pointwise, the op is elementwise, and `infer` may be left out: the result has
    the broadcast shape and the first operand's type, and `evaluate` gets floats in f64, rounded once.
    """
    specs = tuple(operands)
    body = body if body is None or isinstance(body, Body) else Body(body)
    if body is not None and body.pointwise is not None:
        layout, traits = layout or BROADCAST, traits | Trait.ELEMENTWISE
        equal_sizes = equal_sizes or broadcast_sizes
        infer, evaluate = (
            (infer, evaluate) if infer else (like_broadcast, _in_f64(evaluate))
        )
    if infer is None:
        raise InternalError(f"op '{name}' does not say what types its results have")
    if places is not None:
        body = body or _moves(places)
        ranges = ranges or moved(places)
        role = role or (Role.VIEW if Trait.VIEW in traits else Role.MAP)
    checked = _checked(name, specs, attributes, infer, evaluate, indices)
    schema = OpSchema(
        name, summary, specs, attributes, results, *checked, traits,
        regions, source, role or _role_of(traits), places, adds_border, work, ranges, layout,
        equal_sizes,
        title,
        contents,
    )  # fmt: skip
    return OpDecl(schema, body, cases, indices, on_host, empty_axes)


def _in_f64(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of real numbers: floats are wide until the result is rounded."""

    def widened(*operands: Array | None, **attributes: object) -> Any:
        return function(*map(_widened, operands), **attributes)

    return widened


def _widened(array: Array | None) -> Array | None:
    is_float = array is not None and dtypes.from_numpy(array.dtype).is_float
    return array.astype(np.float64) if array is not None and is_float else array


def _checked(
    name: str,
    specs: tuple[OperandSpec, ...],
    attributes: tuple[AttributeSpec, ...],
    infer: Infer,
    evaluate: Callable[..., Any],
    indices: IndexRanges | None,
) -> tuple[Infer, Evaluate]:
    """`infer` and `evaluate` behind the checks of operands, attributes, results and indices."""

    def checked_infer(types: Types, given: Attributes) -> tuple[TensorType, ...]:
        full = complete_attributes(name, attributes, given)
        return _checked_sizes(infer(check_operands(name, specs, types), full))

    def checked_evaluate(
        arrays: Sequence[Array | None], given: Attributes
    ) -> tuple[Array, ...]:
        full = complete_attributes(name, attributes, given)
        padded = _padded(specs, arrays)
        types = [None if a is None else type_of(a) for a in padded]
        expected = infer(check_operands(name, specs, types), full)
        if indices is not None:
            for place in indices(types, full):
                if place.operand is not None:
                    check_range(padded[place.operand], place)
        with np.errstate(all="ignore"):
            values = evaluate(*padded, **full)
            listed = values if isinstance(values, tuple) else (values,)
            return tuple(
                np.asarray(v).astype(t.dtype.numpy, copy=False)
                for v, t in zip(listed, expected, strict=True)
            )

    return checked_infer, checked_evaluate


def _moves(places: Places) -> Body:
    """The body of an op each of whose elements is one of its operand's."""

    def emit(
        b: KernelBuilder,
        attributes: Attributes,
        operands: Sequence[Source | None],
        results: Sequence[Buffer],
    ) -> None:
        (x, *_), (result,) = operands, results
        assert x is not None
        if 0 in result.shape:
            return  # places may divide by sizes
        with b.nest(result.shape) as indices:
            b.store(result, indices, b.load(x, places(attributes, x.shape, indices)))

    return Body(emit)


def _role_of(traits: Trait) -> Role:
    """The part in a kernel that the traits make likely: rows say so where it is another."""
    for trait, role in _ROLES.items():
        if trait in traits:
            return role
    return Role.ALONE


def _checked_sizes(results: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """The types as they are.

    Raises: ModelError where an op has less than nothing to give, more than any address reaches, or
        more axes than an array can have.
    """
    for found in results:
        check_rank(found.rank, "the result would have")
        numbers = [size for size in found.shape if isinstance(size, int)]
        if numbers and min(numbers) < 0:
            raise ModelError(
                f"the result would be {found}, with a negative size",
                hint="a window, a filter or a crop is larger than what it is taken from",
            )
        # From here sizes, strides and offsets fit into 64 bits where symbols are 1; what they are in
        # a call is checked there.
        known = len(numbers) == found.rank
        count = math.prod(map(_magnitude, found.shape))
        if found.dtype.itemsize * count > _MOST_BYTES:
            raise ModelError(
                f"the result would be {_shown(found)}, expected at most {_MOST_BYTES} bytes"
            )
        if not known and any(map(is_deep, found.shape)):
            raise ModelError(
                f"the result would be {_shown(found)}, a size of which is nested too deeply",
                hint="give sizes of the model's inputs as numbers",
            )
    return results


def check_rank(rank: int, subject: str) -> None:
    """Raise ModelError where no array could have so many axes; `subject` begins what it says."""
    if rank > _MOST_AXES:
        raise ModelError(f"{subject} {rank} axes, expected at most {_MOST_AXES}")


def _shown(found: TensorType) -> str:
    return beginning(str(found), _SHOWN_LETTERS)


def _magnitude(dim: Dim) -> int:
    """The largest number in a dimension, at least 1."""
    if isinstance(dim, int):
        return max(dim, 1)
    return max(1, abs(dim.constant), *(abs(factor) for _, factor in dim.terms))


def check_range(array: Array | None, place: IndexRange) -> None:
    """Raise InputError, naming the worst index, where an element is out of its range.

    The sizes in `place` are numbers.
    """
    if array is None:
        return
    low, high = cast("int", place.low), cast("int", place.high)
    picked: Any = array if place.column is None else array[..., place.column]
    bad = picked[(picked < low) | (picked > high)]
    if bad.size:
        size = cast("int", place.size)
        raise index_error(int(bad.max()), low, high, axis=place.axis, size=size)


def type_of(array: Array) -> TensorType:
    """The tensor type of a numpy array."""
    return TensorType(dtypes.from_numpy(array.dtype), array.shape)


def _padded(specs: Sequence[OperandSpec], given: Sequence[Any]) -> list[Any]:
    """`given` with absent trailing operands as None."""
    missing = 0 if specs and specs[-1].variadic else len(specs) - len(given)
    return [*given, *([None] * missing)]


# --- checks ----------------------------------------------------------------------------------


def check_operands(
    op: str, specs: Sequence[OperandSpec], types: Types
) -> list[TensorType | None]:
    """The types, one per formal operand (variadic ones repeated), or a ModelError."""
    open_ended = bool(specs) and specs[-1].variadic
    if len(types) > len(specs) and not open_ended:
        raise ModelError(f"op '{op}' takes {len(specs)} operands, got {len(types)}")
    padded = _padded(specs, types)
    by_name: dict[str, TensorType] = {}
    for position, type_ in enumerate(padded):
        spec = specs[min(position, len(specs) - 1)]
        if type_ is None:
            if not spec.optional:
                raise ModelError(f"op '{op}' needs operand {position + 1} ('{spec.name}')")
            continue
        _check_dtype(op, position, spec, type_, by_name)
        by_name.setdefault(spec.name, type_)
    return padded


def _check_dtype(
    op: str,
    position: int,
    spec: OperandSpec,
    type_: TensorType,
    earlier: Mapping[str, TensorType],
) -> None:
    if type_.dtype not in spec.dtypes:
        names = " ".join(t.name for t in spec.dtypes)
        raise _wrong_operand(op, position, spec, type_, f"one of {names}")
    model = earlier.get(spec.name if spec.variadic else spec.like or "")
    if spec.like is not None and model is None:
        model = earlier.get(spec.like)
    if model is not None and model.dtype is not type_.dtype:
        wanted = f"{model.dtype} like the operand before"
        raise _wrong_operand(op, position, spec, type_, wanted)


def _wrong_operand(
    op: str, position: int, spec: OperandSpec, type_: TensorType, wanted: str
) -> ModelError:
    where = f"op '{op}': operand {position + 1} ('{spec.name}')"
    return ModelError(f"{where} has type {type_}, expected {wanted}")


def complete_attributes(
    op: str, specs: Sequence[AttributeSpec], given: Attributes
) -> dict[str, object]:
    """Every declared attribute, defaults included, of its declared kind."""
    full: dict[str, object] = {}
    for spec in specs:
        if spec.name in given:
            full[spec.name] = _checked_attribute(op, spec, given[spec.name])
        elif spec.required:
            raise ModelError(f"op '{op}' needs attribute '{spec.name}'")
        else:
            full[spec.name] = spec.default
    if not given.keys() <= full.keys():
        unknown = min(given.keys() - full.keys())
        known = " ".join(s.name for s in specs) or "none"
        raise ModelError(f"op '{op}' has no attribute '{unknown}' (known: {known})")
    return full


def _checked_attribute(op: str, spec: AttributeSpec, value: object) -> object:
    if value is None and spec.default is None and not spec.required:
        return None
    if spec.kind in ("dims", "ints", "floats") and isinstance(value, list):
        value = tuple(value)
    if spec.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if spec.kind == "bool" and isinstance(value, int) and value in (0, 1):
        value = bool(value)
    if not _KIND_CHECKS[spec.kind](value):
        raise ModelError(
            f"op '{op}': attribute '{spec.name}' is {value!r}, expected kind '{spec.kind}'"
        )
    return value


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _all(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and all(map(check, value))


_KIND_CHECKS: Final[dict[str, Callable[[object], bool]]] = {
    "int": _is_int,
    "float": lambda v: isinstance(v, float),
    "string": lambda v: isinstance(v, str),
    "bool": lambda v: isinstance(v, bool),
    "dtype": lambda v: isinstance(v, DType),
    "dims": _all(lambda v: _is_int(v) or isinstance(v, Expr)),
    "ints": _all(_is_int),
    "floats": _all(lambda v: isinstance(v, float | int)),
    "array": lambda v: isinstance(v, np.ndarray),
}
