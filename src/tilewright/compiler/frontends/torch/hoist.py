"""Constants in branches and loops become constants of the program, which every graph in it is given.

Torch cannot take a program apart whose branches have tensors of their own (`torch.tensor(0.5)` in one): what it
traces them with is lost on the way.  Called by `export` before it asks torch to.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

_NAME: Final = "hoisted_constant"


def hoisted(exported: Any) -> Any:
    """The program with its constants outside of branches and loops; itself where none are inside."""
    if not any(_constants(body) for body in _all_bodies(exported.graph_module)):
        return exported
    module = copy.deepcopy(exported.graph_module)
    _hoist(module)
    signature = copy.deepcopy(exported.graph_signature)
    constants = dict(exported.constants)
    _as_inputs(module, signature, constants)
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


def _all_bodies(module: Any) -> Iterator[Any]:
    """The graphs that operators of a graph run, and those in them."""
    for node in module.graph.nodes:
        held = getattr(module, str(node.target)) if _is_body(module, node) else None
        if held is not None:
            yield held
            yield from _all_bodies(held)


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


def _hoist(module: Any) -> None:
    """Let the constants of all graphs inside be constants of this one."""
    done: dict[int, list[Any]] = {}
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        bodies = [
            getattr(module, str(given.target))
            for given in node.args
            if border.is_instance(given, "fx.Node") and _is_body(module, given)
        ]
        for body in bodies:
            if id(body) not in done:
                _hoist(body)
                done[id(body)] = _as_parameters(body, bodies)
        own = {id(tensor): tensor for body in bodies for tensor in done[id(body)]}
        _give(module, node, list(own.values()))
    module.recompile()


def _as_parameters(body: Any, bodies: Sequence[Any]) -> list[Any]:
    """Let the constants of a graph be given to it, and to those beside it.  Returns: the tensors."""
    found: list[Any] = []
    for node in _constants(body):
        tensor = getattr(body, str(node.target))
        found.append(tensor)
        for each in bodies:
            parameters = [n for n in each.graph.nodes if n.op == "placeholder"]
            first = next(iter(each.graph.nodes))
            place = (
                each.graph.inserting_after(parameters[-1])
                if parameters
                else each.graph.inserting_before(first)
            )
            with place:
                made = each.graph.placeholder(f"{_NAME}_{len(parameters)}")
            made.meta["val"] = _traced(body, node, tensor)
            if each is body:
                node.replace_all_uses_with(made)
                body.graph.erase_node(node)
                delattr(body, str(node.target))
            each.recompile()
    return found


def _traced(module: Any, node: Any, tensor: Any) -> Any:
    """A tensor as torch traces with it: of its type, without elements."""
    for other in (*node.users, *module.graph.nodes):
        value = other.meta.get("val")
        mode = getattr(value, "fake_mode", None)
        if mode is not None:
            return mode.from_tensor(tensor, static_shapes=True)
    return tensor


def _give(module: Any, node: Any, tensors: Sequence[Any]) -> None:
    """Hand constants to an operator that runs graphs, behind what it hands to them already."""
    if not tensors:
        return
    given: list[Any] = []
    for tensor in tensors:
        name = f"_{_NAME}_{sum(1 for _ in module.buffers(recurse=False))}"
        module.register_buffer(name, tensor, persistent=False)
        with module.graph.inserting_before(node):
            given.append(module.graph.get_attr(name))
    *before, last = node.args
    if isinstance(last, list | tuple):
        node.args = (*before, (*last, *given))
    else:
        node.args = (*node.args, *given)


def _as_inputs(module: Any, signature: Any, constants: dict[str, Any]) -> None:
    """Let constants of the outermost graph be inputs, as the program's signature has them."""
    torch_signature = border.load("torch.export.graph_signature")
    for node in _constants(module):
        tensor = getattr(module, str(node.target))
        name = str(node.target).lstrip("_")
        with module.graph.inserting_before(next(iter(module.graph.nodes))):
            made = module.graph.placeholder(name)
        made.meta["val"] = _traced(module, node, tensor)
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
        delattr(module, str(node.target))
        constants[name] = tensor
        spec = torch_signature.InputSpec(
            torch_signature.InputKind.CONSTANT_TENSOR,
            torch_signature.TensorArgument(made.name),
            name,
        )
        signature.input_specs.insert(0, spec)
    module.recompile()
