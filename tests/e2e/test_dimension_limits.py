"""What a model takes for granted about its dynamic dimensions is checked on every call."""

import mmap
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import f32, u8
from tilewright.base.symbolic import Dim, maximum, minimum, mod, symbol
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

L, R = symbol("L", 1), symbol("R", 1)


def table_of_positions() -> Graph:
    """y[S, 4] = x[S, 4] + table[:S], for S of at most 16."""
    rows = symbol("S", 1, 16)
    graph = Graph("positions")
    x = Value(TensorType(f32, (rows, 4)), "x")
    graph.inputs.append(x)
    b = GraphBuilder(graph)
    table = b.constant(np.arange(64, dtype=np.float32).reshape(16, 4))
    part = b.op(
        "slice", [table], {"axes": (0,), "starts": (0,), "sizes": (rows,), "steps": (1,)}
    )
    graph.outputs.append(b.op("add", [x, part]))
    graph.output_names.append("y")
    return graph


def test_a_size_above_the_limit_is_refused_before_anything_is_read() -> None:
    model = tw.compile(table_of_positions(), threads=1, jobs=1, cache=False)
    got = model(np.zeros((7, 4), np.float32))
    np.testing.assert_array_equal(got, np.arange(28, dtype=np.float32).reshape(7, 4))
    with pytest.raises(tw.InputError, match=r"'S' \(axis 0\) is 17, expected at most 16"):
        model(np.zeros((17, 4), np.float32))


def test_sizes_that_must_agree_are_compared() -> None:
    left, right = symbol("L", 1), symbol("R", 1)
    graph = Graph("pair")
    a, c = Value(TensorType(f32, (left, 2)), "a"), Value(TensorType(f32, (right, 2)), "c")
    graph.inputs += [a, c]
    b = GraphBuilder(graph)
    graph.outputs += [b.op("neg", [a]), b.op("neg", [c])]
    graph.output_names += ["x", "y"]
    graph.equalities = ((left, right * 2),)
    model = tw.compile(graph, threads=1, jobs=1, cache=False)
    model(np.zeros((6, 2), np.float32), np.zeros((3, 2), np.float32))
    with pytest.raises(tw.InputError, match="sizes do not agree: L is 6, "):
        model(np.zeros((6, 2), np.float32), np.zeros((4, 2), np.float32))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("engine", ["plan", "vm"])
@pytest.mark.parametrize(
    ("pair", "good", "bad", "words"),
    [
        ((minimum(L, R), L), (2, 3), (6, 4), "L (is 6, expected|must be) at most (4 .R.|R)"),
        ((minimum(L, 5), L), (5, 1), (6, 4), "L (is 6, expected|must be) at most 5"),
        ((maximum(L, R), L), (3, 3), (3, 4), "L (is 3, expected|must be) at least (4 .R.|R)"),
        ((mod(L + R, 3), 0), (2, 4), (2, 3), "(is 5, expected|must be) a multiple of 3"),
        ((R - L, maximum(R - L, 0)), (2, 4), (4, 3), "(is -1 for L = 4|below zero)"),
        ((R - L, 0), (4, 4), (2, 1), "(is -1, expected 0|must be 0)"),
        ((0, R - L), (4, 4), (2, 1), "(is -1, expected 0|must be 0)"),
    ],
    ids=["order", "bound", "least", "multiple", "sign", "number", "number first"],
)  # fmt: skip
def test_what_does_not_hold_of_sizes_is_said_in_its_own_words(
    pair: tuple[Dim, Dim],
    good: tuple[int, int],
    bad: tuple[int, int],
    words: str,
    engine: str,
    tmp_path: Path,
) -> None:
    graph = Graph("pair")
    a, c = Value(TensorType(f32, (L, 2)), "a"), Value(TensorType(f32, (R, 2)), "c")
    graph.inputs += [a, c]
    b = GraphBuilder(graph)
    graph.outputs += [b.op("neg", [a]), b.op("neg", [c])]
    graph.output_names += ["x", "y"]
    graph.equalities = (pair,)
    path = tmp_path / "pair.vmfb"
    tw.compile(graph, threads=1, jobs=1, cache=False).save(path)
    model = tw.load(path, engine=engine)
    model(*(np.zeros((size, 2), np.float32) for size in good))
    with pytest.raises(tw.TilewrightError, match=words) as caught:
        model(*(np.zeros((size, 2), np.float32) for size in bad))
    # Nothing was broadcast here.
    assert "--input-shape" not in str(caught.value)


