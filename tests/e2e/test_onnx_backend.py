"""ONNX's own cases compiled and run: what the importer accepts gives the recorded outputs.

Ops without a kernel run on the host, which is allowed here.  Cases that do not import are those of
`conformance/frontends`; whatever is imported is compiled, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from conformance.frontends.test_onnx_backend import (
    assert_as_recorded,
    excluded,
    import_case,
)
from fakes import onnx_suite

SAMPLE_STRIDE = 40
OTHER_KINDS = ("simple", "pytorch-converted", "pytorch-operator")


def run_compiled(graph: object, feeds: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ops that run on the host
        model = tw.compile(graph, jobs=1)
        results = model(feeds)
    return results if isinstance(results, tuple) else (results,)


def check(kind: str, name: str) -> None:
    for case in onnx_suite.cases(kind, name):
        graph, feeds = import_case(case)
        assert_as_recorded(case, run_compiled(graph, feeds))


def imported(kind: str) -> list[str]:
    return [name for name in onnx_suite.names(kind) if excluded(name) is None]


@pytest.mark.thinned(9)
@pytest.mark.parametrize("name", imported("node")[::SAMPLE_STRIDE])
def test_a_sample_of_the_node_cases_gives_the_recorded_outputs(name: str) -> None:
    check("node", name)


@pytest.mark.sampled(61)
@pytest.mark.parametrize("name", imported("node"))
def test_every_node_case_gives_the_recorded_outputs(name: str) -> None:
    check("node", name)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_sample_of_the_exported_cases_gives_the_recorded_outputs(kind: str) -> None:
    for name in imported(kind)[::12]:
        check(kind, name)


@pytest.mark.parametrize(
    "step",
    [pytest.param(4, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_exported_cases_give_the_recorded_outputs(kind: str, step: int) -> None:
    for name in imported(kind)[::step]:
        check(kind, name)


@pytest.mark.parametrize("path", onnx_suite.light_models(), ids=lambda path: path.stem)
@pytest.mark.sampled(4)
def test_a_light_model_gives_the_recorded_outputs(path: Path) -> None:
    case = onnx_suite.light_case(path)
    model = tw.compile(path)
    results = model(case.inputs)
    for actual, expected in zip((results,), case.outputs, strict=True):
        onnx_suite.assert_close(actual, expected, case.rtol, case.atol)
