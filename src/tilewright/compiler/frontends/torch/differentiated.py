"""Modules that differentiate while they run (`torch.func.grad`, `jvp`, `vjp`, `jacrev`, `hessian`), as graphs of operators.

Torch's exporter does not take them where parameters are differentiated or derivatives are along a direction; its
tracer of functions does.  Whenever such a module is called, and so within an export, it is traced to operators,
whatever transforms it runs, and those run.  Called by `export` where the exporter alone has failed;
by `associative_scans` for what torch batches.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.failed_exports import ended_transforms
from tilewright.compiler.frontends.torch.kept_attributes import unchanged_attributes
from tilewright.compiler.frontends.torch.traceable import traceable_functions

# Torch's modules and tensors have no types that we see.
Held = Any


def differentiated(model: Any) -> Any:
    """A module of the same parameters, buffers and calls, which are of operators.

    A call raises what torch raises where it cannot be traced, and TypeError where it keeps values in attributes.
    """
    torch = border.load()

    def forward(self: Any, *args: Held, **kwargs: Held) -> Held:
        return _by_operators(self.model, args, kwargs)

    # Inputs are called what the module calls them.
    setattr(forward, "__signature__", inspect.signature(type(model).forward))  # noqa: B010 - no attribute that types know
    made = type(type(model).__name__, (torch.nn.Module,), {"forward": forward})()
    made.model = model
    return made.eval()


def _by_operators(model: Any, args: tuple[Held, ...], kwargs: dict[str, Held]) -> Held:
    """What the module gives: it is traced with these arguments, and what was traced runs."""
    torch, pytree = border.load(), border.load("torch.utils._pytree")
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    leaves, spec = pytree.tree_flatten((args, kwargs))
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

    flat = [*tensors.values(), *(leaves[i] for i in places)]
    with unchanged_attributes(model):
        # Tensors that are neither parameters nor buffers are constants.
        traced = operators_of(run, flat)
    return pytree.tree_unflatten(traced(*flat), shapes[-1])


def operators_of(function: Callable[..., Any], flat: Sequence[Held]) -> Any:
    """What a function of tensors computes, by operators alone; traced with these, which an export may be tracing."""
    torch, proxies = border.load(), border.load("torch.fx.experimental.proxy_tensor")
    apart = {torch.ops.aten._efficientzerotensor.default: _zeros}
    with ended_transforms(), torch.no_grad(), contextlib.ExitStack() as alone:
        alone.enter_context(proxies.disable_proxy_modes_tracing())
        alone.enter_context(_no_function_modes())
        alone.enter_context(traceable_functions())
        return proxies.make_fx(function, apart, _allow_non_fake_inputs=True)(*flat)


@contextlib.contextmanager
def _no_function_modes() -> Generator[None]:
    """While this thread is in this context, none of the modes that watched its calls of functions does."""
    overrides = border.load("torch.overrides")
    modes = overrides._get_current_function_mode_stack()
    for _ in modes:
        overrides._pop_mode()
    try:
        yield
    finally:
        for mode in modes:
            overrides._push_mode(mode)


def _zeros(size: Held, *, pin_memory: bool | None = None, **options: Held) -> Held:
    """Zeros that have elements: to add those that have none torch fixes the sizes of what they are added to."""
    del pin_memory
    return border.load().zeros(size, **options)
