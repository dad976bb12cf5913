"""What no trip changes is made before the loop, where that is worth it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from fakes.graphs import assert_becomes, parse
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.passes import PassContext
from tilewright.compiler.passes.runner import with_regions
from tilewright.compiler.transforms import HoistInvariants

LOOP = """graph @g(%n: i64[], %x: f32[3, 4], %w: f32[4, 4]) {
  %zero: i64[] = constant {value = i64[] [0]}
  BEFORE
  %t: i64[], %y: f32[3, 4] = while(%zero, %x, %n, %wMORE) {carried = 2}
    graph @go(%i: i64[], %s: f32[3, 4], %m: i64[], %v: f32[4, 4]TAKEN) {
      %c: bool[] = less(%i, %m)
      return %c
    }
    graph @body(%i: i64[], %s: f32[3, 4], %m: i64[], %v: f32[4, 4]TAKEN) {
      %one: i64[] = constant {value = i64[] [1]}
      %j: i64[] = add(%i, %one)
      BODY
      return %j, %r
    }
  return %t, %y
}"""
_EXP = "%e: f32[4, 4] = exp(%v)"
_SQUARE = "%q: f32[4, 4] = matmul(%e, %v)"
_STEP = "%r: f32[3, 4] = matmul(%s, %q)"


def loop(body: str, before: str = "", more: str = "", taken: str = "") -> str:
    rows = {"BODY": body, "BEFORE": before, "MORE": more, "TAKEN": taken}
    text = LOOP
    for name, value in rows.items():
        text = text.replace(name, value)
    return text


def hoisted(graph: Graph) -> int:
    passes = HoistInvariants()
    return sum(
        passes.run(part, PassContext()).counts.get("hoisted", 0)
        for part in with_regions(graph)
    )


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph]


def test_a_product_of_what_no_trip_changes_is_made_before_the_loop() -> None:
    assert_becomes(
        [HoistInvariants()],
        loop(f"{_EXP} {_SQUARE} {_STEP}"),
        loop(
            "%r: f32[3, 4] = matmul(%s, %p)",
            "%e: f32[4, 4] = exp(%w) %q: f32[4, 4] = matmul(%e, %w)",
            ", %q",
            ", %p: f32[4, 4]",
        ),
    )


@pytest.mark.parametrize(
    "body",
    [
        "%e: f32[4, 4] = exp(%v) %r: f32[3, 4] = matmul(%s, %e)",  # it fuses, or is cheap
        "%q: f32[3, 4] = matmul(%s, %v) %r: f32[3, 4] = exp(%q)",  # of what the loop changes
    ],
)
def test_what_is_not_worth_it_or_changes_stays(body: str) -> None:
    graph = parse(loop(body))
    assert hoisted(graph) == 0


def test_what_is_read_by_moved_nodes_alone_is_not_handed_in() -> None:
    graph = parse(
        loop(
            f"{_EXP} {_SQUARE} %u: f32[4, 4] = matmul(%q, %q) "
            "%r: f32[3, 4] = matmul(%s, %u)"
        )
    )
    assert hoisted(graph) == 1
    (found,) = (node for node in graph if Trait.LOOP in node.schema.traits)
    assert len(found.operands) == 5
    assert ops_of(found.regions[1]) == ["constant", "add", "matmul"]
    assert ops_of(graph).count("matmul") == 2


def test_an_index_is_checked_only_where_it_is_used() -> None:
    """A loop without trips looks at no index; what is made of the row stays with it."""
    body = """%k: i64[4] = constant {value = i64[4] [0, 1, 2, 3]}
      %h: i64[4] = add(%k, %m)
      %z: f32[4, 4] = gather(%v, %h) {axis = 0}
      %u: f32[4, 4] = matmul(%z, %z)
      %r: f32[3, 4] = matmul(%s, %u)"""
    assert hoisted(parse(loop(body))) == 0


def test_what_runs_on_the_host_stays_in_the_loop() -> None:
    body = """%e: f32[4], %f: f32[4, 4] = eigh(%v)
      %u: f32[4, 4] = matmul(%f, %f)
      %r: f32[3, 4] = matmul(%s, %u)"""
    assert hoisted(parse(loop(body))) == 0


def test_it_goes_out_of_all_loops() -> None:
    inner = """%a: i64[], %r: f32[3, 4] = while(%i, %s, %m, %v) {carried = 2}
        graph @go2(%i2: i64[], %s2: f32[3, 4], %m2: i64[], %v2: f32[4, 4]) {
          %c2: bool[] = less(%i2, %m2)
          return %c2
        }
        graph @body2(%i2: i64[], %s2: f32[3, 4], %m2: i64[], %v2: f32[4, 4]) {
          %one2: i64[] = constant {value = i64[] [1]}
          %j2: i64[] = add(%i2, %one2)
          %q2: f32[4, 4] = matmul(%v2, %v2)
          %r2: f32[3, 4] = matmul(%s2, %q2)
          return %j2, %r2
        }"""
    text = loop(inner)
    graph = parse(text)
    assert hoisted(graph) == 2
    assert "matmul" in ops_of(graph)
    model = tw.compile(parse(text))
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((3, 4)).astype(np.float32), np.eye(4, dtype=np.float32) / 2
    for trips in (0, 1, 3):
        wanted = x
        for step in range(trips):
            for _ in range(step, trips):
                wanted = wanted @ (w @ w)
        count, y = model(np.array(trips), x, w)
        assert count == trips
        np.testing.assert_allclose(y, wanted, rtol=1e-5)


def test_sizes_of_a_trip_stay_in_it() -> None:
    text = """graph @g(%n: i64[], %x: f32[2], %w: f32[3, 3]) {
      %zero: i64[] = constant {value = i64[] [0]}
      %t: i64[], %y: f32[E] = while(%zero, %x, %n, %x, %w) {carried = 2, sizes = [E], trip_sizes = [S]}
        graph @go(%i: i64[], %s: f32[S], %m: i64[], %u: f32[2], %v: f32[3, 3]) {
          %c: bool[] = less(%i, %m)
          return %c
        }
        graph @body(%i: i64[], %s: f32[S], %m: i64[], %u: f32[2], %v: f32[3, 3]) {
          %one: i64[] = constant {value = i64[] [1]}
          %j: i64[] = add(%i, %one)
          %z: f32[] = reduce_sum(%v) {axes = [0, 1], keepdims = false}
          %a: f32[S] = broadcast_to(%z) {shape = [S]}
          %k: f32[S] = add(%s, %a)
          %r: f32[S + 2] = concat(%k, %u) {axis = 0}
          return %j, %r
        }
      return %y
    }"""
    graph = parse(text)
    assert hoisted(graph) == 1
    assert "broadcast_to" not in ops_of(graph)
    model = tw.compile(parse(text))
    x, w = np.float32([1, 2]), np.ones((3, 3), np.float32)
    for trips in (0, 1, 4):
        wanted = x
        for _ in range(trips):
            wanted = np.concatenate([wanted + 9, x])
        np.testing.assert_array_equal(model(np.array(trips), x, w), wanted)


def onnx_loop(*nodes: onnx.NodeProto, a: list[int | str], b: list[int | str]) -> tw.Model:
    """A Loop that carries 2 x 2 numbers `s` to `r`, and reads `a` and `b` from around."""
    value = helper.make_tensor_value_info
    square, kind = [2, 2], onnx.TensorProto.FLOAT
    body = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["c"], ["go"])],
        "body",
        [
            value("i", onnx.TensorProto.INT64, []),
            value("c", onnx.TensorProto.BOOL, []),
            value("s", kind, square),
        ],
        [value("go", onnx.TensorProto.BOOL, []), value("r", kind, square)],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        "g",
        [
            value("n", onnx.TensorProto.INT64, []),
            value("x", kind, square),
            value("a", kind, a),
            value("b", kind, b),
        ],
        [value("y", kind, square)],
    )
    opset = [helper.make_opsetid("", 17)]
    return tw.compile(helper.make_model(graph, opset_imports=opset, ir_version=8))


def test_a_moved_value_may_be_read_by_another_moved_node_and_by_one_that_stays() -> None:
    model = onnx_loop(
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("MatMul", ["s", "p"], ["q"]),
        helper.make_node("Add", ["q", "p"], ["r"]),
        a=[2, 2],
        b=[2, 2],
    )
    x, a, b = np.random.default_rng(3).random((3, 2, 2), np.float32)
    wanted = x
    for _ in range(3):
        wanted = wanted @ (a @ b) + a @ b
    np.testing.assert_allclose(model(np.int64(3), x, a, b), wanted, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 10**5])
def test_what_needs_sizes_that_trips_compare_is_not_made_where_no_trip_runs(
    rows: int,
) -> None:
    """The product reads one size for both; before the loop nothing has compared them."""
    model = onnx_loop(
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("MatMul", ["s", "p"], ["r"]),
        a=[2, "A"],
        b=["B", 2],
    )
    x, a, b = (
        np.eye(2, dtype=np.float32),
        np.ones((2, 1), np.float32),
        np.ones((rows, 2), np.float32),
    )
    np.testing.assert_array_equal(model(np.int64(0), x, a, b), x)
    if rows > 1:
        with pytest.raises(tw.TilewrightError, match="sizes do not agree"):
            model(np.int64(1), x, a, b)
