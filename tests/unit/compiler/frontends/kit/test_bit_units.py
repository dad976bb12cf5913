"""Words cut into units of bits, and put together again, against views of numpy."""

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.bit_units import cut, joined
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph


@pytest.mark.parametrize("unit", [dtypes.u8, dtypes.u16, dtypes.u32])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0)])
def test_words_are_cut_into_units_and_joined_again(
    unit: DType, shape: tuple[int, ...]
) -> None:
    words = np.random.default_rng(0).integers(0, 2**64, shape, np.uint64)
    graph, count = Graph("units"), 64 // unit.bits
    e = NodeMaker(graph)
    units = cut(e, e.constant(words), 64, unit.bits)
    again = joined(e, e.cast(units, unit), count, unit.bits, dtypes.u64)
    graph.outputs.extend((e.value(units), e.value(again)))
    graph.output_names.extend(("units", "again"))
    found, whole = evaluate(graph, [])
    expected = words.reshape(*shape, 1).view(unit.numpy)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(whole, words)
