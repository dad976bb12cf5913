"""Tensors of a file as operands: what is stored as integers in blocks stays that.

A product with blocks is one with the integers, which passes put into words (`block_weights`); minima of blocks
are a second, short product: with the sums of the blocks of the other operand.  Called by what writes parts of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.packed_integers import unpacked
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.formats.gguf import (
    DECODERS,
    Blocks,
    GgufFile,
    GgufTensor,
    decode,
    dequantize,
)

_PLAIN: Final = ("F32", "F16", "BF16")
_MIDDLE: Final = 8

Order = npt.NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True)
class StackedMatrix:
    """One of `count` matrices that stand one after the other in a tensor."""

    index: int
    count: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A tensor whose rows are multiplied with, in an order of rows; None: that of the file.

    `part` is which of several matrices that one tensor stacks.
    """

    name: str
    rows: int
    order: Order | None = None
    part: StackedMatrix | None = None


@final
class Weights:
    """Finds tensors by name and makes operands of them; `read` are the names that were asked for.

    Raises (every method): ModelError for a tensor that is missing or has another shape; UnsupportedError for a
        type whose blocks are not known.
    """

    def __init__(self, maker: NodeMaker, file: GgufFile) -> None:
        self.maker: NodeMaker = maker
        self.file: GgufFile = file
        self.read: Final[set[str]] = set()

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self.file.tensors

    def tensor(self, name: str, shape: tuple[int | None, ...]) -> GgufTensor:
        """A tensor of a shape, in which None is any size."""
        found = self.file.tensors.get(name)
        if found is None:
            raise ModelError(f"tensor '{name}' is missing", location=self.file.location)
        self.read.add(name)
        fits = len(found.shape) == len(shape) and all(
            wanted in (None, got) for wanted, got in zip(shape, found.shape, strict=True)
        )
        if not fits:
            expected = ", ".join("any" if d is None else str(d) for d in shape)
            raise ModelError(
                f"tensor '{name}' is {list(found.shape)}, expected [{expected}]",
                location=self.file.location,
            )
        if found.type.name not in (*_PLAIN, *DECODERS):
            raise UnsupportedError(
                f"blocks of type {found.type.name} are not supported",
                location=f"{self.file.location}: tensor '{name}'",
            )
        return found

    def array(self, name: str, size: int) -> npt.NDArray[np.float32]:
        """A vector as numbers."""
        found = decode(self.file, self.tensor(name, (size,)))
        if isinstance(found, Blocks):
            raise UnsupportedError(f"vector '{name}' in blocks is not supported")
        return found.astype(np.float32)

    def numbers(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """A tensor as numbers, whatever the file stores it as."""
        return dequantize(self.file, self.tensor(name, shape))

    def matrix(
        self, name: str, shape: tuple[int | None, int | None]
    ) -> npt.NDArray[np.float32]:
        """A small matrix as numbers."""
        found = decode(self.file, self.tensor(name, shape))
        if isinstance(found, Blocks):
            raise UnsupportedError(f"'{name}' in blocks is not supported")
        return found.astype(np.float32)

    def vector(self, name: str, size: int) -> Tensor:
        """A vector as an operand in f32."""
        return self.maker.constant(self.array(name, size), name)

    def rows(self, name: str, width: int, tokens: Tensor) -> Tensor:
        """Rows of a table, looked up as they are stored: `[.., width]` of `tokens: [..]`."""
        e, stored = self.maker, decode(self.file, self.tensor(name, (None, width)))
        if not isinstance(stored, Blocks):
            return e.cast(
                e.op("gather", e.constant(stored, name), tokens, axis=0), dtypes.f32
            )
        # As it is stored and as a product reads it are two forms: this one takes a copy.
        stored = _around_middle(stored)
        is_small = stored.values.dtype == np.uint8
        values = _in_pairs(stored.values) if is_small else stored.values
        found = e.op("gather", e.constant(values, name), tokens, axis=0)
        found = unpacked(e, found, 4) if is_small else found
        scale = e.op("gather", e.constant(stored.scale), tokens, axis=0)
        return self._numbers(found, scale, stored, tokens)

    def _numbers(
        self, values: Tensor, scale: Tensor, stored: Blocks, tokens: Tensor
    ) -> Tensor:
        e, group = self.maker, stored.group
        zero = _zero(e, stored, scale.shape)
        axis = values.rank - 1
        real = e.op("dequantize_linear", values, scale, zero, axis=axis, block_size=group)
        if stored.minimum is None:
            return real
        minimum = e.op("gather", e.constant(stored.minimum), tokens, axis=0)
        parts = (*minimum.shape, group)
        shifted = e.op("add", e.reshape(real, parts), e.unsqueeze(minimum, (minimum.rank,)))
        return e.reshape(shifted, real.shape)

    def product(self, x: Tensor, parts: Sequence[Projection]) -> Tensor:
        """`x @ concat(parts)'`, biases included: `[1, n, K]` as `[1, n, rows of all parts]`."""
        depth = x.shape[-1]
        assert isinstance(depth, int)
        stored = [self._stored(part, depth) for part in parts]
        kinds = {type(each) for each in stored}
        if len(kinds) > 1 or (Blocks in kinds and not _are_alike(stored)):
            return self.maker.concat([self.product(x, [part]) for part in parts], 2)
        result = self._product(x, _joined(stored), parts[0].name)
        bias = self._bias(parts)
        return result if bias is None else self.maker.op("add", result, bias)

    def _stored(self, part: Projection, depth: int) -> Blocks | npt.NDArray[Any]:
        found = decode(self.file, self._matrix(part, depth))
        order = part.order
        if order is None:
            return found
        if not isinstance(found, Blocks):
            return found[order]
        minimum = None if found.minimum is None else found.minimum[order]
        return Blocks(
            found.values[order], found.scale[order], minimum, found.zero, found.group
        )

    def _matrix(self, projection: Projection, depth: int) -> GgufTensor:
        """The tensor, or the range of it where one of its matrices stands."""
        name, part = f"{projection.name}.weight", projection.part
        if part is None:
            return self.tensor(name, (projection.rows, depth))
        whole = self.tensor(name, (part.count, projection.rows, depth))
        size = whole.size_bytes // part.count
        offset = whole.offset + part.index * size
        return replace(whole, shape=whole.shape[1:], offset=offset, size_bytes=size)

    def _bias(self, parts: Sequence[Projection]) -> Tensor | None:
        if not any(self.has(f"{part.name}.bias") for part in parts):
            return None
        found: list[npt.NDArray[np.float32]] = []
        for part in parts:
            vector = self._vector_of(part)
            found.append(vector if part.order is None else vector[part.order])
        return self.maker.constant(np.concatenate(found))

    def _vector_of(self, part: Projection) -> npt.NDArray[np.float32]:
        """What is added to the rows of a product: zeros where there is nothing."""
        name, stack = f"{part.name}.bias", part.part
        if not self.has(name):
            return np.zeros(part.rows, np.float32)
        if stack is None:
            return self.array(name, part.rows)
        whole = self.tensor(name, (stack.count, part.rows))
        found = decode(self.file, whole)
        if isinstance(found, Blocks):
            raise UnsupportedError(f"'{name}' in blocks is not supported")
        return found[stack.index].astype(np.float32)

    def expert(
        self, block: str, number: int, count: int, width: int
    ) -> tuple[Projection, Projection, Projection]:
        """Gate, values and the second product of one expert, in tensors of its own or stacked with the others."""
        names = [f"{block}.ffn_{kind}" for kind in ("gate", "up", "down")]
        apart = self.has(f"{names[2]}.{number}.weight")
        shape = (None, None) if apart else (count, None, None)
        ends = [f"{name}.{number}" if apart else f"{name}_exps" for name in names]
        inner = self.tensor(f"{ends[2]}.weight", shape).shape[-1]
        part = None if apart else StackedMatrix(number, count)
        gate, up, down = (
            Projection(name, rows, None, part)
            for name, rows in zip(ends, (inner, inner, width), strict=True)
        )
        return gate, up, down

    def _product(self, x: Tensor, stored: Blocks | npt.NDArray[Any], name: str) -> Tensor:
        e = self.maker
        if not isinstance(stored, Blocks):
            weights = e.transpose(e.constant(stored, name), (1, 0))
            return e.op("matmul", x, e.cast(weights, dtypes.f32))
        stored = _around_middle(stored)
        scale = e.constant(stored.scale)
        zero = _zero(e, stored, scale.shape)
        values = e.constant(stored.values, name)
        weights = e.op(
            "dequantize_linear", values, scale, zero, axis=1, block_size=stored.group
        )
        result = e.op("matmul", x, e.transpose(weights, (1, 0)))
        if stored.minimum is None:
            return result
        blocks = stored.minimum.shape[1]
        apart = e.reshape(x, (*x.shape[:-1], blocks, stored.group))
        sums = e.op("reduce_sum", apart, axes=(apart.rank - 1,), keepdims=False)
        shift = e.op("matmul", sums, e.constant(np.ascontiguousarray(stored.minimum.T)))
        return e.op("add", result, shift)


def _are_alike(stored: Sequence[Blocks | npt.NDArray[Any]]) -> bool:
    """Whether blocks can stand in one product."""
    forms = {
        (each.values.dtype, each.zero, each.group, each.minimum is None)
        for each in stored
        if isinstance(each, Blocks)
    }
    return len(forms) == 1


def _joined(stored: Sequence[Blocks | npt.NDArray[Any]]) -> Blocks | npt.NDArray[Any]:
    """All rows, one part after the other."""
    first = stored[0]
    if len(stored) == 1:
        return first
    if not isinstance(first, Blocks):
        return np.concatenate([each for each in stored if not isinstance(each, Blocks)])
    blocks = [each for each in stored if isinstance(each, Blocks)]
    minima = [each.minimum for each in blocks if each.minimum is not None]
    return Blocks(
        np.concatenate([each.values for each in blocks]),
        np.concatenate([each.scale for each in blocks]),
        np.concatenate(minima) if minima else None,
        first.zero,
        first.group,
    )


def _around_middle(stored: Blocks) -> Blocks:
    """Integers of 4 bits around the middle of their range, as products have them without zero points.

    Where there are minima they take what that changes; else small integers move up.
    """
    if stored.values.dtype != np.uint8 or stored.zero == _MIDDLE:
        return stored
    move = _MIDDLE - stored.zero
    if stored.minimum is None:
        return Blocks(
            stored.values + np.uint8(move), stored.scale, None, _MIDDLE, stored.group
        )
    with np.errstate(all="ignore"):  # files may have scales that are no numbers
        minimum = (stored.minimum + stored.scale * move).astype(np.float32, copy=False)
    return Blocks(stored.values, stored.scale, minimum, _MIDDLE, stored.group)


def _zero(e: NodeMaker, stored: Blocks, shape: Sequence[Any]) -> Tensor | None:
    if stored.values.dtype != np.uint8:
        return None
    return e.broadcast_to(e.scalar(stored.zero, dtypes.u8), tuple(shape))


def _in_pairs(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Integers of 4 bits two to a byte, the first in its lower half."""
    return values[..., ::2] | values[..., 1::2] << np.uint8(4)