def window_over_an_image() -> Graph:
    """A convolution with 3 × 3 filters of an image [1, 2, H, W] without borders."""
    height, width = symbol("H", 1), symbol("W", 1)
    graph = Graph("window")
    x = Value(TensorType(f32, (1, 2, height, width)), "x")
    graph.inputs.append(x)
    b = GraphBuilder(graph)
    graph.outputs.append(b.op("conv", [x, b.constant(np.ones((3, 2, 3, 3), np.float32))]))
    graph.output_names.append("y")
    return graph


@pytest.mark.thinned(5)
@pytest.mark.parametrize("engine", ["plan", "vm"])
@pytest.mark.parametrize("size", [(1, 5), (5, 1), (1, 1)])
def test_an_image_smaller_than_the_window_over_it_is_refused(
    engine: str, size: tuple[int, int], tmp_path: Path
) -> None:
    """Also where two negative sizes have a positive product."""
    tw.compile(window_over_an_image(), threads=1, jobs=1).save(tmp_path / "m.vmfb")
    session = tw.load(tmp_path / "m.vmfb", engine=engine, threads=1)
    with pytest.raises(tw.TilewrightError, match="too small for this model"):
        session(np.zeros((1, 2, *size), np.float32))
    assert session(np.zeros((1, 2, 2, 7), np.float32)).shape == (1, 3, 0, 5)


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_an_intermediate_image_without_a_row_too_few_is_refused(
    engine: str, tmp_path: Path
) -> None:
    """Neither the input nor the result has the size that would be negative."""
    graph = window_over_an_image()
    (image,) = graph.outputs
    b = GraphBuilder(graph)
    turned = b.op("transpose", [image], {"perm": (1, 0, 3, 2)})
    sums = b.op("cumsum", [turned], {"axis": 2})
    graph.outputs[:] = [b.op("reduce_sum", [sums], {"axes": (1, 2, 3), "keepdims": False})]
    tw.compile(graph, threads=1, jobs=1).save(tmp_path / "m.vmfb")
    session = tw.load(tmp_path / "m.vmfb", engine=engine, threads=1)
    with pytest.raises(tw.TilewrightError, match="too small for this model"):
        session(np.zeros((1, 2, 1, 7), np.float32))
    assert session(np.zeros((1, 2, 2, 7), np.float32)).tolist() == [0, 0, 0]


def test_a_filter_larger_than_the_image_is_refused_by_the_compiler() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (1, 2, 4, 4)))
    with pytest.raises(tw.ModelError, match=r"f32\[1, 3, -1, -1\], with a negative size"):
        b.op("conv", [x, b.constant(np.ones((3, 2, 6, 6), np.float32))])


