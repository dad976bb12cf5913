"""Primitives on random kernels: what they accept computes the same, and what they refuse is refused for a reason.

Loops on the grid and in lanes are run backwards as well, for they promise that the order does not matter.
"""

from __future__ import annotations

import collections
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fakes.affine_kernels import fitted_kernel
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import bounds
from tilewright.base.symbolic import evaluate as number_of
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import For, Kernel, LoopKind
from tilewright.compiler.kernel.rewrite import FreshNames, loops, rename_loops, substitute
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.schedule import primitives
from tilewright.compiler.schedule.tree import chain, find, reference, rewrite

LOG = logging.getLogger(__name__)
SIZES = (1, 2, 5)
FLOORS = {"bind": 0.5, "fuse_nests": 0.5, "reorder": 0.33}
"""The share of the rewrites that change nothing which is accepted at least."""
ORDERED = (LoopKind.SERIAL, LoopKind.UNROLL)

Results = list[np.ndarray]


def results(kernel: Kernel, size: int) -> Results:
    """What a kernel makes of fixed data."""
    generator = np.random.default_rng(size)
    arrays = []
    for parameter in kernel.parameters:
        buffer = parameter.buffer
        shape = tuple(number_of(extent, {"n": size}) for extent in buffer.shape)
        arrays.append(generator.integers(-9, 10, shape).astype(buffer.dtype.numpy))
    evaluate(kernel, arrays, {"n": size})
    return arrays


def agree(first: Kernel, second: Kernel) -> bool:
    return all(
        np.array_equal(a, b)
        for size in SIZES
        for a, b in zip(results(first, size), results(second, size), strict=True)
    )


def backwards(kernel: Kernel, name: str) -> Kernel:
    """With one loop run from its end."""
    loop = find(kernel, name)
    turned = substitute(loop.body, {name: loop.extent - 1 - reference(loop.var)})
    return rewrite(kernel, loop, (replace(loop, body=turned),))


def swapped(kernel: Kernel, outer: str) -> Kernel | None:
    """With a loop and the one perfectly nested in it the other way round, whatever that does."""
    first = find(kernel, outer)
    if len(chain(first)) < 2:
        return None
    second = chain(first)[1]
    names = {s.name for s in getattr(second.extent, "symbols", ())}
    if outer in names:
        return None
    inner = replace(first, body=second.body)
    return rewrite(kernel, first, (replace(second, body=(inner,)),))


def parted(kernel: Kernel) -> tuple[Kernel, str, str] | None:
    """With the statements of the first loop that has several in two loops, whatever that does."""
    found = next((s for s in kernel.body if isinstance(s, For) and len(s.body) > 1), None)
    if found is None:
        return None
    names = FreshNames.of(kernel)
    first = replace(found, body=found.body[:1])
    (second,) = rename_loops((replace(found, body=found.body[1:]),), names)
    assert isinstance(second, For)
    return rewrite(kernel, found, (first, second)), first.var.name, second.var.name


def applied(
    name: str, kernel: Kernel, *arguments: object, **options: object
) -> Kernel | None:
    """What a primitive makes of a kernel, None if it refuses."""
    primitive: Callable[..., object] = getattr(primitives, name)
    try:
        result = primitive(kernel, *arguments, **options)
    except ScheduleError:
        return None
    made = result[0] if isinstance(result, tuple) else result
    assert isinstance(made, Kernel)
    verify(made)
    return made


def check(kernel: Kernel, made: Kernel, attempt: str) -> None:
    """The rewrite computes the same, in any order where it promises that."""
    told = f"{attempt}\n{kernel_text(kernel)}\n{kernel_text(made)}"
    assert agree(kernel, made), told
    for loop in loops(made.body):
        if loop.kind not in ORDERED:
            assert agree(kernel, backwards(made, loop.var.name)), f"backwards: {told}"


