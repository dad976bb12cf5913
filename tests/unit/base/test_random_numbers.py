"""Random numbers whose module is loaded at first use, with an interrupt in the middle of it."""

from __future__ import annotations

import subprocess
import sys

from tilewright.base.random_numbers import random_generator

_INTERRUPTED = """
import importlib.abc, signal, sys
from tilewright.base.random_numbers import random_generator

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy.random._generator":
            print("interrupted in", name)
            signal.raise_signal(signal.SIGINT)

assert "numpy.random" not in sys.modules
sys.meta_path.insert(0, Interrupting())
try:
    random_generator(3)
except KeyboardInterrupt:
    print("an interrupt")
print(random_generator(3).integers(1000))
"""


def test_a_seed_draws_the_same_again_and_none_draws_others() -> None:
    first, second = (random_generator(3).random(8).tolist() for _ in range(2))
    assert first == second
    assert (
        random_generator(None).random(8).tolist()
        != random_generator(None).random(8).tolist()
    )


def test_an_interrupt_while_numpy_loads_them_stays_one_and_the_next_attempt_works() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False
    )
    expected = int(random_generator(3).integers(1000))
    assert done.stdout.splitlines() == [
        "interrupted in numpy.random._generator",
        "an interrupt",
        str(expected),
    ], done.stderr
