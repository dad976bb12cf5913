"""Compile a module of PyTorch, call it with tensors, and use the compiler as a backend of `torch.compile`.

pip install torch
python examples/12_pytorch.py
"""

from __future__ import annotations

import torch
from rich.console import Console
from torch import nn

import tilewright as tw

console = Console()


class Counter(nn.Module):
    """A small network that keeps the mean of what it has seen, as a cache of keys is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
        self.norm = nn.LayerNorm(16)
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the features of a batch, and the sum of all features so far."""
        features = self.norm(x + self.body(x))
        self.seen += features.sum(0)
        return {"features": features, "seen": self.seen * 1}


def main() -> None:
    """Compile twice: as a model with sizes and state, and behind `torch.compile`."""
    torch.manual_seed(0)
    module = Counter().eval()
    batch = torch.export.Dim("batch", max=64)
    console.print(str(tw.coverage(module, args=(torch.randn(8, 16),))))
    model = tw.compile(module, args=(torch.randn(8, 16),), dynamic_shapes=({0: batch},))
    console.print(model)
    for rows in (1, 8, 33):
        x = torch.randn(rows, 16)
        with torch.no_grad():
            wanted = module(x)
        found = model(x)
        gap = max(float((found[name] - wanted[name]).abs().max()) for name in wanted)
        console.print(f"batch {rows:>2}: largest difference to eager mode {gap:.1e}")

    fast = torch.compile(module.body, backend="tilewright")
    with torch.no_grad():
        x = torch.randn(4, 16)
        gap = float((fast(x) - module.body(x)).abs().max())
    console.print(f"torch.compile: largest difference to eager mode {gap:.1e}")


if __name__ == "__main__":
    main()