def rows_and_their_scores() -> Graph:
    """The softmax of every row of x[N, S], and its largest element."""
    rows, columns = symbol("N", 1), symbol("S", 1)
    graph = Graph("rows")
    x = Value(TensorType(f32, (rows, columns)), "x")
    graph.inputs.append(x)
    b = GraphBuilder(graph)
    graph.outputs += [
        b.op("softmax", [x], {"axis": 1}),
        b.op("reduce_max", [x], {"axes": (1,), "keepdims": False}),
    ]
    graph.output_names += ["y", "best"]
    return graph


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_an_empty_batch_gives_empty_results(engine: str, tmp_path: Path) -> None:
    tw.compile(rows_and_their_scores(), threads=1, jobs=1).save(tmp_path / "m.vmfb")
    session = tw.load(tmp_path / "m.vmfb", engine=engine, threads=1)
    for rows in (2, 0, 3):
        y, best = session(np.ones((rows, 4), np.float32))
        assert (y.shape, best.shape) == ((rows, 4), (rows,))
        assert (y.dtype, best.dtype) == (np.float32, np.float32)
    with pytest.raises(tw.TilewrightError, match=r"'S' .*at least 1"):
        session(
            np.ones((2, 0), np.float32)
        )  # `best` has elements, and there is no largest one


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_a_part_of_no_rows_has_none(engine: str, tmp_path: Path) -> None:
    """Where the last row is row -1, sizes that are not below zero with one row or more may be."""
    rows = symbol("N", 1)
    last, end = minimum(rows - 1, 5), minimum(rows - 1, 1)
    graph = Graph("part")
    graph.inputs.append(Value(TensorType(f32, (rows, 3)), "x"))
    half = (last - end + 1) // 2
    cut = {"axes": (0,), "starts": (last,), "sizes": (half,), "steps": (-2,)}
    b = GraphBuilder(graph)
    graph.outputs.append(b.op("exp", [b.op("slice", graph.inputs, cut)]))
    graph.output_names.append("y")
    tw.compile(graph, threads=1, jobs=1).save(tmp_path / "m.vmfb")
    session = tw.load(tmp_path / "m.vmfb", engine=engine, threads=1)
    for size in (6, 3, 2, 0):
        x = np.ones((size, 3), np.float32)
        assert session(x).shape == x[5:1:-2].shape


def outer_product() -> Graph:
    """y[N, M, K] = a[N, 1, 1] + b[1, M, 1] + c[1, 1, K]."""
    graph = Graph("outer")
    for axis, name in enumerate("NMK"):
        shape = [1 if i != axis else symbol(name) for i in range(3)]
        graph.inputs.append(Value(TensorType(f32, tuple(shape)), name.lower()))
    b, (first, *rest) = GraphBuilder(graph), graph.inputs
    for value in rest:
        first = b.op("add", [first, value])
    graph.outputs.append(first)
    graph.output_names.append("y")
    return graph


def test_sizes_whose_product_leaves_64_bits_are_refused_on_every_engine(
    tmp_path: Path,
) -> None:
    """Small inputs; 4 bytes times the product of 2²² three times is 2⁶⁸, which would be 0 bytes of memory."""
    tw.compile(outer_product(), threads=1, jobs=1).save(tmp_path / "outer.vmfb")
    for engine in ("plan", "vm"):
        session = tw.load(tmp_path / "outer.vmfb", engine=engine)
        for size in (1 << 21, 1 << 22):
            line = np.zeros(size, np.float32)
            sides = line[:, None, None], line[None, :, None], line[None, None]
            told = "sizes are too large for this model"
            with pytest.raises(tw.TilewrightError, match=told):
                session(*sides)
        assert session(*(np.ones((1, 1, 1), np.float32),) * 3).item() == 3


def test_a_size_that_kernels_cannot_be_told_is_refused_by_bytecode(tmp_path: Path) -> None:
    """No size is cut to 32 bits: a call with 2³² + 5 rows of nothing but ones would compute five."""
    graph = Graph("rows")
    graph.inputs.append(Value(TensorType(u8, (symbol("N"),)), "x"))
    graph.outputs.append(GraphBuilder(graph).op("abs", graph.inputs))
    graph.output_names.append("y")
    tw.compile(graph, threads=1, jobs=1).save(tmp_path / "rows.vmfb")
    session = tw.load(tmp_path / "rows.vmfb", engine="vm")
    unread = np.frombuffer(mmap.mmap(-1, (1 << 32) + 5, prot=mmap.PROT_READ), np.uint8)
    with pytest.raises(tw.TilewrightError, match="sizes are too large for this model"):
        session(unread)
    np.testing.assert_array_equal(session(unread[:5]), np.zeros(5, np.uint8))
