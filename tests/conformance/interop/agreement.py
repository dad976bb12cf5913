"""One module, the same inputs, two runtimes: are the results the same bits?

What it is: `compare`, which the interop tests call, and the outcome that they record.
What it is not: a judge of numbers; whether IREE computed the right ones is its own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from conformance.interop.toolchain import Answer, call_again, run_module
from fakes.placed_arrays import placed
from tilewright.runtime.bytecode_machine import BytecodeMachine

OURS = ("local-sync", "local-task://?threads=2")
CALLS = 3  # of ours: what repeats itself may be recorded
Outcome = Literal[
    "equal", "close", "refused", "not run by IREE", "undefined", "different", "failed here"
]


@dataclass(frozen=True)
class Verdict:
    """What came out of one comparison; `detail` says why it is not `equal`."""

    outcome: Outcome
    detail: str = ""


def compare(
    archive: Path,
    inputs: Sequence[object],
    folder: Path,
    *,
    function: str | None = None,
    devices: Sequence[str] = OURS,
    flags: Sequence[str] = (),
) -> Verdict:
    """Run a function under IREE, then here on each device, again and again.

    Args:
        archive: the module.
        inputs: arrays and numbers.
        folder: for the files that go to IREE and back.
        function: its name; None for the only one.
        devices: ours.
        flags: further ones for `iree-run-module`.
    """
    opened = BytecodeMachine.from_file(archive, "local-sync").function(function)
    theirs = run_module(
        archive,
        inputs,
        opened.result_banks,
        folder,
        function=opened.name.partition(".")[2],
        flags=flags,
    )
    if theirs.error:
        return Verdict("not run by IREE", theirs.error)
    given = [placed(v) if isinstance(v, np.ndarray) else v for v in inputs]
    for device in devices:
        try:
            called = BytecodeMachine.from_file(archive, device).function(function)
            for index in range(CALLS):
                ours = called(*given)
                changed = _first_changed(given, inputs)
                if changed:
                    return Verdict("different", f"{device}, call {index}: {changed}")
                difference = first_difference(ours, theirs)
                if difference and index:  # the function may change the module's state
                    again = call_again(archive, inputs, opened.name, index)
                    difference = first_difference(ours, again)
                if difference:
                    return Verdict("different", f"{device}, call {index}: {difference}")
        except Exception as error:  # whatever it is, it is a finding
            return Verdict("failed here", f"{device}: {type(error).__name__}: {error}")
    return Verdict("equal")


def first_difference(ours: Sequence[object], theirs: Answer) -> str:
    """Where the results differ in type, shape or bits; nothing where they do not."""
    if len(ours) != len(theirs.results):
        return f"{len(ours)} results, IREE has {len(theirs.results)}"
    for index, (mine, other) in enumerate(zip(ours, theirs.results, strict=True)):
        difference = _difference(mine, other)
        if difference:
            return f"result {index}: {difference}"
    return ""


def _first_changed(given: Sequence[object], inputs: Sequence[object]) -> str:
    for index, (mine, before) in enumerate(zip(given, inputs, strict=True)):
        if isinstance(mine, np.ndarray) and mine.tobytes() != np.asarray(before).tobytes():
            return f"input {index} was changed"
    return ""


def _difference(mine: object, other: object) -> str:
    if not isinstance(mine, np.ndarray):
        printed = f"{mine:g}" if isinstance(mine, float) else str(mine)
        return "" if printed == other else f"{mine!r}, IREE has {other}"
    if isinstance(other, np.ndarray):
        if (mine.dtype, mine.shape) != (other.dtype, other.shape):
            return f"{mine.dtype}{mine.shape}, IREE has {other.dtype}{other.shape}"
        other = other.tobytes()
    if mine.tobytes() == other:
        return ""
    assert isinstance(other, bytes)
    if mine.nbytes != len(other):
        return f"{mine.nbytes} bytes, IREE has {len(other)}"
    pairs = zip(mine.tobytes(), other, strict=True)
    count = sum(a != b for a, b in pairs)
    return f"{count} of {mine.nbytes} bytes differ"
