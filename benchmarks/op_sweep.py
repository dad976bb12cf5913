"""Time every operator in many forms against onnxruntime, one thread, in one run.

What it is: some twelve hundred small models; the table is sorted by ratio, refusals are rows.
What it is not: the figures of the model set (``bench.py``).
Who calls it: developers, on a quiet machine, about ten minutes::

    python benchmarks/op_sweep.py                       # build/op_sweep.txt and .json
    python benchmarks/op_sweep.py --only conv1d f16     # cases whose name has one of these
    python benchmarks/op_sweep.py --resume --seconds 170  # in pieces
    python benchmarks/op_sweep.py --symbols             # for any size, beside onnxruntime and known sizes
    python benchmarks/op_sweep.py --processor           # processor time: on a machine that others use, too
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sweep.catalogue import all_cases
from sweep.command import parse_arguments, sweep

BAR: Final = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments((__doc__ or "").splitlines()[0], "op_sweep", arguments)
    return sweep("ops", "op sweep", list(all_cases()), BAR, options)


if __name__ == "__main__":
    raise SystemExit(main())
