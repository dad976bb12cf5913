"""Constants in branches and loops become constants of the program, which every graph in it is given.

Torch cannot take a program apart whose branches have tensors of their own (`torch.tensor(0.5)` in one): what it
traces them with is lost on the way.  Called by `export` before it asks torch to.

A graph may be run by several operators, and an operator that runs several graphs gives all of them the same: graphs
that share an operator, or share one with another that does, are sharers: all have the same constants behind their
own parameters.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.branch_results import (
    copy_shared_results,
    shares_results,
)
from tilewright.compiler.frontends.torch.flexible_attention import (
    has_flexible_attention,
    take_flexible_attention_apart,
)

_NAME: Final = "hoisted_constant"
Tensors = dict[int, Any]
"""Tensors in order, each once: by identity."""


def hoisted(exported: Any) -> Any:
    """The program with attention taken apart that runs graphs, results of graphs in memory of their own, and its constants outside of all graphs but the outermost; itself where nothing is to do."""
    graphs = all_graphs(exported.graph_module)
    attends, shares = has_flexible_attention(graphs), shares_results(graphs)
    if not attends and not shares and not any(_constants(body) for body in graphs[1:]):
        return exported
    module = copy.deepcopy(exported.graph_module)
    if attends:
        take_flexible_attention_apart(all_graphs(module))
    if shares:
        copy_shared_results(all_graphs(module))
    signature = copy.deepcopy(exported.graph_signature)
    constants = dict(exported.constants)
    _hoist(module, signature, constants)
    return type(exported)(
        root=module,
        graph=module.graph,
        graph_signature=signature,
        state_dict=exported.state_dict,
        range_constraints=exported.range_constraints,
        module_call_graph=exported.module_call_graph,
        example_inputs=exported.example_inputs,
        constants=constants,
        verifiers=exported.verifiers,
    )


# --- what is there ------------------------------------------------------------------------------


def all_graphs(module: Any) -> list[Any]:
    """A graph, and those that operators in it run, each once."""
    found: Tensors = {}
    waiting = [module]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += [body for _, bodies in _runs(each) for body in bodies]
    return list(found.values())


def _runs(module: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The operators of a graph that run graphs, with these."""
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        bodies = [
            getattr(module, str(given.target))
            for given in node.args
            if border.is_instance(given, "fx.Node") and _is_body(module, given)
        ]
        if bodies:
            yield node, bodies


def _is_body(module: Any, node: Any) -> bool:
    return node.op == "get_attr" and hasattr(
        getattr(module, str(node.target), None), "graph"
    )


def _constants(module: Any) -> list[Any]:
    """The nodes of a graph that are tensors which stand in it."""
    return [
        node
        for node in module.graph.nodes
        if node.op == "get_attr"
        and border.is_instance(getattr(module, str(node.target), None), "Tensor")
    ]


# --- who needs what -----------------------------------------------------------------------------


@final
@dataclass(slots=True, eq=False)
class _ConstantSharers:
    """Graphs that are given the same constants.

    Attributes:
        graphs: of them.
        needed: the constants in them, and in graphs that they run.
    """

    graphs: list[Any]
    needed: Tensors = field(default_factory=dict)


def _sharers(graphs: Sequence[Any]) -> dict[int, _ConstantSharers]:
    """Who shares with each graph, by identity of the graph."""
    found = {id(graph): _ConstantSharers([graph]) for graph in graphs}
    for graph in graphs:
        for _, bodies in _runs(graph):
            for body in bodies[1:]:
                _join(found, found[id(bodies[0])], found[id(body)])
    for graph in graphs:
        tensors = [getattr(graph, str(node.target)) for node in _constants(graph)]
        found[id(graph)].needed |= {id(tensor): tensor for tensor in tensors}
    while _pass_on(graphs, found):
        pass
    return found


def _join(
    found: dict[int, _ConstantSharers], first: _ConstantSharers, second: _ConstantSharers
) -> None:
    if first is second:
        return
    first.graphs += second.graphs
    found |= {id(graph): first for graph in second.graphs}


