"""Operators that give a view of a tensor or a copy of it, as its sizes and strides have it, where calls can tell which.

`reshape` and `contiguous` copy elements only where they must.  Torch traces what the example needs, with sizes of at least 2;
a program that writes to one of both tensors and reads the other later is another one where the choice is.  Here such choices
are found, and what calls must keep for those that copied.  What is not here: the answers of torch's own questions about
sizes, which `questions` keeps for such programs.  Called by `load`.

Source: `at::infer_size`, `at::detail::computeStride`; the aliases that schemas of `torch.ops` name.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.contiguous_copies import writes_in_place
from tilewright.compiler.frontends.torch.hoist import all_graphs
from tilewright.compiler.frontends.torch.sizes import environment_of

Condition = Any
"""Something that holds of sizes, as an expression of SymPy."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """An operator that may give a view.

    Attributes:
        node: of the graph.
        source: the node of the tensor that it is given.
    """

    node: Any
    source: Any

    @property
    def is_copy(self) -> bool:
        """Whether it copied, as torch traced it; of a program from a file nobody knows."""
        return not _storages(self.node) & _storages(self.source)


def choices_that_matter(exported: Any) -> tuple[Choice, ...]:
    """The choices of a program of which a write in place tells calls how they went."""
    if not writes_in_place(exported):
        return ()
    nodes = list(exported.graph.nodes)
    links = {node: tuple(_sources(node)) for node in nodes}
    choices = [
        Choice(node, source)
        for node in nodes
        for source in links[node]
        if _may_copy(node.target)
    ]
    is_nested = len(list(all_graphs(exported.graph_module))) > 1
    return tuple(each for each in choices if is_nested or _matters(each, nodes, links))


def conditions_of(choices: Iterable[Choice]) -> tuple[Condition, ...]:
    """What calls must keep so that what was copied is copied, each once."""
    found: dict[Condition, None] = {}
    for choice in choices:
        if choice.is_copy:
            parts = (part for part in _stays_copied(choice) if part.free_symbols)
            found.update(dict.fromkeys(parts))
    return tuple(found)


def _schema(target: Any) -> Any:
    return getattr(target, "_schema", None)


def _sources(node: Any) -> Generator[Any]:
    """The nodes that a result of this one perhaps shares elements with: as the schema has it, or as torch traced it."""
    schema, held = _schema(node.target), _storages(node)
    perhaps: set[Any] = set()
    if schema is not None:
        returned = _aliases(schema.returns)
        for parameter, given in _arguments(node):
            if returned & _aliases((parameter,)):
                perhaps.update(_flat(given))
    yield from (n for n in node.all_input_nodes if n in perhaps or _storages(n) & held)


def _arguments(node: Any) -> Generator[tuple[Any, Any]]:
    """Each parameter of the schema of what a node calls, and what it is given."""
    for position, parameter in enumerate(_schema(node.target).arguments):
        by_name = node.kwargs.get(parameter.name)
        yield parameter, node.args[position] if position < len(node.args) else by_name


def _aliases(parts: Iterable[Any]) -> set[str]:
    infos = (part.alias_info for part in parts)
    return {name for info in infos if info is not None for name in info.before_set}


def _flat(given: Any) -> Iterable[Any]:
    if isinstance(given, list | tuple):
        return itertools.chain.from_iterable(map(_flat, given))
    return (given,)


def _may_copy(target: Any) -> bool:
    """Whether an operator is written in others, so that its view may be one of a copy: what only views has code of its own."""
    schema = _schema(target)
    if schema is None or schema.is_mutable:
        return False
    return bool(
        target._can_decompose() and target.has_kernel_for_dispatch_key(_composite())
    )


def _composite() -> Any:
    return border.load("torch._C").DispatchKey.CompositeImplicitAutograd


def _storages(node: Any) -> set[int]:
    """What holds the elements of a node's tensors; those of a transform (`vmap`) and sparse ones do not say."""
    found: set[int] = set()
    for value in _flat(node.meta.get("val")):
        if border.is_instance(value, "Tensor"):
            with contextlib.suppress(NotImplementedError):
                found.add(value.untyped_storage()._cdata)
    return found


