"""What becomes of sizes that calls were to decide, while torch traces a module.

Where torch may choose what is open (`Dim.AUTO`), it takes a size that the module makes a number of (`int(n)`, `range(n)`, a
text, `n in (5, 6)`) as that number and says nothing: here is noted which size that was, and where the module asked for
it.  Not sizes that operators compare (`x.view(6, 4)`): with others the module would fail in eager mode, too.  Called by
`export`; `load` tells.

Source: `torch.fx.experimental.symbolic_shapes.ShapeEnv._set_replacement`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
import tilewright.compiler.frontends.torch.questions as questions
from tilewright.compiler.frontends.torch.failed_exports import is_of_module
from tilewright.compiler.frontends.torch.guards import is_on_the_way, is_within_torch
from tilewright.compiler.frontends.torch.messages import is_for_readers
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing


@final
@dataclass(frozen=True, slots=True)
class FixedSize:
    """A size that a module made a number of.

    Attributes:
        size: which one, as Python has it: `x.shape[0]`.
        number: what it is in the example.
        place: file and line of the module.
    """

    size: str
    number: str
    place: str

    def __str__(self) -> str:
        return f"{self.size} is {self.number} at {self.place}"


@final
class OpenSizes:
    """What a thread's traces of one module met.

    Attributes:
        fixed: the sizes that the last trace made numbers of.
        numbers: places where it made a number of a size, or of what is computed from one: `len(x)`, `int(n / 2)`.
        texts: places where it made texts of sizes, which are torch's names of them.
        is_left_open: whether the program is that of dynamo because dynamo makes fewer numbers.
        functions_are_computed: whether calls are to compute a function of `math` of sizes.
        leaves: what Python calls each tensor or number that the module is given.
    """

    def __init__(self) -> None:
        self.fixed: dict[FixedSize, None] = {}
        self.numbers: dict[str, None] = {}
        self.texts: dict[str, None] = {}
        self.is_left_open: bool = False
        self.functions_are_computed: bool = False
        self.leaves: Sequence[str] = ()

    def of_last_trace(self) -> OpenSizes:
        """What the last trace met, which the next one does not forget."""
        found = OpenSizes()
        found.take(self)
        return found

    def take(self, other: OpenSizes) -> None:
        """Hold what another trace met in the place of the last one."""
        self.fixed, self.texts = dict(other.fixed), dict(other.texts)
        self.numbers = dict(other.numbers)

    def is_more_open_than(self, other: OpenSizes) -> bool:
        """Whether the last trace made fewer numbers of sizes than another one, and fixed no more."""
        fixes_no_more = len(self.fixed) <= len(other.fixed)
        return fixes_no_more and len(self.numbers) < len(other.numbers)


@final
class _Own(threading.local):
    """Of a thread.

    Attributes:
        met: where its traces note what they meet.
    """

    met: OpenSizes | None = None


_OWN: Final = _Own()


def noted() -> OpenSizes | None:
    """Where this thread's traces note what they meet."""
    return _OWN.met


@contextlib.contextmanager
def open_sizes() -> Generator[OpenSizes]:
    """While in this context, what this thread's traces meet is noted."""
    before, _OWN.met = _OWN.met, OpenSizes()
    try:
        yield _OWN.met
    finally:
        _OWN.met = before


@contextlib.contextmanager
def fixed_sizes(leaves: Sequence[str]) -> Generator[None]:
    """While this thread traces in this context, sizes that become numbers are noted, without those of the trace before.

    Args:
        leaves: what Python calls each tensor or number that the module is given, in order.
    """
    if _OWN.met is not None:
        _OWN.met.fixed.clear()
        _OWN.met.leaves = leaves
        _OWN.met.texts.clear()
        _OWN.met.numbers.clear()
    with contextlib.ExitStack() as kept:
        for substitute in (_REPLACED, *_NUMBERS, *_METHODS):
            kept.enter_context(substitute.used())
        yield


