"""Operands of rows for complex numbers: tensors and numbers as two parts each.

Called by the rows of complex numbers.
"""

from __future__ import annotations

from tilewright.compiler.frontends.kit.complex_parts import Complex, product
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.program import Ref

Held = Tensor | Complex


def pair_of(call: Call, name: str = "self") -> Complex:
    """An operand as complex numbers of the type of the result, or its own."""
    return as_complex(call.maker, call.held(name))


def as_complex(e: NodeMaker, held: Held) -> Complex:
    """A tensor as its two parts; a real one has an imaginary part of 0."""
    if isinstance(held, Complex):
        return held
    return Complex(held, e.full(0, held.dtype, held.shape))


def on_parts(call: Call, pair: Complex) -> Complex:
    """Both parts in the type of the result."""
    return pair.map(call.finish)


def operand_of(call: Call, name: str) -> Complex:
    """A tensor or a number, both parts in the type of the result."""
    found = call.argument(name)
    if isinstance(found, Ref):
        return on_parts(call, pair_of(call, name))
    number, dtype = known_number(call, name), call.dtype()
    return Complex(*(call.maker.scalar(n, dtype) for n in (number.real, number.imag)))


def known_number(call: Call, name: str) -> complex:
    """An argument that is a number.  Raises: UnsupportedError for what only calls know."""
    found = call.argument(name)
    if not isinstance(found, int | float | complex):
        raise UnsupportedError(f"argument '{name}' is no number that is known")
    return complex(found)


def multiple(call: Call, pair: Complex, name: str) -> Complex:
    """Complex numbers times the argument `name` of the operator; 1 where it is not given."""
    found = call.argument(name)
    if found is None or found == 1:
        return pair
    e = call.maker
    if isinstance(found, int | float):
        scale = call.operand(name, call.dtype())
        return pair.map(lambda part: e.op("mul", part, scale))
    return product(e, pair, operand_of(call, name), lambda a, b: e.op("mul", a, b))
