"""ONNX's own cases through the front end and the graph evaluator.

Every case either passes or stands in `EXCLUDED` with the reason why it does not import; a case
that starts to pass must leave the list.  The default run takes a sample, `slow` runs everything.
"""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from fakes import onnx_suite
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import coverage, load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.verifier import verify

HOST = "the host computes strings, which only tilewright.onnx_backend runs"
SEQUENCES = "what a sequence or an optional consists of is said by a call of tilewright.onnx_backend"

# Pattern of case names -> why they do not import.  The slow run checks it both ways.
EXCLUDED = {
    "test_gradient_of_*": "gradients are not derived",
    "test_ai_onnx_ml_label_encoder_*": HOST,
    "test_image_decoder_*": "image files are decoded before the model",
    "test_equal_string*": HOST,
    "test_regex_full_match_*": HOST,
    "test_string_*": HOST,
    "test_strnorm*": HOST,
    "test_identity_sequence": SEQUENCES,
    "test_identity_opt": SEQUENCES,
    "test_loop13_seq": SEQUENCES,
    "test_loop16_seq_none": SEQUENCES,
    "test_optional_get_element_optional_*": SEQUENCES,
    "test_optional_get_element_sequence": SEQUENCES,
    "test_optional_has_element_tensor_input": SEQUENCES,
    "test_optional_has_element_optional_input": SEQUENCES,
    "test_optional_has_element_empty_optional_input": SEQUENCES,
    "test_sequence_insert_at_*": SEQUENCES,
    "test_sequence_map_*": SEQUENCES,
}
# Cases whose recorded outputs carry rounding noise around zero -> absolute tolerance.
NOISY = {"test_dft_inverse*": 1e-6}
# The specification leaves open which random numbers come: types and shapes are compared.
DRAWN = (
    "test_bernoulli*",
    "test_training_dropout",
    "test_training_dropout_default*",
    "test_training_dropout_mask",
)
SAMPLE_STRIDE = 12


def excluded(name: str) -> str | None:
    for pattern, reason in EXCLUDED.items():
        if fnmatch.fnmatchcase(name, pattern):
            return reason
    return None


def tolerance(case: onnx_suite.Case) -> float:
    looser = [t for p, t in NOISY.items() if fnmatch.fnmatchcase(case.name, p)]
    return max([case.atol, *looser])


def import_case(case: onnx_suite.Case) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph and its feeds; shape-like inputs become constants when the shapes need them.

    So do they where one is empty: the evaluator takes no dynamic dimension of size 0.
    """
    empty = {name for name, value in case.shape_like.items() if value.size == 0}
    try:
        graph = load(case.model)
        dynamic = {v.name for v in graph.inputs if not v.type.is_static}
        if empty & dynamic:
            graph = load(case.model, input_values=case.shape_like)
    except ModelError:
        if not case.shape_like:
            raise
        graph = load(case.model, input_values=case.shape_like)
    return graph, {v.name: case.inputs[v.name] for v in graph.inputs}


def check(kind: str, name: str) -> None:
    for case in onnx_suite.cases(kind, name):
        graph, feeds = import_case(case)
        verify(graph)
        assert_as_recorded(case, evaluate(graph, feeds))


def assert_as_recorded(case: onnx_suite.Case, results: Sequence[np.ndarray]) -> None:
    """The recorded outputs; of what was drawn, their types and shapes."""
    assert len(results) == len(case.tensors)
    is_drawn = any(fnmatch.fnmatchcase(case.name, pattern) for pattern in DRAWN)
    for actual, expected in zip(results, case.tensors, strict=True):
        if is_drawn:
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        else:
            onnx_suite.assert_close(actual, expected, case.rtol, tolerance(case))


def check_or_excluded(kind: str, name: str) -> None:
    reason = excluded(name)
    if reason is None:
        check(kind, name)
        return
    for case in onnx_suite.cases(kind, name):
        with pytest.raises(ModelError):
            import_case(case)


SAMPLE = onnx_suite.names("node")[::SAMPLE_STRIDE]


@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_node_cases_gives_the_recorded_outputs(name: str) -> None:
    check_or_excluded("node", name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", onnx_suite.names("node"))
def test_every_node_case_gives_the_recorded_outputs(name: str) -> None:
    check_or_excluded("node", name)


@pytest.mark.parametrize("kind", ["simple", "pytorch-converted", "pytorch-operator"])
def test_the_exported_cases_give_the_recorded_outputs(kind: str) -> None:
    for name in onnx_suite.names(kind):
        check_or_excluded(kind, name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", onnx_suite.light_models(), ids=lambda p: p.stem)
def test_a_light_model_gives_the_recorded_outputs(path: Path) -> None:
    case = onnx_suite.light_case(path)
    results = evaluate(load(path), case.inputs)
    for actual, expected in zip(results, case.outputs, strict=True):
        onnx_suite.assert_close(actual, expected, case.rtol, case.atol)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("path", onnx_suite.light_models(), ids=lambda p: p.stem)
def test_a_light_model_imports_and_has_kernels_throughout(path: Path) -> None:
    graph = load(path)
    verify(graph)
    report = coverage(path)
    assert report.supported
    assert {row.status.value for row in report.rows} <= {"fast", "kernel"}
    assert all(v.type.is_static for v in graph.outputs)
    assert np.prod(graph.outputs[0].type.shape) == 1000


@pytest.mark.slow
def test_coverage_never_raises_on_a_case_that_parses() -> None:
    for name in SAMPLE:
        for case in onnx_suite.cases("node", name):
            report = coverage(case.model)
            assert str(report)
            assert report.supported == (not report.problems)


def test_every_exclusion_still_names_a_case() -> None:
    known = [n for kind in onnx_suite.KINDS for n in onnx_suite.names(kind)]
    for pattern in EXCLUDED:
        assert fnmatch.filter(known, pattern), f"no case matches '{pattern}'"


def test_the_list_of_node_cases_is_of_this_version_of_onnx() -> None:
    first = onnx_suite.LISTED_CASES.read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"onnx {onnx.__version__}", "run tests/fakes/onnx_suite.py"


@pytest.mark.slow
def test_the_list_of_node_cases_names_all_that_onnx_makes() -> None:
    """In a process of its own: a file that is imported already makes its cases no second time."""
    program = "from fakes import onnx_suite as s; print(s.as_listed(s.made_node_cases()))"
    made = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        cwd=Path(onnx_suite.__file__).parents[1],
        text=True,
    )
    listed = onnx_suite.LISTED_CASES.read_text(encoding="utf-8")
    assert made.stdout.rstrip("\n") == listed.rstrip("\n"), "run tests/fakes/onnx_suite.py"
