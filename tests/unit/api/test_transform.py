"""`tilewright.transform` decides how models are compiled; every pass that may be left out can be."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.pipeline import formed_passes, neutral_passes

GENERATOR = np.random.default_rng(0)
W = GENERATOR.random((8, 4, 3, 3), np.float32)
X = GENERATOR.random((2, 4, 16, 16), np.float32)


def network() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "m"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
    ]
    m = np.random.default_rng(1).random((128, 5), np.float32)
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(m, "m")]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 5))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.slow
def test_a_model_is_compiled_in_the_context_that_is_entered() -> None:
    timing = tw.transform.PassTimingInstrument()
    with tw.transform.PassContext(opt_level=1, instruments=[timing]):
        few = tw.compile(network())
        names = {name for name, _, _ in timing.rows}
        more = tw.compile(network(), opt_level=2)  # what is said at the call wins
    assert "fuse-kernels" not in names
    assert "convert-layout" in names
    assert len(few.kernels) > len(more.kernels) == len(tw.compile(network()).kernels)


def test_the_highest_level_of_tvm_is_the_highest_here() -> None:
    assert tw.transform.PassContext(3) == tw.transform.PassContext(opt_level=3)
    with tw.transform.PassContext(opt_level=3):
        graph_json, lib, params = tw.build(network())
    expected, kernels, _ = tw.build(network(), opt_level=2)
    assert graph_json == expected
    assert lib.function_names() == kernels.function_names()
    assert len(params) == 2


def test_every_pass_of_the_compilers_order_may_be_named() -> None:
    target = Target.level("v3")
    form = backend_of(target).graph_form(target, [target], frozenset())
    order = [*neutral_passes(), *formed_passes(form)]
    assert {step.name for step in order} <= set(tw.transform.known_passes())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tilewright.base.diagnostics.TilewrightWarning")
def test_each_pass_can_be_left_out_or_says_why_not() -> None:
    expected = np.asarray(tw.compile(network(), opt_level=0)(X))
    refused: dict[str, str] = {}
    for name, row in tw.transform.known_passes().items():
        if not row.owner.startswith("tilewright."):
            continue  # of other tests
        try:
            context = tw.transform.PassContext(disabled_pass=[name])
        except UserError as error:
            refused[name] = str(error)
            continue
        with context:
            result = np.asarray(tw.compile(network(), jobs=1)(X))
        np.testing.assert_allclose(result, expected, rtol=1e-4, err_msg=name)
    assert set(refused) == {"guard-indices", "partition-graph", "split-concat"}
    assert all("cannot be disabled: " in text for text in refused.values())


def test_an_option_of_a_pass_is_bounded_by_what_a_kernel_can_bind() -> None:
    for key in ("split-concat.most_operands", "fuse-kernels.most_operands"):
        with (
            tw.transform.PassContext(config={key: 1000}),
            pytest.raises(UserError, match=f"{key} is 1000, expected"),
        ):
            tw.compile(network())
