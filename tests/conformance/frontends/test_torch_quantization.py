"""Quantized programs (`quantized_decomposed`, as PT2E writes them) against torch, and what their products multiply."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")
nn = torch.nn
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
ops = torch.ops.quantized_decomposed


def same(module: Any, *args: Any) -> None:
    """The results of a module, bit by bit but for the last one of floats."""
    graph = load(Captured(module.eval(), args=args)).graph
    found = evaluate(graph, [argument.numpy() for argument in args])
    wanted = torch.utils._pytree.tree_leaves(module(*args))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=1e-6, atol=0)


class Whole(nn.Module):
    """One scale: known, or data; limits inside of the type and its own."""

    def forward(self, x: Any, scale: Any, zero: Any) -> Any:
        found = []
        for low, high, dtype, middle in (
            (-128, 127, torch.int8, -3), (-127, 127, torch.int8, 0), (0, 255, torch.uint8, 117),
            (0, 127, torch.uint8, 64), (-32768, 32767, torch.int16, 5),
            (-(1 << 20), 1 << 20, torch.int32, 5), (-100, 100, torch.int8, 200),
        ):  # fmt: skip
            q = ops.quantize_per_tensor(x, 0.0371, middle, low, high, dtype)
            back = ops.dequantize_per_tensor(q, 0.0371, middle, low, high, dtype)
            found += [q, back]
        q = ops.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        return *found, q, ops.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, q.dtype)


def test_one_scale_for_all_elements() -> None:
    x = torch.cat([torch.randn(5, 7) * 9, torch.arange(-8, 6).reshape(2, 7) * 0.0371 / 2])
    scale, zero = torch.tensor(0.071, dtype=torch.float32), torch.tensor(9)
    same(Whole(), x, scale.double(), zero)
    same(Whole(), torch.randn(0, 7), scale, zero.int())


class Channels(nn.Module):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Any, scales: Any, zeros: Any) -> Any:
        q = ops.quantize_per_channel(x, scales, zeros, self.axis, -127, 127, torch.int8)
        back = ops.dequantize_per_channel
        rest = (self.axis, -127, 127, torch.int8)
        return (
            q,
            back(q, scales, zeros, *rest),
            back(q, scales, None, *rest),
            back(q, scales, zeros + 0.25, *rest),
        )


@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 2), 1), ((3, 5), 0), ((1,), 0)])
def test_a_scale_for_each_channel(shape: tuple[int, ...], axis: int) -> None:
    count = shape[axis]
    x, scales = torch.randn(shape) * 5, torch.rand(count) * 0.1 + 0.01
    same(Channels(axis), x, scales, torch.randint(-9, 9, (count,)))


class Rows(nn.Module):
    """Scales that every call chooses: for all, around zero, row by row in two ways, and groups."""

    def forward(self, x: Any, weight: Any, by: Any) -> Any:
        low, high, dtype = -128, 127, torch.int8
        chosen = ops.choose_qparams.tensor(x, low, high, 1e-7, dtype)
        found = [*chosen, *ops.choose_qparams_symmetric.tensor(x, low, high, 1e-7, dtype)]
        found.append(ops.quantize_per_tensor.tensor(x, *chosen, low, high, dtype))
        for choose in (
            ops.choose_qparams_per_token,
            ops.choose_qparams_per_token_asymmetric,
        ):
            pair = choose(x, dtype)
            q = ops.quantize_per_token(x, *pair, low, high, dtype)
            back = ops.dequantize_per_token(q, *pair, low, high, dtype, torch.float32)
            found += [*pair, q, back]
        zeros = torch.zeros_like(by, dtype=torch.int32)
        groups = (by, zeros, -8, 7, dtype, 4)
        q = ops.quantize_per_channel_group(weight, *groups)
        return *found, q, ops.dequantize_per_channel_group(q, *groups, torch.float32)


def test_scales_are_chosen_as_torch_chooses_them() -> None:
    weight, by = torch.randn(5, 8), torch.rand(5, 2) + 0.1
    same(Rows(), torch.randn(2, 3, 8), weight, by)
    same(Rows(), -torch.rand(2, 1, 8), weight, by)
    same(Rows(), torch.zeros(1, 2, 8), weight, by)


class Network(nn.Module):
    """A convolution, a linear layer and what lies between, as PT2E writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(
            "filters", torch.randint(-127, 128, (8, 3, 3, 3)).to(torch.int8)
        )
        self.register_buffer("weight", torch.randint(-127, 128, (10, 128)).to(torch.int8))
        self.register_buffer("scales", torch.rand(8) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Any) -> Any:
        def through(x: Any, scale: float, zero: int) -> Any:
            given = (scale, zero, -128, 127, torch.int8)
            return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *given), *given)

        by = (self.scales, self.zeros, 0, -127, 127, torch.int8)
        filters = ops.dequantize_per_channel(self.filters, *by)
        weight = ops.dequantize_per_tensor(self.weight, 0.004, 0, -127, 127, torch.int8)
        y = torch.relu(nn.functional.conv2d(through(x, 0.03, -5), filters, self.bias))
        y = nn.functional.max_pool2d(through(y, 0.05, -128), 2)
        y = through(y, 0.05, -128).flatten(1)
        return through(nn.functional.linear(y, weight), 0.2, 3)


def test_a_quantized_network_multiplies_bytes() -> None:
    module, x = Network().eval(), torch.randn(2, 3, 10, 10)
    model = tw.compile(module, args=(x,))
    found, wanted = model(x), module(x)
    # A sum that lies between two numbers may go to either; then one step is between them.
    assert ((found - wanted).abs() <= 0.2001).all()
    assert ((found - wanted).abs() < 1e-4).float().mean() > 0.9
    products = [line for line in model.graph_ir.splitlines() if " = contract(" in line]
    assert len(products) == 2
    assert all(": i32[" in line for line in products)
