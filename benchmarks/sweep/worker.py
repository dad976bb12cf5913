"""A process that holds contests, one named case a line.

What it is: a small server: a name on standard input, a row as JSON on standard output.
What it is not: robust against a contender that ends the process; ``referee.py`` starts another.
Who calls it: ``referee.py``.
"""

from __future__ import annotations

import json
import sys
import warnings

from figures.worker import connect_standard_streams
from sweep import blocks, catalogue
from sweep.contest import KINDS, PROCESSOR, WALL, WITH_SYMBOLS, hold
from sweep.manner import Manner

SETS = {"ops": catalogue.all_cases, "blocks": blocks.all_cases}


def main() -> int:
    """Answer until standard input ends."""
    names, answers = connect_standard_streams()
    warnings.simplefilter("ignore")  # a slow kernel is what the table shows
    cases = SETS[sys.argv[1]]()
    manner = Manner.read(sys.argv[2:])
    kinds = WITH_SYMBOLS if manner.symbols else KINDS
    watch = PROCESSOR if manner.processor else WALL
    for line in names:
        name = line.rstrip("\n")
        try:
            row = hold(cases[name], kinds, watch)
        except Exception as error:  # a case that cannot be built is a row, too
            row = {"name": name, "failed": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(row) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
