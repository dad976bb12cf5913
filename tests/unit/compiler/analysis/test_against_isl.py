"""What the analysis says of random kernels, against exact answers of isl for all sizes at once.

Walking through iterations (`test_random_kernels`) can try a few sizes only; isl decides for all of them, those
without an upper bound too.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence

import pytest

from fakes.affine_kernels import SIZE, random_kernel
from fakes.claims import check_claims, check_floors
from tilewright.base.symbolic import Symbol
from tilewright.compiler.analysis.accesses import accesses
from tilewright.compiler.analysis.footprints import footprints
from tilewright.compiler.analysis.proofs import disjoint, distinct, within
from tilewright.compiler.kernel.ir import For, Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule.tree import path_to

pytest.importorskip("islpy", reason="the oracle of this file")
from fakes.isl_oracle import may_meet, stays_within, touched_elements

LOG = logging.getLogger(__name__)

OPEN = Symbol("n", 0, None)
FLOORS = {"disjoint": 0.32, "distinct": 0.38, "within": 0.7}
"""The share of the true claims that is found at least."""


def claims(kernel: Kernel, loop: For) -> Iterator[tuple[str, object, bool, bool]]:
    """(claim, about what, whether it is claimed, whether it is true)."""
    around = path_to(kernel.body, loop)
    assert around is not None
    found = accesses(loop.body)

    def meet(i: int, j: int, relation: str) -> bool:
        return may_meet(found[i], found[j], loop, around, kernel.dims, relation)

    for (i, a), (j, b) in itertools.product(enumerate(found), repeat=2):
        if a.buffer is b.buffer and (a.write or b.write):
            yield "distinct", (i, j), distinct(a, b, [loop.var]), not meet(i, j, "!=")
            yield "disjoint", (i, j), disjoint(a, b), not meet(i, j, "=")
            yield "disjoint", (i, j), disjoint(a, b, [loop.var]), not meet(i, j, "<=>")
    for i, a in enumerate(found):
        for q, (index, extent) in enumerate(zip(a.indices, a.buffer.shape, strict=True)):
            claimed = within(index, extent, (loop, *a.inner), a.facts)
            yield "within", (i, q), claimed, stays_within(a, q, loop, around, kernel.dims)


def check(seeds: Sequence[int], size: Symbol | None) -> dict[str, float]:
    """No claim about the kernels of the seeds is wrong; the share of the true ones that is made."""
    kernels = ((seed, random_kernel(seed, rank=1 + seed % 2, size=size)) for seed in seeds)
    return check_claims(kernels, claims, FLOORS)


def test_no_claim_for_any_size_is_wrong() -> None:
    check(range(6), OPEN)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [None, SIZE, OPEN], ids=["numbers", "bounded", "open"])
def test_no_claim_for_any_size_of_many_kernels_is_wrong(size: Symbol | None) -> None:
    check_floors(check(range(2000, 2120), size), FLOORS)


@pytest.mark.parametrize(
    "seeds",
    [
        range(40),
        pytest.param(range(3000, 3400), marks=pytest.mark.slow),
        pytest.param(range(3400, 4000), marks=pytest.mark.nightly),
    ],
)
def test_footprints_hold_all_elements_that_are_read(seeds: range) -> None:
    total, exact, close = 0, 0, 0
    for seed in seeds:
        kernel = random_kernel(seed, rank=1, size=None)
        found = accesses(kernel.body)
        for buffer, footprint in footprints(kernel.body).items():
            read = [a for a in found if a.buffer is buffer and not a.write]
            true = touched_elements(read, kernel.body)
            claimed = footprint.read_bytes // footprint.item_bytes
            assert claimed >= true, f"seed {seed}\n{kernel_text(kernel)}"
            total += 1
            exact += claimed == true
            close += claimed <= 2 * true
    # Guards, which are not looked at, leave elements out of most of these kernels.
    LOG.info("footprints: %d of %d exact, %d at most twice as large", exact, total, close)
    assert exact >= 0.33 * total
    assert close >= 0.5 * total
