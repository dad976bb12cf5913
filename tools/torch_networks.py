"""Networks of images in the style of torchvision, small and with random weights.

Compiled by `torch_models`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


def convolution(
    inputs: int,
    outputs: int,
    size: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """A convolution with its normalization and activation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        act(),
    )


class Residual(nn.Module):
    """Two convolutions beside a way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, outputs, 3, stride),
            convolution(outputs, outputs, act=nn.Identity),
        )
        self.past = (
            convolution(inputs, outputs, 1, stride, act=nn.Identity)
            if stride > 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.past(x))


class Inverted(nn.Module):
    """Wide in the middle, with a gate over channels."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int = 1,
        act: type[nn.Module] = nn.Hardswish,
    ) -> None:
        super().__init__()
        middle = inputs * 3
        self.wide, self.deep = (
            convolution(inputs, middle, 1, act=act),
            convolution(middle, middle, 3, stride, middle, act),
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(middle, 8, 1),
            nn.ReLU(),
            nn.Conv2d(8, middle, 1),
            nn.Hardsigmoid(),
        )
        self.narrow, self.keeps = (
            convolution(middle, outputs, 1, act=nn.Identity),
            stride == 1 and inputs == outputs,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.deep(self.wide(x))
        y = self.narrow(y * self.gate(y))
        return x + y if self.keeps else y


class Dense(nn.Module):
    """Every layer reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Sequential(
                    nn.BatchNorm2d(8 + 4 * i),
                    nn.ReLU(),
                    nn.Conv2d(8 + 4 * i, 4, 3, padding=1),
                )
                for i in range(4)
            ]
        )
        self.first, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [self.first(x)]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return self.last(torch.cat(found, 1).mean((2, 3)))


class Fire(nn.Module):
    """Narrow, then two widths side by side."""

    def __init__(self, inputs: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze, self.one, self.three = (
            nn.Conv2d(inputs, narrow, 1),
            nn.Conv2d(narrow, wide, 1),
            nn.Conv2d(narrow, wide, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.squeeze(x))
        return torch.cat([functional.relu(self.one(x)), functional.relu(self.three(x))], 1)


class Shuffle(nn.Module):
    """Half of the channels goes past; then all are dealt out."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            convolution(half, half, 1),
            convolution(half, half, 3, 1, half, nn.Identity),
            convolution(half, half, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, 1)
        y = torch.cat([a, self.body(b)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Inception(nn.Module):
    """Four ways side by side."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            [
                convolution(inputs, 8, 1),
                nn.Sequential(convolution(inputs, 6, 1), convolution(6, 8)),
                nn.Sequential(convolution(inputs, 4, 1), convolution(4, 8, 5)),
                nn.Sequential(
                    nn.MaxPool2d(3, 1, 1, ceil_mode=True), convolution(inputs, 8, 1)
                ),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([way(x) for way in self.ways], 1)


class Unet(nn.Module):
    """Down, up, and what was seen on the way down."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.a, self.b, self.c = convolution(3, 8), convolution(8, 16), convolution(24, 8)
        self.up = (
            nn.ConvTranspose2d(16, 16, 2, 2)
            if transposed
            else nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        )
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.a(x)
        return self.last(
            self.c(torch.cat([first, self.up(self.b(functional.max_pool2d(first, 2)))], 1))
        )


class Pyramid(nn.Module):
    """Dilated convolutions and the mean of all, made as large as the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 8, 3, 2), Residual(8, 16, 2))
        self.ways = nn.ModuleList(
            [nn.Conv2d(16, 8, 3, padding=d, dilation=d) for d in (1, 2, 4)]
        )
        self.mean, self.last = nn.Conv2d(16, 8, 1), nn.Conv2d(32, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        mean = functional.interpolate(
            self.mean(y.mean((2, 3), keepdim=True)),
            size=y.shape[-2:],
            mode="bilinear",
            align_corners=False,
        )
        found = self.last(
            functional.relu(torch.cat([*(way(y) for way in self.ways), mean], 1))
        )
        return functional.interpolate(
            found, size=x.shape[-2:], mode="bilinear", align_corners=False
        )


class Mixer(nn.Module):
    """Perceptrons over places and over channels by turns."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 32, 8, 8), nn.Linear(32, 10)
        self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(2)])
        self.places = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
        self.channels = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x).flatten(2).transpose(1, 2)
        y = y + self.places(self.norms[0](y).transpose(1, 2)).transpose(1, 2)
        y = y + self.channels(self.norms[1](y))
        return self.last(y.mean(1))


