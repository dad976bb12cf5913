"""What is chosen for a kernel does not depend on the kernels before it, nor on the hashes of names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fakes.loop_nests import op_kernel, product
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V3 = MachineModel.of(Target.level("v3"))
BOUNDS = ((0, None), (1, 8))
MAKERS: dict[str, Callable[[Dim], Kernel]] = {
    "one row": lambda n: product(1, columns=n),
    "two rows": lambda n: product(2, columns=n),
    "open columns": lambda n: product(64, columns=n),
    "open rows": lambda n: product(n, columns=48, depth=32),
    "attention": lambda n: op_kernel(
        "attention", ((1, 2, n, 16),) * 3, (1, 2, n, 16), {"causal": (0,)}
    ),
}


def texts(make: Callable[[Dim], Kernel], name: str, bounds: Sequence[int]) -> list[str]:
    """What kernels that differ in the bounds of one size are scheduled to, one after the other."""
    found = {
        at: kernel_text(schedule(make(symbol(name, *BOUNDS[at])), V3, threads=2))
        for at in bounds
    }
    return [found[at].replace(name, "size") for at in sorted(found)]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_kernels_of_the_same_size_within_other_bounds_do_not_meet(
    make: Callable[[Dim], Kernel],
) -> None:
    order = range(len(BOUNDS))
    assert texts(make, "n_aa", order) == texts(make, "n_ab", [*reversed(order)])


PROGRAM = """
import sys
tests = sys.argv[1]
sys.path[:0] = [tests, tests + "/unit/compiler/schedule/rules"]
from test_order import MAKERS, texts
found = {name: texts(MAKERS[name], "n_aa", (1, 0)) for name in reversed(sorted(MAKERS))}
print(*(text for name in sorted(found) for text in found[name]), sep="", end="")
"""


@pytest.mark.slow
def test_a_process_with_other_hashes_chooses_the_same_in_another_order() -> None:
    here = [x for name in sorted(MAKERS) for x in texts(MAKERS[name], "n_aa", (0, 1))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[4])],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "".join(here)
