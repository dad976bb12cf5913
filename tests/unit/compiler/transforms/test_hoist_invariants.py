"""What no trip changes is made before the loop, where that is worth it."""

from __future__ import annotations

import numpy as np
import pytest

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
    body = """%f: f32[4, 4], %info: i32[] = cholesky(%v)
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
