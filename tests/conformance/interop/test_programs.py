"""Programs written for the purpose compute under our runtime what they do under IREE's, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.interop import program_cases
from conformance.interop.agreement import compare
from conformance.interop.evidence import record
from conformance.interop.program_cases import CASES, PROGRAMS, VARIANTS
from conformance.interop.toolchain import compile_text, needs_iree

pytestmark = needs_iree
# What changes runs beside the plain way, in the fast tests; `slow` has every pair.
FAST = {
    ("control_flow", "plain"),
    ("control_flow", "async-external"),
    ("state", "plain"),
    ("dynamic", "plain"),
    ("dynamic", "async-external"),
    ("element_types", "plain"),
    ("stablehlo", "plain"),
}


def pairs() -> list[object]:
    return [
        pytest.param(
            program, variant, marks=() if (program, variant) in FAST else pytest.mark.slow
        )
        for program in CASES
        for variant in VARIANTS
    ]


@pytest.mark.parametrize(("program", "variant"), pairs())
def test_every_call_gives_the_bits_that_iree_gives(
    program: str, variant: str, tmp_path: Path
) -> None:
    text = (PROGRAMS / f"{program}.mlir").read_text(encoding="utf-8")
    built = compile_text(text, program_cases.VARIANTS[variant])
    assert built.error == ""
    for function, calls in CASES[program].items():
        for inputs in calls:
            verdict = compare(built.path, inputs, tmp_path, function=function)
            record("programs", f"{program} {variant} {function}", verdict, built.path)
            assert verdict.outcome == "equal", f"{function}: {verdict.detail}"
