"""Programs of torch that tests write as functions, and whether the front end gives what eager mode gives.

What it is: the way from a function to a module, and a comparison over several calls by the oracles of the graph's ops.
What it is not: compiled code, or `torch.compile`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.graph.evaluator import evaluate


def module_of(function: Callable[..., Any]) -> Any:
    """A module whose `forward` is a function of so many tensors."""
    name = function.__code__.co_varnames[: function.__code__.co_argcount]
    scope: dict[str, Any] = {"function": function}
    given = ", ".join(name)
    exec(f"def forward(self, {given}):\n    return function({given})", scope)
    return type(
        "Function", (border.load().nn.Module,), {"forward": scope["forward"]}
    )().eval()


def same(function: Any, calls: list[tuple[Any, ...]], dynamic: Any = None) -> None:
    """Each call of a module or a function, traced with the arguments of the first."""
    torch = border.load()
    is_module = isinstance(function, torch.nn.Module)
    module = function if is_module else module_of(function)
    made = load(Captured(module, args=calls[0], dynamic_shapes=dynamic))
    assert made.calling is not None

    def run(arrays: Any) -> Any:
        return evaluate(made.graph, [np.array(array, order="C") for array in arrays])

    for call in calls:
        found = torch.utils._pytree.tree_leaves(made.calling(run, call, {}))
        wanted = torch.utils._pytree.tree_leaves(module(*call))
        for ours, theirs in zip(found, wanted, strict=True):
            if isinstance(theirs, torch.Tensor):
                torch.testing.assert_close(
                    ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True
                )
            else:
                assert type(ours) is type(theirs)
                assert ours == theirs
