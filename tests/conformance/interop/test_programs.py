"""Programs written for the purpose compute under our runtime what they do under IREE's, bit for bit.

A sample is among the slow tests; every program in every way to compile it is a nightly target
(Makefile).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from conformance.interop.agreement import Verdict, compare
from conformance.interop.evidence import record
from conformance.interop.program_cases import CASES, PROGRAMS, VARIANTS
from conformance.interop.toolchain import (
    LLVM_CPU,
    compile_text,
    needs_iree,
    program,
    run_module,
)
from tilewright.base.errors import DeviceError
from tilewright.base.host import describe
from tilewright.base.status import StatusCode
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.local.cpu_features import FEATURE_BITS
from tilewright.runtime.vm.list import VmList

pytestmark = [needs_iree, pytest.mark.slow]
PAIRS = [(program, variant) for program in CASES for variant in VARIANTS]
SAMPLE = [*((p, "plain") for p in CASES), ("dynamic", "async-external")]


def check(name: str, variant: str, folder: Path) -> None:
    text = (PROGRAMS / f"{name}.mlir").read_text(encoding="utf-8")
    built = compile_text(text, VARIANTS[variant])
    if built.error:
        record("programs", f"{name} {variant}", Verdict("refused", built.error))
        pytest.skip("IREE's compiler refuses the program")
    for function, calls in CASES[name].items():
        for inputs in calls:
            verdict = compare(built.path, inputs, folder, function=function)
            record("programs", f"{name} {variant} {function}", verdict, built.path)
            assert verdict.outcome == "equal", f"{function}: {verdict.detail}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "variant"), SAMPLE)
def test_a_sample_gives_the_bits_that_iree_gives(
    name: str, variant: str, tmp_path: Path
) -> None:
    check(name, variant, tmp_path)


def run_lists(function: str, *inputs: str) -> str:
    """What IREE's tool prints of a call of the program with lists."""
    built = compile_text((PROGRAMS / "lists.mlir").read_text(encoding="utf-8"), LLVM_CPU)
    assert built.error == ""
    done = subprocess.run(
        [
            program("iree-run-module"),
            f"--module={built.path}",
            "--device=local-sync",
            f"--function={function}",
            *(f"--input={value}" for value in inputs),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def open_lists() -> BytecodeMachine:
    built = compile_text((PROGRAMS / "lists.mlir").read_text(encoding="utf-8"), LLVM_CPU)
    return BytecodeMachine.from_file(built.path, "local-sync")


def test_lists_hold_what_iree_prints_of_them() -> None:
    printed = run_lists("make_list", "7", "2xf32=1,2")
    assert "i32=7" in printed
    assert "2xf32=1 2" in printed
    (made,) = open_lists().invoke("make_list", 7, np.array([1, 2], np.float32))
    assert isinstance(made, VmList)
    number, view = made.items
    assert number == 7
    assert isinstance(view, BufferView)
    assert view.to_numpy().tolist() == [1, 2]


def test_a_failed_assertion_says_what_it_says_under_iree() -> None:
    message = "the number must be positive"
    assert f"FAILED_PRECONDITION; {message}" in run_lists("check_positive", "-7")
    with pytest.raises(DeviceError, match=message) as caught:
        open_lists().invoke("check_positive", -7)
    assert caught.value.code == StatusCode.FAILED_PRECONDITION


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "variant"), [p for p in PAIRS if p not in SAMPLE])
def test_every_other_way_to_compile_gives_the_bits_that_iree_gives(
    name: str, variant: str, tmp_path: Path
) -> None:
    check(name, variant, tmp_path)


def asking(keys: list[str]) -> str:
    """A program that returns what the device says to each key; it computes something, too."""
    names = [f"%ok{i}, %value{i}" for i in range(len(keys))]
    queries = "\n".join(
        f'{name} = hal.device.query<%device : !hal.device> key("hal.cpu" :: "{key}") : i1, i64\n'
        f"%known{i} = arith.extui %ok{i} : i1 to i32"
        for i, (name, key) in enumerate(zip(names, keys, strict=True))
    )
    results = ", ".join(f"%known{i}, %value{i}" for i in range(len(keys)))
    types = ", ".join(["i32, i64"] * len(keys))
    return f"""
        module @asking {{
          func.func @ask(%x: tensor<4xf32>) -> (tensor<4xf32>, {types}) {{
            %y = arith.addf %x, %x : tensor<4xf32>
            %first = arith.constant 0 : index
            %device = hal.devices.get %first : !hal.device
            {queries}
            return %y, {results} : tensor<4xf32>, {types}
          }}
        }}"""


@pytest.mark.parametrize("device", ["local-sync", "local-task"])
def test_programs_are_told_the_same_of_the_cpu(device: str, tmp_path: Path) -> None:
    keys = [*FEATURE_BITS[describe().arch], "no-such-feature", ""]
    built = compile_text(asking(keys), LLVM_CPU)
    assert built.error == ""
    x = np.ones(4, np.float32)
    banks = ["ref", *("i32", "i64") * len(keys)]
    theirs = run_module(built.path, [x], banks, tmp_path, device=device)
    assert theirs.error == ""
    ours = BytecodeMachine.from_file(built.path, device).invoke("ask", x)
    assert [str(answer) for answer in ours[1:]] == list(theirs.results[1:])
