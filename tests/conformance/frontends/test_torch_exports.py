"""Models as torch's two exporters write them, with dynamic dimensions.

The shape arithmetic of both (traced `Shape`/`Gather`/`Concat` chains, symbolic `dynamo` shapes)
must come out as symbols, and results must hold for sizes other than the exported ones.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

pytestmark = [pytest.mark.needs_torch, pytest.mark.slow]

torch = pytest.importorskip("torch")
nn = torch.nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.places = nn.LayerNorm(16), nn.Embedding(32, 16)

    def forward(self, x):
        b, n, c = x.shape
        x = x + self.places(torch.arange(n))
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
        scores = (q @ k.transpose(-2, -1) / 2).masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Movement(nn.Module):
    def forward(self, x):
        b, n, _ = x.shape
        return (
            torch.roll(x, 1, 1)[:, -3:],
            x[:, ::2].flatten(1).sum(1),
            nn.functional.pad(x, (1, 1)),
            x.view(b * n, -1).mean(0),
            torch.stack([x, x], 1).unbind(1)[0].chunk(2, -1)[1],
            torch.arange(n).float()[None].expand(b, -1),
        )


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.low = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 2, stride=2)
        self.group = nn.GroupNorm(2, 8)

    def forward(self, x):
        a = torch.relu(self.wide(x))
        b = nn.functional.silu(self.group(self.low(a)))
        c = nn.functional.interpolate(b, scale_factor=2.0, mode="bilinear")
        d = nn.functional.interpolate(b, size=a.shape[2:], mode="nearest")
        return torch.cat([c, d, a * nn.functional.adaptive_avg_pool2d(a, 1)], 1)


def export(module, shape: tuple[int, ...], axes: dict[int, str], *, dynamo: bool) -> bytes:
    x = torch.randn(shape)
    target = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if dynamo:
            dims = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
            program = torch.onnx.export(
                module,
                (x,),
                dynamo=True,
                dynamic_shapes=(dims,),
                input_names=["x"],
                verbose=False,
            )
            program.save(target)
        else:
            torch.onnx.export(
                module, (x,), target, dynamo=False, input_names=["x"], output_names=None,
                dynamic_axes={"x": axes}, opset_version=17,
            )  # fmt: skip
    return target.getvalue()


CASES = [
    (Image, (2, 3, 16, 24), {0: "b", 2: "h", 3: "w"}, (1, 3, 8, 12)),
    (Movement, (2, 7, 6), {0: "b", 1: "n"}, (3, 9, 6)),
    (Attention, (2, 7, 16), {0: "b", 1: "n"}, (3, 5, 16)),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("make", "shape", "axes", "other"), CASES, ids=lambda v: getattr(v, "__name__", "")
)
@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "dynamo"])
def test_an_exported_model_keeps_its_dynamic_dimensions(
    make: Callable[[], object],
    shape: tuple[int, ...],
    axes: dict[int, str],
    other: tuple[int, ...],
    dynamo: bool,
) -> None:
    torch.manual_seed(0)
    module = make().eval()
    graph = load(export(module, shape, axes, dynamo=dynamo))
    (value,) = graph.inputs
    free = {i for i, d in enumerate(value.type.shape) if symbolic.symbols(d)}
    assert free == axes.keys()
    for sizes in (shape, other):
        x = torch.randn(sizes)
        with torch.no_grad():
            expected = module(x)
        listed = expected if isinstance(expected, tuple) else (expected,)
        for a, b in zip(evaluate(graph, [x.numpy()]), listed, strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)
