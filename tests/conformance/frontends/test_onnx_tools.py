"""What onnxruntime's own tools make of a model: optimizers and quantizers, each result beside onnxruntime.

onnxruntime's kernels of bytes saturate on processors without instructions for them unless a session asks for
precision; these sessions do, so that whole numbers are compared with whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tilewright as tw
from fakes import onnx_models

ort = pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
RNG = np.random.default_rng(21)
WIDTH = 32
ENCODER = """graph (int64[B,T] ids) => (float[B,T,32] y) {
  e = Gather (table, ids)
  n = LayerNormalization<axis = -1> (e, scale, bias)
  q = MatMul (n, w1)
  qb = Add (q, b1)
  half = Div (qb, root)
  erf = Erf (half)
  one = Add (erf, unit)
  g1 = Mul (qb, one)
  gelu = Mul (g1, middle)
  o = MatMul (gelu, w2)
  ob = Add (o, b2)
  sum = Add (n, ob)
  y = LayerNormalization<axis = -1> (sum, scale, bias)
}"""
IMAGE = """graph (float[N,3,9,10] x) => (float[N,5] y) {
  c = Conv<pads = [1, 1, 1, 1], strides = [2, 1]> (x, k1, c1)
  r = Relu (c)
  d = Conv<group = 8> (r, k2)
  s = Add (d, d)
  p = GlobalAveragePool (s)
  f = Flatten (p)
  y = Gemm<transB = 1> (f, k3, c3)
}"""


def weights(**shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    drawn = {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return [numpy_helper.from_array(array, name) for name, array in drawn.items()]


def encoder() -> onnx.ModelProto:
    model = onnx_models.parse(ENCODER, opset=17)
    model.graph.initializer.extend(
        weights(table=(11, WIDTH), scale=(WIDTH,), bias=(WIDTH,), w1=(WIDTH, 64), b1=(64,),
                w2=(64, WIDTH), b2=(WIDTH,))
    )  # fmt: skip
    numbers = {"root": 2**0.5, "unit": 1.0, "middle": 0.5}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.float32(n), name) for name, n in numbers.items()
    )
    return model


def image() -> onnx.ModelProto:
    model = onnx_models.parse(IMAGE, opset=17)
    shapes = {"k1": (8, 3, 3, 3), "c1": (8,), "k2": (8, 1, 3, 3), "k3": (5, 8), "c3": (5,)}
    model.graph.initializer.extend(weights(**shapes))
    return model


IDS = {"ids": RNG.integers(0, 11, (2, 7))}
PICTURES = {"x": RNG.standard_normal((3, 3, 9, 10)).astype(np.float32)}


def check(path: Path, feeds: dict[str, np.ndarray], tolerance: float = 1e-4) -> set[str]:
    """Compare with onnxruntime.  Returns: the operators of the model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    found = tw.compile(path)(*feeds.values())
    assert found.shape == expected.shape
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found / largest, expected / largest, atol=tolerance)
    return {n.op_type for n in onnx.load(path).graph.node}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_the_optimizer_of_transformers_fuses(level: int, tmp_path: Path) -> None:
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    source, target = tmp_path / "source.onnx", tmp_path / "fused.onnx"
    onnx.save(encoder(), source)
    fused = optimizer.optimize_model(
        str(source), "bert", num_heads=4, hidden_size=WIDTH, opt_level=level
    )
    fused.save_model_to_file(str(target))
    assert "SkipLayerNormalization" in check(target, IDS)
    fused.convert_float_to_float16(keep_io_types=True)
    fused.save_model_to_file(str(target))
    check(target, IDS, 0.02)


@pytest.mark.parametrize("model", ["encoder", "image"])
def test_a_model_that_a_session_saved(model: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source.onnx", tmp_path / "saved.onnx"
    onnx.save(encoder() if model == "encoder" else image(), source)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    check(target, IDS if model == "encoder" else PICTURES)


def test_weights_quantized_ahead_inputs_on_the_fly(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    source, target = tmp_path / "source.onnx", tmp_path / "dynamic.onnx"
    onnx.save(encoder(), source)
    for kind in (quantization.QuantType.QInt8, quantization.QuantType.QUInt8):
        for per_channel in (False, True):
            quantization.quantize_dynamic(
                source, target, weight_type=kind, per_channel=per_channel
            )
            assert "MatMulInteger" in check(target, IDS, 0.02)


FORMS = [("QDQ", "QUInt8"), ("QDQ", "QInt8"), ("QDQ", "QInt16"), ("QOperator", "QUInt8")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("form", "kind"), FORMS)
@pytest.mark.parametrize("per_channel", [False, True])
def test_images_quantized_by_what_was_seen(
    form: str, kind: str, per_channel: bool, tmp_path: Path
) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    source, target = tmp_path / "source.onnx", tmp_path / "static.onnx"
    onnx.save(image(), source)

    class Seen(quantization.CalibrationDataReader):
        calls: Iterator[dict[str, np.ndarray]] = iter([PICTURES])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.calls, None)

    quantization.quantize_static(
        source, target, Seen(), quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType[kind],
        weight_type=quantization.QuantType.QInt8, per_channel=per_channel,
    )  # fmt: skip
    # A unit of the result's byte, where two ways of rounding disagree.
    check(target, PICTURES, 0.01)


def blocks(bits: int, **options: object) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    def quantize(model: onnx.ModelProto) -> onnx.ModelProto:
        tools = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
        config = tools.DefaultWeightOnlyQuantConfig(block_size=16, bits=bits, **options)
        quantizer = tools.MatMulNBitsQuantizer(model, algo_config=config)
        quantizer.process()
        return quantizer.model.model

    return quantize


def bitsandbytes(kind: int) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    def quantize(model: onnx.ModelProto) -> onnx.ModelProto:
        tools = pytest.importorskip("onnxruntime.quantization.matmul_bnb4_quantizer")
        quantizer = tools.MatMulBnb4Quantizer(model, kind, 16)
        quantizer.process()
        return quantizer.model.model

    return quantize


QUANTIZERS = {
    "4 bits, symmetric": blocks(4, is_symmetric=True),
    "4 bits": blocks(4, is_symmetric=False),
    "8 bits": blocks(8, is_symmetric=True),
    "rows of tables, too": blocks(
        4, is_symmetric=True, op_types_to_quantize=("MatMul", "Gather")
    ),
    "fp4": bitsandbytes(0),
    "nf4": bitsandbytes(1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", QUANTIZERS)
def test_weights_quantized_in_blocks(name: str, tmp_path: Path) -> None:
    target = tmp_path / "blocks.onnx"
    onnx.save(QUANTIZERS[name](encoder()), target)
    operators = check(target, IDS, 1e-3)
    assert operators & {"MatMulNBits", "MatMulBnb4"}
