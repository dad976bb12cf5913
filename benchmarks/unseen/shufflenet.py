"""ShuffleNet v2, 1.0 x, as torchvision exports it: channels in halves that are shuffled after every block.

What it is: the module, with random weights.
What it is not: trained, or torchvision itself, which would be a dependency for one network.
Who calls it: ``families.py``.

Source: Ma et al. 2018, "ShuffleNet V2", table 5.
"""

from __future__ import annotations

from typing import Final, final

import torch
from torch import Tensor, nn

REPEATS: Final = (4, 8, 4)
CHANNELS: Final = (24, 116, 232, 464, 1024)


def narrow(inputs: int, outputs: int) -> list[nn.Module]:
    """A 1 x 1 convolution with its norm and activation."""
    return [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def depthwise(channels: int, stride: int) -> list[nn.Module]:
    """A 3 x 3 convolution of each channel with its norm."""
    conv = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
    return [conv, nn.BatchNorm2d(channels)]


@final
class Block(nn.Module):
    """Half of the channels pass, half are convolved; with a stride both are."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.is_strided = stride > 1
        short = [*depthwise(inputs, stride), *narrow(inputs, half)]
        self.short = nn.Sequential(*short) if self.is_strided else nn.Identity()
        first = narrow(inputs if self.is_strided else half, half)
        self.long = nn.Sequential(*first, *depthwise(half, stride), *narrow(half, half))

    def forward(self, x: Tensor) -> Tensor:
        """Return the two halves, channels in turn."""
        left, right = (x, x) if self.is_strided else x.chunk(2, dim=1)
        joined = torch.cat((self.short(left), self.long(right)), dim=1)
        n, c, h, w = joined.shape
        joined = joined.view(n, 2, c // 2, h, w)
        return joined.transpose(1, 2).reshape(n, c, h, w)


@final
class ShuffleNet(nn.Module):
    """Images [N, 3, H, W] to 1000 logits."""

    def __init__(self) -> None:
        super().__init__()
        first, *stages, last = CHANNELS
        layers: list[nn.Module] = [nn.Conv2d(3, first, 3, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(first), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inputs = first
        for repeats, outputs in zip(REPEATS, stages, strict=True):
            for index in range(repeats):
                layers.append(Block(inputs, outputs, 2 if index == 0 else 1))
                inputs = outputs
        self.body = nn.Sequential(*layers, *narrow(inputs, last))
        self.classes = nn.Linear(last, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.classes(self.body(x).mean((2, 3)))
