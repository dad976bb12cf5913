"""Sizes computed in C are those that Python computes; what has no number is an error, not a wrong one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fakes.exported_library import compile_and_run
from tilewright.base.errors import UserError
from tilewright.base.symbolic import Dim, evaluate, maximum, minimum, symbol
from tilewright.compiler.packaging.library.expressions import Sizes, c_expression

NATIVE = Path(__file__).resolve().parents[5] / "native" / "include"
NAMES = ("n", "m", "k")
NO_SIZE = -(1 << 63)


def random_tree(chance: random.Random, depth: int) -> Dim:
    if depth == 0 or chance.random() < 0.2:
        if chance.random() < 0.6:
            return symbol(chance.choice(NAMES), None)
        return chance.choice([0, 1, 2, 3, 7, 64, -1, -5, 1 << 40, -(1 << 40)])
    left, right = random_tree(chance, depth - 1), random_tree(chance, depth - 1)
    operations = [
        lambda: left + right,
        lambda: left - right,
        lambda: left * right,
        lambda: left // right if right != 0 else left,
        lambda: left % right if right != 0 else left,
        lambda: minimum(left, right),
        lambda: maximum(left, right),
    ]
    return chance.choice(operations)()


def expected(tree: Dim, env: dict[str, int]) -> int | None:
    """The value; None where C may have none: Python's intermediate numbers have no end."""
    try:
        value = evaluate(tree, env)
    except UserError:
        return NO_SIZE
    return value if abs(value) < 1 << 63 else NO_SIZE


@pytest.mark.slow
def test_every_expression_has_the_value_that_python_gives_it(tmp_path: Path) -> None:
    chance = random.Random(9)
    trees = [random_tree(chance, 4) for _ in range(300)]
    values = [0, 1, 2, 5, 63, 64, 65, 1000, (1 << 31) + 1]
    envs = [{name: chance.choice(values) for name in NAMES} for _ in range(8)]
    lines = ['#include "tw_size.h"', "#include <inttypes.h>", "#include <stdio.h>"]
    for i, tree in enumerate(trees):
        text = c_expression(tree, {name: name for name in NAMES})
        lines += [
            f"static int64_t f{i}(int64_t n, int64_t m, int64_t k) {{",
            f"  (void)n; (void)m; (void)k; return {text}; }}",
        ]
    lines.append("int main(void) {")
    for i in range(len(trees)):
        for env in envs:
            numbers = ", ".join(f"INT64_C({env[name]})" for name in NAMES)
            lines.append(f'  printf("%" PRId64 "\\n", f{i}({numbers}));')
    lines += ["  return 0;", "}"]
    sanitize = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    out = compile_and_run("\n".join(lines), tmp_path, f"-I{NATIVE}", *sanitize)
    got = [int(line) for line in out.split()]
    wanted = [expected(tree, env) for tree in trees for env in envs]
    # What is beyond 63 bits on the way may be no number at the end.
    wrong = [(g, w) for g, w in zip(got, wanted, strict=True) if g not in (w, NO_SIZE)]
    assert not wrong
    known = sum(g == w for g, w in zip(got, wanted, strict=True))
    assert known > 0.9 * len(got)
    assert got.count(NO_SIZE) > 0


def test_equal_sizes_are_computed_once() -> None:
    n = symbol("n")
    sizes = Sizes(["n"])
    assert sizes.number(n * 4) == sizes.number(4 * n) == "TW_SIZE(0)"
    assert sizes.number(n + 1) == "TW_SIZE(1)"
    assert sizes.number(12) == "12"
    assert len(sizes) == 2
