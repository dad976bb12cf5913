"""What several processes do together, and what happens when they wait for each other for ever."""

import threading

import numpy as np
import pytest

from fakes.scarce_threads import threads_left
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import load
from tilewright.compiler.graph.evaluator import evaluate


def parallel(body: str, result: str, programs: str, count: int) -> list[np.ndarray]:
    operands = ", ".join(f"%x{i}" for i in range(count))
    arguments = ", ".join(f"%x{i}: tensor<2xi64>" for i in range(count))
    names = ", ".join(f"%r#{i}" for i in range(count))
    types = ", ".join([result] * count)
    text = f"""
    func.func @f(%a: tensor<2xi64>) -> {result} {{
      {body}
      return %0 : {result}
    }}
    func.func @main({arguments}) -> ({types}) {{
      %r:{count} = "interpreter.run_parallel"({operands}) {{programs = {programs}}} : ({", ".join(["tensor<2xi64>"] * count)}) -> ({types})
      return {names} : {types}
    }}"""
    given = [np.array([2 * i, 2 * i + 1], np.int64) for i in range(count)]
    return evaluate(load(text.encode()).graph, given)


def test_partitions_are_gathered_after_replicas() -> None:
    body = """%0 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<2xi64>) -> tensor<8xi64>"""
    found = parallel(body, "tensor<8xi64>", "[[@f, @f], [@f, @f]]", 4)
    assert [f.tolist() for f in found] == [[0, 1, 4, 5, 2, 3, 6, 7]] * 4


def test_what_is_permuted_comes_from_the_source_and_zeros_from_nobody() -> None:
    body = """%0 = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>} : (tensor<2xi64>) -> tensor<2xi64>"""
    found = parallel(body, "tensor<2xi64>", "[[@f], [@f], [@f]]", 3)
    assert [f.tolist() for f in found] == [[0, 0], [0, 1], [2, 3]]


def test_a_loop_of_collectives_meets_turn_by_turn() -> None:
    body = """
      %n = stablehlo.constant dense<3> : tensor<i64>
      %i = stablehlo.constant dense<0> : tensor<i64>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %w, %0 = stablehlo.while(%j = %i, %s = %a) : tensor<i64>, tensor<2xi64>
      cond {
        %c = stablehlo.compare LT, %j, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %t = "stablehlo.all_reduce"(%s) ({
        ^bb0(%p: tensor<i64>, %q: tensor<i64>):
          %u = stablehlo.add %p, %q : tensor<i64>
          stablehlo.return %u : tensor<i64>
        }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi64>) -> tensor<2xi64>
        %k = stablehlo.add %j, %one : tensor<i64>
        stablehlo.return %k, %t : tensor<i64>, tensor<2xi64>
      }"""
    found = parallel(body, "tensor<2xi64>", "[[@f], [@f]]", 2)
    assert [f.tolist() for f in found] == [[8, 16]] * 2


def test_a_module_on_its_own_is_a_group_of_one() -> None:
    text = b"""func.func @main(%a: tensor<3xf32>) -> (tensor<3xf32>, tensor<ui32>) {
      %0 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<3xf32>) -> tensor<3xf32>
      %1 = stablehlo.replica_id : tensor<ui32>
      return %0, %1 : tensor<3xf32>, tensor<ui32>
    }"""
    x = np.float32([1, 2, 3])
    found = evaluate(load(text).graph, [x])
    np.testing.assert_array_equal(found[0], x)
    assert found[1] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('%t = stablehlo.after_all : !stablehlo.token\n%0, %u = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)',
         "wait for each other for ever"),
        ('%0 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 9]]> : tensor<1x2xi64>} : (tensor<2xi64>) -> tensor<2xi64>',
         r"process \(9, 0\)"),
        ("%0 = stablehlo.add %a, %a : tensor<3xi64>", "its type says"),
    ],
)  # fmt: skip
def test_processes_with_a_problem_end(body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parallel(body, "tensor<2xi64>", "[[@f], [@f]]", 2)


@pytest.mark.parametrize("count", [0, 1])
def test_processes_that_get_no_thread_end_those_that_did(count: int) -> None:
    body = '%0 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi64>) -> tensor<4xi64>'
    before = set(threading.enumerate())
    with threads_left(count), pytest.raises(ModelError, match="no further thread"):
        parallel(body, "tensor<4xi64>", "[[@f], [@f]]", 2)
    assert set(threading.enumerate()) <= before
