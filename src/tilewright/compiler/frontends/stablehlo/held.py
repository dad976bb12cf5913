"""What a value of a module stands for while it is imported.

A complex tensor is two tensors: the graph has no complex numbers, and most of what is done to them
is done to each part.  Tuples and tokens exist at import time only.  Made by rows, bound to values by
the importer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as its parts, which have one type."""

    real: Tensor
    imaginary: Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """Several values as one."""

    items: tuple[Held, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """An order of effects, of which a function of tensors has none."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """A result of an operation with a problem; those that use it are skipped, not blamed."""


Held = Tensor | Complex | Tuple | Token


def on_parts(function: Callable[[Tensor], Tensor], held: Held) -> Held:
    """What `function`, which moves elements, makes of a tensor, or of both parts of a complex one."""
    if isinstance(held, Complex):
        return Complex(function(held.real), function(held.imaginary))
    if not isinstance(held, Tensor):
        raise UnsupportedError("tuples and tokens are not supported here")
    return function(held)


def joined(e: NodeMaker, parts: Sequence[Held], axis: int) -> Held:
    """Tensors one after another along an axis, or complex ones part by part."""
    if all(isinstance(held, Complex) for held in parts):
        pairs = [held for held in parts if isinstance(held, Complex)]
        return Complex(
            e.concat([held.real for held in pairs], axis),
            e.concat([held.imaginary for held in pairs], axis),
        )
    tensors = [held for held in parts if isinstance(held, Tensor)]
    if len(tensors) != len(parts):
        raise UnsupportedError("tuples and tokens are not supported here")
    return e.concat(tensors, axis)


def shape_of(held: Held) -> tuple[int, ...]:
    """The sizes of a tensor, or of the parts of a complex one.  Raises: UnsupportedError for others."""
    tensor = held.real if isinstance(held, Complex) else held
    if not isinstance(tensor, Tensor):
        raise UnsupportedError("tuples and tokens are not supported here")
    sizes = tuple(size for size in tensor.shape if isinstance(size, int))
    assert len(sizes) == tensor.rank, "values of a module are static"
    return sizes
