"""Stack traces: which functions were running when something failed.

Every frame that an error passes adds a line to it, innermost first, so a Python traceback ends
with the bytecode's own.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol, final

from tilewright.base.errors import TilewrightError
from tilewright.base.status import StatusCode, failure
from tilewright.formats.vmfb import CallSite, FileLine, Fused, ModuleDef, Named

DEPTH_LIMIT: Final = 256
_NESTING_LIMIT: Final = 8


class Running(Protocol):
    """A function, as a trace names it."""

    index: int
    name: str


@final
class Stack(threading.local):
    """How deep calls are nested, on each thread."""

    depth: int = 0


def frame_line(module: ModuleDef, function: Running, pc: int) -> str:
    """`  at mlp_mod.main +0x1a (model.mlir:3:5)`."""
    line = f"  at {module.name}.{function.name} +{pc:#x}"
    place = source_location(module, function.index, pc)
    return f"{line} ({place})" if place else line


def traced(
    error: BaseException, module: ModuleDef, function: Running, pc: int
) -> BaseException:
    """The error with the place where it happened; errors that are none of ours get a code."""
    if not isinstance(error, TilewrightError):
        exhausted = isinstance(error, (MemoryError, RecursionError))
        code = StatusCode.RESOURCE_EXHAUSTED if exhausted else StatusCode.INTERNAL
        wrapped = failure(code, f"{type(error).__name__}: {error}")
        wrapped.__cause__ = error
        error = wrapped
    add_frame(error, frame_line(module, function, pc))
    return error


def add_frame(error: BaseException, line: str) -> None:
    """Add a line to the trace of an error."""
    error.add_note(line)


def source_location(module: ModuleDef, function: int, pc: int) -> str:
    """Where the code at `pc` came from; empty where the module does not say."""
    debug = module.debug
    if debug is None or not 0 <= function < len(debug.functions):
        return ""
    index = -1
    for offset, location in debug.functions[function].locations:
        if offset > pc:
            break
        index = location
    return _location(module, index, 0)


def _location(module: ModuleDef, index: int, depth: int) -> str:
    assert module.debug is not None
    locations = module.debug.locations
    if not 0 <= index < len(locations) or depth > _NESTING_LIMIT:
        return ""
    match locations[index]:
        case FileLine(filename, line, column):
            return f"{filename}:{line}:{column}"
        case Named(name, child):
            return _location(module, child, depth + 1) or name
        case CallSite(callee, _):
            return _location(module, callee, depth + 1)
        case Fused(_, children):
            found = (_location(module, child, depth + 1) for child in children)
            return next((place for place in found if place), "")
        case None:
            return ""
