from __future__ import annotations

from fakes.contractions import convolution, depthwise
from fakes.loop_nests import op_kernel, product, row_sums
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Binary, Expression
from tilewright.compiler.kernel.rewrite import stores
from tilewright.compiler.schedule.cost import body_cost
from tilewright.compiler.schedule.rules.prepare import prepare
from tilewright.compiler.schedule.rules.structure import (
    _factors_of_word,
    find_contraction,
    numbers_of,
    parallel_chain,
    top_nests,
    written_size,
    written_uses,
)
from tilewright.compiler.schedule.trace import Schedule


def prepared(*args: object, **kwargs: object):
    s = Schedule(op_kernel(*args, **kwargs))  # type: ignore[arg-type]
    prepare(s)
    return s.kernel


def test_a_product_has_rows_a_lane_and_a_sum() -> None:
    found = find_contraction(parallel_chain(product().body[0]))
    assert found is not None
    assert [x.var.name for x in found.rows] == ["i"]
    assert found.lane.var.name == "j"
    assert [x.var.name for x in found.reductions] == ["k"]
    assert found.contiguous
    assert found.depth == 6


def test_a_convolution_has_several_rows_and_sums() -> None:
    kernel = prepared(
        "contract", [(2, 6, 7, 3), (1, 2, 3, 3, 3, 16)], (2, 4, 5, 20), convolution(20)
    )
    found = find_contraction(parallel_chain(top_nests(kernel)[0]))
    assert found is not None
    assert [x.var.name for x in found.rows] == ["n", "oh", "ow"]
    assert [x.var.name for x in found.panels] == ["p"]
    assert [x.var.name for x in found.reductions] == ["kh", "kw", "c"]


def test_groups_are_batches() -> None:
    kernel = prepared(
        "contract",
        [(1, 6, 7, 6), (2, 1, 3, 3, 3, 16)],
        (1, 4, 5, 24),
        convolution(24, groups=2),
    )
    found = find_contraction(parallel_chain(top_nests(kernel)[0]))
    assert found is not None
    assert [x.var.name for x in found.batches] == ["g"]


def test_a_depthwise_convolution_and_a_sum_are_no_contraction() -> None:
    kernel = prepared("contract", [(1, 6, 7, 20), (3, 3, 20)], (1, 4, 5, 20), depthwise())
    found = find_contraction(parallel_chain(top_nests(kernel)[0]))
    assert found is None or not found.contiguous
    assert find_contraction(parallel_chain(row_sums().body[0])) is None


def test_transcendental_functions_cost_more() -> None:
    cheap = op_kernel("relu", [(8,)], (8,))
    dear = op_kernel("exp", [(8,)], (8,))
    assert body_cost(cheap.body) < 4 < body_cost(dear.body)


def test_shared_parts_count_wherever_they_stand_when_written_out():
    b = KernelBuilder("shared")
    x, y = b.parameter("x", f32, (4,)), b.result("y", f32, (4,))
    with b.loop(4) as i:
        value = b.load(x, (i,))
        for _ in range(60):
            value = Binary("add", value, value, f32)
        b.store(y, (i,), value)
    kernel = b.build()
    (store,) = stores(kernel.body)
    assert written_size(store.value) == 2**61 - 1
    assert written_uses(kernel.body, x) == 2**60
    assert written_uses(kernel.body, y) == 0


def test_the_sum_of_a_step_times_a_number_has_the_words_of_one_buffer() -> None:
    b = KernelBuilder("k")
    x, w, other, scale = (b.parameter(n, f32, (8, 8)) for n in ("x", "w", "other", "scale"))
    i, j = symbol("i"), symbol("j")
    left, right, factor = b.load(x, (i, 0)), b.load(w, (i, j)), b.load(scale, (0, j))

    def factors(left: Expression, right: Expression) -> object:
        first, second = b.mul(left, right), b.mul(b.load(x, (i, 1)), right)
        return _factors_of_word(b.add(first, second), factor, None)

    assert factors(left, right) == (right, left)
    assert factors(left, b.add(right, 1.0)) == (right, left)
    assert factors(left, b.add(right, b.load(other, (i, j)))) is None, (
        "words of two buffers"
    )
    assert factors(b.add(left, 1.0), b.add(right, b.load(other, (i, j)))) is None


def test_numbers_that_have_code_of_their_own_are_those_that_a_size_may_be() -> None:
    n = symbol("N", 1)
    assert numbers_of(n) == [2, 3, 4]
    assert numbers_of(symbol("N", 3)) == [3, 4]
    assert numbers_of(symbol("N", 1, 3)) == [2, 3]
    assert numbers_of(symbol("N", 4, 4 + 3), (7, 8)) == [7]
    assert numbers_of(4) == numbers_of(2 * n) == numbers_of(n + 1) == []
