"""Results of a graph that are views: of an argument, or of another result.

Torch rebuilds such a result where the tensor lies that it is a view of, from sizes, strides and the place of the
first element, so it has to be the view itself, not a copy.  Called by `torch_compile`, for whole graphs.

Source: AOTAutograd (`torch._functorch._aot_autograd`), outputs that alias inputs and intermediates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import tilewright.compiler.frontends.torch.border as border


@final
@dataclass(frozen=True, slots=True, eq=False)
class Strided:
    """A view of known sizes, strides and place.

    Attributes:
        place: which result it is.
        base: which argument, or other result, is looked at.
        is_argument: whether it is an argument.
        layout: sizes, strides, and how many elements behind the base's first one it begins; None: it is the base.
        make: of a base and the layout, the view.
    """

    place: int
    base: int
    is_argument: bool
    layout: tuple[tuple[int, ...], tuple[int, ...], int] | None
    make: Any


@final
@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """The results of a graph that are views.

    Attributes:
        places: which results they are.
        bases: which other results are looked at.
        run: of all arguments and the bases, the views.
        nodes: the names of the operators in the graph that make them.
        strided: the views, where sizes, strides and places of all are known; they need no operators then.
    """

    places: tuple[int, ...]
    bases: tuple[int, ...]
    run: Any
    nodes: frozenset[str]
    strided: tuple[Strided, ...] | None

    def complete(self, arguments: Sequence[Any], results: list[Any]) -> list[Any]:
        """Results with the views among them put in."""
        if self.strided is not None:
            for view in self.strided:  # in every call: no function between
                base = arguments[view.base] if view.is_argument else results[view.base]
                results[view.place] = view.make(base, *view.layout) if view.layout else base
            return results
        held = self.run(*arguments, *(results[place] for place in self.bases))
        for place, view in zip(self.places, held, strict=True):
            results[place] = view
        return results


def views_of(graph_module: Any) -> Views | None:
    """What results of the graph are views; None where none is."""
    copy = _Copy(graph_module)
    found: dict[int, Any] = {}
    strided: list[Strided | None] = []
    for place, node in enumerate(copy.results):
        base = _base(node, copy.known) if border.is_instance(node, "fx.Node") else None
        # An argument that is a result is that argument; what a graph computes is no view.
        if base is not None and (base is not node or node.op == "placeholder"):
            made = copy.of(node)
            if made is not None:
                found[place] = made
                strided.append(copy.strided(place, node, base))
    if not found:
        return None
    bases = copy.used_bases(found)
    copy.graph.output(tuple(found.values()))
    module = border.load("torch.fx").GraphModule(graph_module, copy.graph)
    known = tuple(view for view in strided if view is not None)
    is_known = len(known) == len(found)
    return Views(
        tuple(found), bases, module.forward, copy.names, known if is_known else None
    )


def _is_view(node: Any) -> bool:
    return (
        node.op == "call_function"
        and border.is_instance(node.target, "_ops.OpOverload")
        and bool(node.target.is_view)
    )


def _base(node: Any, known: dict[Any, Any]) -> Any:
    """The argument, or the result, that a node is a view of; itself if it is one; None for what is neither."""
    seen = node
    while _is_view(seen):
        seen = seen.args[0]
        if not border.is_instance(seen, "fx.Node"):
            return None
        if seen in known and not _is_view(seen):
            return seen
    return seen if seen in known else None


def _is_placed(value: Any) -> bool:
    """Whether it is a tensor of known sizes, strides and place, whose elements are what its memory holds."""
    if not border.is_instance(value, "Tensor") or value.is_neg() or value.is_conj():
        return False
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return all(isinstance(number, int) for number in numbers)


@final
class _Copy:
    """A graph of the views alone.

    Attributes:
        results: what the graph returns.
        known: its arguments, and results that are no views, as parameters of the copy.
    """

    def __init__(self, graph_module: Any) -> None:
        nodes = list(graph_module.graph.nodes)
        self.results: list[Any] = list(border.results_of(graph_module.graph))
        self.graph: Any = border.load("torch.fx").Graph()
        self.known: dict[Any, Any] = {}
        for node in nodes:
            if node.op == "placeholder":
                self.known[node] = self.graph.placeholder(f"argument_{len(self.known)}")
        self._bases: dict[int, Any] = {}
        for place, node in enumerate(self.results):
            is_node = border.is_instance(node, "fx.Node")
            if is_node and node not in self.known and not _is_view(node):
                self._bases[place] = node
                self.known[node] = self.graph.placeholder(f"base_{place}")
        self._made: dict[Any, Any] = dict(self.known)

    def of(self, node: Any) -> Any:
        """The copy of a node; None where something else than views and sizes is needed for it."""
        if node in self._made:
            return self._made[node]
        if not (_is_view(node) or border.is_instance(node.meta.get("val"), "SymInt")):
            return None
        needed = node.all_input_nodes
        if any(self.of(each) is None for each in needed):
            return None
        self._made[node] = made = self.graph.node_copy(node, self._made.__getitem__)
        return made

    def strided(self, place: int, node: Any, base: Any) -> Strided | None:
        """A view by the place of its elements; None where that is not known, or does not say it all."""
        results = [other for other, held in self._bases.items() if held is base]
        is_argument = not results
        at = list(self.known).index(base) if is_argument else results[0]
        if node is base:
            return Strided(place, at, is_argument, None, None)
        view, seen = node.meta.get("val"), base.meta.get("val")
        make = border.view_maker()
        if make is None or not (_is_placed(view) and _is_placed(seen)):
            return None
        # What is computed lies in its own order, which rows one after the other alone say for sure.
        if view.dtype != seen.dtype or not (is_argument or seen.is_contiguous()):
            return None
        begin = view.storage_offset() - seen.storage_offset()
        layout = tuple(view.shape), tuple(view.stride()), begin
        return Strided(place, at, is_argument, layout, make)

    @property
    def names(self) -> frozenset[str]:
        """Of the nodes that were copied."""
        return frozenset(node.name for node in self._made if node not in self.known)

    def used_bases(self, found: dict[int, Any]) -> tuple[int, ...]:
        """The places of results that the copy needs; parameters that nobody needs go away."""
        used = set(found.values())
        kept: list[int] = []
        for place, node in self._bases.items():
            parameter = self.known[node]
            if parameter.users or parameter in used:
                kept.append(place)
            else:
                self.graph.erase_node(parameter)
        return tuple(kept)
