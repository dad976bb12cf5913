"""Particular semantics of rows that ONNX's own cases do not pin down."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import onnx_models
from fakes.onnx_exclusions import CONTRIBUTED
from fakes.onnx_models import run_node
from tilewright.base import symbolic
from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.frontends.onnx import load, table
from tilewright.compiler.frontends.onnx.convolution import same_pads
from tilewright.compiler.frontends.onnx.resize import scaled_size
from tilewright.compiler.frontends.onnx.row import row
from tilewright.compiler.frontends.onnx.shapes import resolve_shape
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.ops import catalogue

RNG = np.random.default_rng(0)
N, M = symbolic.symbol("N", 1), symbolic.symbol("M", 1)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# --- the table


def test_every_schema_of_onnxruntime_has_a_row_or_a_reason() -> None:
    runtime = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    schemas = runtime.get_all_operator_schema()
    theirs = {schema.name for schema in schemas if schema.domain == "com.microsoft"}
    assert theirs - set(table.names("com.microsoft")) == CONTRIBUTED.keys()


def test_rows_of_one_op_may_not_overlap() -> None:
    def build(call: object) -> list[None]:
        return []

    apart = [row("X", build, until=9), row("X", build, since=10)]
    assert len(table.index([apart])[("", "X")]) == 2
    with pytest.raises(InternalError, match="two rows for one opset"):
        table.index([[*apart, row("X", build, since=12)]])


def test_a_row_is_found_by_opset() -> None:
    assert table.find("", "Resize", 10) is not table.find("", "Resize", 11)
    assert table.find("", "Resize", 9) is None
    assert table.find("com.microsoft", "BiasGelu", 1) is not None


# --- shapes


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ((N, 12, 64), (0, -1), (N, 768)),
        ((N, 12), (-1, 3), (N * 4, 3)),
        ((N, 768), (N, 12, -1), (N, 12, 64)),
        ((2, 3), (-1,), (6,)),
        ((0, 3), (-1, 3), (0, 3)),
        ((N, M), (0, 2, -1), (N, 2, M // 2)),
        ((N, N, M), (M, 2, -1), (M, 2, N * N // 2)),
        ((), (1, 1), (1, 1)),
    ],
)
def test_reshape_targets_are_worked_out(
    shape: tuple[object, ...], wanted: tuple[object, ...], expected: tuple[object, ...]
) -> None:
    assert tuple(resolve_shape(shape, wanted, allow_zero=False)) == expected


@pytest.mark.parametrize(
    ("shape", "wanted"), [((6,), (4,)), ((6,), (-1, -1)), ((6,), (-2, 3)), ((6,), (1, 0))]
)
def test_reshape_targets_that_do_not_fit_are_refused(
    shape: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    with pytest.raises(ModelError):
        resolve_shape(shape, wanted, allow_zero=False)


@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize(("start", "end"), [("a", "b"), ("b", "a")])
def test_only_a_call_knows_the_sign_of_a_slice_position(
    start: str, end: str, step: int
) -> None:
    """Positions count from the end when the other operand is long, as in DeBERTa's relative positions."""
    graph = load(
        onnx_models.parse(f"""graph (float[S] x, float[T] z) => (float[Y] y) {{
          n = Shape (x)
          four = Constant<value_ints = [4]> ()
          seven = Constant<value_ints = [7]> ()
          step = Constant<value_ints = [{step}]> ()
          axes = Constant<value_ints = [0]> ()
          a = Sub (four, n)
          b = Sub (seven, n)
          y = Slice (z, {start}, {end}, axes, step)
        }}""")
    )
    z = floats(6)
    for size in (1, 4, 5, 7, 8, 12):
        positions = {"a": 4 - size, "b": 7 - size}
        (found,) = evaluate(graph, [floats(size), z])
        expected = z[slice(positions[start], positions[end], step)]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("upper", [True, False])
def test_same_padding_of_stride_one_does_not_depend_on_the_size(upper: bool) -> None:
    assert same_pads(N, 4, 1, 1, upper=upper) == ((1, 2) if upper else (2, 1))
    assert same_pads(7, 3, 2, 1, upper=upper) == (1, 1)
    assert same_pads(5, 1, 2, 1, upper=upper) == (0, 0)


