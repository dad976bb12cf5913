"""Modules that differentiate while they run (`torch.func.grad`, `jvp`, `vjp`, `jacrev`, `hessian`), as graphs of operators.

Torch's exporter does not take them where parameters are differentiated; its tracer of functions does.  A module is
traced to operators first, whatever transforms it runs, and exported as those.  Called by `export` where the exporter
alone has failed; sizes are those of the arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.failed_exports import ended_transforms
from tilewright.compiler.frontends.torch.kept_attributes import unchanged_attributes

# Torch's modules and tensors have no types that we see.
Held = Any


def differentiated(model: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
    """A module of the same parameters, buffers and calls, of operators.

    Raises: what torch raises where it cannot be traced; TypeError where it keeps values in attributes.
    """
    torch, pytree = border.load(), border.load("torch.utils._pytree")
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    places = [i for i, leaf in enumerate(leaves) if border.is_instance(leaf, "Tensor")]
    shapes: list[Any] = []

    def run(*flat: Held) -> list[Held]:
        given = list(leaves)
        for place, tensor in zip(places, flat[len(tensors) :], strict=True):
            given[place] = tensor
        positional, named = pytree.tree_unflatten(given, spec)
        held = dict(zip(tensors, flat, strict=False))
        before = dict(held)
        result = torch.func.functional_call(model, held, positional, named)
        for name, tensor in before.items():
            if held[name] is not tensor:  # the module has another one in its place
                tensor.copy_(held[name])
        found, shape = pytree.tree_flatten(result)
        shapes.append(shape)
        return found

    examples = [*(t.detach() for t in tensors.values()), *(leaves[i] for i in places)]
    trace = border.load("torch.fx.experimental.proxy_tensor").make_fx
    with ended_transforms(), torch.no_grad(), unchanged_attributes(model):
        # Tensors that are neither parameters nor buffers are constants.
        traced = trace(run, tracing_mode="fake", _allow_non_fake_inputs=True)(*examples)
    return _module(model, list(tensors), traced, places, shapes[-1])


def _module(
    model: Any,
    names: Sequence[str],
    traced: Callable[..., Any],
    places: Sequence[int],
    shape: Any,
) -> Any:
    torch, pytree = border.load(), border.load("torch.utils._pytree")

    def forward(self: Any, *args: Held, **kwargs: Held) -> Held:
        held = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        leaves = pytree.tree_leaves((args, kwargs))
        given = [*(held[name] for name in names), *(leaves[i] for i in places)]
        return pytree.tree_unflatten(self.traced(*given), shape)

    # Inputs are called what the module calls them.
    setattr(forward, "__signature__", inspect.signature(type(model).forward))  # noqa: B010 - no attribute that types know
    made = type(type(model).__name__, (torch.nn.Module,), {"forward": forward})()
    made.model, made.traced = model, traced
    return made.eval()
