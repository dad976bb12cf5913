"""The sweep has a case for every operator of the front end; its models are what they say."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from sweep import blocks
from sweep.case import Case, single
from sweep.catalogue import WITHOUT_CASE, all_cases
from sweep.network import Network, Tensor, ints, w, x
from tilewright.compiler.frontends.onnx import table


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return all_cases()


def operators(case: Case) -> set[str]:
    network = Network(case.name, case.opset)
    case.build(network)
    marks = {"": "", "com.microsoft": " (com.microsoft)"}
    return {node.op_type + marks[node.domain] for node in network.nodes}


def test_there_are_more_than_six_hundred_cases(cases: dict[str, Case]) -> None:
    assert len(cases) >= 600


def test_every_operator_of_the_front_end_has_a_case_or_a_reason(
    cases: dict[str, Case],
) -> None:
    timed = set[str]().union(*map(operators, cases.values()))
    here = {*table.names("")}
    here |= {f"{name} (com.microsoft)" for name in table.names("com.microsoft")}
    assert here - timed == WITHOUT_CASE.keys()


def test_convolutions_and_poolings_have_one_two_and_three_dimensions(
    cases: dict[str, Case],
) -> None:
    families = {case.family for case in cases.values()}
    for stem in ("conv", "deconv", "pool"):
        assert {f"{stem}{rank}d" for rank in (1, 2, 3)} <= families


def test_a_case_has_the_same_numbers_every_time() -> None:
    case = single("a/b", "Add", x(3, 5), w(5))
    one, other = Network(case.name), Network(case.name)
    first, second = one.model(case.build(one)), other.model(case.build(other))
    assert first.SerializeToString() == second.SerializeToString()
    np.testing.assert_array_equal(one.feeds["x0"], other.feeds["x0"])


def test_a_model_passes_the_checker_and_knows_its_results() -> None:
    case = single("a/topk", "TopK", x(3, 9), ints(4), outputs=2)
    network = Network(case.name, case.opset)
    model = network.model(case.build(network))
    onnx.checker.check_model(model, full_check=True)
    kinds = [output.type.tensor_type.elem_type for output in model.graph.output]
    assert kinds == [onnx.TensorProto.FLOAT, onnx.TensorProto.INT64]


def test_a_result_is_left_out_where_only_others_are_kept() -> None:
    case = single("a/topk", "TopK", x(3, 9), ints(4), outputs=2, keep=[1])
    network = Network(case.name, case.opset)
    assert list(case.build(network)) == ["y0_1"]


@pytest.mark.parametrize("t", ["f32", "f16", "bf16", "i64", "u8", "bool"])
def test_numbers_lie_between_their_limits(t: str) -> None:
    array = Tensor(shape=(1000,), dtype=t, low=0, high=2).draw(np.random.default_rng(1))
    wide = array.astype(np.float64)
    assert wide.min() >= 0
    assert wide.max() <= 2
    assert wide.std() > 0


def test_there_are_sixty_blocks_of_ten_to_forty_operators() -> None:
    found = blocks.all_cases()
    assert len(found) == 60
    kinds = set[str]()
    for case in found.values():
        network = Network(case.name, case.opset)
        model = network.model(case.build(network))
        assert blocks.LEAST_OPS <= len(network.nodes) <= blocks.MOST_OPS, case.name
        assert model.graph.output[0].type.tensor_type.shape.dim
        kinds |= set(re.findall(r"[a-z]+$", case.name))
    assert kinds == {"image", "tokens", "signal", "volume"}
