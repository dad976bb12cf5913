"""The model set through portable C: what `cc -O2` makes of the sources computes what LLVM's code does, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.c_kernel import needs_cc
from fakes.native_kernel import needs_x86
from tilewright.base.target import Target

MODELS = Path(__file__).parents[2] / "build" / "models"
FAMILIES = MODELS / "families"
LEVEL = "x86_64-v3"


def names(folder: Path = MODELS) -> list[str]:
    """The models that have been made (`make models`), the smallest first."""
    found = sorted(folder.glob("*.onnx"), key=lambda path: path.stat().st_size)
    return [path.stem for path in found if path.with_suffix(".inputs.npz").exists()]


SAMPLE = ("mobilenetv2", "bert_base", "resnet50", "gpt2_decode_int4", "mobilenetv2_qdq")
"""A transformer, weights of 4 bits, convolutions, bytes, Winograd; the others take ten minutes of a compiler."""
needs_models = pytest.mark.skipif(not names(), reason="needs build/models: make models")
needs_level = pytest.mark.skipif(
    not Target.parse(LEVEL).runs_on(Target.host()), reason=f"needs a CPU of {LEVEL}"
)


def check(path: Path, target: str = f"c {LEVEL}", level: str = LEVEL) -> None:
    """A model in C computes what its machine code for a level does."""
    given = dict(np.load(path.with_suffix(".inputs.npz")))
    want = tw.compile(path, target=level).run(given)
    got = tw.compile(path, target=target).run(given)
    for output, values in want.items():
        np.testing.assert_array_equal(got[output], values, err_msg=output)


@pytest.mark.sampled(5)
@needs_cc
@needs_x86
@needs_models
@needs_level
@pytest.mark.parametrize("name", [name for name in SAMPLE if name in names()])
def test_a_model_in_c_computes_what_its_machine_code_does(name: str) -> None:
    check(MODELS / f"{name}.onnx")


@pytest.mark.nightly
@needs_cc
@needs_x86
@needs_models
@needs_level
@pytest.mark.parametrize("name", [name for name in names() if name not in SAMPLE])
def test_every_other_model_in_c_computes_what_its_machine_code_does(name: str) -> None:
    check(MODELS / f"{name}.onnx")


@pytest.mark.nightly
@needs_cc
@needs_x86
@needs_level
@pytest.mark.parametrize("name", names(FAMILIES))
def test_a_further_family_in_c_computes_what_its_machine_code_does(name: str) -> None:
    check(FAMILIES / f"{name}.onnx")


@pytest.mark.nightly
@needs_cc
@needs_x86
@needs_models
@pytest.mark.parametrize("name", [name for name in SAMPLE if name in names()])
def test_a_model_in_c_for_any_processor_computes_what_the_oldest_does(name: str) -> None:
    check(MODELS / f"{name}.onnx", target="c", level="x86_64")
