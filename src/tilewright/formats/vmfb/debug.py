"""Where the code of a module came from: places in sources, as frozen data.

Apart from `module`, because most modules that run carry none of it.  Called by `reader` when a
module has it, and by whoever prints or writes it.
"""

from __future__ import annotations

from typing import TypeAlias, final

from tilewright.base.record import record


@final
@record
class CallSite:
    """A place inlined into another."""

    callee: int
    caller: int


@final
@record
class FileLine:
    """A place in a file."""

    filename: str
    line: int
    column: int


@final
@record
class Fused:
    """Several places that became one."""

    metadata: str
    locations: tuple[int, ...]


@final
@record
class Named:
    """A place with a name."""

    name: str
    child: int


Location: TypeAlias = "CallSite | FileLine | Fused | Named | None"
"""An entry of the location table; None is the unknown place."""


@final
@record(kw_only=True)
class SourceMap:
    """For one function: (bytecode offset, index of the location) pairs."""

    name: str
    locations: tuple[tuple[int, int], ...] = ()


@final
@record(kw_only=True)
class DebugDatabase:
    """Where the code came from."""

    locations: tuple[Location, ...] = ()
    functions: tuple[SourceMap, ...] = ()
