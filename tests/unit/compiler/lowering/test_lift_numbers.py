"""Kernels that differ in numbers alone are one, and compute the bits that literals give."""

import math

import numpy as np
import pytest

import tilewright
from fakes.lowered import lower
from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import AccessMode, Binary
from tilewright.compiler.kernel.rewrite import expressions
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.kernel_uses import find_kernels
from tilewright.compiler.lowering.lift_numbers import candidates, lift
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.tuning.workload import Workload

ALL_ONES = float(np.nextafter(np.float32(2), np.float32(0)))


def f32(number):
    return float(np.float32(number))


def fake_quantize(scale, zero, count, dtype=dtypes.u8, factor=None):
    """`(f32(byte) - zero) * factor` of which the byte is `x / scale` around `zero`."""
    b = KernelBuilder("kernel")
    x, y = b.parameter("in0", dtypes.f32, (count,)), b.result("out0", dtypes.f32, (count,))
    with b.nest((count,)) as place:
        value = b.round(b.div(b.load(x, place), f32(scale)))
        byte = b.cast(b.add(value, float(zero)), dtype)
        whole = b.sub(b.cast(byte, dtypes.f32), float(zero))
        b.store(y, place, b.mul(whole, f32(scale if factor is None else factor)))
    return b.build()


def edges(scale):
    """Numbers around all halves, and those that no byte holds."""
    halves = (np.arange(-300, 300) + np.float32(0.5)) * np.float32(scale)
    near = [np.nextafter(halves, np.float32(to)) for to in (-np.inf, np.inf)]
    odd = [np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -1e-40, 0.0, -0.0]
    return np.concatenate([halves, *near, np.array(odd)]).astype(np.float32)


def evaluated(kernel, x, *numbers):
    out = np.zeros(x.size, np.float32)
    with np.errstate(all="ignore"):
        evaluate(kernel, [x, *numbers, out])
    return out.view(np.uint32)


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize(
    ("dtype", "zeros"), [(dtypes.u8, (3, 255)), (dtypes.i8, (7, -128))], ids=str
)
def test_each_member_gets_the_bits_of_its_literals(level, dtype, zeros):
    scales, target = (0.037, 117.3), Target.level(level)
    members = [
        fake_quantize(s, z, edges(s).size, dtype)
        for s, z in zip(scales, zeros, strict=True)
    ]
    found = [candidates(member) for member in members]
    if dtype is dtypes.u8:
        assert found[0].structure == found[1].structure
    kernel, arrays = lift(members[0], 1, found)
    verify(kernel)
    lowered = lower(kernel, target)
    for member, given, scale in zip(members, arrays, scales, strict=True):
        x = edges(scale)
        want = evaluated(member, x)
        np.testing.assert_array_equal(evaluated(kernel, x, *given), want)
        np.testing.assert_array_equal(evaluated(lowered, x, *given), want)
        np.testing.assert_array_equal(evaluated(lower(member, target), x), want)


def test_no_element_is_divided_where_a_literal_would_not_be():
    members = [fake_quantize(s, z, 5) for s, z in ((0.037, 3), (0.11, 9))]
    kernel, _ = lift(members[0], 1, [candidates(m) for m in members])
    lowered = lower(kernel, Target.level("v3"))
    quotients = [
        v for v in expressions(lowered.body) if isinstance(v, Binary) and v.op == "div"
    ]
    assert all(v.lanes == 1 for v in quotients)


def test_what_is_the_same_in_all_members_stays_a_literal():
    members = [fake_quantize(0.25 * 3, z, 5) for z in (3, 4)]
    kernel, arrays = lift(members[0], 1, [candidates(m) for m in members])
    text = kernel_text(kernel)
    assert "0.75" in text
    assert [[a.tolist() for a in given] for given in arrays] == [[[3], [3]], [[4], [4]]]


def test_equal_numbers_are_brought_once():
    members = [fake_quantize(s, 3, 5) for s in (0.037, 0.11)]
    _, arrays = lift(members[0], 1, [candidates(m) for m in members])
    assert [[a.tolist() for a in given] for given in arrays] == [
        [[f32(0.037)]], [[f32(0.11)]],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "number", [0.0, 1.0, 0.5, 1024.0, -0.3, ALL_ONES, 1e-30, 1e30, math.inf, math.nan]
)
def test_numbers_that_rules_look_at_stay_literals(number):
    b = KernelBuilder("kernel")
    x, y = b.parameter("in0", dtypes.f32, (4,)), b.result("out0", dtypes.f32, (4,))
    with b.nest((4,)) as place:
        b.store(y, place, Binary("div", b.load(x, place), b.const(number, dtypes.f32), dtypes.f32))  # fmt: skip
    assert candidates(b.build()).numbers == ()


