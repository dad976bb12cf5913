"""A literal of the text as what it stands for in the importer."""

from __future__ import annotations

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import element_dtype
from tilewright.compiler.frontends.stablehlo.held import Complex, Held
from tilewright.compiler.frontends.stablehlo.tree import Dense
from tilewright.compiler.graph.schema import Array


def held_of(literal: Dense, maker: NodeMaker) -> Held:
    """The tensor of a literal.  Raises: UnsupportedError for elements that the graph has no type for."""
    dtype, array = element_dtype(literal.type), literal.array
    if array.dtype.kind == "c":
        return Complex(_tensor(np.real(array), maker), _tensor(np.imag(array), maker))
    if array.dtype != dtype.numpy:
        array = _held_as(array, dtype)
    return _tensor(array, maker)


def _held_as(array: Array, dtype: DType) -> Array:
    """The elements in the wider type that holds them; a splat stays one."""
    if array.size > 1 and not any(array.strides):
        first = array.reshape(-1)[:1].astype(dtype.numpy)
        return np.broadcast_to(first.reshape(()), array.shape)
    return array.astype(dtype.numpy)


def _tensor(array: Array, maker: NodeMaker) -> Tensor:
    """A constant; one element that is repeated is a constant of its own."""
    if array.size > 1 and not any(array.strides):
        first = maker.constant(array.reshape(-1)[:1].reshape(()))
        return maker.broadcast_to(first, array.shape)
    return maker.constant(np.ascontiguousarray(array).reshape(array.shape))
