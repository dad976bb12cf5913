"""Places of an image that would crowd one set of a cache have channels between them that nobody reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fakes.contractions import form_of
from fakes.graphs import only, ops, run
from tilewright.base.dtypes import DType, f32, i32
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target
from tilewright.compiler.backends.panel_form import GapsOf
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.transforms import FoldConstants, LegalizeConvolution

GAP = 3
MANY = 40
"""Filters of which each element meets enough to be worth a move."""


def panel(rows: Sequence[Dim], columns: Dim, depth: Dim, dtype: DType, row: int = 0) -> int:
    return 4


def always(rows: Sequence[Dim], channels: Dim, step: int, dtype: DType) -> int:
    return GAP


def of_steps(rows: Sequence[Dim], channels: Dim, step: int, dtype: DType) -> int:
    return GAP if step > 1 else 0


def text(
    image: str, weights: str, result: str, attributes: str = "", dtype: str = "f32"
) -> str:
    return (
        f"graph @g<N: 1..>(%x: {dtype}[{image}], %w: {dtype}[{weights}]) {{"
        f' %y: {dtype}[{result}] = conv(%x, %w) {{layout = "NHWC"{attributes}}} return %y }}'
    )


def legal(source: str, choose=always) -> Graph:
    passes = [LegalizeConvolution(choose_panel=panel, choose_gap=choose), FoldConstants()]
    return run(passes, source)


PADDED = text(
    "N, 5, 6, 4", "7, 4, 3, 3", "N, 3, 3, 7", ", pads = [1, 1, 1, 1], strides = [2, 2]"
)


def test_a_border_has_channels_behind_it() -> None:
    graph = legal(PADDED)
    assert only(graph, "pad").attributes["pads"] == (0, 1, 1, 0, 0, 1, 1, GAP)
    node = next(node for node in graph.nodes if node.op == "contract")
    assert form_of(node) == "contract:conv"
    assert node.attributes["left"] == "n, kh + 2*oh, kw + 2*ow, c"


def test_without_a_gap_nothing_changes() -> None:
    none = [LegalizeConvolution(choose_panel=panel), FoldConstants()]
    assert str(legal(PADDED, lambda *_: 0)) == str(run(none, PADDED))


def test_an_image_without_a_border_is_moved_where_it_is_read_often() -> None:
    def image(filters: int) -> str:
        return text("N, 9, 9, 4", f"{filters}, 4, 3, 3", f"N, 7, 7, {filters}")

    assert "pad" in ops(legal(image(MANY * 4)))
    assert "pad" not in ops(legal(image(4)))


@pytest.mark.parametrize(("filters", "picked"), [(300, True), (20, False)])
def test_places_that_one_of_several_windows_sees_are_picked_first(
    filters: int, picked: bool
) -> None:
    attributes = ", strides = [2, 3]"
    source = text("N, 5, 7, 4", f"{filters}, 4, 1, 1", f"N, 3, 3, {filters}", attributes)
    graph = legal(source)
    assert ("slice" in ops(graph)) == ("pad" in ops(graph)) == picked
    assert "slice" not in ops(
        legal(source, of_steps)
    )  # they would lie well, but are read no other way


@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(
    ("image", "weights", "result", "attributes"),
    [
        (
            "2, 5, 6, 4",
            "7, 4, 3, 3",
            "2, 3, 3, 7",
            ", pads = [1, 1, 1, 1], strides = [2, 2]",
        ),
        ("2, 5, 6, 6", "4, 3, 3, 2", "2, 5, 5, 4", ", groups = 2, pads = [1, 0, 1, 0]"),
        ("1, 5, 7, 2", "300, 2, 1, 1", "1, 3, 3, 300", ", strides = [2, 3]"),
        ("1, 6, 6, 2", "299, 2, 2, 2", "1, 4, 4, 299", ", dilations = [2, 2]"),
        ("1, 9, 3", "300, 3, 1", "1, 5, 300", ", strides = [2]"),
        (
            "0, 5, 6, 4",
            "7, 4, 3, 3",
            "0, 3, 3, 7",
            ", pads = [1, 1, 1, 1], strides = [2, 2]",
        ),
    ],
)
def test_results_stay(
    image: str, weights: str, result: str, attributes: str, dtype: str
) -> None:
    source = text(image, weights, result, attributes, dtype)
    random = np.random.default_rng(3)
    graphs = run([], source), legal(source)
    inputs = [
        random.integers(-4, 5, tuple(map(int, shape.split(", ")))).astype(
            graphs[0].inputs[0].type.dtype.numpy
        )
        for shape in (image, weights)
    ]
    (expected,), (found,) = (evaluate(graph, inputs) for graph in graphs)
    np.testing.assert_array_equal(found, expected)


# --- the machines' answer ----------------------------------------------------------------------


def of(*targets: str) -> GapsOf:
    return GapsOf(tuple(MachineModel.of(Target.parse(target)) for target in targets))


WIDE, NARROW = of("x86_64 -mcpu=cascadelake"), of("x86_64-v3")


@pytest.mark.parametrize(
    ("channels", "step", "apart"),
    [
        (512, 1, True),
        (256, 1, False),
        (256, 2, True),
        (512, 2, True),
        (500, 1, False),
        (520, 2, False),
    ],
)
def test_places_a_power_of_two_apart_have_a_line_between_them(
    channels: int, step: int, apart: bool
) -> None:
    gap = WIDE((1, 7, 7), channels, step, f32)
    assert gap == (16 if apart else 0)


def test_few_rows_and_numbers_that_are_no_floats_have_none() -> None:
    assert WIDE((1, 1, 1), 512, 2, f32) == 0
    assert WIDE((1, 7, 7), 512, 2, i32) == 0
    assert NARROW((1, 7, 7), 512, 2, f32) == 0  # tiles have six rows there


def test_a_gap_that_one_of_several_machines_needs_is_there_for_all() -> None:
    rows, narrow, wide = [1, 14, 14], "x86_64-v3", "x86_64-v4"
    assert of(narrow)(rows, 512, 2, f32) == 0
    assert of(narrow, wide)(rows, 512, 2, f32) == of(wide)(rows, 512, 2, f32) == 16
