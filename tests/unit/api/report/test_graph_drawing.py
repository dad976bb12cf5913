"""The graph of a call: steps, borders, and tensors that are read far away."""

from __future__ import annotations

import pytest

from tilewright.api.profiling import KernelRow
from tilewright.api.report.graph_drawing import STEPS_LIMIT, draw_graph
from tilewright.api.report.plan_reader import Edge, Memory, Tensor
from tilewright.api.report.report_data import ReportData, StepData
from tilewright.base.outcome import Outcome

TENSOR = Tensor("f32[4]", 16)


def chain(count: int, *more: tuple[int, int]) -> ReportData:
    """An input, `count` steps one after the other, an output."""
    row = KernelRow("k", 1, 8, 32, 1000, Outcome.ROWS, ("node",))
    step = StepData(row=row, kernel=0, kind="dispatch", grid=(1, 1, 1), results=(TENSOR,))
    pairs = [(-1, 0), *((n, n + 1) for n in range(count - 1)), (count - 1, -1), *more]
    return ReportData(
        name="m", target="t", machine="h", threads=1, calls=1, dims={},
        inputs=("x: f32[4]",), outputs=("y: f32[4]",), steps=(step,) * count,
        kernels=(row,), limits=None, code={},
        edges=tuple(Edge(source, target, TENSOR) for source, target in pairs),
        memory=Memory((), 0, 0, 0),
    )  # fmt: skip


def test_steps_and_borders_are_drawn_and_joined() -> None:
    drawing = draw_graph(chain(3))
    assert drawing is not None
    assert drawing.graph.count('class="node ') == 3
    assert drawing.graph.count('class="edge"') == 4
    assert drawing.graph.count("x: f32[4]</text>") == 1
    assert drawing.overview.count("data-step") == 3
    assert drawing.far_count == 0


def test_what_is_read_far_away_is_named_at_its_reader() -> None:
    drawing = draw_graph(chain(100, (2, 99), (-1, 98)))
    assert drawing is not None
    assert drawing.far_count == 2
    assert "also reads step 2</text>" in drawing.graph
    assert "also reads x</text>" in drawing.graph


@pytest.mark.slow
def test_what_no_screen_can_show_is_left_to_the_table() -> None:
    assert draw_graph(chain(STEPS_LIMIT)) is not None
    assert draw_graph(chain(STEPS_LIMIT + 1)) is None
