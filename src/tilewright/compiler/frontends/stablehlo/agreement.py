"""Whether values are what the types of a module say of them.

Called by the importer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.base.text import plural
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import Problem
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import (
    assumed_equal,
    assumed_inside,
)
from tilewright.compiler.frontends.stablehlo.call import element_dtype, sizes_in
from tilewright.compiler.frontends.stablehlo.demands import handed_over
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, Token, Tuple
from tilewright.compiler.frontends.stablehlo.region_demands import RETURNS
from tilewright.compiler.frontends.stablehlo.tree import (
    Block,
    ComplexType,
    DialectType,
    Function,
    Operation,
    TensorType,
    TupleType,
    Type,
)
from tilewright.compiler.graph.schema import TensorType as GraphType


def leaves(held: Held, type_: Type) -> Iterator[tuple[str, Held, Type]]:
    """What a value is made of, by what is added to its name; tokens are nothing.

    Tensors, and as they are tuples and tokens where the type says something else: `agree` refuses them.
    """
    match held, type_:
        case Tuple(items), TupleType(types) if len(items) == len(types):
            for index, (item, own) in enumerate(zip(items, types, strict=True)):
                for suffix, leaf, stated in leaves(item, own):
                    yield f"_{index}{suffix}", leaf, stated
        case Token(), DialectType():
            pass
        case _:
            yield "", held, type_


def agree(
    e: NodeMaker, type_: Type, held: Held, said: str = "gives", *, lifted: bool = False
) -> None:
    """Raise ModelError where a value is not of the type that the text states; `said` begins the message.

    Where a call decides a size that the text states, that is what it must give.  A `lifted` value is a number that
    stands for a whole tensor.
    """
    for _, leaf, own in leaves(held, type_):
        if isinstance(leaf, Tuple) and isinstance(own, DialectType):
            continue  # what was started is awaited
        if isinstance(leaf, Tuple | Token) or isinstance(own, TupleType | DialectType):
            raise ModelError(f"{said} {_form(leaf)}, its type says {own}")
        _agree(e, own, leaf, said, lifted=lifted)


def _form(held: Held) -> str:
    match held:
        case Tuple(items):
            return f"a tuple of {plural(len(items), 'value')}"
        case Token():
            return "a token"
        case _:
            return "a tensor"


def _agree(
    e: NodeMaker, type_: Type, held: Tensor | Complex, said: str, *, lifted: bool
) -> None:
    stated = GraphType(element_dtype(type_), ())
    if isinstance(held, Complex) != is_complex(type_):
        kind = "complex" if isinstance(held, Complex) else "real"
        raise ModelError(f"{said} {kind} numbers, its type says {type_}")
    for tensor in (held.real, held.imaginary) if isinstance(held, Complex) else (held,):
        is_right = lifted or _has_shape(e, tensor.shape, type_)
        if tensor.dtype != stated.dtype or not is_right:
            sizes = ", ".join("?" if n is None else str(n) for n in sizes_in(type_))
            raise ModelError(f"{said} {tensor.type}, its type says {stated.dtype}[{sizes}]")


def _has_shape(e: NodeMaker, shape: Sequence[Dim], type_: Type) -> bool:
    sizes = sizes_in(type_)
    if len(sizes) != len(shape):
        return False
    limits = bounds_of(type_) or (None,) * len(sizes)
    for own, limit, size in zip(sizes, limits, shape, strict=True):
        if own is not None and not assumed_equal(e, size, own):
            return False
        if limit is not None and not assumed_inside(e, size, limit):
            return False
    return True


def bounds_of(type_: Type) -> tuple[int | None, ...]:
    """The bounds that a type states; none where it has none."""
    return type_.bounds if isinstance(type_, TensorType) else ()


def is_complex(type_: Type) -> bool:
    """Whether a type says that elements are complex numbers."""
    return isinstance(type_, TensorType) and isinstance(type_.element, ComplexType)


def fits_call(operation: Operation, function: Function) -> None:
    """Raise ModelError where a call gives or takes values of other types than the function says."""
    given, results = (
        [value.type for value in values]
        for values in (operation.operands, operation.results)
    )
    handed_over(given, function.type.inputs, "gives", f"@{function.name} takes")
    handed_over(function.type.results, results, f"@{function.name} returns", "the call has")
    if function.body is not None:
        fits_body(function, function.body)


def fits_body(function: Function, body: Block) -> None:
    """Raise ModelError where a function returns values of other types than it says."""
    if body.operations:
        found = [value.type for value in body.operations[-1].operands]
        if body.operations[-1].name in RETURNS:
            handed_over(found, function.type.results, "returns", "its type says")


def problems_of_body(function: Function, body: Block) -> list[Problem]:
    """What is wrong with what a function that is run returns."""
    try:
        fits_body(function, body)
    except ModelError as error:
        text = f"@{function.name} at {function.place}: {error.message}"
        return [Problem("", "", text, error.hint or "")]
    return []
