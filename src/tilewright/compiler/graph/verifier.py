"""Checks that a graph is what `ir.py` promises: SSA, order, signatures, types, regions.

Collects every violation and raises once.  A violation is a bug of whoever built the graph, so it
is an InternalError; foreign models are checked by their front end.  Called between passes, after
parsing and by tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.base.symbolic import Dim, Expr, Symbol, substitute
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import (
    AttributeSpec,
    OperandSpec,
    OpSchema,
    TensorType,
    Trait,
)
from tilewright.compiler.graph.text import describe, to_text

_SHOWN: Final = 12


def verify(graph: Graph) -> None:
    """Raise unless the graph keeps every rule.

    Raises: InternalError with all violations found and the graph as text.
    """
    found = violations(graph)
    if not found:
        return
    more = f"\nand {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise InternalError(
        f"graph '{graph.name}' is not valid:\n" + "\n".join(found[:_SHOWN]) + more,
        dump=to_text(graph, locations=True),
    )


def violations(graph: Graph) -> list[str]:
    """What is wrong with the graph, one sentence each; empty when it is valid."""
    return list(_graph_violations(graph))


def name_violations(graph: Graph) -> list[str]:
    """Which names of inputs and outputs a caller could not tell apart; a pass may make such outputs."""
    inputs = Counter(value.name for value in graph.inputs)
    outputs = Counter(
        name for name, _ in set(zip(graph.output_names, graph.outputs, strict=False))
    )
    return [
        f"{count} {side} are called '{name}'"
        for side, names in (("inputs", inputs), ("different outputs", outputs))
        for name, count in names.items()
        if count > 1
    ]


def _graph_violations(graph: Graph) -> Iterator[str]:
    defined: set[Value] = set()
    for value in graph.inputs:
        if value.node is not None:
            yield f"input '%{value.name}' is the result of a node"
        if value in defined:
            yield f"input '%{value.name}' is listed twice"
        defined.add(value)
    seen: set[Node] = set()
    for node in graph.nodes:
        where = f"{node.location}: op '{node.op}'"
        if node in seen:
            yield f"{where} is listed twice"
            continue
        seen.add(node)
        for text in _node_violations(node, defined):
            yield f"{where}: {text}"
        defined.update(node.results)
    yield from _output_violations(graph, defined)


def _output_violations(graph: Graph, defined: set[Value]) -> Iterator[str]:
    for index, value in enumerate(graph.outputs):
        if value not in defined:
            yield f"output {index} '%{value.name}' is not defined in graph '{graph.name}'"
    if graph.output_names and len(graph.output_names) != len(graph.outputs):
        yield f"{len(graph.outputs)} outputs have {len(graph.output_names)} names"


def _node_violations(node: Node, defined: set[Value]) -> Iterator[str]:
    for index, value in enumerate(node.operands):
        if value is not None and value not in defined:
            yield f"operand {index} '%{value.name}' is not defined before its use"
    for index, value in enumerate(node.results):
        if value.node is not node or value.index != index:
            yield f"result {index} does not point back to its node"
    signature = [*_operand_violations(node), *_attribute_violations(node)]
    yield from signature
    yield from _region_violations(node)
    if not signature:  # inference may rely on the signature
        yield from _type_violations(node)


def formal_operands(schema: OpSchema, count: int) -> list[OperandSpec] | None:
    """The formal operand of each of `count` actual ones, or None when the count is wrong.

    A variadic operand takes all that the others leave; trailing optional ones may be missing.
    """
    formal: list[OperandSpec] = []
    extra = count - len(schema.operands) + 1
    for spec in schema.operands:
        formal.extend([spec] * (max(extra, 0) if spec.variadic else 1))
    if count > len(formal) or any(not s.optional for s in formal[count:]):
        return None
    return formal[:count]


def _operand_violations(node: Node) -> Iterator[str]:
    formal = formal_operands(node.schema, len(node.operands))
    if formal is None:
        names = ", ".join(s.name for s in node.schema.operands)
        yield f"{len(node.operands)} operands do not fit the signature ({names})"
        return
    types: dict[str, DType] = {}
    for index, (spec, value) in enumerate(zip(formal, node.operands, strict=True)):
        if value is None:
            if not spec.optional:
                yield f"operand {index} '{spec.name}' is missing"
            continue
        dtype = value.type.dtype
        if spec.dtypes and dtype not in spec.dtypes:
            allowed = " ".join(map(str, spec.dtypes))
            yield f"operand {index} '{spec.name}' has type {value.type}, expected {allowed}"
        wanted = types.get(spec.like) if spec.like else types.get(spec.name)
        uniform = spec.like or (spec.variadic and not node.regions)
        if wanted is not None and wanted != dtype and uniform:
            yield f"operand {index} '{spec.name}' has type {value.type}, expected {wanted}"
        types.setdefault(spec.name, dtype)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_KINDS: Final[dict[str, Callable[[object], bool]]] = {
    "int": _is_int,
    "float": lambda v: isinstance(v, float) or _is_int(v),
    "string": lambda v: isinstance(v, str),
    "bool": lambda v: isinstance(v, bool),
    "dtype": lambda v: isinstance(v, DType),
    "dims": lambda v: (
        isinstance(v, tuple) and all(_is_int(d) or isinstance(d, Expr) for d in v)
    ),
    "ints": lambda v: isinstance(v, tuple) and all(map(_is_int, v)),
    "floats": lambda v: (
        isinstance(v, tuple) and all(isinstance(f, float) or _is_int(f) for f in v)
    ),
    "array": lambda v: isinstance(v, np.ndarray),
}


def _attribute_violations(node: Node) -> Iterator[str]:
    specs = {spec.name: spec for spec in node.schema.attributes}
    for name in node.attributes:
        if name not in specs:
            yield f"attribute '{name}' is unknown"
    for name, spec in specs.items():
        if name not in node.attributes:
            yield f"attribute '{name}' is missing"
        elif not _attribute_fits(node.attributes[name], spec):
            yield f"attribute '{name}' is {node.attributes[name]!r}, expected {spec.kind}"


def _attribute_fits(value: object, spec: AttributeSpec) -> bool:
    if value is None:
        return spec.default is None and not spec.required
    check = _KINDS.get(spec.kind)
    return check is not None and check(value)


def _region_violations(node: Node) -> Iterator[str]:
    if len(node.regions) != node.schema.region_count:
        yield f"has {len(node.regions)} regions, expected {node.schema.region_count}"
    for index, region in enumerate(node.regions):
        for text in _graph_violations(region):
            yield f"region {index}: {text}"


def _type_violations(node: Node) -> Iterator[str]:
    if node.regions:
        yield from _region_type_violations(node)
        return
    try:
        inferred = node.schema.infer(node.operand_types, node.attributes)
    except TilewrightError as error:
        yield f"types cannot be inferred: {error.message}"
        return
    stated = tuple(v.type for v in node.results)
    if inferred != stated:
        yield f"{describe(node)} has other result types than inferred: {_listed(inferred)}"


def _region_type_violations(node: Node) -> Iterator[str]:
    """A sealed region takes the operands and yields the results, type by type."""
    if not node.has(Trait.SEALED) or len(node.regions) != 1:
        yield from _control_flow_violations(node)
        return
    (region,) = node.regions
    operands = [v.type for v in node.present_operands]
    inputs = [v.type for v in region.inputs]
    if operands != inputs or len(operands) != len(node.operands):
        yield f"region takes ({_listed(inputs)}), the node has ({_listed(operands)})"
    results = [v.type for v in node.results]
    outputs = [v.type for v in region.outputs]
    if results != outputs:
        yield f"region yields ({_listed(outputs)}), the node has ({_listed(results)})"


def _control_flow_violations(node: Node) -> Iterator[str]:
    """Regions of control flow take what the op says, and yield results of one type."""
    operands = [v.type for v in node.operands if v is not None]
    results = [v.type for v in node.results]
    bound, changing = node.bound_sizes, node.trip_sizes
    if node.has(Trait.BRANCH):
        yields = [results, results]
        operands = operands[1:]
    else:
        carried = [v.type for v in node.regions[1].inputs[: len(results)]]
        yields = [[TensorType(dtypes.bool_, ())], carried]
        # What changed its size from trip to trip has some size in the end: a symbol, or what it must be.
        if not _agree(results, carried, changing):
            yield f"carries ({_listed(carried)}), the node has ({_listed(results)})"
    for index, (region, wanted) in enumerate(zip(node.regions, yields, strict=False)):
        inputs = [v.type for v in region.inputs]
        if not _agree(operands, inputs, changing):
            yield f"region {index} takes ({_listed(inputs)}), the node has ({_listed(operands)})"
        outputs = [v.type for v in region.outputs]
        if not _agree(outputs, wanted, (*bound, *changing)):
            yield f"region {index} yields ({_listed(outputs)}), expected ({_listed(wanted)})"


def _agree(
    given: Sequence[TensorType], taken: Sequence[TensorType], free: Sequence[Symbol]
) -> bool:
    """Whether types are the same once each free symbol, where it is taken, is one size of what is given."""
    pairs = list(zip(given, taken, strict=False))
    if len(given) != len(taken) or any(
        a.dtype != b.dtype or a.rank != b.rank for a, b in pairs
    ):
        return False
    sizes = [pair for a, b in pairs for pair in zip(a.shape, b.shape, strict=True)]
    names: dict[Dim, str] = {Expr.of_atom(symbol): symbol.name for symbol in free}
    values: dict[str, Dim] = {}
    for p, q in sizes:
        if q in names and values.setdefault(names[q], p) != p:
            return False
    return all(p == substitute(q, values) for p, q in sizes)


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))
