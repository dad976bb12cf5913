"""Attributes of torch that are others for threads that trace, for as long as any thread does, and functions that are.

Called by what keeps torch from looking into something: `recurrent`, `moved_modules`, `traceable`, `contiguous_copies`;
`known_numbers` asks whether a thread traces.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border


@final
class Tracing(threading.local):
    """How many contexts a thread is in.

    Attributes:
        depth: of this thread.
    """

    depth: int = 0


_ABSENT: Final = object()


@final
class Substitute:
    """Stands in an attribute from the first context of any thread to the end of the last, be it there before or not.

    Args:
        owner: finds the module or the class that has the attribute, once torch is loaded.
        name: of the attribute.
        build: from what was there and what says whether a thread traces, what stands there meanwhile; for other
            threads it must do what was there.

    Thread-safety: contexts are counted under a lock; whether a thread traces is known to that thread alone.
    """

    def __init__(
        self, owner: Callable[[], Any], name: str, build: Callable[[Any, Tracing], Any]
    ) -> None:
        self._owner: Callable[[], Any] = owner
        self._name: str = name
        self._build: Callable[[Any, Tracing], Any] = build
        self._lock: threading.Lock = threading.Lock()
        self._own: Tracing = Tracing()
        self._contexts: int = 0
        self._held: Any = None

    @contextlib.contextmanager
    def used(self) -> Generator[None]:
        """While in this context, this thread meets the substitute.  Contexts of several threads may overlap."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        owner = self._owner()
        with self._lock:
            if not self._contexts:
                original = getattr(owner, self._name, None)
                is_own = not isinstance(owner, type) or self._name in vars(owner)
                self._held = original if is_own else _ABSENT
                setattr(owner, self._name, self._build(original, self._own))
            self._contexts += 1
        self._own.depth += 1

    def _leave(self) -> None:
        self._own.depth -= 1
        with self._lock:
            self._contexts -= 1
            if not self._contexts:
                if self._held is _ABSENT:
                    delattr(self._owner(), self._name)
                else:
                    setattr(self._owner(), self._name, self._held)
                self._held = None


@contextlib.contextmanager
def replaced_functions(functions: Mapping[Any, Callable[..., Any]]) -> Generator[None]:
    """While this thread is in this context, functions and methods of torch are others.

    Args:
        functions: what is called in the place of each; it gives NotImplemented where torch's own is to be called.
    """
    with _mode()(functions):
        yield


@functools.cache
def _mode() -> Any:
    def handle(
        self: Any,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        named = dict(kwargs or {})
        build = self.functions.get(function)
        found = NotImplemented if build is None else build(*args, **named)
        return function(*args, **named) if found is NotImplemented else found

    def begin(self: Any, functions: Mapping[Any, Callable[..., Any]]) -> None:
        self.functions = functions

    base = border.load("torch.overrides").TorchFunctionMode
    members = {"__init__": begin, "__torch_function__": handle}
    return type("ReplacedFunctions", (base,), members)
