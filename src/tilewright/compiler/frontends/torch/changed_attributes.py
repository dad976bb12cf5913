"""Attributes that a module changes while it runs: a program has none, and computes with what they were.

Torch puts them back before its export ends, so a hook looks at them at the end of the module's own forward, which a trace runs.
Dynamo does not run it.  Called by `export`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.diagnostics import warn
from tilewright.base.errors import ModelError

_COLLECTIONS: Final = (list, dict, set)


@contextlib.contextmanager
def watched_attributes(model: Any) -> Generator[Changes]:
    """Look at the attributes of a module and its parts whenever its forward ends, within this context."""
    changes = Changes(model)
    hook = model.register_forward_hook(changes.look)
    try:
        yield changes
    finally:
        hook.remove()


@final
class Changes:
    """What a module did to its attributes while it ran.

    Args:
        model: the module, before it runs.
    """

    def __init__(self, model: Any) -> None:
        # What every module has is the trace's own, or a state.
        self._own: frozenset[str] = frozenset(vars(border.load().nn.Module()))
        self._before: dict[str, Any] = dict(self._attributes(model))
        self._sizes: dict[str, int] = {
            name: len(value)
            for name, value in self._before.items()
            if type(value) in _COLLECTIONS
        }
        self._replaced: dict[str, Any] = {}
        self._others: set[str] = set()

    def look(self, model: Any, arguments: object, result: object) -> None:
        """Compare all attributes with what they were."""
        del arguments, result
        if border.load().compiler.is_dynamo_compiling():
            return
        for name, now in self._attributes(model):
            before = self._before.get(name)
            if name in self._sizes:
                if type(now) in _COLLECTIONS and len(now) != self._sizes[name]:
                    self._others.add(name)
            elif before is not now and _is_tensor(before):
                self._replaced[name] = before
            elif _is_number(before) and _is_number(now) and now != before:
                self._others.add(name)

    def settle(self, exported: Any, name: str) -> None:
        """Say what the calls of the program of a module with that name will not change.

        Raises: ModelError where the program reads a tensor that was replaced: every call would read the first one.
        """
        constants = {id(tensor) for tensor in exported.constants.values()}
        for attribute, tensor in self._replaced.items():
            if id(tensor) in constants:
                own = attribute.rpartition(".")[2]
                raise ModelError(
                    f"the module puts another tensor into its attribute '{attribute}', which it reads in the next call",
                    hint=f"make it a buffer and write into it: register_buffer('{own}', ...)",
                )
        if self._others:
            told = ", ".join(map(repr, sorted(self._others)))
            warn(
                f"{name}: the module changes {told} while it runs, in the compiled model it stays as it was\n"
                "hint: keep what calls change in buffers (register_buffer), or use torch.compile"
            )

    def _attributes(self, model: Any) -> Iterator[tuple[str, Any]]:
        for path, part in model.named_modules():
            for name, value in vars(part).items():
                if name not in self._own:
                    yield (f"{path}.{name}" if path else name), value


def _is_tensor(value: object) -> bool:
    return border.is_instance(value, "Tensor")


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float)
