"""Runs a graph on numpy arrays with the oracles of its ops.

The reference for every other way to run a model, the engine of constant folding and the fallback
for ops without a kernel.  Exact in meaning, slow, no parallelism.  Dimension symbols are bound
from the shapes of the inputs; attributes get numbers for symbols before an oracle sees them.  An
op with regions finds them as callables under the attribute `regions`.  A size of 0 that leaves no
element of any output passes for 1, as in a program (`formats.plan.Dimension`): no oracle runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import (
    InputError,
    InternalError,
    ModelError,
    TilewrightError,
    size_error,
)
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Array, TensorType, Trait
from tilewright.formats.plan import Dimension
from tilewright.formats.plan.size_relations import relation_of

REGIONS: Final = "regions"
RegionFunction = Callable[[Sequence[Array]], list[Array]]
Inputs = Mapping[str, Array] | Sequence[Array]


def evaluate(
    graph: Graph, inputs: Inputs, *, dims: Mapping[str, int] | None = None
) -> list[Array]:
    """The outputs of `graph` for `inputs`, by name or in order.

    Args:
        graph: what to run.
        inputs: one array per graph input, of its exact dtype.
        dims: values of symbols that the input shapes do not decide.

    Raises: InputError for arrays that do not fit; ModelError from an op, naming the node.
    """
    arrays = _ordered(graph, inputs)
    bound = bind_dims(graph.inputs, [a.shape for a in arrays], dims, graph.outputs)
    for value, array in zip(graph.inputs, arrays, strict=True):
        if dtypes.from_numpy(array.dtype) != value.type.dtype:
            raise InputError(
                f"has type {dtypes.from_numpy(array.dtype)}, expected {value.type}",
                location=f"input '{value.name}'",
            )
    return _empty_outputs(graph, bound) or _run(graph, arrays, bound)


def _empty_outputs(graph: Graph, dims: Mapping[str, int]) -> list[Array]:
    """The outputs of sizes of 0 that leave nothing to compute; none where there is something.

    Raises: InputError for sizes that the nodes take to be equal and that are not.
    """
    sizes = (dim for value in graph.inputs for dim in value.type.shape)
    if not any(
        dims.get(symbol.name) == 0 and _leaves_nothing(symbol, graph.outputs)
        for dim in sizes
        for symbol in symbolic.symbols(dim)
    ):
        return []
    _require_equal(graph, dims)
    types = [value.type for value in graph.outputs]
    shapes = [[symbolic.substitute(dim, dims) for dim in type_.shape] for type_ in types]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        return []  # what remains is known from the data
    if any(cast("int", size) < 0 for shape in shapes for size in shape):
        raise InputError(f"sizes are too small for this model: outputs of {shapes}")
    return [
        np.zeros(cast("list[int]", shape), type_.dtype.numpy)
        for shape, type_ in zip(shapes, types, strict=True)
    ]


def _leaves_nothing(symbol: Symbol, outputs: Sequence[Value]) -> bool:
    """Whether no output has an element where a symbol, that may be 1, is 0."""
    dim = Dimension(symbol.name, 0, 0, symbol.lower or 0)
    return dim.leaves_nothing(value.type.shape for value in outputs)


def _require_equal(graph: Graph, dims: Mapping[str, int]) -> None:
    """Refuse sizes that the nodes take to be equal and that are not.

    Args:
        graph: what runs.
        dims: the symbols that are known; pairs with others are left for when they are.

    Raises: InputError.
    """
    for pair in graph.equalities:
        is_, other = (symbolic.substitute(dim, dims) for dim in pair)
        if isinstance(is_, int) and isinstance(other, int) and is_ != other:
            said = relation_of(pair).broken_text(lambda x: symbolic.substitute(x, dims))
            raise InputError(said)


def _ordered(graph: Graph, inputs: Inputs) -> list[Array]:
    names = [v.name for v in graph.inputs]
    if isinstance(inputs, Mapping):
        missing = [n for n in names if n not in inputs]
        extra = [n for n in inputs if n not in names]
        if missing or extra:
            raise InputError(f"inputs do not fit: missing {missing}, unknown {extra}")
        return [np.asarray(inputs[n]) for n in names]
    if len(inputs) != len(names):
        raise InputError(f"got {len(inputs)} inputs, expected {len(names)}: {names}")
    return [np.asarray(a) for a in inputs]


def bind_dims(
    inputs: Sequence[Value],
    shapes: Sequence[Sequence[int]],
    dims: Mapping[str, int] | None = None,
    outputs: Sequence[Value] | None = None,
) -> dict[str, int]:
    """The numbers for the symbols in the types of `inputs`, given actual shapes.

    Args:
        inputs: the values whose types hold the symbols.
        shapes: what they are, in the order of `inputs`.
        dims: numbers of symbols that are known already.
        outputs: of a whole model: a size of 0 that leaves no element of any passes for 1.

    Raises: InputError for a wrong rank or size, or a size outside the symbol's bounds.
    """
    binding = _Binding(dict(dims or {}), outputs)
    for value, shape in zip(inputs, shapes, strict=True):
        if len(shape) != value.type.rank:
            raise InputError(
                f"has shape {tuple(shape)}, expected {value.type}",
                location=f"input '{value.name}'",
            )
        for axis, (dim, size) in enumerate(zip(value.type.shape, shape, strict=True)):
            binding.check_or_keep(value, axis, dim, int(size))
    binding.settle()
    return binding.bound


@final
class _Binding:
    """Numbers that are found for symbols, and sizes that do not say theirs yet.

    Attributes:
        bound: the numbers.
        pending: value, axis, its dimension and the size there.
        outputs: of a whole model.
    """

    __slots__ = ("bound", "outputs", "pending")

    def __init__(self, bound: dict[str, int], outputs: Sequence[Value] | None) -> None:
        self.bound: dict[str, int] = bound
        self.pending: list[tuple[Value, int, Dim, int]] = []
        self.outputs: Sequence[Value] | None = outputs

    def settle(self) -> None:
        """Solve what is pending.  Raises: InputError where that does not decide a symbol."""
        while self.pending:
            undecided = self.pending
            self.pending = []
            for value, axis, dim, size in undecided:
                self.check_or_keep(value, axis, dim, size)
            if len(self.pending) == len(undecided):
                value, axis, dim, size = self.pending[0]
                raise InputError(
                    f"cannot tell the symbols in '{dim}' from size {size}",
                    location=f"input '{value.name}', axis {axis}",
                )

    def check_or_keep(self, value: Value, axis: int, dim: Dim, size: int) -> None:
        """Take a size for the symbol it decides; a pending one if that is open."""
        known = symbolic.substitute(dim, self.bound)
        where = f"input '{value.name}', axis {axis}"
        if isinstance(known, int):
            if known != size:
                expected = f"{known}" if known == dim else f"{known} ({dim})"
                raise InputError(f"has size {size}, expected {expected}", location=where)
            return
        free = symbolic.symbols(known)
        solved = _solve(known, size) if len(free) == 1 else None
        if solved is None:
            self.pending.append((value, axis, dim, size))
            return
        (symbol,) = free
        low, high = symbol.lower, symbol.upper
        is_less = low is not None and solved < low and not self._passes(symbol, solved)
        if is_less or (high is not None and solved > high):
            raise InputError(
                f"has size {size}, which gives {symbol.name} = {solved} outside "
                f"{'' if low is None else low}..{'' if high is None else high}",
                location=where,
            )
        self.bound[symbol.name] = solved

    def _passes(self, symbol: Symbol, number: int) -> bool:
        """Whether it is 0 and leaves nothing to compute."""
        outputs = self.outputs
        return number == 0 and outputs is not None and _leaves_nothing(symbol, outputs)


def _solve(dim: Dim, size: int) -> int | None:
    """The value of the only symbol of `dim`, when `dim` is linear in it."""
    (free,) = symbolic.symbols(dim)
    line = symbolic.linear(dim, free.name)
    if line is None:
        return None
    factor, rest = line
    if not isinstance(factor, int) or not isinstance(rest, int) or factor == 0:
        return None
    quotient, remainder = divmod(size - rest, factor)
    return quotient if remainder == 0 else None


def concrete_attributes(node: Node, dims: Mapping[str, int]) -> dict[str, object]:
    """The attributes of `node` with every known symbol replaced by its number."""
    found = dict(node.attributes)
    for spec in node.schema.attributes:
        held = found.get(spec.name)
        if spec.kind == "dims" and isinstance(held, tuple):
            found[spec.name] = tuple(symbolic.substitute(d, dims) for d in held)
    return found


def evaluate_node(
    node: Node, operands: Sequence[Array | None], dims: Mapping[str, int] | None = None
) -> list[Array]:
    """The results of one node.

    Raises: ModelError or the oracle's own error, with the node as location.
    """
    bound = dims or {}
    attributes = concrete_attributes(node, bound)
    if node.regions:
        attributes[REGIONS] = tuple(_callable(region, bound) for region in node.regions)
    try:
        with np.errstate(all="ignore"):
            results = node.schema.evaluate(operands, attributes)
    except TilewrightError as error:
        error.location = error.location or node.location
        raise
    except Exception as error:
        raise ModelError(
            f"op '{node.op}' failed: {error}", location=node.location
        ) from error
    return [
        _checked(node, value, array, bound)
        for value, array in zip(node.results, results, strict=True)
    ]


def _callable(region: Graph, dims: Mapping[str, int]) -> RegionFunction:
    def call(arrays: Sequence[Array]) -> list[Array]:
        shapes = [a.shape for a in arrays]
        return _run(region, list(arrays), bind_dims(region.inputs, shapes, dims))

    return call


def _checked(node: Node, value: Value, array: Array, dims: Mapping[str, int]) -> Array:
    result = np.asarray(array)
    dtype: DType = value.type.dtype
    if result.dtype != dtype.numpy or not _fits(value.type, result.shape, dims):
        raise InternalError(
            f"op '{node.op}' gave {dtypes.from_numpy(result.dtype)}{list(result.shape)} "
            f"for result {value.index}, expected {value.type}",
            location=node.location,
        )
    return result


def _fits(type_: TensorType, shape: tuple[int, ...], dims: Mapping[str, int]) -> bool:
    if len(shape) != type_.rank:
        return False
    for dim, size in zip(type_.shape, shape, strict=True):
        known = symbolic.substitute(dim, dims)
        if isinstance(known, int) and known != size:
            return False
    return True


def _run(graph: Graph, inputs: Sequence[Array], dims: dict[str, int]) -> list[Array]:
    _require_equal(graph, dims)
    remaining = _use_counts(graph)
    values: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        operands = [None if v is None else values[v] for v in node.operands]
        results = evaluate_node(node, operands, dims)
        if node.has(Trait.BINDS):
            _bind_sizes(node, operands[0], dims)
            _require_equal(graph, dims)
        for value, array in zip(node.results, results, strict=True):
            _learn_dims(value.type, array.shape, dims)
            if remaining.get(value):
                values[value] = array
        for value in node.present_operands:
            remaining[value] -= 1
            if not remaining[value]:
                values.pop(value, None)
    return [values[v] for v in graph.outputs]


def _bind_sizes(node: Node, values: Array | None, dims: dict[str, int]) -> None:
    """Give the symbols of a `bind_sizes` the numbers in its operand.

    Raises: InputError for one outside the bounds of its symbol.
    """
    assert values is not None, "the operand is not optional"
    for dim, number in zip(
        cast("tuple[Dim, ...]", node.attributes["sizes"]), values.reshape(-1), strict=True
    ):
        (found,) = symbolic.symbols(dim)
        problem = size_error(int(number), found.lower, found.upper, node.location)
        if problem is not None:
            raise problem
        dims[found.name] = int(number)


def _use_counts(graph: Graph) -> dict[Value, int]:
    counts: dict[Value, int] = {}
    for node in graph.nodes:
        for value in node.present_operands:
            counts[value] = counts.get(value, 0) + 1
    for value in graph.outputs:
        counts[value] = counts.get(value, 0) + 1
    return counts


def _learn_dims(type_: TensorType, shape: tuple[int, ...], dims: dict[str, int]) -> None:
    """Bind a symbol that only the data decides (the count of `nonzero`)."""
    for dim, size in zip(type_.shape, shape, strict=True):
        known = symbolic.substitute(dim, dims)
        if not isinstance(known, int) and len(symbolic.symbols(known)) == 1:
            solved = _solve(known, size)
            if solved is not None:
                (free,) = symbolic.symbols(known)
                dims[free.name] = solved
