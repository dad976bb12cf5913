"""What the analysis says of random kernels, against what walking through them shows.

A claim must never be wrong; how many true ones it finds is logged (`--log-cli-level=info`) and must not decay.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence

import pytest

from fakes.affine_kernels import random_kernel
from fakes.claims import check_claims, check_floors
from fakes.touched_elements import holds, number, touches
from tilewright.compiler.analysis.accesses import accesses
from tilewright.compiler.analysis.dependence import carried, live_outside, private_buffers
from tilewright.compiler.analysis.proofs import disjoint, distinct, within
from tilewright.compiler.kernel.independence import is_independent
from tilewright.compiler.kernel.ir import Buffer, For, Kernel, Space, Statement
from tilewright.compiler.schedule.tree import path_to

SIZES = (1, 2, 5)
FLOORS = {
    "carried": 0.6,
    "disjoint": 0.4,
    "distinct": 0.42,
    "independent": 0.28,
    "private": 0.5,
    "within": 0.8,
}
"""The share of the true claims that is found at least."""


class Seen:
    """What one loop of a kernel really does, for some sizes and all iterations of loops around it."""

    def __init__(self, kernel: Kernel, loop: For) -> None:
        self.meet_in_one: set[tuple[int, int]] = set()
        self.meet_across: set[tuple[int, int]] = set()
        self.read_first: set[Buffer] = set()
        self.outside: set[tuple[int, int]] = set()
        for size in SIZES:
            path = path_to(kernel.body, loop)
            assert path is not None
            for values in iterations(path, {"n": size}):
                self.look(loop, values)

    def look(self, loop: For, values: dict[str, int]) -> None:
        """One run of the loop."""
        users: dict[object, set[tuple[int, int]]] = collections.defaultdict(set)
        for value in range(number(loop.extent, values)):
            written: set[object] = set()
            for touch in touches(loop.body, {**values, loop.var.name: value}):
                place = (touch.buffer, touch.element)
                users[place].add((touch.access, value))
                if touch.write:
                    written.add(place)
                elif place not in written:
                    self.read_first.add(touch.buffer)
                shape = [number(extent, values) for extent in touch.buffer.shape]
                for position, (at, extent) in enumerate(
                    zip(touch.element, shape, strict=True)
                ):
                    if not 0 <= at < extent:
                        self.outside.add((touch.access, position))
        for these in users.values():
            for (a, v), (b, w) in itertools.product(these, these):
                (self.meet_in_one if v == w else self.meet_across).add((a, b))


def iterations(
    path: Sequence[Statement], values: dict[str, int]
) -> Iterator[dict[str, int]]:
    """The values of the loops of a path for which its end is reached."""
    if not path:
        yield values
        return
    head, *rest = path
    if isinstance(head, For):
        for value in range(number(head.extent, values)):
            yield from iterations(rest, {**values, head.var.name: value})
    elif holds(head.condition, values):  # pyright: ignore[reportAttributeAccessIssue]
        yield from iterations(rest, values)


def claims(kernel: Kernel, loop: For) -> Iterator[tuple[str, object, bool, bool]]:
    """(claim, about what, whether it is claimed, whether it is true)."""
    seen, found = Seen(kernel, loop), accesses(loop.body)
    either = seen.meet_in_one | seen.meet_across
    for (i, a), (j, b) in itertools.product(enumerate(found), repeat=2):
        if a.buffer is b.buffer and (a.write or b.write):
            pair = (i, j)
            yield "distinct", pair, distinct(a, b, [loop.var]), pair not in seen.meet_across
            yield "disjoint", pair, disjoint(a, b), pair not in seen.meet_in_one
            yield "disjoint", pair, disjoint(a, b, [loop.var]), pair not in either
    for i, a in enumerate(found):
        for q, (index, extent) in enumerate(zip(a.indices, a.buffer.shape, strict=True)):
            claimed = within(index, extent, (loop, *a.inner), a.facts)
            yield "within", (i, q), claimed, (i, q) not in seen.outside
    written = {a.buffer for a in found if a.write}
    meetings = [(i, j) for i, j in seen.meet_across if found[i].write or found[j].write]
    shared = any(found[i].buffer in written for i, _ in seen.meet_across)
    yield "independent", "", is_independent(loop), not shared
    private = private_buffers(loop.body)
    for buffer in written:
        if buffer.space is not Space.DEVICE:
            yield "private", buffer.name, buffer in private, buffer not in seen.read_first
    own = {b for b in private if not live_outside(kernel.body, loop, b)}
    claimed = carried(loop, scope=kernel.body, updates_commute=False) is None
    yield "carried", "", claimed, all(found[i].buffer in own for i, _ in meetings)


def check(seeds: Sequence[int]) -> dict[str, float]:
    """No claim about the kernels of the seeds is wrong; the share of the true ones that is made."""
    kernels = (
        (seed, random_kernel(seed, rank=1 + seed % 2, tables=seed % 5 == 0))
        for seed in seeds
    )
    return check_claims(kernels, claims, FLOORS)


def test_no_claim_about_a_random_kernel_is_wrong() -> None:
    check(range(9))


@pytest.mark.nightly
def test_no_claim_about_many_random_kernels_is_wrong() -> None:
    check_floors(check(range(1000, 1800)), FLOORS)