def _matters(choice: Choice, nodes: Sequence[Any], links: Any) -> bool:
    """Whether one of both tensors is written to, and the other read or seen by the caller later."""
    places = {node: place for place, node in enumerate(nodes)}
    below = _reached({choice.node}, nodes, links)
    others = _group(choice.source, nodes, links) - below
    for place in range(places[choice.node] + 1, len(nodes)):
        written = _written(nodes[place])
        for side, other in ((below, others), (others, below)):
            if side.isdisjoint(written):
                continue
            if any(
                node.op in ("placeholder", "get_attr")
                or any(places[user] > place for user in node.users)
                for node in other
            ):
                return True
    return False


def _written(node: Any) -> set[Any]:
    """The nodes that this one writes to."""
    schema = _schema(node.target)
    if schema is None or not schema.is_mutable:
        return set()
    written = (
        given
        for parameter, given in _arguments(node)
        if parameter.alias_info is not None and parameter.alias_info.is_write
    )
    return {
        n for given in written for n in _flat(given) if border.is_instance(n, "fx.Node")
    }


def _reached(start: set[Any], nodes: Sequence[Any], links: Any) -> set[Any]:
    """These nodes and what perhaps shares elements with them further down."""
    found = set(start)
    found.update(
        node for node in nodes if not found.isdisjoint(links[node]) and not found.add(node)
    )
    return found


def _group(node: Any, nodes: Sequence[Any], links: Any) -> set[Any]:
    """The nodes that perhaps share elements with one."""
    first = {node}
    for each in reversed(nodes):
        if each in first:
            first.update(links[each])
    return _reached(first, nodes, links)


def _stays_copied(choice: Choice) -> Generator[Condition]:
    """What has to hold so that no view does, or at the least what has to for it to be as in the trace."""
    sympy: Any = border.load("sympy")
    value, result = choice.source.meta["val"], choice.node.meta["val"]
    environment = environment_of((choice.source, choice.node))
    is_lone = border.is_instance(result, "Tensor") and border.is_instance(value, "Tensor")
    if environment is None or not is_lone:
        return
    sizes, steps, shape, strides = (
        [_expression(number, environment) for number in numbers]
        for numbers in (value.shape, value.stride(), result.shape, result.stride())
    )
    apart = _are_apart(sizes, steps)
    if shape == sizes and strides == _dense_strides(shape):
        copied = sympy.Or(*apart, *_are_wide(sizes, steps))
    elif len(shape) == 1:
        copied = sympy.Or(*apart)
    else:
        copied = sympy.false  # which view there may be depends on what it is cut into
    if copied == sympy.false:
        copied = sympy.And(*(sympy.Ne(size, 1) for size in sizes if size.free_symbols))
    found = sympy.to_cnf(copied, simplify=len(copied.atoms(sympy.Rel)) <= _FEW)
    yield from found.args if isinstance(found, sympy.And) else (found,)


def _are_apart(sizes: Sequence[Any], steps: Sequence[Any]) -> list[Condition]:
    """Of each two axes: that they are neighbours among those of more than one element, and no single axis."""
    sympy: Any = border.load("sympy")
    return [
        sympy.And(
            sympy.Ne(sizes[i], 1),
            *(sympy.Eq(size, 1) for size in sizes[i + 1 : j]),
            sympy.Ne(sizes[j], 1),
            sympy.Ne(steps[i], sizes[j] * steps[j]),
        )
        for i, j in itertools.combinations(range(len(sizes)), 2)
    ]


def _are_wide(sizes: Sequence[Any], steps: Sequence[Any]) -> list[Condition]:
    """Of each axis: that it is the last of more than one element, and its elements are not neighbours."""
    sympy: Any = border.load("sympy")
    return [
        sympy.And(
            sympy.Ne(size, 1), *(sympy.Eq(n, 1) for n in sizes[i + 1 :]), sympy.Ne(step, 1)
        )
        for i, (size, step) in enumerate(zip(sizes, steps, strict=True))
    ]


def _dense_strides(shape: Sequence[Any]) -> list[Any]:
    """Of a tensor whose elements lie one behind the other, the last axis first."""
    one = border.load("sympy").Integer(1)
    behind = itertools.accumulate(
        reversed(shape[1:]), lambda step, n: step * n, initial=one
    )
    return list(behind)[::-1]


def _expression(size: Any, environment: Any) -> Any:
    if isinstance(size, int):
        return border.load("sympy").Integer(size)
    return environment.replace(size.node.expr)


_FEW: Final = 8
"""How many relations SymPy simplifies within a moment."""
