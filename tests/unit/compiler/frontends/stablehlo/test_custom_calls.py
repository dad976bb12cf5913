"""Custom calls: notes are read over, old names are what they mean, others are refused by name."""

import itertools

import numpy as np
import pytest

from fakes.stablehlo_text import apply, run
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import load
from tilewright.compiler.graph.evaluator import evaluate

X = np.float32([[0.5, -1.5, 3], [2, 1, 0]])


def call(name: str, attributes: str = "", result: str = "tensor<2x3xf32>") -> np.ndarray:
    body = f"""
    %r = stablehlo.custom_call @{name}(%x) {{{attributes}}} : (tensor<2x3xf32>) -> {result}
    return %r : {result}"""
    return run(body, "%x: tensor<2x3xf32>", X)[0]


def test_notes_about_placement_change_nothing() -> None:
    text = 'backend_config = "", mhlo.sharding = "{replicated}"'
    np.testing.assert_array_equal(call("Sharding", text), X)


def test_notes_of_shardy_that_exports_of_2025_hold_change_nothing() -> None:
    kept = 'has_side_effect = true, mhlo.frontend_attributes = {xla.sdy.sharding = "[]"}'
    text = f"""
    stablehlo.custom_call @xla.sdy.ShardingGroup(%x) {{{kept}}} : (tensor<2x3xf32>) -> ()
    %0 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1:2 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%x, %0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
    %r = stablehlo.custom_call @xla.sdy.FuncResultSharding(%1#1) {{{kept}}} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %r : tensor<2x3xf32>"""
    np.testing.assert_array_equal(run(text, "%x: tensor<2x3xf32>", X)[0], X)


def test_the_part_of_one_machine_of_several_is_refused() -> None:
    with pytest.raises(ModelError, match=r"gives f32\[2, 3\], its type says f32\[1, 3\]"):
        call("xla.sdy.GlobalToLocalShape", result="tensor<1x3xf32>")


def test_old_names_are_what_they_mean() -> None:
    text = "mhlo.attributes = {}, mhlo.version = 1 : i64"
    np.testing.assert_allclose(call("mhlo.sinh", text), np.sinh(X), rtol=1e-6)


def test_another_name_is_refused_with_it() -> None:
    with pytest.raises(ModelError, match="custom call 'lapack_sgges_ffi' is not supported"):
        call("lapack_sgges_ffi")


def test_a_composite_is_the_operation_that_it_is_called_after() -> None:
    text = """
    %r = stablehlo.composite "chlo.erf" %x {decomposition = @nobody} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %r : tensor<2x3xf32>"""
    (found,) = run(text, "%x: tensor<2x3xf32>", X)
    assert found[0, 0] == pytest.approx(0.5204999)


def test_operands_broadcast_as_in_numpy() -> None:
    text = """
    %r = chlo.broadcast_multiply %x, %y : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    return %r : tensor<2x3xf32>"""
    y = np.float32([1, 2, 3])
    (found,) = run(text, "%x: tensor<2x3xf32>, %y: tensor<3xf32>", X, y)
    np.testing.assert_array_equal(found, X * y)


@pytest.mark.parametrize("kind", ["tuple", "!stablehlo.future"])
def test_what_is_started_is_there_when_it_is_waited_for(kind: str) -> None:
    text = """
    %f = "stablehlo.async_start"(%x) ({
    ^bb0(%a: tensor<2x3xf32>):
      %b = stablehlo.add %a, %a : tensor<2x3xf32>
      stablehlo.return %b : tensor<2x3xf32>
    }) : (tensor<2x3xf32>) -> KIND<tensor<2x3xf32>>
    %r = "stablehlo.async_done"(%f) : (KIND<tensor<2x3xf32>>) -> tensor<2x3xf32>
    return %r : tensor<2x3xf32>"""
    (found,) = run(text.replace("KIND", kind), "%x: tensor<2x3xf32>", X)
    np.testing.assert_array_equal(found, 2 * X)


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_the_upper_half_of_a_product_is_exact(name: str) -> None:
    limits = np.iinfo(name)
    ends = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, limits.max // 3]
    pairs = list(itertools.product(ends, ends))
    given = [np.array([pair[side] for pair in pairs], name) for side in (0, 1)]
    found = apply("chlo.mulhi", *given)
    expected = [(int(a) * int(b)) >> limits.bits for a, b in zip(*given, strict=True)]
    assert found.tolist() == expected


def test_approximate_largest_entries_are_exact() -> None:
    x = np.random.default_rng(1).normal(size=(3, 40)).astype(np.float32)
    text = """
    func.func @main(%x: tensor<3x40xf32>, %i: tensor<3x40xi32>) -> (tensor<3x4xf32>, tensor<3x4xi32>) {
      %s = stablehlo.constant dense<0.0> : tensor<f32>
      %t = stablehlo.constant dense<-1> : tensor<i32>
      %r:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %s, %t) {called_computations = [@more], mhlo.backend_config = {top_k = 4 : i64, reduction_dim = 1 : i64, recall_target = 9.0e-01 : f32, aggregate_to_topk = true, reduction_input_size_override = -1 : i64}, api_version = 4 : i32} : (tensor<3x40xf32>, tensor<3x40xi32>, tensor<f32>, tensor<i32>) -> (tensor<3x4xf32>, tensor<3x4xi32>)
      return %r#0, %r#1 : tensor<3x4xf32>, tensor<3x4xi32>
    }
    func.func private @more(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>) -> tensor<i1> {
      %0 = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %0 : tensor<i1>
    }"""
    places = np.broadcast_to(np.arange(40, dtype=np.int32), (3, 40)).copy()
    values, found = evaluate(load(text.encode()).graph, [x, places])
    order = np.argsort(-x, 1)[:, :4]
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