def test_exponents_and_bounds_stay_literals():
    b = KernelBuilder("kernel")
    x, y = b.parameter("in0", dtypes.f32, (4,)), b.result("out0", dtypes.f32, (4,))
    with b.nest((4,)) as place:
        b.store(y, place, b.max(b.pow(b.load(x, place), 0.3), 0.7))
    assert candidates(b.build()).numbers == ()


def quantized(count=4):
    """Sums over rows, each rounded to bytes of a scale and zero point of its own."""
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (5, 67)))
    for i in range(count):
        scale = b.constant(np.array(0.003 + 0.0011 * i, np.float32))
        zero = b.constant(np.array(7 + 11 * i, np.uint8))
        y = b.dequantize_linear(b.quantize_linear(b.softmax(x, axis=-1), scale, zero), scale, zero)  # fmt: skip
        x = b.mul(y, b.constant(np.array(3.3, np.float32)))
    b.output("y", x)
    return b.graph


def uses():
    graph = quantized()
    options = pipeline.CompileOptions(targets=(Target.level("v3"),), threads=1, jobs=1)
    pipeline.optimize(graph, options)
    return find_kernels(graph)


def test_nodes_that_differ_in_numbers_share_a_kernel():
    found = uses()
    assert sorted(len(use.nodes) for use in found) == [1, 1, 2]
    (use,) = (use for use in found if len(use.nodes) > 1)
    fixed = [p for p in use.naive.parameters if p.access is AccessMode.FIXED]
    assert fixed
    assert [p.access for p in use.naive.parameters] == [
        AccessMode.READ, *[AccessMode.FIXED] * len(fixed), AccessMode.WRITE,
    ]  # fmt: skip
    for node in use.nodes:
        assert [(a.dtype, a.shape) for a in use.numbers[node]] == [
            (p.buffer.dtype.numpy, p.buffer.shape) for p in fixed
        ]
    assert kernel_text(parse_kernel(use.text)) == use.text


def expected(x):
    """What the model gives, by numpy."""
    for i in range(4):
        scale, zero = np.float32(0.003 + 0.0011 * i), 7 + 11 * i
        powers = np.exp((x - x.max(-1, keepdims=True)).astype(np.float64))
        rows = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
        whole = np.clip(np.round(rows / scale) + zero, 0, 255) - zero
        x = (whole * scale * np.float32(3.3)).astype(np.float32)
    return x


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", ["host", "c x86_64", "x86_64"])
def test_a_model_computes_what_its_ops_say(target, tmp_path):
    x = np.random.default_rng(0).standard_normal((5, 67)).astype(np.float32)
    model = tilewright.compile(quantized(), target=target, cache=False, threads=1)
    assert len(model.kernels) == 3
    result = model(x)
    # One step of the last scale: rounding beside a half may fall to either side.
    np.testing.assert_allclose(result, expected(x), atol=0.0064 * 3.3)
    model.save(tmp_path / "net.vmfb")
    for engine in ("plan", "vm"):
        session = tilewright.load(tmp_path / "net.vmfb", engine=engine, threads=1)
        np.testing.assert_array_equal(session(x), result)


@pytest.mark.slow
def test_a_kernel_from_the_cache_reads_the_numbers_of_its_model():
    x = np.random.default_rng(2).standard_normal((5, 67)).astype(np.float32)
    first, again = (tilewright.compile(quantized(), threads=1) for _ in range(2))
    np.testing.assert_array_equal(again(x), first(x))


def test_tuning_measures_kernels_with_numbers_that_a_model_may_fix():
    (use,) = (use for use in uses() if len(use.nodes) > 1)
    request = KernelRequest(use.naive, Target.host(), 1)
    work = Workload(request, (), dims={}, pool=None)
    (runnable,) = work.build([None])
    assert work.settle(runnable) > 0
    fixed = [i for i, p in enumerate(use.naive.parameters) if p.access is AccessMode.FIXED]
    for i in fixed:
        assert (work._values(i) >= 0).all()