def _noting(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(original)
    def replace(self: Any, symbol: Any, value: Any, message: str) -> Any:
        found = original(self, symbol, value, message)
        met = _OWN.met if tracing.depth else None
        if met is not None and not self.replacements.get(symbol, symbol).free_symbols:
            place = _place(inspect.currentframe())
            for source in self.var_to_sources.get(symbol, ())[:1] if place else ():
                met.fixed[
                    FixedSize(_text_of(source.name, met.leaves), str(value), place)
                ] = None
        return found

    return replace


def _environment() -> Any:
    return border.load("torch.fx.experimental.symbolic_shapes").ShapeEnv


def _noting_numbers(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(original)
    def number(self: Any, file: str, line: int) -> Any:
        met = _OWN.met if tracing.depth else None
        is_open = met is not None and bool(self.expr.free_symbols)
        found = original(self, file, line)
        place = _place_of_number(inspect.currentframe()) if is_open else ""
        if met is not None and place:
            met.numbers[place] = None
        return found

    return number


_REPLACED: Final = Substitute(_environment, "_set_replacement", _noting)
_MAKES_NUMBERS: Final = ("guard_int", "guard_float")
"""Functions of torch that make a number of a size, for whoever asks: operators that only compare sizes do it for all alike."""
_NUMBERS: Final = tuple(
    Substitute(
        lambda: border.load("torch.fx.experimental.sym_node").SymNode, name, _noting_numbers
    )
    for name in _MAKES_NUMBERS
)
_LEAF: Final = re.compile(r"L\['flat_args'\]\[(\d+)\]")
_ARGUMENT: Final = re.compile(r"L\['(\w+)'\]")


def _text_of(source: str, leaves: Sequence[str]) -> str:
    """What torch calls `L['x'].size()[0]`, or dynamo `L['flat_args'][0].size()[0]`, as Python has it."""
    known = dict(enumerate(leaves))
    named = _LEAF.sub(lambda found: known.get(int(found[1]), found[0]), source)
    return _ARGUMENT.sub(r"\1", named).replace(".size()[", ".shape[")


def _place(frame: FrameType | None) -> str:
    """Where a number is made of a size, or the module asks for what one number alone fulfils; empty where operators ask."""
    makes_number = False
    while frame is not None and _is_passed(frame.f_code.co_filename):
        makes_number = makes_number or frame.f_code.co_name in _MAKES_NUMBERS
        frame = frame.f_back
    while frame is not None:
        file = frame.f_code.co_filename
        if is_of_module(file):
            return _shown(file, frame.f_lineno)
        if is_within_torch(file, *_ENDS):
            return _place_of_dynamo()
        if not makes_number:
            return ""
        frame = frame.f_back
    return ""


_ENDS: Final = (("_dynamo", "variables"), ("_dynamo", "symbolic_convert.py"), ("export",))
"""Where no frame of the module is behind: dynamo runs none, and an export calls it."""


def _place_of_number(frame: FrameType | None) -> str:
    """Where the module makes a number of a size by itself; empty where torch does."""
    while frame is not None and _is_passed(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ""
    file = frame.f_code.co_filename
    if is_of_module(file):
        return _shown(file, frame.f_lineno)
    return _place_of_dynamo() if is_within_torch(file, *_ENDS) else ""


def _is_passed(file: str) -> bool:
    return file in (__file__, questions.__file__) or is_on_the_way(file)


def _place_of_dynamo() -> str:
    """The line that dynamo is at, which runs no frame of the module; else what torch runs for it."""
    stack = border.load("torch._guards").TracingContext.extract_stack()
    lines = [_shown(s.filename, s.lineno) for s in stack if is_of_module(s.filename)]
    return lines[-1] if lines else "an operator"


def _shown(file: str, line: int | None) -> str:
    return f"{Path(file).name}:{line}"


# --- what numbers of Python have and those of torch have not


def _quotient(original: object, tracing: Tracing) -> Callable[..., Any]:
    del original, tracing
    return lambda number, divisor: (number // divisor, number % divisor)


def _quotient_of(original: object, tracing: Tracing) -> Callable[..., Any]:
    del original, tracing
    return lambda divisor, number: (number // divisor, number % divisor)


def _formatted(original: Callable[..., str], tracing: Tracing) -> Callable[..., str]:
    """A text in a form that only numbers have is that of the number; else torch's name of the size, which is told."""

    def text(number: Any, form: str = "") -> str:
        if form and tracing.depth:
            return format(int(number), form)
        _note_text(inspect.currentframe(), tracing)
        return original(number, form)

    return text


def _named(original: Callable[[Any], str], tracing: Tracing) -> Callable[[Any], str]:
    def text(number: Any) -> str:
        _note_text(inspect.currentframe(), tracing)
        return original(number)

    return text


def _note_text(frame: FrameType | None, tracing: Tracing) -> None:
    """Note that a module made a text of a size; not of what is taken to be for people alone."""
    asker = None if frame is None else frame.f_back
    if _OWN.met is None or asker is None or not tracing.depth:
        return
    file = asker.f_code.co_filename
    if (
        is_of_module(file)
        and Path(file).parent.name != "logging"
        and not is_for_readers(asker)
    ):
        _OWN.met.texts[_shown(file, asker.f_lineno)] = None


_METHODS: Final = tuple(
    Substitute(lambda: border.load().SymInt, name, build)
    for name, build in (
        ("__divmod__", _quotient), ("__rdivmod__", _quotient_of), ("__format__", _formatted), ("__str__", _named),
    )
)  # fmt: skip