class Encoder(nn.Module):
    """Patches through torch's own encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 32, 8, 8), nn.Linear(32, 10)
        self.first, self.places = (
            nn.Parameter(torch.randn(1, 1, 32)),
            nn.Parameter(torch.randn(1, 17, 32)),
        )
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.first.expand(y.shape[0], -1, -1), y], 1) + self.places
        return self.last(self.body(y)[:, 0])


class Detector(nn.Module):
    """Boxes and scores on two scales, decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            convolution(3, 8, 3, 2, act=nn.SiLU),
            convolution(8, 16, 3, 2, act=nn.SiLU),
            convolution(24, 16, act=nn.SiLU),
        )
        self.heads = nn.ModuleList([nn.Conv2d(16, 7, 1), nn.Conv2d(16, 7, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        b = self.b(a)
        up = self.c(
            torch.cat([a, functional.interpolate(b, scale_factor=2.0, mode="nearest")], 1)
        )
        found = []
        for head, y in zip(self.heads, (up, b), strict=True):
            h, w = y.shape[2:]
            grid = torch.stack(
                torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), -1
            ).view(1, h * w, 2)
            p = head(y).flatten(2).transpose(1, 2)
            found.append(
                torch.cat(
                    [
                        (p[..., :2].sigmoid() * 2 - 0.5 + grid) / w,
                        p[..., 2:4].exp(),
                        p[..., 4:].sigmoid(),
                    ],
                    -1,
                )
            )
        return torch.cat(found, 1)


def headed(*layers: nn.Module, channels: int) -> Callable[[], nn.Module]:
    """Layers, the mean over places, and ten classes."""
    return lambda: nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(channels, 10),
    )


IMAGE = (2, 3, 32, 32)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "AlexNet style": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 11, 4, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(16, 24, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((6, 6)),
            nn.Flatten(),
            nn.Linear(864, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        ),
        (2, 3, 64, 64),
    ),
    "VGG style": (
        headed(
            convolution(3, 8),
            convolution(8, 8),
            nn.MaxPool2d(2, 2),
            convolution(8, 16),
            nn.MaxPool2d(2, 2),
            channels=16,
        ),
        IMAGE,
    ),
    "ResNet style": (
        headed(
            convolution(3, 8, 7, 2),
            nn.MaxPool2d(3, 2, 1),
            Residual(8, 8),
            Residual(8, 16, 2),
            channels=16,
        ),
        IMAGE,
    ),
    "ResNeXt style": (
        headed(
            convolution(3, 16), convolution(16, 16, 3, 1, 4), Residual(16, 16), channels=16
        ),
        IMAGE,
    ),
    "DenseNet style": (Dense, IMAGE),
    "SqueezeNet style": (
        headed(
            nn.Conv2d(3, 16, 3, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(16, 4, 12),
            Fire(24, 6, 16),
            channels=32,
        ),
        IMAGE,
    ),
    "MobileNetV2 style": (
        headed(
            convolution(3, 8, 3, 2, act=nn.ReLU6),
            Inverted(8, 8, act=nn.ReLU6),
            Inverted(8, 16, 2, nn.ReLU6),
            channels=16,
        ),
        IMAGE,
    ),
    "MobileNetV3 style": (
        headed(
            convolution(3, 8, 3, 2, act=nn.Hardswish),
            Inverted(8, 8),
            Inverted(8, 16, 2),
            channels=16,
        ),
        IMAGE,
    ),
    "EfficientNet style": (
        headed(
            convolution(3, 8, 3, 2, act=nn.SiLU),
            Inverted(8, 8, act=nn.SiLU),
            Inverted(8, 16, 2, nn.SiLU),
            channels=16,
        ),
        IMAGE,
    ),
    "ShuffleNet style": (
        headed(convolution(3, 16, 3, 2), Shuffle(16), Shuffle(16), channels=16),
        IMAGE,
    ),
    "GoogLeNet style": (
        headed(
            convolution(3, 16, 3, 2),
            Inception(16),
            nn.LocalResponseNorm(5),
            Inception(32),
            channels=32,
        ),
        IMAGE,
    ),
    "U-Net style, transposed": (lambda: Unet(True), IMAGE),
    "U-Net style, bilinear": (lambda: Unet(False), IMAGE),
    "DeepLab style": (Pyramid, IMAGE),
    "MLP-Mixer style": (Mixer, IMAGE),
    "ViT style": (Encoder, IMAGE),
    "YOLO style": (Detector, IMAGE),
    "Super-resolution style": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 5, padding=2),
            nn.Tanh(),
            nn.Conv2d(16, 12, 3, padding=1),
            nn.PixelShuffle(2),
        ),
        IMAGE,
    ),
    "Style transfer style": (
        lambda: nn.Sequential(
            nn.ReflectionPad2d(4),
            nn.Conv2d(3, 8, 9),
            nn.InstanceNorm2d(8, affine=True),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(8, 3, 3, padding=1),
        ),
        IMAGE,
    ),
    "Video style, 3-D": (
        lambda: nn.Sequential(
            nn.Conv3d(3, 8, 3, padding=1),
            nn.BatchNorm3d(8),
            nn.ReLU(),
            nn.MaxPool3d(2),
            nn.Conv3d(8, 8, (1, 3, 3), padding=(0, 1, 1)),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        ),
        (1, 3, 4, 16, 16),
    ),
}
