"""Damaged StableHLO texts: a tree, or a ModelError with a place.  Never another exception."""

from __future__ import annotations

import random

import pytest

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.parser import parse

TEXT = """\
#map = affine_map<(d0) -> (d0)>
module @jit_f attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<2x?xf32, #stablehlo.bounds<?, 4>>, %q: tensor<2x!quant.uniform<i8<-128:127>:f32:0, {0.1:-30,0.5:2}>>) -> (tensor<2xf32> {jax.info = ""}) {
    %cst = stablehlo.constant dense<[[1.5, 0x7F800000], [-2e-3, 4.0]]> : tensor<2x2xf32>
    %c = stablehlo.constant dense<"0x0000803F"> : tensor<f32>
    %0:2 = call @f(%cst) : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<complex<f32>>)
    %1 = stablehlo.reduce(%0#0 init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x2xf32>, tensor<f32>) -> tensor<2xf32>
    %2 = "stablehlo.sort"(%1) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %9 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    }) : (tensor<2xf32>) -> tensor<2xf32> loc("f.py":1:2)
    %3 = stablehlo.while(%i = %c) : tensor<f32> cond {
      stablehlo.return %i : tensor<f32>
    } do {
      stablehlo.return %i : tensor<f32>
    }
    %4 = stablehlo.slice %2 [0:2:1] : (tensor<2xf32>) -> tensor<2xf32>
    %5 = stablehlo.convolution(%cst, %cst) dim_numbers = [b, f]x[i, o]->[b, f], window = {pad = []} {n = array<i64: 1>} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    stablehlo.custom_call @check.expect_eq(%4, %2) {has_side_effect = true} : (tensor<2xf32>, tensor<2xf32>) -> ()
    return %4 : tensor<2xf32>
  }
  func.func private @f(tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<complex<f32>>)
}
"""
PIECES = ("<", ">", "{", "}", "(", ")", "[", "]", ",", ":", "=", "-", "%", "@", "#", "!", "^", '"',
          "0x", "x", "1e999", "99999999999999999999", "dense", "tensor", "loc", "\0", "é", "//")  # fmt: skip


def damaged(choose: random.Random) -> str:
    text = TEXT
    for _ in range(choose.randint(1, 4)):
        start = choose.randrange(len(text))
        stop = start + choose.choice((0, 0, 1, 1, 5, 200))
        other = choose.randrange(len(text))
        piece = choose.choice((*PIECES, "", text[other : other + choose.randint(1, 40)]))
        text = text[:start] + piece + text[stop:]
    return text


def test_the_text_is_one_before_it_is_damaged() -> None:
    assert len(parse(TEXT)) == 1


@pytest.mark.parametrize(
    ("first", "count"), [(0, 600), pytest.param(600, 40_000, marks=pytest.mark.nightly)]
)
def test_damaged_texts_are_trees_or_model_errors(first: int, count: int) -> None:
    outcomes = [outcome(seed) for seed in range(first, first + count)]
    assert count // 100 < outcomes.count("tree") < count - count // 100


def outcome(seed: int) -> str:
    """`tree`, or the place that the error names."""
    try:
        parse(damaged(random.Random(seed)), "case.mlir")
    except ModelError as error:
        where = str(error.location)
        if not where.startswith("case.mlir:"):
            pytest.fail(f"seed {seed}: {error}")
        return where
    return "tree"
