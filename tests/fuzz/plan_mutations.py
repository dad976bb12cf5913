"""Mutated plans that are called: each is refused, fails with an error of ours, runs, or goes in circles.

What it is: a harness.  Fields of plans are changed in their JSON (indices, sizes, offsets, targets of jumps, lifetimes,
kinds, whole rows moved or doubled); what the verifier lets through is bound and called.  It lets no circle through
that no way leads out of; one whose condition never ends it is told, and is no finding.  The plans are of real
programs with loops, branches, rows and sizes that data decides; what would be kernels, whose code nobody can judge, are
functions of the host that fill their results with small numbers.  Input `i` of seed `s` is always the same.
What it is not: about damaged JSON (`format_mutations.py plan`), or about numbers that come out.
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/plan_mutations.py --count 100000 > build/fuzz-plans.txt
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import tilewright as tw
from fakes import flow_models, plans
from fuzz.harness import (
    CircleError,
    FindingError,
    Outcome,
    add_options,
    circles_end,
    report,
    run_range,
)
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.base.symbolic import Dim, evaluate, symbols
from tilewright.formats.plan import (
    Entry,
    HostCall,
    Plan,
    Step,
    from_json,
    to_json,
)
from tilewright.formats.plan.findings import CHECK_PASSED
from tilewright.formats.plan.steps import results_of
from tilewright.runtime import native
from tilewright.runtime.plan_executor.executor import PlanExecutor

MODELS = (
    "loop of trips from data",
    "loop until a condition of unknown trips",
    "branches of different sizes, one in another",
    "loops that swap and nest",
    "sizes inside of a loop",
    "layers whose weights are stacked",
    "rows of a loop that reads sizes and may end early",
    "shape from data",
    "pieces from data",
    "what a loop carries grows",
    "what loops carry grows and shrinks in loops",
    "what loops carry changes places",
    "branches whose results have sizes of their own",
)
NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    7,
    8,
    64,
    1 << 20,
    1 << 31,
    1 << 32,
    1 << 40,
    (1 << 61),
    -(1 << 61),
)
EXPRESSIONS = (
    "{0} - 5",
    "{0}*{0}",
    "1000000000000*{0}",
    "-8*{0}",
    "8*{0}",
    "({0} + 1) // 2",
    "{0}",
)
CAPACITY_BYTES = 8 << 20
CIRCLE_S = 0.2
CALLS = 2
_ROWS = (
    "storages",
    "entries",
    "steps",
    "dims",
    "inputs",
    "outputs",
    "equalities",
    "checks",
)


# --- seeds ------------------------------------------------------------------------------------------


@functools.cache
def seeds() -> tuple[dict[str, Any], ...]:
    """Plans as JSON, of which only what our reader looks at is kept."""
    made = [_without_kernels(_compiled(name)) for name in MODELS]
    made += [plans.flow_plan(), plans.static_plan(), plans.checking_plan()]
    made[-2:] = [_without_kernels(plan) for plan in made[-2:]]
    return tuple(json.loads(to_json(plan)) for plan in made)


def _compiled(name: str) -> Plan:
    found = {n.replace("_", " "): m for n, m in flow_models.models().items()}
    model = tw.compile(found[name.replace(",", "")].model, threads=1)
    return model.compiled.parts[0].plan


def _without_kernels(plan: Plan) -> Plan:
    """The plan with functions of the host for kernels."""
    steps = tuple(_on_host(s) if s.kind == "dispatch" else s for s in plan.steps)
    return replace(plan, steps=steps)


def _on_host(step: Step) -> Step:
    count = len(step.arguments) - step.result_count
    call = HostCall(count, tuple(range(count)))
    return replace(step, kind="host", grid=(1, 1, 1), dims=(), host=call, outcome=None)


# --- mutations --------------------------------------------------------------------------------------


def mutated(chooser: random.Random) -> bytes:
    """A changed plan, as a file."""
    document = copy.deepcopy(chooser.choice(seeds()))
    plan = document["metadata"]["tilewright"]
    if chooser.random() < 0.5:
        plan["equalities"] = []
    for _ in range(chooser.choice((1, 1, 1, 2, 3))):
        chooser.choice(
            (_field, _field, _field, _field, _swap_rows, _double_row, _drop_row, _flow)
        )(plan, chooser)
    return json.dumps(document).encode()


def _some_rows(plan: dict[str, Any], chooser: random.Random) -> list[Any]:
    return chooser.choice([rows for name in _ROWS if (rows := plan[name])])


def _field(plan: dict[str, Any], chooser: random.Random) -> None:
    """Change one number, expression or word, wherever it stands in a row."""
    places = list(_leaves(chooser.choice(_some_rows(plan, chooser))))
    if not places or chooser.random() < 0.05:
        plan[chooser.choice(("arena_bytes", "check_storage"))] = _number(plan, -1, chooser)
        return
    holder, key = chooser.choice(places)
    old = holder[key]
    if isinstance(old, bool) or old is None:
        holder[key] = chooser.choice((True, False, None, 0, 1))
    elif isinstance(old, str):
        holder[key] = _word(plan, old, chooser)
    else:
        holder[key] = _number(plan, old, chooser)


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        if isinstance(value[key], (dict, list)):
            yield from _leaves(value[key])
        else:
            yield value, key


def _number(plan: dict[str, Any], old: Any, chooser: random.Random) -> Any:
    names = [row[0] for row in plan["dims"]]
    names += [size[0] for step in plan["steps"] for size in step.get("sizes", ())]
    if names and chooser.random() < 0.2:
        return chooser.choice(EXPRESSIONS).format(chooser.choice(names))
    near = old + chooser.choice((-8, -4, -1, 1, 4, 8)) if isinstance(old, int) else 0
    index = chooser.randrange(
        max(1, len(plan[chooser.choice(("steps", "entries", "storages"))]))
    )
    return chooser.choice((near, near, index, index, chooser.choice(NUMBERS)))


def _word(plan: dict[str, Any], old: str, chooser: random.Random) -> Any:
    """A word of the same kind that stands elsewhere, or a number where a size may stand."""
    rows = _some_rows(plan, chooser)
    found = [h[k] for row in rows for h, k in _leaves(row) if isinstance(h[k], str)]
    kinds = [
        "input",
        "output",
        "constant",
        "transient",
        "row",
        "block",
        "i64",
        "bool",
        "f32",
        "u8",
    ]
    kinds += [
        "copy",
        "label",
        "branch",
        "jump",
        "read",
        "host",
        "dispatch",
        "call",
        "allocate",
        "rebind",
    ]
    if chooser.random() < 0.1 or old.isdigit():
        return _number(plan, 0, chooser)
    return chooser.choice((chooser.choice([*found, old]), chooser.choice(kinds)))


def _swap_rows(plan: dict[str, Any], chooser: random.Random) -> None:
    rows = plan[chooser.choice(("steps", "steps", "entries", "storages"))]
    one, other = (chooser.randrange(len(rows)) for _ in range(2))
    rows[one], rows[other] = rows[other], rows[one]


def _double_row(plan: dict[str, Any], chooser: random.Random) -> None:
    rows = _some_rows(plan, chooser)
    rows.insert(chooser.randrange(len(rows) + 1), copy.deepcopy(chooser.choice(rows)))


def _drop_row(plan: dict[str, Any], chooser: random.Random) -> None:
    rows = _some_rows(plan, chooser)
    del rows[chooser.randrange(len(rows))]


def _flow(plan: dict[str, Any], chooser: random.Random) -> None:
    """Let a jump or branch lead to another label, or from another place."""
    steps = plan["steps"]
    labels = [i for i, step in enumerate(steps) if step["kind"] == "label"]
    goers = [i for i, step in enumerate(steps) if step["kind"] in ("jump", "branch")]
    if not labels or not goers:
        _field(plan, chooser)
        return
    step = chooser.choice(goers)
    steps[step]["goto"] = chooser.choice(labels)
    if chooser.random() < 0.3:
        other = chooser.randrange(len(steps))
        steps[step], steps[other] = steps[other], steps[step]


# --- running ----------------------------------------------------------------------------------------


def with_filled_results(plan: Plan) -> Plan:
    """The plan whose functions of the host are told what they write, as the plan says it now."""
    steps = tuple(
        s
        if s.host is None
        else replace(s, host=replace(s.host, attributes=_result_types(plan, s)))
        for s in plan.steps
    )
    return replace(plan, steps=steps)


def _result_types(plan: Plan, step: Step) -> dict[str, object]:
    found: dict[str, object] = {}
    for index, place in enumerate(results_of(step)):
        entry = plan.entries[place]
        found |= {f"dtype{index}": entry.dtype, f"shape{index}": entry.shape}
        found[f"finds{index}"] = entry.storage == plan.check_storage
    return found


def filler(chooser: random.Random) -> Callable[..., list[np.ndarray]]:
    """A function of the host that fills results with small numbers, sizes and places of rows among them."""

    def fill(target: str, types: Mapping[str, Any], operands: object) -> list[np.ndarray]:
        del target, operands
        rows = [
            (types[f"dtype{i}"], types[f"shape{i}"], types[f"finds{i}"])
            for i in range(len(types) // 3)
        ]
        return [
            np.full(shape, CHECK_PASSED if finds else _value(dtype, chooser)).astype(
                dtype.numpy
            )
            for dtype, shape, finds in rows
        ]

    return fill


def _value(dtype: DType, chooser: random.Random) -> int:
    return chooser.choice(
        (0, 1) if dtype == dtypes.bool_ else (*(3,) * 12, *(1,) * 6, 0, 2, 5, -1)
    )


def call(plan: Plan, chooser: random.Random) -> None:
    """Bind a plan and call it.  Raises: TilewrightError; CircleError."""
    rows = [s for s in plan.storages if s.kind == "constant"]
    constants = [bytes(size) for s in rows if isinstance(size := s.size_bytes, int)]
    plan = with_filled_results(plan)
    pool = chooser.choice((None, _pool()))
    heap = native.Heap(CAPACITY_BYTES)
    executor = PlanExecutor(
        plan, None, constants, host_function=filler(chooser), pool=pool, heap=heap
    )
    for _ in range(CALLS):
        inputs = [_input(plan.entries[e], chooser) for _, e in plan.inputs]
        with circles_end(CIRCLE_S):
            executor(*inputs)


def _input(entry: Entry, chooser: random.Random) -> np.ndarray:
    return np.full(_extents(entry.shape), _value(entry.dtype, chooser)).astype(
        entry.dtype.numpy
    )


def _extents(shape: Sequence[Dim]) -> list[int]:
    """A shape where every dimension of a call is 3."""
    return [
        d if isinstance(d, int) else evaluate(d, {s.name: 3 for s in symbols(d)})
        for d in shape
    ]


@functools.cache
def _pool() -> native.Pool:
    return native.Pool(2)


def run_one(seed: str, number: int) -> str:
    """What became of an input.  Raises: FindingError."""
    chooser = random.Random(f"{seed}:{number}")
    try:
        plan = from_json(mutated(chooser))
    except TilewrightError as error:
        return _refused(number, error)
    except Exception as error:
        raise FindingError(number, f"reading: {type(error).__name__}: {error}") from error
    if any(_is_large(plan.entries[e].shape) for _, e in plan.inputs) or any(
        _is_large((s.size_bytes,)) for s in plan.storages if s.kind == "constant"
    ):
        return "read"
    try:
        call(plan, chooser)
    except CircleError:
        return "went in circles"
    except TilewrightError as error:
        return _refused(number, error)
    except Exception as error:
        raise FindingError(number, f"calling: {type(error).__name__}: {error}") from error
    return "ran"


def _is_large(shape: Sequence[Dim]) -> bool:
    """Nobody could bring such an input, and no archive such weights."""
    extents = _extents(shape)
    return min(extents, default=1) < 0 or math.prod(max(1, d) for d in extents) > 1 << 20


def _refused(number: int, error: TilewrightError) -> str:
    if isinstance(error, InternalError):
        raise FindingError(number, f"internal error: {error}") from error
    return "refused"


def run(seed: str, first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs."""
    return run_range(functools.partial(run_one, seed), first, count)


def main() -> int:
    """Run a range of inputs, print findings and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser, "plans")
    options = parser.parse_args()
    seeds()
    return report(run(options.seed, options.first, options.count))


if __name__ == "__main__":
    sys.exit(main())