def test_same_padding_of_a_dynamic_size_is_a_pad_in_front() -> None:
    body = """graph (float[1, 1, H, 6] x, float[1, 1, 3, 3] w) => (float[1, 1, A, B] y) {
      y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)
    }"""
    graph = load(onnx_models.parse(body))
    x, w = floats(1, 1, 7, 6), floats(1, 1, 3, 3)
    fixed = load(onnx_models.parse(body), input_shapes={"x": (1, 1, 7, 6)})
    assert [n.op for n in fixed.nodes] == ["conv"]
    assert "pad" in [n.op for n in graph.nodes]
    np.testing.assert_allclose(
        evaluate(graph, [x, w])[0], evaluate(fixed, [x, w])[0], rtol=1e-6
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (2, 2), (3, 3), (4, 3)])
def test_means_of_an_open_size_leave_same_padding_out(
    kernel: int, stride: int, mode: str
) -> None:
    body = f"""graph (float[B, 2, H, W] x) => (float[B, 2, Y, Z] y) {{
      y = AveragePool<kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], auto_pad = "{mode}">(x)
    }}"""
    graph = load(onnx_models.parse(body))
    for size in (1, 4, 5, 6, 7):
        x = floats(2, 2, size, 9)
        fixed = load(onnx_models.parse(body), input_shapes={"x": x.shape})
        assert "div" not in [n.op for n in fixed.nodes]
        np.testing.assert_allclose(
            evaluate(graph, [x])[0], evaluate(fixed, [x])[0], rtol=1e-5
        )


def test_means_of_halves_of_an_open_size_are_rounded_once() -> None:
    def means(dtype: str, image: np.ndarray, **known: tuple[int, ...]) -> np.ndarray:
        body = f"""graph ({dtype}[B, 2, H, W] x) => ({dtype}[B, 2, Y, Z] y) {{
          y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x)
        }}"""
        return evaluate(load(onnx_models.parse(body), input_shapes=known), [image])[0]

    x = (np.random.default_rng(4).standard_normal((2, 2, 16, 18)) * 3).astype(np.float16)
    found = means("float16", x)
    exact = means("double", x.astype(np.float64), x=x.shape)
    assert found.dtype == np.float16
    units = np.abs(found - exact) / np.spacing(np.abs(found)).astype(np.float64)
    assert units.max() < 0.51


def test_matrices_of_no_rows_have_a_determinant_and_an_inverse() -> None:
    x = np.zeros((2, 0, 0), np.float32)
    body = "graph (float[2, 0, 0] x) => (float[2] d, float[2, 0, 0] y) { d = Det (x) y = com.microsoft.Inverse (x) }"
    model = tw.compile(onnx_models.parse(body))
    determinants, inverses = model(x)
    assert determinants.tolist() == [1, 1]
    assert inverses.shape == x.shape


def test_windows_shorter_than_their_stride_begin_at_the_first_element() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    for op in ("MaxPool", "AveragePool"):
        (found,) = run_node(op, [x], kernel_shape=[1], strides=[3], auto_pad="SAME_UPPER")
        assert found.ravel().tolist() == [0, 3]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        ("y = GridSample (a, b)", [(2, 3, 4, 5), (2, 3, 2, 2)]),
        ("y = GridSample (a, b)", [(1, 2, 2, 3, 2), (1, 1, 2, 2, 3)]),
        ("y = MaxRoiPool<pooled_shape = [2, 1]> (a, b)", [(2, 3, 4, 5), (3, 5)]),
        ("y = Det (a)", [(2, 3, 3)]),
        ("y = com.microsoft.Inverse (a)", [(2, 3, 3)]),
    ],
)
def test_open_sizes_may_be_what_an_operator_asks_for(
    body: str, shapes: Sequence[tuple[int, ...]]
) -> None:
    arrays = [np.abs(floats(*shape)) / 3 for shape in shapes]
    if len(shapes) == 1:
        arrays[0] += 3 * np.eye(3, dtype=np.float32)  # else a determinant may be near 0

    def made(sizes: Sequence[Sequence[object]]) -> onnx.ModelProto:
        inputs = [
            f"float[{','.join(map(str, s))}] {name}"
            for name, s in zip("ab", sizes, strict=False)
        ]
        rank = 3 if "Inverse" in body else 1 if "Det" in body else len(shapes[0])
        result = ",".join(f"Y{i}" for i in range(rank))
        text = f"graph ({', '.join(inputs)}) => (float[{result}] y) {{ {body} }}"
        return onnx_models.parse(text, opset=22)

    names = [[f"{n}{i}" for i in range(len(s))] for n, s in zip("AB", shapes, strict=False)]
    (found,) = evaluate(load(made(names)), arrays)
    (expected,) = evaluate(load(made(shapes)), arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "scale", "expected"),
    [(5, 2.0, 10), (3, 1.6666666, 5), (7, 0.5, 3), (N, 2.0, N * 2), (N, 1.0, N)],
)
def test_resized_dimensions_round_down(
    size: object, scale: float, expected: object
) -> None:
    assert scaled_size(size, scale) == expected