def attempts(
    kernel: Kernel, chooser: random.Random
) -> list[tuple[str, Sequence[object], Mapping[str, object]]]:
    """Primitives with arguments that name what is there."""
    names = [loop.var.name for loop in loops(kernel.body)]
    tops = [s.var.name for s in kernel.body if isinstance(s, For)]
    buffers = [parameter.buffer.name for parameter in kernel.parameters]
    loop, other = chooser.choice(names), chooser.choice(names)
    buffer = chooser.choice(buffers)
    return [
        (
            "split",
            (loop, chooser.choice((1, 2, 3, 4))),
            {"tail": chooser.choice(("guard", "tight"))},
        ),
        ("fuse", (loop, other), {}),
        ("reorder", ([x.var.name for x in chain(find(kernel, loop))][1::-1],), {}),
        ("unroll", (loop,), {}),
        ("vectorize", (loop,), {}),
        ("bind", (chooser.choice(tops), "x"), {}),
        ("fission", (loop,), {"depth": 1, "scope": "workgroup"}),
        ("partition", (loop, chooser.randrange(4)), {}),
        ("specialize", (loop,), {}),
        ("shorten", (loop, 1 + chooser.randrange(3)), {}),
        ("shorten", (loop, 0), {}),
        ("widen", (loop, 1 + chooser.randrange(4)), {}),
        ("interior", (loop,), {}),
        ("split_counts", (loop,), {}),
        ("split_counts", (loop, 4), {}),
        ("split_powers", (loop, 4), {}),
        ("split_alike", (loop, other), {}),
        ("version", (loop, find(kernel, loop).extent, chooser.randrange(4)), {}),
        ("version_by_limits", (loop, find(kernel, loop).extent, [1, 3]), {}),
        ("precompute_factors", (loop, other), {}),
        ("trim", (loop,), {}),
        ("join", (loop, "joined"), {}),
        ("cache_read", (buffer, loop), {}),
        ("cache_write", (buffer, loop), {}),
        ("drop_guards", (loop,), {}),
        ("sink_guards", (loop,), {}),
        ("privatize", (buffer, loop), {}),
        ("keep_line", (buffer, loop, 8), {}),
        ("separate", (chooser.choice(tops),), {}),
    ]


def are_never_empty(kernel: Kernel) -> bool:
    """Whether every loop surely runs."""
    lows = (bounds(loop.extent)[0] for loop in loops(kernel.body))
    return all(low is not None and low > 0 for low in lows)


def run_seeds(seeds: Sequence[int]) -> collections.Counter[str]:
    accepted: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        kernel, chooser = fitted_kernel(seed), random.Random(seed)
        if not loops(kernel.body):
            continue
        for name, arguments, options in attempts(kernel, chooser):
            if name == "fuse" and not are_never_empty(kernel):
                continue  # the evaluator meets `i % 0` in code that does not run
            attempt = f"{name}{tuple(arguments)} {dict(options)} seed {seed}"
            made = applied(name, kernel, *arguments, **options)
            if made is not None:
                accepted[name] += 1
                check(kernel, made, attempt)
        parts = parted(kernel)
        made = None if parts is None else applied("fuse_nests", *parts)
        if parts is not None and made is not None:
            accepted["fuse_nests"] += 1
            check(parts[0], made, f"fuse_nests{parts[1:]} seed {seed}")
    LOG.info("accepted: %s", dict(accepted))
    return accepted


def test_what_is_accepted_computes_the_same() -> None:
    accepted = run_seeds(range(5))
    assert len(accepted) > 10


@pytest.mark.nightly
def test_what_is_accepted_computes_the_same_often() -> None:
    accepted = run_seeds(range(100, 300))
    assert all(
        accepted[name] > 3
        for name in ("split", "reorder", "vectorize", "bind", "fuse_nests")
    )


@pytest.mark.slow
def test_what_could_be_done_is_mostly_accepted() -> None:
    """Done by force it computes the same: so run backwards, swapped, or as one loop."""
    accepted: collections.Counter[str] = collections.Counter()
    possible: collections.Counter[str] = collections.Counter()

    def count(name: str, made: Kernel | None, before: Kernel, forced: Kernel) -> None:
        accepted[name] += made is not None
        possible[name] += made is not None or agree(before, forced)

    for seed in range(1000, 1150):
        kernel = fitted_kernel(seed)
        parts = parted(kernel)
        if parts is not None:
            count("fuse_nests", applied("fuse_nests", *parts), parts[0], kernel)
        for loop in loops(kernel.body):
            name = loop.var.name
            if kernel.body == (loop,):
                made = applied("bind", kernel, name, "x")
                count("bind", made, kernel, backwards(kernel, name))
            other = swapped(kernel, name)
            if other is not None:
                order = [x.var.name for x in chain(loop)][1::-1]
                count("reorder", applied("reorder", kernel, order), kernel, other)
    LOG.info("accepted: %s of %s", dict(accepted), dict(possible))
    low = {
        n: accepted[n] / possible[n]
        for n in FLOORS
        if accepted[n] < FLOORS[n] * possible[n]
    }
    assert not low, "a primitive has become more careful"
