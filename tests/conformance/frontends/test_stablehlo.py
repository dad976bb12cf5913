"""The self-checking modules of StableHLO: right, or refused by name; never wrong.

The reference interpreter's own tests (`interpret`) and modules that JAX made (`testdata`).  With the
oracles of all ops this takes seconds, so all of them are in the default run; compiled, with what they
compute on as arguments of the call, a sample is.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fakes import stablehlo_suites
from tilewright.api import model as api
from tilewright.compiler.frontends.stablehlo.load import import_modules
from tilewright.compiler.frontends.stablehlo.reached import SUITES, Reached
from tilewright.compiler.frontends.stablehlo.tree import Module
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.formats.output_checks import failed

pytestmark = pytest.mark.skipif(
    not stablehlo_suites.is_there(), reason=stablehlo_suites.REASON
)

# Sums in f32 of terms that cancel: the exact sum, rounded, is more than three units in the last place from
# what the module expects, which is the sum in the order of whoever wrote it.
ILL_CONDITIONED = frozenset({
    "conv_general_dilated_float32_2_3_9_float32_12_1_3.mlir",
    "dot_general_int32_4_3_float32_3_6.mlir",
    "dot_general_int64_4_3_complex64_3_6.mlir",
    "dot_general_int8_4_3_float32_3_6.mlir",
    "dot_general_uint16_4_3_float32_3_6.mlir",
})  # fmt: skip
# Modules that the suite itself does not run, as its own interpreter fails their checks: an ill-conditioned
# system of equations, products asked for within half a unit, NaN that shall equal NaN.
DISABLED = "// RUN-DISABLED"
SAMPLED = 40
# Expects a number that is 3.1 units in the last place off the exact one, within 3 units; compiled, ours is 0.9 off.
EXPECTED_IS_OFF = ("tanh_float32_20_20.mlir",)


def is_disabled(name: str) -> bool:
    texts = (stablehlo_suites.texts(suite) for suite in stablehlo_suites.SUITES)
    return any(found.get(name, "").startswith(DISABLED) for found in texts)


def by_oracle(name: str, module: Module) -> tuple[str, str]:
    """What became of a module, and why."""
    imported = import_modules([module], name)
    if imported.problems:
        assert all(p.reason and "malformed" not in p.reason for p in imported.problems)
        return "refused", str(imported.problems[0])
    if imported.graph.inputs or not imported.checks:
        return "without checks", ""
    problems = failed(imported.checks, evaluate(imported.graph, []))
    if problems and is_disabled(name):
        return "disabled", problems[0]
    if problems:
        return "ill-conditioned" if name in ILL_CONDITIONED else "wrong", problems[0]
    return "right", ""


@pytest.mark.parametrize(
    "suite", ["interpret", pytest.param("testdata", marks=pytest.mark.slow)]
)
def test_no_module_is_wrong(suite: str) -> None:
    found = [by_oracle(name, module) for name, module in stablehlo_suites.modules(suite)]
    counts = Counter(kind for kind, _ in found)
    assert [reason for kind, reason in found if kind == "wrong"] == []
    other = counts["ill-conditioned"] + counts["disabled"]
    measured = Reached(
        len(found), counts["right"], counts["without checks"], counts["refused"], other
    )
    assert measured == SUITES[suite]
    expected = len(ILL_CONDITIONED) if suite == "testdata" else 0
    assert counts["ill-conditioned"] == expected


def compiled_problems(name: str, module: Module) -> tuple[str, ...]:
    """What is wrong with a module that is compiled with its inputs as arguments; empty if refused."""
    changed, arguments = stablehlo_suites.with_arguments(module)
    imported = import_modules([changed], name)
    if imported.problems:
        return ()
    model = api.compile(imported.graph, cache=False, jobs=2)
    results = model(*arguments)
    listed = results if isinstance(results, tuple) else (results,)
    return failed(imported.checks, [np.asarray(result) for result in listed])


def check_compiled(step: int, first: int) -> None:
    found = stablehlo_suites.modules("testdata")[first::step]
    problems = [
        problem
        for name, module in found
        if name not in (*ILL_CONDITIONED, *EXPECTED_IS_OFF) and not is_disabled(name)
        for problem in compiled_problems(name, module)
    ]
    assert found
    assert problems == []


@pytest.mark.slow
def test_a_sample_is_right_when_it_is_compiled() -> None:
    check_compiled(1136 // SAMPLED, 5)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("first", range(8))
def test_modules_are_right_when_they_are_compiled(first: int) -> None:
    check_compiled(8, first)
