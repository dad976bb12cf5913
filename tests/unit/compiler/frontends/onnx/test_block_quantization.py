"""Weights of 2, 4 and 8 bits in blocks, against onnxruntime."""

import numpy as np
import pytest

from fakes import onnx_models
from fakes.contributed import ours
from fakes.onnx_models import run_node
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def some_bytes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def agrees(op: str, arrays: list[np.ndarray | None], **options: object) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.one_node(op, arrays, domain="com.microsoft", **options)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    constants = options.get("constants", ())
    feeds = {
        f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants
    }
    (expected,) = session.run(None, feeds)
    (actual,) = run_node(op, arrays, domain="com.microsoft", **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("zero", ["none", "packed", "float"])
@pytest.mark.parametrize(
    ("bits", "block", "depth", "columns"),
    [
        (2, 16, 100, 5), (2, 64, 64, 1), (4, 16, 40, 5), (4, 32, 64, 3), (4, 128, 129, 2),
        (8, 32, 50, 5), (8, 256, 256, 1),
    ],
)  # fmt: skip
def test_products_with_weights_in_blocks(
    bits: int, block: int, depth: int, columns: int, zero: str
) -> None:
    blocks = -(-depth // block)
    zeros = {
        "none": None,
        "packed": some_bytes(columns, -(-blocks * bits // 8)),
        "float": floats(columns, blocks),
    }[zero]
    if bits == 8 and zero == "float":
        pytest.skip("onnxruntime has no kernel for it")
    stored = some_bytes(columns, blocks, block * bits // 8)
    arrays = [floats(2, 3, depth), stored, floats(columns, blocks), zeros]
    agrees(
        "MatMulNBits", arrays, constants=(1, 2, 3), K=depth, N=columns, bits=bits,
        block_size=block,
    )  # fmt: skip


def test_groups_in_another_order_and_a_bias() -> None:
    group = (np.arange(64, dtype=np.int32) * 7) % 2
    arrays = [floats(3, 64), some_bytes(5, 2, 16), floats(5, 2), None, group]
    agrees("MatMulNBits", arrays, constants=(1, 2, 4), K=64, N=5, block_size=32)
    arrays = [floats(3, 64), some_bytes(5, 2, 16), floats(10), None, None, floats(5)]
    agrees("MatMulNBits", arrays, constants=(1, 2, 5), K=64, N=5, block_size=32)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("shape", [(3,), (2, 2), ()])
def test_rows_of_bytes_are_looked_up(
    shape: tuple[int, ...], bits: int, *, zero: bool
) -> None:
    indices = RNG.integers(0, 7, shape).astype(np.int64)
    zeros = some_bytes(7, -(-3 * bits // 8)) if zero else None
    arrays = [some_bytes(7, 48 * bits // 8), indices, floats(7, 3), zeros]
    options = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16, "bits": bits}
    agrees("GatherBlockQuantized", arrays, constants=(0, 2, 3), **options)


def test_zero_points_of_groups_in_another_order() -> None:
    # Against the definition: onnxruntime 1.32 takes other zero points here.
    group = (np.arange(64, dtype=np.int32) * 7) % 2
    x, stored, scale, zero = (
        floats(3, 64), some_bytes(5, 2, 16), floats(5, 2), some_bytes(5, 1)
    )  # fmt: skip
    (result,) = run_node(
        "MatMulNBits", [x, stored, scale, zero, group], domain="com.microsoft",
        constants=(1, 2, 3, 4), K=64, N=5, block_size=32,
    )  # fmt: skip
    values = np.stack([stored & 15, stored >> 4], -1).reshape(5, 64).astype(np.float32)
    zeros = np.concatenate([zero & 15, zero >> 4], 1).astype(np.float32)
    weights = (values - zeros[:, group]) * scale[:, group]
    np.testing.assert_allclose(result, x @ weights.T, rtol=1e-4, atol=1e-4)


def test_weights_that_do_not_fit_are_refused() -> None:
    arrays = [floats(2, 32), some_bytes(3, 1, 8), floats(3)]
    with pytest.raises(ModelError, match="do not hold 3 x 32"):
        run_node("MatMulNBits", arrays, domain="com.microsoft", K=32, N=3, block_size=32)
    with pytest.raises(ModelError, match="blocks of 24"):
        run_node("MatMulNBits", arrays, domain="com.microsoft", K=32, N=3, block_size=24)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(
    ("depth", "columns", "block"), [(32, 5, 16), (64, 3, 32), (16, 1, 16)]
)
def test_weights_of_bitsandbytes_beside_onnxruntime(
    kind: int, depth: int, columns: int, block: int
) -> None:
    rng = np.random.default_rng(depth)
    stored = rng.integers(0, 256, (columns * depth + 1) // 2).astype(np.uint8)
    scales = rng.uniform(0.1, 2, -(-columns * depth // block)).astype(np.float32)
    x = rng.standard_normal((2, 3, depth)).astype(np.float32)
    options = {"K": depth, "N": columns, "block_size": block, "quant_type": kind}
    agrees("MatMulBnb4", [x, stored, scales], constants=[1, 2], **options)
    turned = rng.standard_normal((4, columns)).astype(np.float32)
    weights = ours(
        "MatMulBnb4", [np.eye(depth, dtype=np.float32), stored, scales], **options
    )[0]
    (found,) = ours("MatMulBnb4", [turned, stored, scales], transB=0, **options)
    np.testing.assert_allclose(found, turned @ weights.T, rtol=1e-4, atol=1e-5)
