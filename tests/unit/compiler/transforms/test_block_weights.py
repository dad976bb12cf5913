"""Weights in blocks stay integers, in the model's artifact and where products read them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from fakes import onnx_models
from tilewright.base.outcome import Outcome

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def some_bytes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def compiled(model: object, target: str = "host") -> tw.Model:
    return tw.compile(model, target=target)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "bits", "block"),
    [
        (1, 50, 5, 4, 16),
        pytest.param(1, 64, 48, 4, 32, marks=pytest.mark.slow),
        pytest.param(1, 513, 77, 4, 64, marks=pytest.mark.slow),
        pytest.param(1, 900, 129, 4, 128, marks=pytest.mark.slow),
        pytest.param(3, 129, 33, 8, 64, marks=pytest.mark.slow),
        pytest.param(0, 32, 8, 4, 32, marks=pytest.mark.slow),
    ],
)
def test_products_read_words(
    rows: int, depth: int, columns: int, bits: int, block: int, *, zero: bool
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    blocks = -(-depth // block)
    zeros = some_bytes(columns, -(-blocks * bits // 8)) if zero else None
    stored = some_bytes(columns, blocks, block * bits // 8)
    x = floats(rows, depth)
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, floats(columns, blocks), zeros],
        domain="com.microsoft", constants=(1, 2, 3), K=depth, N=columns, bits=bits,
        block_size=block,
    )  # fmt: skip
    program = compiled(model)
    # A product without rows has no element, and no kernel.
    assert bool(rows) == any("matmul_blocks" in kernel.name for kernel in program.kernels)
    (expected,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_products_with_blocks_are_of_the_type_of_what_is_multiplied(dtype: str) -> None:
    numpy_type = {"float": np.float32, "float16": np.float16}[dtype]
    stored, scale = some_bytes(5, 4, 8), floats(5, 4).astype(numpy_type)
    x = floats(3, 50).astype(numpy_type)
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, scale], domain="com.microsoft", constants=(1, 2),
        K=50, N=5, bits=4, block_size=16,
    )  # fmt: skip
    program = compiled(model)
    halves = (
        np.stack([stored & 15, stored >> 4], axis=-1).reshape(5, 4, 16).astype(np.float64)
    )
    weights = ((halves - 8) * scale[..., None]).reshape(5, 64)[:, :50]
    result = program(x)
    assert result.dtype == numpy_type
    np.testing.assert_allclose(
        result, x.astype(np.float64) @ weights.T, rtol=2e-3, atol=2e-2
    )


def blockwise(values: np.ndarray, code: int, axis: int, zero: bool) -> object:
    """x @ DequantizeLinear(values), which lie as [K, N] or, with axis 1, as [N, K]."""
    blocks = list(values.shape)
    blocks[axis] = -(-values.shape[axis] // 16)
    shift = RNG.integers(0, 4, blocks).astype(np.int8)
    names = ["q", "s", "z"] if zero else ["q", "s"]
    stored = [
        helper.make_tensor("q", code, values.shape, values.ravel()),
        numpy_helper.from_array(np.abs(floats(*blocks)) + 0.1, "s"),
        *([helper.make_tensor("z", code, blocks, shift.ravel())] if zero else []),
    ]
    nodes = [helper.make_node("DequantizeLinear", names, ["w"], axis=axis, block_size=16)]
    if axis:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if axis else "w"], ["y"]))
    depth = values.shape[axis]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, depth))],
        [helper.make_empty_tensor_value_info("y")], stored,
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.slow
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("code", "low", "high"),
    [
        (TensorProto.INT4, -8, 8),
        (TensorProto.UINT4, 0, 16),
        (TensorProto.INT8, -128, 128),
    ],
)
def test_block_wise_dequantizations_are_read_as_words(
    code: int, low: int, high: int, axis: int, *, zero: bool
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    shape = (5, 41) if axis else (41, 5)
    model = blockwise(RNG.integers(low, high, shape), code, axis, zero)
    program = compiled(model)
    assert any("matmul_blocks" in kernel.name for kernel in program.kernels)
    x = floats(2, 3, 41)
    options = runtime.SessionOptions()  # optimized, x would be rounded to 8 bits
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options)
    (expected,) = session.run(None, {"x": x})
    np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=3e-3)


@pytest.mark.parametrize("axis", [0, 1])
def test_numbers_without_a_sign_around_a_negative_zero_keep_their_bits(axis: int) -> None:
    """They are as many as 4 bits hold, but for the distance of their zero from them."""
    values = RNG.integers(0, 16, (5, 48) if axis else (48, 5)).astype(np.int8)
    blocks = list(values.shape)
    blocks[axis] //= 16
    scale, zeros = np.abs(floats(*blocks)) + 0.1, np.full(blocks, -3, np.int8)
    stored = {"q": values, "s": scale, "z": zeros}
    nodes = [
        helper.make_node("DequantizeLinear", [*stored], ["w"], axis=axis, block_size=16)
    ]
    if axis:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if axis else "w"], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 48))],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21)]
    program = compiled(helper.make_model(graph, opset_imports=imports, ir_version=10))
    assert any("matmul_blocks" in kernel.name for kernel in program.kernels)
    weights = (values.astype(np.float64) + 3) * np.repeat(scale, 16, axis)
    x = floats(2, 48)
    expected = x @ (weights.T if axis else weights)
    np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86_64-v2", "x86_64-v3", "c"])
def test_other_machines_read_them_too(target: str) -> None:
    stored, scale = some_bytes(20, 3, 16), floats(20, 3)
    x = floats(2, 96)
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, scale], domain="com.microsoft", constants=(1, 2), K=96,
        N=20, block_size=32,
    )  # fmt: skip
    numbers = np.stack([stored & 15, stored >> 4], -1).reshape(20, 96).astype(np.float64)
    weights = (numbers - 8) * np.repeat(scale, 32, 1)
    np.testing.assert_allclose(
        compiled(model, target)(x), x @ weights.T, rtol=1e-4, atol=1e-4
    )


def test_what_is_not_finite_meets_the_number_that_a_weight_stands_for() -> None:
    stored = np.full((1, 1, 16), 0x33, np.uint8)  # -5 everywhere
    stored[0, 0, 0] = 0x83  # but for the second number, which is 0
    x = np.ones((3, 32), np.float32)
    x[0, 0], x[1, 1], x[2, 5] = np.inf, np.inf, 1e38
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, np.ones((1, 1), np.float32)], domain="com.microsoft",
        constants=(1, 2), K=32, N=1, block_size=32,
    )  # fmt: skip
    first, second, third = compiled(model)(x)[:, 0]
    assert first == -np.inf
    assert np.isnan(second)
    assert third == -np.inf


@pytest.mark.parametrize("zero", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("rows", "bits"),
    [
        (1, 4),
        (1, 8),
        pytest.param(3, 4, marks=pytest.mark.slow),
        pytest.param(9, 8, marks=pytest.mark.slow),
    ],
)
def test_weights_around_zero_lose_nothing(rows: int, bits: int, *, zero: bool) -> None:
    """A weight of zero takes no part, whatever it meets; what is finite stays finite."""
    draws = np.random.default_rng(rows * 16 + bits)
    columns, blocks = 20, 3
    middle = 1 << (bits - 1)
    numbers = np.full((columns, 32 * blocks), middle, np.uint8)
    numbers[:, 3] = draws.integers(0, 2 * middle, columns)
    numbers[:, 70] = draws.integers(0, 2 * middle, columns)
    zeros = np.full((columns, blocks), middle, np.uint8)
    if zero:
        zeros = draws.integers(0, 2 * middle, zeros.shape).astype(np.uint8)
        numbers += np.repeat(zeros - np.uint8(middle), 32, 1)
        numbers &= 2 * middle - 1
    scale = draws.uniform(0.1, 0.5, (columns, blocks)).astype(np.float32)
    x = draws.standard_normal((rows, 32 * blocks)).astype(np.float32)
    x[0, 0], x[0, 40] = 3e4, 1e9
    stored = numbers if bits == 8 else numbers[:, ::2] | numbers[:, 1::2] << 4
    packed = zeros
    if bits == 4:
        packed = np.concatenate([zeros, zeros[:, :1] * 0], 1)
        packed = packed[:, ::2] | packed[:, 1::2] << 4
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored.reshape(columns, blocks, -1), scale, packed if zero else None],
        domain="com.microsoft", constants=(1, 2, 3), K=32 * blocks, N=columns, bits=bits, block_size=32,
    )  # fmt: skip
    weights = numbers.astype(np.float64) - np.repeat(zeros.astype(np.float64), 32, 1)
    weights *= np.repeat(scale, 32, 1)
    program = compiled(model)
    for size in (1e-36, 1e-20, 1, 1e17):
        each = (x * np.float32(size)).astype(np.float32)
        sizes = np.abs(each).astype(np.float64) @ np.abs(weights).T
        error = np.abs(program(each) - each.astype(np.float64) @ weights.T)
        assert np.all(error <= 1e-6 * sizes + 2.0**-149), size


@pytest.mark.slow
def test_bytes_are_moved_where_nothing_looks_numbers_up() -> None:
    stored, scale = some_bytes(9, 2, 16), floats(9, 2)
    model = onnx_models.one_node(
        "MatMulNBits", [floats(1, 64), stored, scale], domain="com.microsoft",
        constants=(1, 2), K=64, N=9, block_size=32,
    )  # fmt: skip
    for target, expected in (("x86_64-v3", True), ("x86_64-v4", False), ("aarch64", False)):
        texts = [str(kernel.naive_ir) for kernel in compiled(model, target).kernels]
        assert any("pshufb" in text for text in texts) is expected, target


def test_the_artifact_holds_four_bits(tmp_path) -> None:
    stored, scale = some_bytes(256, 8, 16), floats(256, 8)
    model = onnx_models.one_node(
        "MatMulNBits", [floats(1, 256), stored, scale], domain="com.microsoft",
        constants=(1, 2), K=256, N=256, block_size=32,
    )  # fmt: skip
    path = tmp_path / "m.vmfb"
    compiled(model).save(path)
    assert path.stat().st_size < 256 * 256 * 4 / 2


def rounded_in_groups(x: np.ndarray, block: int) -> np.ndarray:
    """Rows as they are where 127 steps to either side, 32 numbers at a time or fewer, are allowed."""
    each = min(block, 32)
    wide = np.zeros((x.shape[0], -(-x.shape[1] // block) * block), np.float32)
    wide[:, : x.shape[1]] = x
    groups = wide.reshape(x.shape[0], wide.shape[1] // each, each)
    step = np.abs(groups).max(-1, keepdims=True) * np.float32(1 / 127)
    with np.errstate(invalid="ignore"):
        whole = np.nan_to_num(np.rint(groups / step))
    return (whole.astype(np.float64) * step).reshape(wide.shape)[:, : x.shape[1]]


def numbers_in_blocks(
    stored: np.ndarray, scale: np.ndarray, zeros: np.ndarray | None, bits: int, depth: int
) -> np.ndarray:
    """[N, K] of MatMulNBits."""
    columns, blocks, _ = stored.shape
    values = stored.reshape(columns, blocks, -1)
    shift = np.full((columns, blocks), 1 << (bits - 1))
    if bits == 4:
        values = np.stack([values & 15, values >> 4], -1).reshape(columns, blocks, -1)
        if zeros is not None:
            shift = np.stack([zeros & 15, zeros >> 4], -1).reshape(columns, -1)[:, :blocks]
    elif zeros is not None:
        shift = zeros
    real = (values.astype(np.float64) - shift[..., None]) * scale[..., None]
    return real.reshape(columns, -1)[:, :depth]


@pytest.mark.thinned(
    2
)  # each of an odd number of rows once, with and without zeros in turn
@pytest.mark.sampled(11)
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "bits", "block", "target"),
    [
        (3, 129, 33, 4, 32, "host"),
        (2, 70, 9, 8, 32, "host"),
        pytest.param(1, 50, 5, 4, 16, "host", marks=pytest.mark.slow),
        pytest.param(1, 900, 129, 4, 128, "host", marks=pytest.mark.slow),
        pytest.param(19, 513, 77, 4, 64, "host", marks=pytest.mark.slow),
        pytest.param(0, 32, 8, 4, 32, "host", marks=pytest.mark.slow),
        pytest.param(5, 300, 65, 8, 128, "host", marks=pytest.mark.slow),
        pytest.param(5, 300, 65, 4, 32, "x86_64-v2", marks=pytest.mark.slow),
        pytest.param(5, 300, 65, 8, 32, "x86_64-v2", marks=pytest.mark.slow),
        pytest.param(5, 300, 65, 4, 32, "c host", marks=pytest.mark.slow),
        pytest.param(5, 300, 65, 8, 32, "c host", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("zero", [False, True])
def test_models_may_permit_that_rows_are_bytes(
    rows: int, depth: int, columns: int, bits: int, block: int, target: str, *, zero: bool
) -> None:
    """`accuracy_level` 4: sums of whole numbers, exact ones."""
    blocks = -(-depth // block)
    zeros = some_bytes(columns, -(-blocks * bits // 8)) if zero else None
    stored, scale = some_bytes(columns, blocks, block * bits // 8), floats(columns, blocks)
    x = floats(rows, depth)
    x[:1, :block] = 0  # of which a step is 0
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, scale, zeros], domain="com.microsoft",
        constants=(1, 2, 3), K=depth, N=columns, bits=bits, block_size=block, accuracy_level=4,
    )  # fmt: skip
    program = compiled(model, target)
    is_bytes = any("matmul_byte_blocks" in kernel.name for kernel in program.kernels)
    assert is_bytes == (rows > 0)
    weights = numbers_in_blocks(stored, scale, zeros, bits, depth)
    expected = rounded_in_groups(x, block) @ weights.T
    np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=1e-5 * bits**4)


@pytest.mark.parametrize(("level", "precision"), [(0, "i8"), (4, "f32")])
def test_users_may_permit_it_too(level: int, precision: str) -> None:
    stored, scale, x = some_bytes(9, 2, 16), floats(9, 2), floats(2, 64)
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, scale], domain="com.microsoft", constants=(1, 2),
        K=64, N=9, bits=4, block_size=32, accuracy_level=level,
    )  # fmt: skip
    program = tw.compile(model, precision=precision)
    assert any("matmul_byte_blocks" in kernel.name for kernel in program.kernels)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("bits", [4, 8])
def test_bytes_of_many_rows_are_tiled_and_have_the_bits_of_one_row(bits: int) -> None:
    """Of two words that are multiplied either may be the row's."""
    stored, scale = some_bytes(96, 6, 4 * bits), floats(96, 6)
    x = floats(67, 192)

    def program(rows: int) -> tw.Model:
        model = onnx_models.one_node(
            "MatMulNBits", [x[:rows], stored, scale], domain="com.microsoft", constants=(1, 2),
            K=192, N=96, bits=bits, block_size=32, accuracy_level=4,
        )  # fmt: skip
        return compiled(model)

    many, one = program(67), program(1)
    (product,) = [kernel for kernel in many.kernels if "byte_blocks" in kernel.name]
    assert product.outcome is Outcome.TILED
    found = many(x)
    for row in (0, 1, 2, 63, 66):
        assert np.array_equal(found[row : row + 1], one(x[row : row + 1]))


def test_what_is_not_finite_reaches_the_results_of_its_row() -> None:
    stored, scale, x = some_bytes(5, 2, 16), floats(5, 2), floats(3, 64)
    x[0, 3], x[1, 40] = np.nan, np.inf
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, scale], domain="com.microsoft", constants=(1, 2),
        K=64, N=5, bits=4, block_size=32, accuracy_level=4,
    )  # fmt: skip
    found = tw.compile(model)(x)
    assert np.isnan(found[0]).all()
    assert not np.isfinite(found[1]).any()
    assert np.isfinite(found[2]).all()


@pytest.mark.parametrize("target", ["riscv64", "aarch64"])
def test_machines_that_do_not_multiply_bytes_keep_floats(target: str) -> None:
    """There is nothing to gain, so nothing is rounded."""
    stored, scale, x = some_bytes(9, 2, 16), floats(9, 2), floats(2, 64)
    model = onnx_models.one_node(
        "MatMulNBits", [x, stored, scale], domain="com.microsoft", constants=(1, 2),
        K=64, N=9, bits=4, block_size=32, accuracy_level=4,
    )  # fmt: skip
    program = compiled(model, target)
    assert any("matmul_blocks" in kernel.name for kernel in program.kernels)
