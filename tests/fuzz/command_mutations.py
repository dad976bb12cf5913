"""Lists of commands from chance: what both cores take, both run to the same bytes; nothing else is touched.

What it is: a harness.  Records of slots, bindings and commands (copies, fills, calls of the host, gotos, rows) are drawn
around what is valid, and some of their words are changed to numbers that hurt.  Each core refuses a list with
ValueError, or runs it on buffers that lie between guards; a list that goes in circles hears a signal.  Input `i` of
seed `s` is always the same.
What it is not: about kernels, which do as they like, or about plans (`plan_mutations.py`).
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/command_mutations.py --count 1000000 > build/fuzz-commands.txt
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.harness import (
    CircleError,
    FindingError,
    Outcome,
    add_options,
    circles_end,
    report,
    run_range,
)
from tilewright.runtime import native
from tilewright.runtime.native import fallback, records
from tilewright.runtime.native.records import Kind

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
SIZES = (0, 1, 8, 8, 16, 24, 64, 64, 128, 192, 300)
GUARD = b"\xa5" * 64
CIRCLE_S = 0.03
UNKNOWN_KIND = 6
HOST_CALLS = 2
CALLS_LIMIT = 200
_LETTERS = re.compile(r"(\d*)([IQ])")
CORES: tuple[Any, ...] = (native, fallback) if native.IS_NATIVE else (fallback,)


@dataclass(frozen=True, eq=False)
class CommandTables:
    """What a list is made of."""

    slots: list[list[int]]
    bindings: list[list[int]]
    commands: list[list[int]]

    def packed(self) -> tuple[bytes, bytes, bytes]:
        """As the cores take them; words that are too long are cut."""
        return (
            _packed(records.COMMAND, self.commands),
            _packed(records.BINDING, self.bindings),
            _packed(records.SLOT, self.slots),
        )


def _packed(record: Struct, rows: list[list[int]]) -> bytes:
    letters = [
        letter
        for count, letter in _LETTERS.findall(record.format)
        for _ in range(int(count or 1))
    ]
    masks = [0xFFFF_FFFF if letter == "I" else (1 << 64) - 1 for letter in letters]
    return b"".join(
        record.pack(*(w & m for w, m in zip(row, masks, strict=True))) for row in rows
    )


# --- lists ------------------------------------------------------------------------------------------


def drawn(chooser: random.Random) -> CommandTables:
    """Tables that are valid, mostly."""
    slots = [
        [chooser.choice(SIZES), chooser.choice((0, 1, 1, 1)), chooser.choice((0, 1, 8))]
        for _ in range(chooser.randrange(1, 5))
    ]
    slots += [
        [chooser.choice((1, 8, 8, 16)), records.SLOT_ROW, 1]
        for _ in range(chooser.choice((0, 1, 1, 2)))
    ]
    tables = CommandTables(slots, [], [])
    count = chooser.randrange(1, 9)
    for _ in range(count):
        _draw_command(tables, count, chooser)
    for slot, (size, flags, _) in enumerate(slots):
        if flags == records.SLOT_ROW:
            _draw_row(tables, slot, size, chooser)
    return tables


def _draw_command(tables: CommandTables, count: int, chooser: random.Random) -> None:
    kind = chooser.choice((Kind.COPY, Kind.FILL, Kind.HOST_CALL, Kind.GOTO, Kind.GOTO))
    first, flags = len(tables.bindings), records.COMMAND_BARRIER
    function, constants = 0, 0
    match kind:
        case Kind.COPY:
            length = chooser.choice((0, 1, 8, 8, 16, 64))
            tables.bindings.extend(
                (
                    _range(tables, length, 1, chooser),
                    _range(tables, length, 0, chooser),
                )
            )
        case Kind.FILL:
            constants = chooser.choice((1, 2, 4, 8))
            tables.bindings.append(_range(tables, 8 * chooser.randrange(4), 1, chooser))
            function = chooser.getrandbits(64)
        case Kind.HOST_CALL:
            function = chooser.randrange(HOST_CALLS)
            flags |= chooser.choice((0, records.COMMAND_ON_FINDING))
            length = 64 if flags & records.COMMAND_ON_FINDING else chooser.choice((0, 1, 8))
            tables.bindings.append(_range(tables, length, chooser.choice((0, 1)), chooser))
        case _:
            function = chooser.randrange(count + 1)
            if chooser.random() < 0.8:
                tables.bindings.append(_range(tables, 1, 0, chooser))
    tables.commands.append(
        _command(kind, flags, first, len(tables.bindings) - first, constants, function)
    )


def _draw_row(tables: CommandTables, slot: int, size: int, chooser: random.Random) -> None:
    first = len(tables.bindings)
    tables.bindings.append(_range(tables, 8, 0, chooser))
    tables.bindings.append(_range(tables, size * chooser.randrange(1, 5), 0, chooser))
    command = _command(Kind.ROW, 1, first, 2, 0, slot)
    tables.commands.insert(chooser.randrange(len(tables.commands) + 1), command)


def _command(
    kind: int, flags: int, first: int, count: int, constants: int, function: int
) -> list[int]:
    return [kind, flags, first, count, 0, constants, *([1] * 6), 0, 0, function, 0]


def _range(
    tables: CommandTables, length: int, writable: int, chooser: random.Random
) -> list[int]:
    """A binding that fits, where there is room for it."""
    fitting = [
        i
        for i, (size, flags, _) in enumerate(tables.slots)
        if size >= length and (flags == records.SLOT_WRITABLE or not writable)
    ]
    slot = chooser.choice(fitting or range(len(tables.slots)))
    room = max(0, tables.slots[slot][0] - length)
    return [slot, writable, chooser.randrange(room + 1) & -chooser.choice((1, 8)), length]


def mutate(tables: CommandTables, chooser: random.Random) -> None:
    """Change one word of one record."""
    rows = chooser.choice(
        [
            rows
            for rows in (tables.slots, tables.bindings, tables.commands, tables.commands)
            if rows
        ]
    )
    row = chooser.choice(rows)
    place = chooser.randrange(len(row))
    near = row[place] + chooser.choice((-8, -1, 1, 8))
    row[place] = chooser.choice((near, near, chooser.choice(NUMBERS))) & ((1 << 64) - 1)
    for command in tables.commands:
        if command[0] & 0xFFFF_FFFF == Kind.DISPATCH:
            command[0] = UNKNOWN_KIND  # addresses of functions are trusted
        command[1] |= (
            records.COMMAND_BARRIER
        )  # without, who writes what both write has no order


# --- running ----------------------------------------------------------------------------------------


def contents(tables: CommandTables, seed: object) -> list[bytearray]:
    """Buffers of the slots between guards: small numbers, so that places of rows and conditions vary."""
    chooser = random.Random(f"contents:{seed}")
    made: list[bytearray] = []
    for size, _, _ in tables.slots:
        size = min(size & ((1 << 64) - 1), 512)
        values = (chooser.choice((0, 0, 0, 1, 2, 255)) for _ in range(size))
        made.append(bytearray(GUARD + bytes(values) + GUARD))
    return made


def host_calls() -> list[Any]:
    """Functions that change what they are given, and end what would go on for ever through them."""
    calls = 0

    def count(step: int, view: memoryview | None = None, *_: object) -> None:
        nonlocal calls
        calls += 1
        if calls > CALLS_LIMIT:
            raise CircleError
        if view is not None and len(view) and not view.readonly:
            view[0] = (view[0] + step) & 0xFF

    return [functools.partial(count, 1), functools.partial(count, 255)]


def outcome(
    core: Any, tables: CommandTables, threads: int, seed: object
) -> tuple[str, list[bytes]]:
    """How a core ends with a list, and what the buffers hold then."""
    commands, bindings, slots = tables.packed()
    memory = contents(tables, seed)
    try:
        found = core.CommandList(commands, bindings, slots, b"", host_calls())
        pool = core.Pool(threads) if threads else None
        buffers = [
            None
            if flags & records.SLOT_ROW
            else memoryview(buffer)[len(GUARD) : -len(GUARD)]
            for (_, flags, _), buffer in zip(tables.slots, memory, strict=True)
        ]
        with circles_end(CIRCLE_S):
            found.run(pool, buffers)
    except ValueError:
        return "refused", []
    except CircleError:
        return "went in circles", [bytes(b) for b in memory]
    return "ran", [bytes(b) for b in memory]


def run_one(seed: str, number: int) -> str:
    """What became of an input.  Raises: FindingError."""
    chooser = random.Random(f"{seed}:{number}")
    tables = drawn(chooser)
    for _ in range(chooser.choice((0, 0, 1, 1, 2))):
        mutate(tables, chooser)
    threads = chooser.choice((0, 0, 2))
    try:
        found = [outcome(core, tables, threads, number) for core in CORES]
    except Exception as error:
        raise FindingError(number, f"{type(error).__name__}: {error}") from error
    for ended, buffers in found:
        for buffer in buffers:
            if not (buffer.startswith(GUARD) and buffer.endswith(GUARD)):
                raise FindingError(number, f"{ended}, and wrote outside")
    if all(ended == "ran" for ended, _ in found) and any(f != found[0] for f in found):
        raise FindingError(number, "the cores ended with other bytes")
    return found[0][0]


def run(seed: str, first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs."""
    return run_range(functools.partial(run_one, seed), first, count)


def main() -> int:
    """Run a range of inputs, print findings and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser, "commands")
    options = parser.parse_args()
    return report(run(options.seed, options.first, options.count))


if __name__ == "__main__":
    sys.exit(main())