def _pass_on(graphs: Sequence[Any], sharers: dict[int, _ConstantSharers]) -> bool:
    """Let each graph need what the graphs need that it runs.  Returns: whether that is more than before."""
    more = False
    for graph in graphs:
        own = sharers[id(graph)].needed
        for _, bodies in _runs(graph):
            inner = sharers[id(bodies[0])].needed
            more |= not inner.keys() <= own.keys()
            own |= inner
    return more


# --- the change ---------------------------------------------------------------------------------


def _hoist(module: Any, signature: Any, constants: dict[str, Any]) -> None:
    """Let all constants be inputs of the outermost graph, which hands them on."""
    graphs = all_graphs(module)
    sharers, mode = _sharers(graphs), _mode(graphs)
    operators = [(graph, list(_runs(graph))) for graph in graphs]
    given = {
        id(graph): _parameters(graph, list(sharers[id(graph)].needed.values()), mode)
        for graph in graphs[1:]
    }
    given[id(module)] = _inputs(
        module, list(sharers[id(module)].needed.values()), mode, signature, constants
    )
    for graph, runs in operators:
        own = given[id(graph)]
        _replace_constants(graph, own)
        for node, bodies in runs:
            _give(node, [own[each] for each in sharers[id(bodies[0])].needed])
        graph.recompile()


def _mode(graphs: Sequence[Any]) -> Any:
    """What torch traces tensors with that have no elements; None: not known."""
    for graph in graphs:
        for node in graph.graph.nodes:
            found = getattr(node.meta.get("val"), "fake_mode", None)
            if found is not None:
                return found
    return None


def _traced(mode: Any, tensor: Any) -> Any:
    """A tensor as torch traces with it: of its type, without elements."""
    return tensor if mode is None else mode.from_tensor(tensor, static_shapes=True)


def _parameters(graph: Any, tensors: Sequence[Any], mode: Any) -> Tensors:
    """New parameters behind those of a graph, by identity of the tensors that they are for."""
    found: Tensors = {}
    nodes = list(graph.graph.nodes)
    own = [node for node in nodes if node.op == "placeholder"]
    last = own[-1] if own else None
    for place, tensor in enumerate(tensors, len(own)):
        where = (
            graph.graph.inserting_before(nodes[0])
            if last is None
            else graph.graph.inserting_after(last)
        )
        with where:
            last = graph.graph.placeholder(f"{_NAME}_{place}")
        last.meta["val"] = _traced(mode, tensor)
        found[id(tensor)] = last
    return found


def _inputs(
    module: Any,
    tensors: Sequence[Any],
    mode: Any,
    signature: Any,
    constants: dict[str, Any],
) -> Tensors:
    """New inputs before those of the program, as its signature has them, by identity of the tensors."""
    torch_signature = border.load("torch.export.graph_signature")
    taken = {*constants, *(str(node.target) for node in module.graph.nodes)}
    names = (f"{_NAME}_{place}" for place in itertools.count())
    free = (name for name in names if name not in taken)
    found: Tensors = {}
    for tensor, name in zip(tensors, free, strict=False):
        with module.graph.inserting_before(next(iter(module.graph.nodes))):
            made = module.graph.placeholder(name)
        made.meta["val"] = _traced(mode, tensor)
        constants[name] = tensor
        spec = torch_signature.InputSpec(
            torch_signature.InputKind.CONSTANT_TENSOR,
            torch_signature.TensorArgument(made.name),
            name,
        )
        signature.input_specs.insert(0, spec)
        found[id(tensor)] = made
    return found


def _replace_constants(graph: Any, given: Tensors) -> None:
    """Let what uses the constants of a graph use what it is given."""
    nodes = _constants(graph)
    for node in nodes:
        node.replace_all_uses_with(given[id(getattr(graph, str(node.target)))])
        graph.graph.erase_node(node)
    for name in {str(node.target) for node in nodes}:
        delattr(graph, name)


def _give(node: Any, given: Sequence[Any]) -> None:
    """Hand constants to an operator that runs graphs, behind what it hands to them already."""
    if not given:
        return
    *before, last = node.args
    if isinstance(last, list | tuple):
        node.args = (*before, (*last, *given))
    else:
        node.args = (*node.args, *given)
