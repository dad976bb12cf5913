"""What torch says of a module that it cannot export, in the words of the module.

Torch's message names variables that only some of its own settings act on, and its log and its stream of errors have the
traces of attempts that others succeed after.  Called by `export`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
import traceback
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.errors import TilewrightError
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing

_LINES: Final = 12
_HOUSE: Final = Path(__file__).resolve().parents[3]
"""Where the package lies."""
_ADVICE: Final = (
    "consider using data-dependent friendly", "Caused by:", "For more", "For extended", "If you suspect",
    "For C++ stack", "The following call", "The error above occurred",
)  # fmt: skip
"""How lines begin that say what to do with torch by itself."""
_ASKS_DATA: Final = frozenset(
    ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException")
)  # fmt: skip
_NO_TRACE: Final = 'write it as torch.cond, torch.where or a mask, or use torch.compile(module, backend="tilewright"), which runs in Python what asks data'

_TRANSFORMS: Final = tuple(
    str(Path("torch", "_functorch", name)) for name in ("apis.py", "eager_transforms.py", "vmap.py")
)  # fmt: skip
NO_TRANSFORM: Final = 'torch fixes sizes in this transform of torch.func: leave out dynamic_shapes, or use torch.compile(module, backend="tilewright")'

_VIOLATED: Final = "Constraints violated"
_NO_RANGE: Final = "give the size a range that the module takes (Dim('rows', min=2)), leave it to torch (torch.export.Dim.AUTO), or leave it out of dynamic_shapes"
_NO_NUMBER: Final = "SymInt is a size that calls decide: compute with it as Python and math do, or leave it out of dynamic_shapes"


def reason(error: BaseException) -> str:
    """The first lines of a message of torch's, without its advice, and the line of the module where it was raised."""
    lines = str(error).strip().splitlines()
    told = [line for line in lines if line.strip() and not line.startswith(_ADVICE)]
    place = place_of(error)
    text = "\n".join((*told[:_LINES], *([f"at {place}"] if place else ())))
    return f"{type(error).__name__}: {text}"


def hint(error: BaseException, *, has_open_sizes: bool) -> str | None:
    """What helps where the data decides what the module does next, or the module a size that calls were to decide."""
    if type(error).__name__ in _ASKS_DATA:
        return _NO_TRACE
    if has_open_sizes and _is_in_transform(error):
        return NO_TRANSFORM
    if "SymInt" in str(error):
        return _NO_NUMBER
    return _NO_RANGE if str(error).lstrip().startswith(_VIOLATED) else None


def _is_in_transform(error: BaseException) -> bool:
    """Whether torch failed inside of a transform of `torch.func`; not by what the module does wrong there."""
    files = [
        frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    # What torch checks of its arguments (`torch._check`) is raised in this file.
    if not files or is_of_module(files[-1]) or files[-1] == border.load().__file__:
        return False
    return any(file.endswith(_TRANSFORMS) for file in files)


def is_of_ranges(error: TilewrightError) -> bool:
    """Whether it was said of a module that does not take the sizes that calls were to decide."""
    return error.hint == _NO_RANGE


def place_of(error: BaseException) -> str:
    """File and line of the innermost call that is neither torch's nor ours; empty where there is none."""
    found, trace = "", error.__traceback__
    while isinstance(trace, TracebackType):
        file = trace.tb_frame.f_code.co_filename
        if is_of_module(file):
            found = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def is_of_module(file: str) -> bool:
    """Whether a file of code is neither torch's nor ours, nor made while it runs."""
    # With the separator, else packages whose names only begin alike (torchvision) were torch's, too.
    houses = (Path(str(border.load().__file__)).parent, _HOUSE)
    return not file.startswith((*(f"{house}{os.sep}" for house in houses), "<"))


@contextlib.contextmanager
def ended_transforms() -> Generator[None]:
    """Where torch fails in this context, the transforms of `torch.func` that it was in end, too.

    Its exporter leaves them open, and all that the thread asks of torch later would run inside of them.
    """
    core, forward = border.load("torch._C"), border.load("torch.autograd.forward_ad")
    stack, level = core._functorch, forward._current_level
    depth = stack.get_dynamic_layer_stack_depth()
    with core._PreserveDispatchKeyGuard():
        try:
            yield
        except BaseException as error:  # Ctrl-C, too
            stack.pop_dynamic_layer_stack_and_undo_to_depth(depth)
            # Torch has one level of derivatives along a direction; its core may hold what Python has left.
            if level < 0:
                with contextlib.suppress(RuntimeError):
                    core._exit_dual_level(level=0)
                forward._current_level = level
            _let_go(error)
            raise


def _let_go(error: BaseException) -> None:
    """Let frames of torch go whose locals switch its dispatcher back when they die: that would be out of turn later."""
    each: BaseException | None = error
    met: list[BaseException] = []
    while each is not None and not any(each is other for other in met):
        met.append(each)  # `raise error from error` makes it its own cause
        for frame, _ in traceback.walk_tb(each.__traceback__):
            if not is_of_module(frame.f_code.co_filename):
                with contextlib.suppress(RuntimeError):  # it runs
                    frame.clear()
        each = each.__cause__ if each.__cause__ is not None else each.__context__


@contextlib.contextmanager
def unlogged() -> Generator[None]:
    """While in this context, torch tells nobody why this thread's attempts fail: others may succeed."""
    thread = threading.get_ident()

    def is_kept(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_kept)
    try:
        with _STREAMS.used():
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_kept)


_LOGGERS: Final = (
    "torch._guards", "torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes",
)  # fmt: skip


@final
class _Streams:
    """The module `sys` for torch's exporter, which prints the graph of every attempt that asks data.

    Args:
        held: the module itself.
        tracing: whether a thread is to print nothing.
    """

    def __init__(self, held: Any, tracing: Tracing) -> None:
        self._held: Any = held
        self._tracing: Tracing = tracing

    def __getattr__(self, name: str) -> Any:
        is_unheard = name == "stderr" and self._tracing.depth
        return io.StringIO() if is_unheard else getattr(self._held, name)


_STREAMS: Final = Substitute(lambda: border.load("torch.export._trace"), "sys", _Streams)
