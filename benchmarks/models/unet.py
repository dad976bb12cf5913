"""The denoising network of a latent diffusion model, in the form that diffusers publishes it.

What it is: residual blocks with group norm and SiLU, transformers over the pixels with attention to
a text, a way down and a way up with shortcuts between; narrower than Stable Diffusion 1 so that it
can be exported in seconds, but with every kind of layer of it.
What it is not: the package diffusers or its weights; the weights are random.
Who calls it: ``zoo.py``.

Source: "High-Resolution Image Synthesis with Latent Diffusion Models", Rombach et al. 2022, and the
public description of UNet2DConditionModel.
"""

from __future__ import annotations

import math
from typing import Final, final

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

WIDTHS: Final = (96, 192, 384)
LAYERS: Final = 1
HEAD_COUNT: Final = 6
TEXT_WIDTH: Final = 256
GROUPS: Final = 32
LATENT_CHANNELS: Final = 4


def embed_timestep(steps: Tensor, width: int) -> Tensor:
    """Return sines and cosines of falling frequency, ``[N, width]``."""
    half = width // 2
    powers = torch.arange(half, dtype=torch.float32) / half
    angles = steps[:, None].float() * torch.exp(-math.log(10000.0) * powers)[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


@final
class Residual(nn.Module):
    """Norm, SiLU, convolution, the time added between, twice, and the shortcut."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, inputs, eps=1e-5)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2 = nn.GroupNorm(GROUPS, outputs, eps=1e-5)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the block's image, as large as ``x``."""
        hidden = self.conv1(functional.silu(self.norm1(x)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(functional.silu(self.norm2(hidden)))


@final
class Attention(nn.Module):
    """Heads over tokens; keys and values come from ``source``."""

    def __init__(self, width: int, source_width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(source_width, width, bias=False)
        self.value = nn.Linear(source_width, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        """Return ``[N, tokens, width]``."""

        def heads(value: Tensor) -> Tensor:
            return value.unflatten(-1, (HEAD_COUNT, -1)).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(source)), heads(self.value(source))
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


@final
class GatedForward(nn.Module):
    """Two layers, the first one's result multiplied with the GELU of its other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 8 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[N, tokens, width]``."""
        value, gate = self.project(x).chunk(2, dim=-1)
        return self.out(value * functional.gelu(gate))


@final
class Transformer(nn.Module):
    """Attention among the pixels, to the text, and a layer for each pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width, eps=1e-6)
        self.enter = nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = Attention(width, width)
        self.text = Attention(width, TEXT_WIDTH)
        self.forward_layer = GatedForward(width)
        self.leave = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """Return the image with what attention adds."""
        n, c, h, w = x.shape
        tokens = self.enter(self.norm(x)).permute(0, 2, 3, 1).reshape(n, h * w, c)
        normal = self.norms[0](tokens)
        tokens = tokens + self.own(normal, normal)
        tokens = tokens + self.text(self.norms[1](tokens), text)
        tokens = tokens + self.forward_layer(self.norms[2](tokens))
        image = tokens.reshape(n, h, w, c).permute(0, 3, 1, 2)
        return x + self.leave(image)


@final
class Stage(nn.Module):
    """A residual block and, below the widest images, a transformer."""

    def __init__(self, inputs: int, outputs: int, time: int, attends: bool) -> None:
        super().__init__()
        self.residual = Residual(inputs, outputs, time)
        self.transformer = Transformer(outputs) if attends else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """Return the stage's image."""
        x = self.residual(x, time)
        return x if self.transformer is None else self.transformer(x, text)


@final
class UNet(nn.Module):
    """Noise in a latent image, from the image, the time step and the text."""

    def __init__(self) -> None:
        super().__init__()
        time = 4 * WIDTHS[0]
        self.time = nn.Sequential(
            nn.Linear(WIDTHS[0], time), nn.SiLU(), nn.Linear(time, time)
        )
        self.enter = nn.Conv2d(LATENT_CHANNELS, WIDTHS[0], 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        channels, kept = WIDTHS[0], [WIDTHS[0]]
        for level, width in enumerate(WIDTHS):
            for _ in range(LAYERS):
                self.down.append(Stage(channels, width, time, level < len(WIDTHS) - 1))
                channels = width
                kept.append(width)
            if level < len(WIDTHS) - 1:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                kept.append(width)
        self.middle = nn.ModuleList(
            (Stage(channels, channels, time, True), Stage(channels, channels, time, False))
        )
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level, width in reversed(list(enumerate(WIDTHS))):
            for _ in range(LAYERS + 1):
                joined = channels + kept.pop()
                self.up.append(Stage(joined, width, time, level < len(WIDTHS) - 1))
                channels = width
            if level > 0:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(GROUPS, channels, eps=1e-5)
        self.leave = nn.Conv2d(channels, LATENT_CHANNELS, 3, padding=1)

    def forward(self, sample: Tensor, steps: Tensor, text: Tensor) -> Tensor:
        """Return the noise, as large as ``sample``."""
        time = self.time(embed_timestep(steps, WIDTHS[0]))
        x = self.enter(sample)
        kept = [x]
        for level in range(len(WIDTHS)):
            for layer in range(LAYERS):
                x = self.down[level * LAYERS + layer](x, time, text)
                kept.append(x)
            if level < len(self.shrink):
                x = self.shrink[level](x)
                kept.append(x)
        for stage in self.middle:
            x = stage(x, time, text)
        for level in range(len(WIDTHS)):
            for layer in range(LAYERS + 1):
                x = torch.cat([x, kept.pop()], dim=1)
                x = self.up[level * (LAYERS + 1) + layer](x, time, text)
            if level < len(self.grow):
                x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
                x = self.grow[level](x)
        return self.leave(functional.silu(self.norm(x)))
