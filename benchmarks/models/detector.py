"""A one-stage object detector in the manner of the YOLO family, small size.

What it is: convolutions with SiLU, split-and-concatenate stages, a pyramid that goes up and down
again, one head per scale: about 3 million parameters, 8.7 GFLOP at 640 x 640.
What it is not: any released detector; the weights are random and nothing is decoded.
Who calls it: ``zoo.py``.
"""

from __future__ import annotations

from typing import Final, final

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

BOX_CHANNELS: Final = 64
CLASS_COUNT: Final = 80
WIDTHS: Final = (16, 32, 64, 128, 256)
DEPTHS: Final = (1, 2, 2, 1)


@final
class Unit(nn.Module):
    """Convolution, batch normalisation, SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.normalisation = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``silu(norm(conv(x)))``."""
        return functional.silu(self.normalisation(self.convolution(x)))


@final
class Bottleneck(nn.Module):
    """Two 3 x 3 units, with or without a shortcut."""

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.units = nn.Sequential(Unit(channels, channels, 3), Unit(channels, channels, 3))
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return ``units(x)``, plus ``x`` if there is a shortcut."""
        y = self.units(x)
        return x + y if self.shortcut else y


@final
class SplitStage(nn.Module):
    """Split the channels in two, chain bottlenecks on one half, concatenate all that was made."""

    def __init__(self, inputs: int, outputs: int, depth: int, *, shortcut: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = Unit(inputs, outputs)
        self.chain = nn.ModuleList(
            Bottleneck(half, shortcut=shortcut) for _ in range(depth)
        )
        self.leave = Unit((2 + depth) * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the joined stage."""
        parts = list(torch.chunk(self.enter(x), 2, dim=1))
        for link in self.chain:
            parts.append(link(parts[-1]))
        return self.leave(torch.cat(parts, dim=1))


@final
class PoolingPyramid(nn.Module):
    """Three 5 x 5 poolings one after the other, all kept."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = Unit(channels, channels // 2)
        self.leave = Unit(channels * 2, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled mixture."""
        levels = [self.enter(x)]
        for _ in range(3):
            levels.append(functional.max_pool2d(levels[-1], 5, stride=1, padding=2))
        return self.leave(torch.cat(levels, dim=1))


def branch(inputs: int, middle: int, outputs: int) -> nn.Sequential:
    """Return two units and a plain 1 x 1 convolution."""
    units = (
        Unit(inputs, middle, 3),
        Unit(middle, middle, 3),
        nn.Conv2d(middle, outputs, 1),
    )
    return nn.Sequential(*units)


@final
class Head(nn.Module):
    """Boxes and classes of one scale, one column per place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.boxes = branch(channels, BOX_CHANNELS, BOX_CHANNELS)
        self.classes = branch(channels, CLASS_COUNT, CLASS_COUNT)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, boxes + classes, places]``."""
        return torch.cat([self.boxes(x), self.classes(x)], dim=1).flatten(2)


def upsample(x: Tensor) -> Tensor:
    """Double height and width by repeating."""
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")


@final
class Detector(nn.Module):
    """Backbone, pyramid and three heads."""

    def __init__(self) -> None:
        super().__init__()
        stem, _, w8, w16, w32 = WIDTHS
        pairs = zip(WIDTHS[:-1], WIDTHS[1:], DEPTHS, strict=True)
        self.stem = Unit(3, stem, 3, 2)
        self.backbone = nn.ModuleList(
            nn.Sequential(Unit(a, b, 3, 2), SplitStage(b, b, depth, shortcut=True))
            for a, b, depth in pairs
        )
        self.context = PoolingPyramid(w32)
        self.up16 = SplitStage(w32 + w16, w16, 1, shortcut=False)
        self.up8 = SplitStage(w16 + w8, w8, 1, shortcut=False)
        self.step16 = Unit(w8, w8, 3, 2)
        self.down16 = SplitStage(w8 + w16, w16, 1, shortcut=False)
        self.step32 = Unit(w16, w16, 3, 2)
        self.down32 = SplitStage(w16 + w32, w32, 1, shortcut=False)
        self.heads = nn.ModuleList(Head(width) for width in (w8, w16, w32))

    def forward(self, image: Tensor) -> Tensor:
        """Return ``[batch, 144, places]`` over the three scales."""
        x = self.stem(image)
        levels: list[Tensor] = []
        for stage in self.backbone:
            x = stage(x)
            levels.append(x)
        _, level8, level16, level32 = levels
        level32 = self.context(level32)
        top16 = self.up16(torch.cat([upsample(level32), level16], dim=1))
        out8 = self.up8(torch.cat([upsample(top16), level8], dim=1))
        out16 = self.down16(torch.cat([self.step16(out8), top16], dim=1))
        out32 = self.down32(torch.cat([self.step32(out16), level32], dim=1))
        scales = zip(self.heads, (out8, out16, out32), strict=True)
        return torch.cat([head(level) for head, level in scales], dim=2)
