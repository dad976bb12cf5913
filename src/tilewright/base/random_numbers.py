"""Random numbers of numpy, which are loaded at first use.  No module here loads them earlier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.interrupts import deferred

if TYPE_CHECKING:
    import numpy as np


def random_generator(seed: int | None) -> np.random.Generator:
    """A generator of its own: the same numbers for the same seed, others each time for None.

    An interrupt that comes while numpy loads its generators is raised behind it: their extension modules
    make an ImportError of one, and the next attempt finds half of them.
    """
    with LATE_IMPORTS, deferred():
        from numpy.random import default_rng  # noqa: PLC0415

        return default_rng(seed)
