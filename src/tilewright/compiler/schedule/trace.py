"""Schedules: a kernel under rewriting, with the record of what was done to it.

A trace is plain data: pairs of a primitive's name and its arguments (numbers, strings, lists of
them), so it can be written as JSON, compared, and replayed on the same kernel.  Which primitives
exist is known by registration where they are defined; what to apply is decided by `rules`.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Concatenate, Final, ParamSpec, final

from tilewright.base.errors import ScheduleError, UserError
from tilewright.base.symbolic import Expr
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import FreshNames, loops

P = ParamSpec("P")
Primitive = Callable[Concatenate[Kernel, P], Kernel]
Step = tuple[str, Mapping[str, object]]

PRIMITIVES: Final[dict[str, Callable[..., Kernel]]] = {}
"""Every primitive by name."""


def primitive(function: Primitive[P]) -> Primitive[P]:
    """Register `function` under its name; its kernel argument comes first."""
    name = function.__name__
    if name in PRIMITIVES:
        raise ScheduleError(f"primitive '{name}' is defined twice")
    PRIMITIVES[name] = function
    return function


@functools.cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(PRIMITIVES[name])


@final
class Schedule:
    """A kernel and the steps applied to it so far.

    >>> from tilewright.base.dtypes import f32
    >>> from tilewright.compiler.kernel.builder import KernelBuilder
    >>> from tilewright.compiler.schedule.primitives.loops import split
    >>> b = KernelBuilder("double")
    >>> x, y = b.parameter("x", f32, (8,)), b.result("y", f32, (8,))
    >>> with b.nest((8,)) as (i,):
    ...     b.store(y, (i,), b.mul(b.load(x, (i,)), 2))
    >>> schedule = Schedule(b.build())
    >>> schedule.apply(split, "i0", 4)
    >>> schedule.kernel.trace
    (('split', {'loop': 'i0', 'factor': 4}),)
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel: Kernel = kernel

    def apply(self, step: Primitive[P], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Rewrite the kernel and record the step.

        Raises: ScheduleError when the primitive does not apply; the kernel stays as it was.
        """
        name = step.__name__
        bound = _signature(name).bind(self.kernel, *args, **kwargs)
        given = dict(list(bound.arguments.items())[1:])
        _check_arguments(name, given)
        arguments = {key: _plain(value) for key, value in given.items()}
        before = self.kernel
        after = step(before, *args, **kwargs)
        self.kernel = replace(after, trace=(*before.trace, (name, arguments)))

    def attempt(self, step: Primitive[P], /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Like `apply`, but False instead of an error when the step does not apply."""
        try:
            self.apply(step, *args, **kwargs)
        except ScheduleError:
            return False
        return True

    def note(self, text: str) -> None:
        """Explain a choice to whoever reads the kernel."""
        self.kernel = replace(self.kernel, notes=(*self.kernel.notes, text))

    def fresh(self, stem: str) -> str:
        """A loop name that is free in the kernel."""
        return names_of(self.kernel).fresh(stem)


def _check_arguments(name: str, arguments: Mapping[str, object]) -> None:
    """Raise ScheduleError for an argument of another type than the primitive declares."""
    parameters = _signature(name).parameters
    for key, value in arguments.items():
        expected, fits = _TYPES[parameters[key].annotation]
        if not fits(value):
            raise ScheduleError(
                f"'{key}' of '{name}' is {value!r:.80}, expected {expected}"
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(fits, value))


# What primitives declare of their arguments, as text: (in words, whether a value is such).
_TYPES: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "str": ("a text", _is_text),
    "str | None": ("a text", lambda value: value is None or _is_text(value)),
    "int": ("a whole number", _is_number),
    "Dim | str": (
        "a size",
        lambda value: isinstance(value, str | Expr) or _is_number(value),
    ),
    "Sequence[str]": ("a list of texts", lambda value: _is_list_of(value, _is_text)),
    "Sequence[str] | None": (
        "a list of texts",
        lambda value: value is None or _is_list_of(value, _is_text),
    ),
    "Sequence[Sequence[object]]": (
        "a list of [loop, factor]",
        lambda value: _is_list_of(value, lambda row: isinstance(row, list | tuple)),
    ),
}


def names_of(kernel: Kernel) -> FreshNames:
    """Names not taken by loops, dims or buffers of `kernel`."""
    taken = {loop.var.name for loop in loops(kernel.body)}
    taken |= {s.name for s in kernel.dims} | {b.name for b in kernel.locals}
    return FreshNames(taken | {p.buffer.name for p in kernel.parameters})


def _plain(value: object) -> object:
    if isinstance(value, Expr):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def replay(kernel: Kernel, trace: Iterable[Step]) -> Kernel:
    """Apply the recorded steps to `kernel`.

    Raises: ScheduleError for an unknown primitive, wrong arguments, or a step that does not
    apply; the message names the step.
    """
    schedule = Schedule(kernel)
    for position, (name, arguments) in enumerate(trace):
        function = PRIMITIVES.get(name)
        if function is None:
            raise ScheduleError(f"step {position}: unknown primitive '{name}'")
        try:
            schedule.apply(function, **dict(arguments))
        except TypeError as error:
            raise ScheduleError(f"step {position}: {error}") from error
        except UserError as error:
            raise ScheduleError(f"step {position}, '{name}': {error}") from error
    return schedule.kernel


def to_json(trace: Iterable[object]) -> str:
    """A trace as JSON: a list of [name, arguments].  Raises: ScheduleError for what has no such form."""
    try:
        return json.dumps(list(trace))
    except (TypeError, ValueError, RecursionError) as error:
        raise ScheduleError(f"a trace cannot be JSON: {error}") from error


def from_json(text: str) -> tuple[Step, ...]:
    """Read back what `to_json` wrote.  Raises: ScheduleError on anything else."""
    try:
        data: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"a trace is not JSON: {error}") from error
    steps: list[Step] = []
    for entry in data if isinstance(data, list) else [data]:
        if not (isinstance(entry, list) and len(entry) == 2):
            raise ScheduleError(f"a step of a trace is [name, arguments], got {entry!r}")
        name, arguments = entry
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ScheduleError(f"a step of a trace is [name, arguments], got {entry!r}")
        steps.append((name, {str(key): value for key, value in arguments.items()}))
    return tuple(steps)
