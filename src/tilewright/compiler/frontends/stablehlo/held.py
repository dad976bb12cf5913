"""What a value of a module stands for while it is imported.

A complex tensor is two tensors: the graph has no complex numbers, and most of what is done to them
is done to each part.  Tuples and tokens exist at import time only.  Made by rows, bound to values by
the importer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.complex_parts import Complex
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor


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


__all__ = [
    "Complex", "Held", "Token", "Tuple", "Unknown", "dims_of", "flattened", "joined", "on_parts",
    "part_of_value",
    "restored", "shape_of",
]  # fmt: skip

Held = Tensor | Complex | Tuple | Token


def on_parts(function: Callable[[Tensor], Tensor], held: Held) -> Held:
    """What `function`, which moves elements, makes of a tensor, or of both parts of a complex one."""
    if isinstance(held, Complex):
        return held.map(function)
    if not isinstance(held, Tensor):
        raise UnsupportedError("tuples and tokens are not supported here")
    return function(held)


def flattened(held: Sequence[Held]) -> list[Tensor]:
    """The tensors that values are made of, in order."""
    found: list[Tensor] = []
    for value in held:
        match value:
            case Complex():
                found += (value.real, value.imaginary)
            case Tuple():
                found += flattened(value.items)
            case Token():
                pass
            case _:
                found.append(value)
    return found


def restored(forms: Sequence[Held], tensors: Sequence[Tensor]) -> list[Held]:
    """Tensors as values of the same forms as others."""
    rest = iter(tensors)
    return [_restore(form, rest) for form in forms]


def _restore(form: Held, rest: Iterator[Tensor]) -> Held:
    match form:
        case Complex():
            return Complex(next(rest), next(rest))
        case Tuple():
            return Tuple(tuple(_restore(item, rest) for item in form.items))
        case Token():
            return form
        case _:
            return next(rest)


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


def dims_of(held: Held) -> tuple[Dim, ...]:
    """The sizes of a tensor, or of the parts of a complex one.  Raises: UnsupportedError for others."""
    tensor = held.real if isinstance(held, Complex) else held
    if not isinstance(tensor, Tensor):
        raise UnsupportedError("tuples and tokens are not supported here")
    return tensor.shape


def shape_of(held: Held) -> tuple[int, ...]:
    """The sizes of a tensor, all of which are numbers.  Raises: UnsupportedError where a call decides one."""
    dims = dims_of(held)
    sizes = tuple(size for size in dims if isinstance(size, int))
    if len(sizes) != len(dims):
        listed = ", ".join(map(str, dims))
        raise UnsupportedError(
            f"sizes that a call decides are not supported here, as in [{listed}]"
        )
    return sizes


def part_of_value(held: Held, name: str) -> Held:
    """One part of a complex tensor; what is real stays (indices, sizes)."""
    return getattr(held, name) if isinstance(held, Complex) else held
