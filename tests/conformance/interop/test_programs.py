"""Programs written for the purpose compute under our runtime what they do under IREE's, bit for bit.

A sample is among the slow tests; every program in every way to compile it is a nightly target
(Makefile).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.interop.agreement import Verdict, compare
from conformance.interop.evidence import record
from conformance.interop.program_cases import CASES, PROGRAMS, VARIANTS
from conformance.interop.toolchain import compile_text, needs_iree

pytestmark = [needs_iree, pytest.mark.slow]
PAIRS = [(program, variant) for program in CASES for variant in VARIANTS]
SAMPLE = [*((p, "plain") for p in CASES), ("dynamic", "async-external")]


def check(program: str, variant: str, folder: Path) -> None:
    text = (PROGRAMS / f"{program}.mlir").read_text(encoding="utf-8")
    built = compile_text(text, VARIANTS[variant])
    if built.error:
        record("programs", f"{program} {variant}", Verdict("refused", built.error))
        pytest.skip("IREE's compiler refuses the program")
    for function, calls in CASES[program].items():
        for inputs in calls:
            verdict = compare(built.path, inputs, folder, function=function)
            record("programs", f"{program} {variant} {function}", verdict, built.path)
            assert verdict.outcome == "equal", f"{function}: {verdict.detail}"


@pytest.mark.parametrize(("program", "variant"), SAMPLE)
def test_a_sample_gives_the_bits_that_iree_gives(
    program: str, variant: str, tmp_path: Path
) -> None:
    check(program, variant, tmp_path)


@pytest.mark.parametrize(("program", "variant"), [p for p in PAIRS if p not in SAMPLE])
def test_every_other_way_to_compile_gives_the_bits_that_iree_gives(
    program: str, variant: str, tmp_path: Path
) -> None:
    check(program, variant, tmp_path)
