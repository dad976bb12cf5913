"""Time sixty small networks put together at random against onnxruntime, one thread.

What it is: networks of ten to forty operators at real sizes, from fixed seeds.
What it is not: a test of correctness (``tests/fuzz``), though results are compared.
Who calls it: developers, on a quiet machine, about three minutes::

    python benchmarks/block_sweep.py                    # build/block_sweep.txt and .json
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sweep.blocks import all_cases
from sweep.command import parse_arguments, sweep

BAR: Final = 1.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments((__doc__ or "").splitlines()[0], "block_sweep", arguments)
    return sweep("blocks", "block sweep", list(all_cases()), BAR, options)


if __name__ == "__main__":
    raise SystemExit(main())
