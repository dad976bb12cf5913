"""Loads and stores as C: contiguous ones, those of a stride, with masks, and lanes at places of their own.

Element alignment only.  Called by expressions and statements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.codegen.c.indices import Indices, has_lanes
from tilewright.compiler.codegen.c.types import Value, bare, value_type, word
from tilewright.compiler.codegen.c.values import Values
from tilewright.compiler.kernel.ir import Buffer, Expression, Load


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

    def _load_scalar(self, base: str, dim: Dim, dtype: DType, mask: Value | None) -> Value:
        text = f"{base}[{self.indices.dim(dim)}]"
        if mask is not None:
            text = f"({mask.text} ? {text} : 0)"
        if dtype.is_bool:
            text = f"({text} != 0)"
        return Value(text, dtype)

    def load(self, node: Load) -> Value:
        """The value of a load."""
        (dim,) = node.indices
        base = self.names[node.buffer]
        mask = None if node.mask is None else self.evaluate(node.mask)
        dtype, lanes = node.buffer.dtype, node.lanes
        if lanes == 1:
            return self._load_scalar(base, dim, dtype, mask)
        plain = not has_lanes(dim) and node.stride == 1 and mask is None
        if plain:
            place = f"&{base}[{self.indices.dim(dim)}]"
            text = f"{self._reader(dtype, lanes)}({place})"
        else:
            text = self._load_lanes(base, node, mask)
        value = Value(text, dtype, lanes)
        return self._as_mask(value) if dtype.is_bool else value

    def _as_mask(self, value: Value) -> Value:
        """Bytes that are true or false, as a mask."""
        type_ = self.v.helpers.vector(dtypes.bool_, value.lanes, 8)
        return Value(f"(({type_})({value.text} != 0))", dtypes.bool_, value.lanes, 8)

    def _reader(self, dtype: DType, lanes: int) -> str:
        kind = dtypes.u8 if dtype.is_bool else dtype
        type_ = self.v.helpers.vector(kind, lanes)
        name = f"tw_load_{word(kind, lanes)}"
        return self.v.helpers.define(
            name,
            f"static inline {type_} {name}(const {value_type(kind)} *from) {{\n"
            f"  {type_} all = {{0}};\n"
            f"  memcpy(&all, from, {lanes * kind.itemsize});\n  return all;\n}}",
        )

    def _load_lanes(self, base: str, node: Load, mask: Value | None) -> str:
        """Lanes a stride apart, or each at its own place; those without a mask are 0."""
        kind = dtypes.u8 if node.buffer.dtype.is_bool else node.buffer.dtype
        place = self._place(base, node.indices[0], node.lanes, node.stride)
        masked = self._masked(mask, node.lanes)
        type_ = self.v.helpers.vector(kind, node.lanes)
        name = self.v.helpers.define(
            f"tw_load_{word(kind, node.lanes)}{place.suffix}{masked.suffix}",
            f"static inline {type_} NAME(const {value_type(kind)} *from{place.parameter}{masked.parameter}) {{\n"
            f"  {type_} all = {{0}};\n"
            f"  for (int lane = 0; lane < {node.lanes}; ++lane) {masked.test}all[lane] = from[{place.index}];\n"
            "  return all;\n}",
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
            type_ = self.v.helpers.vector(dtypes.i64, lanes)
            return _Extra(
                "_at", f", {type_} at", f"{base}, {bare(wide.text)}", index="at[lane]"
            )
        first = f"&{base}[{bare(self.indices.dim(dim))}]"
        if stride == 1:
            return _Extra("", "", first, index="lane")
        return _Extra("_step", ", int64_t step", f"{first}, {stride}", index="lane * step")

    def _masked(self, mask: Value | None, lanes: int) -> _Extra:
        if mask is None:
            return _Extra("", "", "")
        type_ = self.v.helpers.vector(dtypes.bool_, lanes, 8)
        narrow = bare(self.v.mask(mask, 8).text)
        return _Extra("_where", f", {type_} mask", f", {narrow}", test="if (mask[lane]) ")

    def store(
        self, base: str, dim: Dim, value: Value, stride: int, mask: Value | None
    ) -> str:
        """The statement that writes a value."""
        kind = dtypes.u8 if value.dtype.is_bool else value.dtype
        if value.lanes == 1:
            text = f"{base}[{self.indices.dim(dim)}] = {bare(value.text)};"
            return text if mask is None else f"if ({bare(mask.text)}) {text}"
        if value.dtype.is_bool:
            type_ = self.v.helpers.vector(kind, value.lanes)
            narrow = self.v.mask(value, 8)
            value = Value(f"(({type_})({narrow.text} & 1))", kind, value.lanes)
        type_ = self.v.helpers.vector(kind, value.lanes)
        place = self._place(base, dim, value.lanes, stride)
        masked = self._masked(mask, value.lanes)
        if mask is None and not place.suffix:
            body = f"  memcpy(to, &all, {value.lanes * kind.itemsize});"
        else:
            body = (
                f"  for (int lane = 0; lane < {value.lanes}; ++lane) "
                f"{masked.test}to[{place.index}] = all[lane];"
            )
        name = self.v.helpers.define(
            f"tw_store_{word(kind, value.lanes)}{place.suffix}{masked.suffix}",
            f"static inline void NAME({value_type(kind)} *to{place.parameter}, "
            f"{type_} all{masked.parameter}) {{\n{body}\n}}",
        )
        return f"{name}({place.argument}, {bare(value.text)}{masked.argument});"
