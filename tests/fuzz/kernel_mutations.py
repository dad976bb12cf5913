"""Mutated kernel texts: each is a kernel or a UserError, never anything else.

What it is: a harness.  Letters, words and lines of texts of all stages are changed; what is still a kernel must
come back from its own text.  Input `i` of seed `s` is always the same.
What it is not: about what a kernel computes.
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/kernel_mutations.py --count 100000
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fakes.affine_kernels import random_kernel
from fakes.loop_nests import op_kernel, product, row_sums
from fakes.lowered import lower
from fuzz.harness import FindingError, Outcome, add_options, report, run_range
from tilewright.base.dtypes import f16, f64
from tilewright.base.errors import UserError
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.readers.kernel_text import parse_kernel, parse_kernels
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_WORDS = (
    "", " ", "\n", "    ", "(", ")", "[", "]", "<", ">", ":", ",", "=", "#", "*", "//", "%", "-", ".", "..", "$0",
    "0", "1", "-1", "9999999999999999999999", "1e999", "inf", "nan", "i", "n", "x", "t1", "t1 :=", "lanes",
    "step", "where", "min(", "index<i64>(", "splat<8>(", "bits<f32>(", "const<1, f32, 1>()", "fma", "select(",
    "f32(", "i4(", "bool(", "True", "for i in range(3):", "if True:", "pass", "prefetch x[0]  # level 1",
    "kernel k():", "local t: f32[2]@constant = [1, 2]", "function f(f32) -> f32 = $0", "@register", "é", "\x00",
    "argument<0, f32, 1>()", "load<1, 1>()", "call<f, 1>(x)", "horizontal_add(", "column_0(", "<lane of 8>",
)  # fmt: skip


@functools.cache
def seeds() -> tuple[str, ...]:
    """The texts that mutations begin with."""
    target = Target.level("v3")
    n = symbol("n", 1, 100)
    made = [
        product(n, 7, n + 1),
        row_sums(),
        op_kernel("exp", [(20,)], (20,), dtype=f16),
        op_kernel("sin", [(3,)], (3,), dtype=f64),
        op_kernel("transpose", [(4, n)], (n, 4), {"perm": (1, 0)}),
        *(random_kernel(seed, rank=1 + seed % 2, tables=True) for seed in range(6)),
    ]
    scheduled = [schedule(kernel, MachineModel.of(target)) for kernel in made[:5]]
    lowered = [lower(kernel, target) for kernel in scheduled]
    texts = [kernel_text(kernel) for kernel in (*made, *scheduled, *lowered)]
    return tuple(text for text in texts if len(text) < 20_000)


def mutated(chooser: random.Random) -> str:
    """A text with some words, letters or lines changed."""
    text = chooser.choice(seeds())
    for _ in range(chooser.choice((1, 1, 1, 2, 3, 8))):
        text = chooser.choice((_word, _word, _letter, _line))(text, chooser)
    return text


def _word(text: str, chooser: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    place = chooser.randrange(len(tokens) + 1)
    new = chooser.choice((*_WORDS, chooser.choice(tokens) if tokens else ""))
    kept = chooser.choice((0, 1, 1, 2))
    return "".join([*tokens[:place], new, *tokens[place + kept :]])


def _letter(text: str, chooser: random.Random) -> str:
    place = chooser.randrange(len(text) + 1)
    return (
        text[:place] + chr(chooser.randrange(9, 127)) + text[place + chooser.randrange(2) :]
    )


def _line(text: str, chooser: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    place, other = chooser.randrange(len(lines)), chooser.choice(lines)
    change = chooser.randrange(4)
    if change == 0:
        return "".join([*lines[:place], *lines[place + 1 :]])
    if change == 1:
        return "".join([*lines[:place], other, *lines[place:]])
    if change == 2:
        return "".join(lines[:place])
    return "".join(
        [*lines[:place], " " * chooser.randrange(9) + other.lstrip(), *lines[place + 1 :]]
    )


def run_one(seed: str, number: int) -> str:
    """What became of an input.  Raises: FindingError."""
    text = mutated(random.Random(f"{seed}-{number}"))
    try:
        found = parse_kernels(text)
    except UserError:
        return "refused"
    except Exception as error:
        raise FindingError(number, f"{type(error).__name__}: {error}") from error
    for kernel in found:
        printed = kernel_text(kernel)
        try:
            again = kernel_text(parse_kernel(printed))
        except UserError as error:
            raise FindingError(number, f"cannot be read back: {error}") from error
        if again != printed:
            raise FindingError(number, "prints otherwise when read back")
    return "read"


def run(seed: str, first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs."""
    seeds()
    return run_range(lambda number: run_one(seed, number), first, count)


def main() -> int:
    """Run a range and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, "kernels")
    options = parser.parse_args()
    return report(run(options.seed, options.first, options.count))


if __name__ == "__main__":
    sys.exit(main())