def test_a_dynamic_size_is_an_expression_for_a_short_ratio_only() -> None:
    assert scaled_size(N, 0.25) == symbolic.floordiv(N, 4)
    assert scaled_size(N, 0.1) is None


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -0.5])
def test_a_scale_that_makes_no_size_is_refused(scale: float) -> None:
    with pytest.raises(ModelError, match="is not a finite number"):
        scaled_size(4, scale)


# --- elementwise


@pytest.mark.parametrize("axis", [0, 1])
def test_operands_before_opset_seven_are_placed_by_axis(axis: int) -> None:
    x, y = floats(2, 3, 4), floats(*(2, 3)[axis : axis + 1])
    (result,) = run_node("Add", [x, y], opset=6, broadcast=1, axis=axis)
    np.testing.assert_array_equal(result, x + y.reshape(-1, *[1] * (2 - axis)))


@pytest.mark.parametrize(
    ("base", "exponent"),
    [(np.float32, np.int64), (np.int32, np.float32), (np.int64, np.int32)],
)
def test_a_power_has_the_type_of_its_base(base: type, exponent: type) -> None:
    x, y = np.array([1, 2, 3], base), np.array([3, 2, 0], exponent)
    (result,) = run_node("Pow", [x, y])
    assert result.dtype == base
    np.testing.assert_array_equal(result, [1, 4, 1])


@pytest.mark.parametrize("low", [None, np.array(-0.5, np.float32)])
@pytest.mark.parametrize("high", [None, np.array(0.5, np.float32)])
def test_either_limit_of_clip_may_be_absent(
    low: np.ndarray | None, high: np.ndarray | None
) -> None:
    x = np.array([-1, 0, 1, np.nan, np.inf], np.float32)
    (result,) = run_node("Clip", [x, low, high])
    expected = x if low is None else np.maximum(x, low)
    expected = expected if high is None else np.minimum(expected, high)
    np.testing.assert_array_equal(result, expected)


