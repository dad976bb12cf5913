"""The form of a row: which function imports a foreign op, from which opset to which.

One function per op serves all its versions and asks `call.opset` where they differ; a second row
is for a version with another signature.  Rows live in the family files, `table` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base.record import record
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.values import Held

Result = Held | Sequence[Held | None]
Build = Callable[[Call], Result]

MICROSOFT: Final = "com.microsoft"
CLASSICAL: Final = "ai.onnx.ml"


@final
@record
class Row:
    """One foreign op.

    Args:
        name: its op type.
        build: makes the results.
        since: first opset of its domain with this meaning.
        until: last one; None for all later ones.
        domain: empty for ONNX itself.
        ignores: attributes that do not change the result.
        takes: what the op takes where its schema does not say it (`signatures`): of the ops that the package onnx has,
            more attributes; of others operands, results and attributes, such as `2:3 -> 1 axis:int! epsilon:float`.
    """

    name: str
    build: Build
    since: int = 1
    until: int | None = None
    domain: str = ""
    ignores: tuple[str, ...] = ()
    takes: str = ""


def as_of(opset: int, build: Build) -> Build:
    """The meaning that an op of ONNX had at an opset, for a row of another domain."""
    return lambda call: build(replace(call, opset=opset))


def row(
    name: str,
    build: Build,
    *,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    ignores: Sequence[str] = (),
    takes: str = "",
) -> Row:
    """A row, spelled short."""
    return Row(name, build, since, until, domain, tuple(ignores), takes)
