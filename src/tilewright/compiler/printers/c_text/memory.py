"""Loads and stores as C: contiguous ones, those of a stride, with masks, and lanes at places of their own.

Element alignment only.  Called by expressions and statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import Buffer, Expression, Load, Space, Store
from tilewright.compiler.kernel.lanes import has_lanes
from tilewright.compiler.printers.c_text.indices import Indices
from tilewright.compiler.printers.c_text.local_arrays import element_count
from tilewright.compiler.printers.c_text.types import Value, bare, literal, value_type, word
from tilewright.compiler.printers.c_text.values import Values


@final
@dataclass(frozen=True, slots=True)
class _Extra:
    """What a load or store has beside its memory: in its name, its parameters and a call; and what it does."""

    suffix: str
    parameter: str
    argument: str
    index: str = ""
    test: str = ""


@final
class Memory:
    """Prints memory accesses; `evaluate` prints masks."""

    def __init__(
        self, values: Values, indices: Indices, evaluate: Callable[[Expression], Value]
    ) -> None:
        self.v: Values = values
        self.indices: Indices = indices
        self.evaluate: Callable[[Expression], Value] = evaluate
        self.names: dict[Buffer, str] = {}
        self.vectors: Mapping[Buffer, int] = {}
        """Of local arrays that are made of vectors the lanes, 1 for a variable (`local_arrays`)."""

    def _unit(self, buffer: Buffer, dim: Dim) -> str:
        """The variable or the vector that an access is to; empty where it is to elements."""
        lanes = self.vectors.get(buffer)
        if lanes is None:
            return ""
        assert isinstance(dim, int), "as local_arrays has seen"
        return self.names[buffer] if lanes == 1 else f"{self.names[buffer]}[{dim // lanes}]"

    def _load_scalar(self, buffer: Buffer, dim: Dim, mask: Value | None) -> Value:
        base, dtype = self.names[buffer], buffer.dtype
        text = self._unit(buffer, dim) or f"{base}[{bare(self.indices.dim(dim))}]"
        if mask is not None:
            text = f"({mask.text} ? {text} : 0)"
        if dtype.is_bool:
            text = f"({text} != 0)"
        return Value(text, dtype)

    def load(self, node: Load) -> Value:
        """The value of a load; lanes without a mask are 0."""
        (dim,) = node.indices
        mask = None if node.mask is None else self.evaluate(node.mask)
        dtype, lanes = node.buffer.dtype, node.lanes
        if lanes == 1:
            return self._load_scalar(node.buffer, dim, mask)
        if node.stride == 0 and not has_lanes(dim):
            return self._load_uniform(node, mask)
        if (
            mask is not None
            and not dtype.is_bool
            and _is_whole(node.buffer, dim, lanes, node.stride)
        ):
            whole = Value(self._load_lanes(node, None), dtype, lanes)
            return self.v.choose(mask, whole, self._zero(dtype, lanes))
        value = Value(self._load_lanes(node, mask), dtype, lanes)
        return self._as_mask(value) if dtype.is_bool else value

    def _zero(self, dtype: DType, lanes: int) -> Value:
        return self.v.splat(Value(literal(0, dtype), dtype), lanes)

    def _load_uniform(self, node: Load, mask: Value | None) -> Value:
        """One element for every lane whose mask is set; no access when none is."""
        dtype = node.buffer.dtype
        some = None if mask is None else Value(f"({self.v.any_lane(mask)})", dtypes.bool_)
        single = self._load_scalar(node.buffer, node.indices[0], some)
        wide = self.v.splat(single, node.lanes)
        return (
            wide
            if mask is None
            else self.v.choose(mask, wide, self._zero(dtype, node.lanes))
        )

    def _as_mask(self, value: Value) -> Value:
        """Bytes that are true or false, as a mask."""
        type_ = self.v.definitions.vector(dtypes.bool_, value.lanes, 8)
        return Value(f"(({type_})({value.text} != 0))", dtypes.bool_, value.lanes, 8)

    def _load_lanes(self, node: Load, mask: Value | None) -> str:
        if unit := self._unit(node.buffer, node.indices[0]):
            return unit
        kind = dtypes.u8 if node.buffer.dtype.is_bool else node.buffer.dtype
        base = self.names[node.buffer]
        place = self._place(base, node.indices[0], node.lanes, node.stride)
        masked = self._masked(mask, node.lanes, place)
        size = _size(kind, node.lanes, masked)
        body = (
            f"  memcpy(&all, from, {size});"
            if size and not place.suffix
            else f"  for (int lane = 0; lane < {node.lanes}; ++lane) {masked.test}all[lane] = from[{place.index}];"
        )
        type_ = self.v.definitions.vector(kind, node.lanes)
        name = self.v.definitions.define(
            f"tw_load_{word(kind, node.lanes)}{place.suffix}{masked.suffix}",
            f"TW_INLINE {type_} NAME(const {value_type(kind)} *from{place.parameter}{masked.parameter}) {{\n"
            f"  {type_} all = {{0}};\n{body}\n  return all;\n}}",
        )
        return f"{name}({place.argument}{masked.argument})"

    def _place(self, base: str, dim: Dim, lanes: int, stride: int) -> _Extra:
        """Where lanes lie: `from[lane]`, a stride apart, or at a place of each lane's own."""
        if has_lanes(dim):
            wide = self.indices.wide_dim(dim, lanes)
            if stride:
                wide = self.v.apply(
                    "add", dtypes.i64, wide, self.v.iota(dtypes.i64, lanes, stride)
                )
            type_ = self.v.definitions.vector(dtypes.i64, lanes)
            return _Extra(
                "_at", f", {type_} at", f"{base}, {bare(wide.text)}", index="at[lane]"
            )
        first = f"&{base}[{bare(self.indices.dim(dim))}]"
        if stride == 1:
            return _Extra("", "", first, index="lane")
        return _Extra("_step", ", int64_t step", f"{first}, {stride}", index="lane * step")

    def _masked(self, mask: Value | None, lanes: int, place: _Extra) -> _Extra:
        if mask is None:
            return _Extra("", "", "")
        if mask.first and not place.suffix:
            return _Extra("_first", ", int64_t count", f", {bare(mask.first)}")
        type_ = self.v.definitions.vector(dtypes.bool_, lanes, 8)
        narrow = bare(self.v.mask(mask, 8).text)
        return _Extra("_where", f", {type_} mask", f", {narrow}", test="if (mask[lane]) ")

    def store(self, node: Store, value: Value, mask: Value | None) -> str:
        """The statement that writes a value."""
        (dim,) = node.indices
        kind, lanes = node.buffer.dtype, value.lanes
        base = self.names[node.buffer]
        if lanes == 1:
            place = self._unit(node.buffer, dim) or f"{base}[{bare(self.indices.dim(dim))}]"
            text = f"{place} = {bare(value.text)};"
            return text if mask is None else f"if ({bare(mask.text)}) {text}"
        if kind.is_bool:
            kind = dtypes.u8
            type_ = self.v.definitions.vector(kind, lanes)
            narrow = self.v.mask(value, 8)
            value = Value(f"(({type_})({narrow.text} & 1))", kind, lanes)
        if mask is not None and _is_whole(node.buffer, dim, lanes, node.stride):
            before = Load(node.buffer, node.indices, lanes)
            old = Value(self._load_lanes(before, None), kind, lanes)
            value, mask = self.v.choose(mask, value, old), None
        if unit := self._unit(node.buffer, dim):
            return f"{unit} = {bare(value.text)};"
        place = self._place(base, dim, lanes, node.stride)
        masked = self._masked(mask, lanes, place)
        function = self._writer(kind, lanes, place, masked)
        return f"{function}({place.argument}, {bare(value.text)}{masked.argument});"

    def _writer(self, kind: DType, lanes: int, place: _Extra, masked: _Extra) -> str:
        size = _size(kind, lanes, masked)
        body = (
            f"  memcpy(to, &all, {size});"
            if size and not place.suffix
            else f"  for (int lane = 0; lane < {lanes}; ++lane) {masked.test}to[{place.index}] = all[lane];"
        )
        type_ = self.v.definitions.vector(kind, lanes)
        return self.v.definitions.define(
            f"tw_store_{word(kind, lanes)}{place.suffix}{masked.suffix}",
            f"TW_INLINE void NAME({value_type(kind)} *to{place.parameter}, "
            f"{type_} all{masked.parameter}) {{\n{body}\n}}",
        )


def _size(kind: DType, lanes: int, masked: _Extra) -> str:
    """The bytes of lanes side by side; none where a mask picks among them."""
    if masked.suffix == "_first":
        return f"(size_t)count * {kind.itemsize}"
    return "" if masked.suffix else str(lanes * kind.itemsize)


def _is_whole(buffer: Buffer, dim: Dim, lanes: int, stride: int) -> bool:
    """Whether lanes lie side by side in a local array, where those without a mask may be touched, too."""
    inside = isinstance(dim, int) and 0 <= dim <= element_count(buffer) - lanes
    return buffer.space is Space.REGISTER and stride == 1 and inside
