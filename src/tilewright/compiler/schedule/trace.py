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
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    final,
    overload,
)

from tilewright.base.errors import ScheduleError, UserError
from tilewright.base.json_text import read_json
from tilewright.base.symbolic import Expr
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import FreshNames
from tilewright.compiler.schedule.handles import WHOLE, Piece

P = ParamSpec("P")
Made = TypeVar("Made")
Step = tuple[str, Mapping[str, object]]


@final
class Primitive(Generic[P, Made]):
    """A checked rewrite.  Called, it returns the kernel; `Schedule.apply` also returns what it made."""

    def __init__(
        self, function: Callable[Concatenate[Kernel, P], tuple[Kernel, Made] | Kernel]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.name: str = function.__name__
        self.signature: inspect.Signature = inspect.signature(function)
        _, *parameters = self.signature.parameters.values()
        # Name -> type as text.
        self.parameters: Mapping[str, str] = {p.name: p.annotation for p in parameters}

    def __call__(self, kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> Kernel:
        return self.rewrite(kernel, *args, **kwargs)[0]

    def rewrite(
        self, kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Kernel, Made]:
        """The kernel after the rewrite, and handles of what it made.  Raises: ScheduleError, which names the kernel."""
        try:
            result = self._function(kernel, *args, **kwargs)
        except ScheduleError as error:
            error.location = error.location or kernel.name
            raise
        # Of a function that returns a kernel alone, `primitive` says that it makes nothing.
        return (result, cast("Made", None)) if isinstance(result, Kernel) else result


PRIMITIVES: Final[dict[str, Primitive[..., Any]]] = {}
"""Every primitive by name."""


@overload
def primitive(
    function: Callable[Concatenate[Kernel, P], tuple[Kernel, Made]],
) -> Primitive[P, Made]: ...


@overload
def primitive(
    function: Callable[Concatenate[Kernel, P], Kernel],
) -> Primitive[P, None]: ...


def primitive(
    function: Callable[Concatenate[Kernel, P], tuple[Kernel, Made] | Kernel],
) -> Primitive[P, Made]:
    """Register `function` under its name; its kernel argument comes first.

    It returns the kernel, or the kernel and handles of what it made (`schedule.handles`).
    """
    made = Primitive[P, Made](function)
    if made.name in PRIMITIVES:
        raise ScheduleError(f"primitive '{made.name}' is defined twice")
    PRIMITIVES[made.name] = made
    return made


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
    ('i0_o', 'i0_i')
    >>> schedule.kernel.trace
    (('split', {'loop': 'i0', 'factor': 4}),)
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel: Kernel = kernel

    def apply(self, step: Primitive[P, Made], /, *args: P.args, **kwargs: P.kwargs) -> Made:
        """Rewrite the kernel, record the step, and return handles of what it made.

        Raises: ScheduleError when the primitive does not apply; the kernel stays as it was.
        """
        named = {**kwargs, **dict(zip(step.parameters, args))}  # noqa: B905 - the shorter one ends it
        given = {key: named[key] for key in step.parameters if key in named}
        _check_arguments(step, given)
        arguments = {key: _plain(value) for key, value in given.items()}
        before = self.kernel
        try:
            after, made = step.rewrite(before, *args, **kwargs)
        except TypeError:
            step.signature.bind(
                before, *args, **kwargs
            )  # names what is missing or too much
            raise
        self.kernel = replace(after, trace=(*before.trace, (step.name, arguments)))
        return made

    def attempt(
        self, step: Primitive[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> bool:
        """Like `apply`, but False instead of an error when the step does not apply."""
        try:
            self.apply(step, *args, **kwargs)
        except ScheduleError:
            return False
        return True

    def note(self, text: str) -> None:
        """Explain a choice to whoever reads the kernel."""
        self.kernel = replace(self.kernel, notes=(*self.kernel.notes, text))

    def parts(
        self,
        step: Primitive[P, tuple[Piece, ...]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> tuple[Piece, ...]:
        """The parts that `step` cuts code into; the whole of it where the step does not apply."""
        try:
            return self.apply(step, *args, **kwargs)
        except ScheduleError:
            return (WHOLE,)

    def fresh(self, stem: str) -> str:
        """A loop name that is free in the kernel."""
        return FreshNames.of(self.kernel).fresh(stem)


def _check_arguments(step: Primitive[..., Any], arguments: Mapping[str, object]) -> None:
    """Raise ScheduleError for an argument of another type than the primitive declares."""
    for key, value in arguments.items():
        expected, fits = _TYPES[step.parameters[key]]
        if not fits(value):
            raise ScheduleError(
                f"'{key}' of '{step.name}' is {value!r:.80}, expected {expected}"
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
    "bool": ("yes or no", lambda value: isinstance(value, bool)),
    "Dim | str": (
        "a size",
        lambda value: isinstance(value, str | Expr) or _is_number(value),
    ),
    "Sequence[int]": (
        "a list of whole numbers",
        lambda value: _is_list_of(value, _is_number),
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
        data = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"a trace is not JSON: {error}") from error
    steps: list[Step] = []
    for entry in data if isinstance(data, list) else [data]:
        match entry:
            case [str(name), dict(arguments)]:
                steps.append((name, {str(key): x for key, x in arguments.items()}))
            case _:
                raise ScheduleError(
                    f"a step of a trace is [name, arguments], got {entry!r}"
                )
    return tuple(steps)
