"""The test cases of the declarations, as typed operands with data.

Text of a case: operands, then `;`, then attributes (`axis=-1 keepdims=False`).  An operand is
`[3,5]` (of every dtype the op takes), `f32[3,5]` (of that one) or `_` (absent), followed by an
optional domain: `:positive`, `:unit`, `:words` (any 32 bits), `:index(n)` (integers from -n to n - 1), `:count(n)` (0 to
n - 1) or `:=1,2,3` (these values, repeated).  Conformance tests of every back end read this.
"""

from __future__ import annotations

import ast
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.graph.schema import (
    Array,
    AttributeSpec,
    OperandSpec,
    TensorType,
    Trait,
)
from tilewright.compiler.ops.declaration import OpDecl

_OPERAND: Final = re.compile(r"(\w*)\[([\d,]*)\](?::(.+))?$")
_NATIVE: Final = frozenset(dtypes.ANY)


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One call of an op: `operands` hold None where absent; `attributes` are as given."""

    op: str
    text: str
    dtype: str
    operands: tuple[Array | None, ...]
    attributes: dict[str, object]

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.text}"


@final
@dataclass(frozen=True, slots=True)
class _Operand:
    dtype: DType | None
    shape: tuple[int, ...]
    domain: str


def instances(row: OpDecl) -> Iterator[Case]:
    """Every declared case of `row` for every dtype of its first operand (and of the others)."""
    for text in row.cases:
        left, _, right = text.partition(";")
        parsed = [_parse_operand(row.name, token) for token in left.split()]
        attributes = _parse_attributes(row, right.split())
        for chosen in _dtype_choices(row, parsed):
            seed = zlib.crc32(f"{row.name} {text} {chosen}".encode())
            generator = np.random.default_rng(seed)
            special = Trait.ELEMENTWISE in row.schema.traits
            if not _is_typed(row, parsed, chosen, attributes):
                continue
            arrays = tuple(
                None if p is None or t is None else _data(generator, p, t, special=special)
                for p, t in zip(parsed, chosen, strict=True)
            )
            names = ",".join(t.name for t in dict.fromkeys(t for t in chosen if t))
            yield Case(row.name, text, names or "-", arrays, attributes)


def _is_typed(
    row: OpDecl,
    parsed: Sequence[_Operand | None],
    chosen: Sequence[DType | None],
    attributes: Mapping[str, object],
) -> bool:
    """Whether the op takes operands of different types; of one type it takes what it declares."""
    if len(set(chosen) - {None}) < 2:
        return True
    types = [
        None if p is None or t is None else TensorType(t, p.shape)
        for p, t in zip(parsed, chosen, strict=True)
    ]
    try:
        row.schema.infer(types, row.complete(attributes))
    except ModelError:
        return False
    return True


def _parse_operand(op: str, token: str) -> _Operand | None:
    if token == "_":
        return None
    found = _OPERAND.match(token)
    if found is None:
        raise InternalError(f"op '{op}': case operand '{token}' is not understood")
    name, shape, domain = found.groups()
    sizes = tuple(int(n) for n in shape.split(",") if n)
    return _Operand(dtypes.parse(name) if name else None, sizes, domain or "")


def _parse_attributes(row: OpDecl, tokens: Sequence[str]) -> dict[str, object]:
    specs = {s.name: s for s in row.schema.attributes}
    found: dict[str, object] = {}
    for token in tokens:
        name, _, text = token.partition("=")
        if name not in specs:
            raise InternalError(f"op '{row.name}': case attribute '{name}' is unknown")
        found[name] = _parse_value(specs[name], text)
    return found


def _parse_value(spec: AttributeSpec, text: str) -> object:
    if spec.kind == "dtype":
        return dtypes.parse(text)
    if spec.kind == "string":
        return text
    value = ast.literal_eval(text)
    return np.asarray(value, np.float32) if spec.kind == "array" else value


def _dtype_choices(
    row: OpDecl, parsed: Sequence[_Operand | None]
) -> Iterator[tuple[DType | None, ...]]:
    """Dtypes per operand: every choice of the free ones, `like` operands following."""
    specs = [_spec(row, i) for i in range(len(parsed))]
    free: list[list[DType]] = []
    for position, (spec, p) in enumerate(zip(specs, parsed, strict=True)):
        leads = p is not None and spec.like is None and not _repeats(specs, position)
        if p is None or not leads:
            continue
        allowed = [t for t in spec.dtypes if t in _NATIVE]
        free.append([p.dtype] if p.dtype else allowed if not free else allowed[:])
    # The first free operand runs through its types, the others through theirs in step.
    longest = max((len(f) for f in free), default=1)
    for step in range(longest):
        picks = iter([f[step % len(f)] for f in free])
        yield _resolve(specs, parsed, picks)
    if len(free) > 1:
        extra = itertools.product(free[0][:1], *(f[1:2] or f[:1] for f in free[1:]))
        for pick in extra:
            yield _resolve(specs, parsed, iter(pick))


def _repeats(specs: Sequence[OperandSpec], position: int) -> bool:
    spec = specs[position]
    return spec.variadic and any(s is spec for s in specs[:position])


def _resolve(
    specs: Sequence[OperandSpec], parsed: Sequence[_Operand | None], picks: Iterator[DType]
) -> tuple[DType | None, ...]:
    by_name: dict[str, DType] = {}
    chosen: list[DType | None] = []
    for position, (spec, p) in enumerate(zip(specs, parsed, strict=True)):
        if p is None:
            chosen.append(None)
            continue
        model = by_name.get(spec.like or (spec.name if _repeats(specs, position) else ""))
        dtype = model if model is not None else next(picks)
        by_name.setdefault(spec.name, dtype)
        chosen.append(dtype)
    return tuple(chosen)


def _spec(row: OpDecl, position: int) -> OperandSpec:
    specs = row.schema.operands
    return specs[min(position, len(specs) - 1)]


# --- data ------------------------------------------------------------------------------------

_SPECIAL: Final = (0.0, -0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf"), 30.0,
                   -30.0, 2.5, -2.5, 1e-6)  # fmt: skip


def _data(
    generator: np.random.Generator, operand: _Operand, dtype: DType, *, special: bool
) -> Array:
    count = int(np.prod(operand.shape, dtype=np.int64))
    values = _values(generator, operand.domain, count, dtype, special=special)
    return np.asarray(values).astype(dtype.numpy).reshape(operand.shape)


def _values(
    generator: np.random.Generator, domain: str, count: int, dtype: DType, *, special: bool
) -> Array:
    if domain.startswith("="):
        listed = [float(v) for v in domain[1:].split(",")]
        return np.resize(np.asarray(listed), count)
    bounded = re.match(r"(index|count)\((\d+)\)$", domain)
    if bounded:
        high = int(bounded[2])
        low = -high if bounded[1] == "index" and dtype.is_signed else 0
        return generator.integers(low, max(high, low + 1), count)
    if domain == "words":
        half = 1 << (dtype.bits - 1)
        return generator.integers(-half, half, count)
    if dtype.is_bool:
        return generator.integers(0, 2, count)
    if not dtype.is_float:
        low = 1 if domain == "positive" else -9 if dtype.is_signed else 0
        return generator.integers(low, 10, count)
    if domain == "positive":
        return generator.uniform(0.1, 4, count)
    if domain == "unit":
        return generator.uniform(-1, 1, count)
    values = generator.standard_normal(count) * 2
    if special:
        picks = np.asarray(_SPECIAL)
        places = generator.permutation(count)[: picks.size]
        values[places] = picks[: places.size]
    return values


def symbolic_shape(shape: Sequence[int]) -> tuple[symbolic.Dim, ...]:
    """`shape` with every size above 1 replaced by a symbol, for tests of dynamic kernels."""
    return tuple(symbolic.symbol(f"D{size}", 1) if size > 1 else size for size in shape)
