import numpy as np
import pytest

from fakes.graphs import ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.transforms import RecognizeNorms, Simplify

R = [Simplify(), RecognizeNorms()]
LOW = "%low: f32[] = constant {value = f32[] [-inf]}"
TOP = "%m: f32[N, 1, 4] = reduce_max(%x) {axes = [1]}"
SHIFTED = "%d: f32[N, 3, 4] = sub(%x, %m) %e: f32[N, 3, 4] = exp(%d)"
TOTAL = "%t: f32[N, 1, 4] = reduce_sum(%e) {axes = [1]}"
QUOTIENT = "%y: f32[N, 3, 4] = div(%e, %t)"


def spelled(
    top: str = TOP,
    shifted: str = SHIFTED,
    total: str = TOTAL,
    quotient: str = QUOTIENT,
    results: str = "%y",
) -> str:
    return (
        f"graph @g<N: 0..>(%x: f32[N, 3, 4], %z: f32[N, 1, 4]) {{ {LOW}"
        f" {top} {shifted} {total} {quotient} return {results} }}"
    )


AXIS_LOST = (
    "%r: f32[N, 4] = reduce_max(%x) {axes = [1], keepdims = false}"
    " %b: f32[N, 4] = max(%r, %low) %m: f32[N, 1, 4] = reshape(%b) {shape = [N, 1, 4]}"
)
SUM_LOST = (
    "%s: f32[N, 4] = reduce_sum(%e) {axes = [-2], keepdims = false}"
    " %t: f32[N, 1, 4] = reshape(%s) {shape = [N, 1, 4]}"
)


@pytest.mark.parametrize("top", [TOP, AXIS_LOST])
@pytest.mark.parametrize("total", [TOTAL, SUM_LOST])
def test_powers_less_the_largest_over_their_sum_are_a_softmax(top: str, total: str) -> None:
    text = spelled(top, total=total)
    graph = run(R, text)
    assert ops(graph) == ["softmax"]
    assert graph.nodes[-1].attributes["axis"] == 1
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    x[0, :, 1], x[1, 0, 0], x[1, 2, 3] = -np.inf, np.inf, np.nan
    x[1, :2, 2] = -np.inf, 1e30
    z = np.zeros((2, 1, 4), np.float32)
    with np.errstate(invalid="ignore"):
        (expected,) = evaluate(parse(text), [x, z])
        (result,) = evaluate(graph, [x, z])
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_the_largest_of_a_view_with_the_same_rows_is_the_largest() -> None:
    text = (
        f"graph @g<N: 0..>(%x: f32[N, 3, 4]) {{ {LOW}"
        " %r: f32[N, 3] = reduce_max(%x) {axes = [2], keepdims = false}"
        " %m: f32[1, N, 3, 1] = reshape(%r) {shape = [1, N, 3, 1]}"
        " %v: f32[1, N, 3, 4] = reshape(%x) {shape = [1, N, 3, 4]}"
        " %d: f32[1, N, 3, 4] = sub(%v, %m) %e: f32[1, N, 3, 4] = exp(%d)"
        " %t: f32[1, N, 3, 1] = reduce_sum(%e) {axes = [3]}"
        " %y: f32[1, N, 3, 4] = div(%e, %t) return %y }"
    )
    assert ops(run(R, text)) == ["reshape", "softmax"]


def test_the_logarithm_of_the_sum_makes_a_log_softmax() -> None:
    quotient = "%l: f32[N, 1, 4] = log(%t) %y: f32[N, 3, 4] = sub(%d, %l)"
    graph = run(R, spelled(quotient=quotient))
    assert ops(graph) == ["log_softmax"]
    assert graph.nodes[-1].attributes["axis"] == 1


@pytest.mark.parametrize(
    "text",
    [
        spelled(results="%y, %e"),
        spelled(top="%m: f32[N, 1, 4] = max(%z, %z)"),
        spelled(top="%m: f32[N, 3, 1] = reduce_max(%x) {axes = [2]}"),
        spelled(total="%t: f32[N, 3, 1] = reduce_sum(%e) {axes = [2]}"),
        spelled(total="%t: f32[N, 1, 4] = reduce_sum(%x) {axes = [1]}"),
        spelled(total=f"{TOTAL.replace('%t', '%u')} %t: f32[N, 1, 4] = max(%u, %z)"),
        spelled(shifted="%e: f32[N, 3, 4] = exp(%x)"),
        spelled(quotient="%y: f32[N, 3, 4] = div(%t, %e)"),
        spelled(
            top="%m: f32[N, 1, 1] = reduce_max(%x) {axes = [1, 2]}",
            total="%t: f32[N, 1, 1] = reduce_sum(%e) {axes = [1, 2]}",
        ),
    ],
)
def test_other_quotients_of_powers_stay(text: str) -> None:
    assert not {"softmax", "log_softmax"} & set(ops(run(R, text)))


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (f"{TOP} %d: f32[N, 3, 4] = sub(%x, %m) %y: f32[N, 3, 4] = softmax(%d) {{axis = 1}}", "softmax"),
        ("%d: f32[N, 3, 4] = log_softmax(%x) {axis = 1} %y: f32[N, 3, 4] = exp(%d)", "softmax"),
    ],
)  # fmt: skip
def test_what_comes_to_a_softmax_is_one(lines: str, left: str) -> None:
    text = f"graph @g<N: 0..>(%x: f32[N, 3, 4]) {{ {lines} return %y }}"
    graph = run(R, text)
    assert ops(graph) == [left]
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    x[0, :, 1], x[1, 0, 0], x[1, 2, 3], x[1, :2, 2] = (
        -np.inf,
        np.inf,
        np.nan,
        (-np.inf, 1e30),
    )
    with np.errstate(invalid="ignore"):
        (expected,), (result,) = evaluate(parse(text), [x]), evaluate(graph, [x])
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_softmax_less_another_largest_stays() -> None:
    text = (
        f"graph @g<N: 0..>(%x: f32[N, 3, 4]) {{ {TOP} %d: f32[N, 3, 4] = sub(%x, %m)"
        " %y: f32[N, 3, 4] = softmax(%d) {axis = 2} return %y }"
    )
    assert "sub" in ops(run(R, text))