# --- contractions


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
        ("ij->ji", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->", [(2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ab,bc,cd->da", [(2, 3), (3, 4), (4, 5)]),
        ("ij,ij->i", [(2, 3), (2, 3)]),
        ("ij,kl->il", [(2, 3), (4, 5)]),
        ("bi,b->bi", [(1, 3), (2,)]),
    ],
)
def test_einsum_agrees_with_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [floats(*s) for s in shapes]
    (result,) = run_node("Einsum", arrays, equation=equation)
    np.testing.assert_allclose(result, np.einsum(equation, *arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_diagonal_is_what_stands_there(size: int) -> None:
    matrix = np.full((2, size, size), np.nan, np.float32)
    for i in range(size):
        matrix[:, i, i] = -0.0 if i % 2 == 0 else np.inf
    (result,) = run_node("Einsum", [matrix], equation="bii->ib")
    expected = np.einsum("bii->ib", matrix)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


@pytest.mark.parametrize("equation", ["ij,jk->iq", "ij->ij,jk", "ijk,jk->ik", "i1,jk->ik"])
def test_einsum_equations_that_do_not_fit_are_refused(equation: str) -> None:
    with pytest.raises(ModelError):
        run_node("Einsum", [floats(2, 3), floats(3, 4)], equation=equation)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 1, 4, 3), (5, 3, 2))],
)
def test_matmul_takes_vectors_and_batches(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    x, y = floats(*left), floats(*right)
    (result,) = run_node("MatMul", [x, y])
    np.testing.assert_allclose(result, x @ y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_small_determinants_agree_with_numpy(size: int) -> None:
    x = floats(3, size, size)
    (result,) = run_node("Det", [x], opset=22)
    np.testing.assert_allclose(result, np.linalg.det(x), rtol=1e-3, atol=1e-4)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
@pytest.mark.parametrize("sizes", ["N,M,M", "2,5,5"])
def test_larger_determinants_are_kernels(dtype: str, sizes: str) -> None:
    batch = sizes[0]
    model = onnx_models.parse(
        f"graph ({dtype}[{sizes}] x) => ({dtype}[{batch}] y) {{ y = Det(x) }}", opset=22
    )
    graph = load(model)
    assert "det" not in {node.op for node in graph}
    compiled = tw.compile(model, threads=1, jobs=1)
    x = floats(2, 5, 5).astype(graph.inputs[0].type.dtype.numpy)
    x[1, 2] = x[1, 4] * 2  # without an inverse
    want = np.linalg.det(x.astype(np.float64))
    digits = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(compiled(x), want, rtol=digits, atol=digits)
    np.testing.assert_allclose(evaluate(graph, [x])[0], want, rtol=digits, atol=digits)


def test_each_exchange_of_rows_changes_the_sign_of_a_determinant() -> None:
    for order in ([1, 0, 2, 3, 4], [1, 2, 3, 4, 0], [4, 3, 2, 1, 0], [1, 0, 2, 4, 3]):
        x = np.eye(5, dtype=np.float32)[None, order]
        (result,) = run_node("Det", [x], opset=22)
        assert result == np.linalg.det(x)


def test_a_determinant_of_what_is_no_number_is_none() -> None:
    (result,) = run_node("Det", [np.full((1, 6, 6), np.nan, np.float32)], opset=22)
    assert np.isnan(result).all()


def test_frames_of_a_real_signal_need_no_last_axis() -> None:
    x, window = floats(2, 50), floats(16)
    rest = (np.array(7), window, np.array(16))
    (result,) = run_node("STFT", [x, *rest], opset=17, constants=(1, 3))
    (long,) = run_node("STFT", [x[..., None], *rest], opset=17, constants=(1, 3))
    np.testing.assert_array_equal(result, long)
    assert result.shape == (2, 5, 9, 2)


# --- quantization


@pytest.mark.parametrize("axis", [-7, 0, 1, 5])
@pytest.mark.parametrize("single", [(), (1,)])
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_one_scale_for_a_whole_tensor_has_no_axis(
    op: str, single: tuple[int, ...], axis: int
) -> None:
    x = np.arange(-4, 5, dtype=np.int8)
    scale, zero = np.full(single, 0.5, np.float32), np.full(single, 3, np.int8)
    data = x if op == "DequantizeLinear" else (x * 0.25).astype(np.float32)
    (result,) = run_node(op, [data, scale, zero], opset=19, axis=axis)
    wanted = (x - 3.0) * 0.5 if op == "DequantizeLinear" else np.rint(x * 0.5) + 3
    np.testing.assert_array_equal(result, wanted)


def test_an_axis_of_several_scales_is_one_of_the_tensor() -> None:
    x, scale = np.arange(4, dtype=np.int8), np.full(4, 0.5, np.float32)
    with pytest.raises(ModelError, match="axis 1 is out of range for rank 1"):
        run_node("DequantizeLinear", [x, scale, np.zeros(4, np.int8)], opset=19, axis=1)


# --- onnxruntime's ops, against onnxruntime

IDS = np.array([[1, 2, 3]], np.int32)
KEPT = np.array([[1, 1, 0]], np.int32)
BYTES = RNG.integers(0, 255, (4, 6)).astype(np.uint8)
# Without VNNI onnxruntime adds pairs of u8 x s8 products in 16 bits: 2 * 255 * 63 fits.
SIGNED = RNG.integers(-63, 64, (6, 5)).astype(np.int8)
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
X = floats(2, 5, 12)
CONTRIB = [
    ("Attention", [X, floats(12, 36), floats(36)], {"num_heads": 3}),
    ("Attention", [X, floats(12, 36), floats(36)], {"num_heads": 3, "unidirectional": 1}),
    ("Attention", [X, floats(12, 36), floats(36), MASK], {"num_heads": 3}),
    ("Attention", [X, floats(12, 36), floats(36), None, floats(2, 2, 3, 4, 4)],
     {"num_heads": 3, "outputs": 2}),
    ("MultiHeadAttention", [X, floats(2, 7, 12), floats(2, 7, 12), floats(36)],
     {"num_heads": 3}),
    ("RotaryEmbedding",
     [floats(2, 3, 5, 8), np.arange(10).reshape(2, 5), floats(16, 4), floats(16, 4)],
     {"interleaved": 1}),
    ("RotaryEmbedding", [floats(2, 5, 24), np.array([3]), floats(16, 4), floats(16, 4)], {}),
    ("SkipLayerNormalization", [X, floats(2, 5, 12), floats(12), floats(12), floats(12)], {}),
    ("SkipSimplifiedLayerNormalization", [X, floats(2, 5, 12), floats(12)], {}),
    ("EmbedLayerNormalization",
     [IDS, IDS % 2, floats(8, 12), floats(5, 12), floats(2, 12), floats(12), floats(12), KEPT],
     {"outputs": 2, "epsilon": 1e-5}),
    ("BiasGelu", [X, floats(12)], {}),
    ("FastGelu", [X, floats(12)], {}),
    ("QuickGelu", [X], {}),
    ("FusedMatMul", [floats(2, 4, 3), floats(2, 4, 5)], {"transA": 1, "alpha": 0.5}),
    ("FusedConv", [floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(4)], {"activation": "Relu"}),
    ("MatMulIntegerToFloat",
     [BYTES, SIGNED, np.array(0.1, np.float32), np.abs(floats(5)), np.array(3, np.uint8)], {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "arrays", "options"), CONTRIB, ids=[f"{i}-{c[0]}" for i, c in enumerate(CONTRIB)]
)
def test_contrib_ops_agree_with_onnxruntime(
    op: str, arrays: list[np.ndarray | None], options: dict[str, object]
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.one_node(op, arrays, domain="com.microsoft", **options)
    session = runtime.InferenceSession(model.SerializeToString())
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    expected = session.run(None, feeds)
    actual = run_node(op, arrays, domain="com.microsoft", **options)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("batch", "groups", "banks"), [(1, 1, 1), (2, 1, 2), (2, 2, 1), (3, 2, 3)]
)
def test_deformable_convolutions_agree_with_their_oracle(
    batch: int, groups: int, banks: int, *, masked: bool
) -> None:
    strides, pads, dilations = (2, 1), (1, 0, 1, 2), (1, 2)
    x, w = floats(batch, 6, 9, 10), floats(4, 6 // groups, 3, 2)
    sizes = (5, 10)
    offsets = 4 * floats(batch, banks * 12, *sizes)
    offsets[0, 0, 0, 0] = 100.0
    mask = floats(batch, banks * 6, *sizes) if masked else None
    bias, steps = floats(4), {"strides": strides, "pads": pads, "dilations": dilations}
    (result,) = run_node(
        "DeformConv", [x, w, offsets, bias, mask], opset=22,
        group=groups, offset_group=banks, **steps,
    )  # fmt: skip
    oracle = catalogue.lookup("deform_conv").schema.evaluate
    more = {"groups": groups, "offset_groups": banks, **steps}
    (wanted,) = oracle([x, w, offsets, bias, mask], more)
    np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_integers_are_shrunk_as_real_numbers_and_cut(dtype: type) -> None:
    runtime = pytest.importorskip("onnxruntime")
    x = np.array([[-3, -1, 0], [1, 2, 5]]).clip(np.iinfo(dtype).min).astype(dtype)
    for options in ({"lambd": 1.0, "bias": 0.5}, {"bias": -1.75}, {}):
        model = onnx_models.one_node("Shrink", [x], opset=9, **options)
        model.graph.output[0].ClearField("type")
        (wanted,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
        (found,) = run_node("Shrink", [x], opset=9, **options)
        np.testing.assert_array_equal(found, wanted)


# --- results of nothing


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions_among_no_elements_are_refused_with_their_node(op: str) -> None:
    model = onnx_models.parse(
        f"graph (float[2,0] x) => (int64[2,1] y) {{ y = {op}<axis=1>(x) }}"
    )
    with pytest.raises(ModelError, match=rf"node 'y' \({op}\): no place among no elements"):
        load(model)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("opset", [11, 13])
def test_hardmax_of_nothing_is_nothing(
    shape: tuple[int, int], axis: int, opset: int
) -> None:
    rows, columns = shape
    body = f"graph (float[{rows},{columns}] x) => (float[{rows},{columns}] y)"
    model = onnx_models.parse(f"{body} {{ y = Hardmax<axis={axis}>(x) }}", opset=opset)
    (found,) = evaluate(load(model), [np.zeros(shape, np.float32)])
    assert found.shape == shape


@pytest.mark.parametrize("shape", [(0, 2), (0, 0)])
def test_positions_of_which_there_are_none_need_no_element(shape: tuple[int, int]) -> None:
    rows, columns = shape
    model = onnx_models.parse(
        f"graph (float[{rows},{columns}] x) => (int64[{rows}] y)"
        " { y = ArgMax<axis=1, keepdims=0>(x) }"
    )
    (found,) = evaluate(load(model), [np.zeros(shape, np.float32)])
    assert found.shape == (0,)


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_without_elements_are_one_unique_row(rows: int) -> None:
    model = onnx_models.parse(
        "graph (float[N,M] x) => (float[K,M] y, int64[K] first, int64[N] place, int64[K] count)"
        " { y, first, place, count = Unique<axis=0>(x) }"
    )
    x = np.zeros((rows, 0), np.float32)
    y, first, place, count = evaluate(load(model), [x])
    assert y.shape == (1, 0)
    assert (first, count) == ([0], [rows])
    np.testing.assert_array_equal(place, np.zeros(rows))


@pytest.mark.parametrize("shape", [(4,), (5, 3), (2, 3, 4), (2, 3, 4, 2), (2, 3, 2, 2, 2)])
def test_moments_are_taken_along_all_axes_but_the_channels(shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    axes = tuple(i for i in (0, 2, 3) if i < x.ndim)
    wanted = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    (found,) = run_node("MeanVarianceNormalization", [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_moments_along_axes_that_are_not_there_are_refused() -> None:
    with pytest.raises(ModelError, match="axis 5 is out of range for rank 2"):
        run_node("MeanVarianceNormalization", [floats(2, 3)], axes=[0, 5])


def test_what_is_constant_has_a_normal_form_in_half_precision() -> None:
    (found,) = run_node(
        "MeanVarianceNormalization", [np.full((4, 3), 2, np.float16)], axes=[0]
    )
    np.testing.assert_array_equal(found, np.zeros((4, 3), np.float16))


def test_a_mean_of_nothing_is_not_a_number() -> None:
    model = onnx_models.parse(
        "graph (float[2,0] x) => (float[2] y) { a = Constant<value_ints = [1]>()"
        " y = ReduceMean<keepdims=0>(x, a) }"
    )
    (found,) = evaluate(load(model), [np.zeros((2, 0), np.float32)])
    assert np.isnan(found).all()


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8"])
def test_casts_to_integers_of_any_width_drop_the_fraction(kind: str) -> None:
    to = {"int4": 22, "uint4": 21, "int8": 3}[kind]
    model = onnx_models.parse(
        f"graph (float[N] x) => (int32[N] y) {{ q = Cast<to={to}>(x) y = Cast<to=6>(q) }}",
        opset=23,
    )
    (found,) = evaluate(load(model), [np.array([2.7, 2.5, 3.5, 0.5, 6.9], np.float32)])
    assert found.tolist() == [2, 2, 3, 0, 6]
