"""Random ONNX models compute what onnxruntime computes: with control flow and sizes of data, and networks.

A case that fails is made again by its number: ``python tests/fuzz/control_flow.py --first NUMBER --count 1
--compile-every 1 --shrink``, with ``--family network`` for a network.  The default run takes a few dozen by the
oracles of their ops, `slow` some hundred, of which some are compiled; `make test-nightly` a hundred thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest

from fakes import onnx_models
from fakes.native_kernel import needs_x86
from fuzz.control_flow import Judged, run
from fuzz.flow import judging, shrinking
from fuzz.flow.models import Case, make_case
from fuzz.flow.networks import make_network
from fuzz.flow.onnxruntime_worker import OnnxruntimeError, OnnxruntimeWorker

pytest.importorskip("onnxruntime")
FEW, FEW_NETWORKS, MANY, BATCH, BATCHES = 30, 10, 120, 1000, 100


def check(first: int, count: int, compile_every: int, family: str = "flow") -> list[Judged]:
    judged = list(run(first, count, compile_every, family))
    assert [str(j) for j in judged if j.verdict.is_finding] == []
    counts = Counter(j.verdict.kind for j in judged)
    assert counts["right"] > 0.6 * count
    return judged


@pytest.mark.slow
def test_random_models_compute_what_onnxruntime_computes() -> None:
    judged = check(0, FEW, 0)
    assert {j.way for j in judged} == {"by oracles", "in onnxruntime"}


@needs_x86
@pytest.mark.slow
def test_more_random_models_compute_what_onnxruntime_computes() -> None:
    judged = check(1000, MANY, 12)
    assert sum("compiled" in j.way for j in judged) >= 5


@needs_x86
@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_hundred_thousand_random_models_compute_what_onnxruntime_computes(
    batch: int,
) -> None:
    """By `make test-nightly`."""
    check(1_000_000 + batch * BATCH, BATCH, 100)


@pytest.mark.slow
def test_random_networks_compute_what_onnxruntime_computes() -> None:
    check(0, FEW_NETWORKS, 0, "network")


@needs_x86
@pytest.mark.slow
def test_more_random_networks_compute_what_onnxruntime_computes() -> None:
    judged = check(1000, MANY, 12, "network")
    assert sum("compiled" in j.way for j in judged) >= 5


@needs_x86
@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_hundred_thousand_random_networks_compute_what_onnxruntime_computes(
    batch: int,
) -> None:
    """By `make test-nightly`; every tenth as machine code."""
    check(1_000_000 + batch * BATCH, BATCH, 10, "network")


@pytest.mark.parametrize("make", [make_case, make_network])
def test_a_number_is_the_same_case_each_time(make: Callable[[int], Case]) -> None:
    one, other = make(7), make(7)
    assert one.model.SerializeToString() == other.model.SerializeToString()
    for mine, theirs in zip(one.calls, other.calls, strict=True):
        assert {n: a.tobytes() for n, a in mine.items()} == {
            n: a.tobytes() for n, a in theirs.items()
        }


@pytest.mark.slow
def test_models_have_all_kinds_of_control_flow_and_of_sizes() -> None:
    kinds: Counter[str] = Counter()
    for number in range(90):
        kinds.update(n.op_type for n in nodes(make_case(number).model.graph))
    wanted = {
        "If", "Loop", "Scan", "NonZero", "Compress", "Slice", "Range", "Tile", "Pad", "Expand",
        "Reshape", "TopK", "Where", "Split", "OneHot", "ConstantOfShape", "SequenceAt",
        "ConcatFromSequence", "SequenceInsert", "QuantizeLinear",
    }  # fmt: skip
    assert wanted <= set(kinds)


@pytest.mark.slow
def test_networks_have_all_that_exporters_write() -> None:
    kinds: Counter[str] = Counter()
    for number in range(90):
        kinds.update(n.op_type for n in nodes(make_network(number).model.graph))
    wanted = {
        "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize", "BatchNormalization",
        "InstanceNormalization", "Softmax", "Trilu", "Einsum", "Attention", "MultiHeadAttention",
        "MatMulNBits", "DequantizeLinear", "QLinearMatMul", "QLinearConv", "MatMulInteger",
        "ConvInteger", "BitShift", "SkipLayerNormalization", "RMSNormalization", "Scan",
    }  # fmt: skip
    assert wanted <= set(kinds)


def nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    inner = [
        n
        for node in graph.node
        for a in node.attribute
        if a.HasField("g")
        for n in nodes(a.g)
    ]
    return [*graph.node, *inner]


# --- the judge is judged ------------------------------------------------------------------------

MODEL = """graph (float[N] x, int64 n, bool p) => (float[N] y, float[K] z, int64 m) {
  y = If (p) <
    then_branch = a () => (float[N] q) { q = Identity (x) },
    else_branch = b () => (float[N] r) {
      s = Abs (x)
      r = Sqrt (s)
    }
  >
  m = Neg (n)
  z = Neg (y)
}"""


def case_of(text: str) -> Case:
    x, n, p = np.array([1, 4], np.float32), np.array(3), np.zeros((), np.bool_)
    calls = ({"x": x, "n": n, "p": p}, {"x": x, "n": n, "p": np.ones((), np.bool_)})
    return Case(0, onnx_models.parse(text), calls)


RIGHT = (
    [np.array([1, 2], np.float32), np.array([-1, -2], np.float32), np.array(-3)],
    [np.array([1, 4], np.float32), np.array([-1, -4], np.float32), np.array(-3)],
)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda arrays: arrays, "right"),
        (lambda arrays: [arrays[0] + 1, *arrays[1:]], "wrong"),
        (lambda arrays: [arrays[0], arrays[1].astype(np.float64), arrays[2]], "wrong"),
        (lambda arrays: [arrays[0], arrays[1][:1], arrays[2]], "wrong"),
        (lambda arrays: [arrays[0], arrays[1] * np.nan, arrays[2]], "wrong"),
        (lambda arrays: arrays[:2], "wrong"),
        (lambda arrays: [arrays[5]], "failed"),
    ],
)
def test_the_judge_sees_what_is_wrong(
    change: Callable[[list[np.ndarray]], Sequence[np.ndarray]], kind: str
) -> None:
    def way(_: onnx.ModelProto) -> judging.Run:
        return lambda feeds: change(RIGHT[int(feeds["p"])])

    assert judging.judge(case_of(MODEL), way, RIGHT).kind == kind


def test_an_oddity_of_onnxruntime_is_none_of_ours() -> None:
    """Beside a scan that the evaluator of ONNX does not know: only what an output needs is asked of it."""
    text = """graph (double[2] x, double[N,2] r) => (double[2] y, double[N,2] z) {
      y = LogSoftmax(x)
      s, z = Scan <num_scan_inputs = 1, scan_output_directions = [1],
        body = b (double[2] a, double[2] e) => (double[2] o, double[2] p) { o = Add(a, e) p = Identity(o) }
      > (x, r)
    }"""
    x, r = np.array([np.inf, 1]), np.ones((1, 2))
    case = Case(0, onnx_models.parse(text), ({"x": x, "r": r},))
    scanned = x + r
    odd = [[np.array([np.nan, -np.inf]), scanned]]
    assert judging.judge(case, judging.by_oracles, odd).kind == "odd"
    wrong = [[np.array([np.nan, np.nan]), scanned + 1]]
    assert judging.judge(case, judging.by_oracles, wrong).kind == "wrong"


def test_a_case_gets_smaller_while_it_fails() -> None:
    """Only the root of the second branch is needed for a machine that has none."""

    def fails(case: Case) -> bool:
        return any(node.op_type == "Sqrt" for node in nodes(case.model.graph))

    found = shrinking.shrunk(case_of(MODEL), fails)
    assert {n.op_type for n in nodes(found.model.graph)} <= {"Sqrt", "Identity"}
    assert len(found.calls) == 1
    assert len(found.model.graph.output) == 1
    assert "Sqrt" in shrinking.text_of(found)


@pytest.mark.slow
def test_a_model_that_ends_onnxruntime_is_told_and_the_next_has_a_process_again() -> None:
    case = replace(case_of(MODEL), calls=())
    with OnnxruntimeWorker("die") as worker:
        for _ in range(2):
            with pytest.raises(OnnxruntimeError, match="the process died"):
                worker.run(case.model.SerializeToString(), case.calls)
