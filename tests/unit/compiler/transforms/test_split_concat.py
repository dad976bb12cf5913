import pytest

from fakes.graphs import assert_stays, run
from tilewright.compiler.transforms import SplitConcat


def concat(count, rows="N"):
    names = ", ".join(f"%a{i}" for i in range(count))
    inputs = ", ".join(f"%a{i}: f32[{rows}, {i + 1}]" for i in range(count))
    width = count * (count + 1) // 2
    return (
        f"graph @g<N: 1..>({inputs}) {{"
        f" %y: f32[{rows}, {width}] = concat({names}) {{axis = 1}} return %y }}"
    )


def operand_counts(graph):
    return [len(n.operands) for n in graph.nodes if n.op == "concat"]


def test_a_concat_within_the_limit_stays():
    assert_stays([SplitConcat(most_operands=3)], concat(3))


@pytest.mark.parametrize("count", [4, 5, 9, 10, 26])
def test_no_concat_has_more_operands_than_the_limit(count):
    counts = operand_counts(run([SplitConcat(most_operands=3)], concat(count)))
    assert max(counts) <= 3
    assert sum(counts) - (len(counts) - 1) == count


def test_the_default_leaves_room_for_the_result():
    counts = operand_counts(run([SplitConcat()], concat(200, rows="2")))
    assert max(counts) <= 32
    assert len(counts) == 8
