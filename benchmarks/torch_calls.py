"""Print what a call of `torch.compile(backend="tilewright")` costs, beside inductor and eager mode.

What it is: modules whose kernels take next to nothing; processor time of one thread, the least of many short rounds
in which the contenders take turns in one process.
What it is not: a measure of kernels (``torch_models.py``).  Needs the extra `torch`.
Who calls it: developers::

    TILEWRIGHT_THREADS=1 python benchmarks/torch_calls.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

CALLS: Final = 100
Call = Callable[[], object]


class Affine(nn.Module):
    """One kernel, one result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice the argument and one."""
        return x * 2 + 1


class ViewOfResult(nn.Module):
    """Three results, of which one is a view of another."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Two sums and a row."""
        y = x * 2
        return y, x + 1, y.view(-1)


class ViewOfArgument(nn.Module):
    """Three results, of which one is a view of the argument."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Two sums and a row."""
        return x * 2, x + 1, x.view(-1)


def perceptron() -> nn.Module:
    """Three layers of weights, of which every call asks whether somebody has written to them."""
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).eval()


CASES: Final[dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]] = {
    "perceptron of 64": (perceptron, (1, 64)),
    "x * 2 + 1": (Affine, (16,)),
    "three results, a view of one": (ViewOfResult, (4, 4)),
    "three results, a view of the argument": (ViewOfArgument, (4, 4)),
}


def spent_us(call: Call) -> float:
    """Processor time of a call, in microseconds."""
    begin = time.thread_time_ns()
    for _ in range(CALLS):
        call()
    return (time.thread_time_ns() - begin) / CALLS / 1e3


def contest(module: nn.Module, x: torch.Tensor, rounds: int) -> dict[str, float]:
    """The least processor time of each contender, in microseconds."""
    torch.compiler.reset()
    calls: dict[str, Any] = {
        "ours": torch.compile(module, backend="tilewright"),
        "inductor": torch.compile(module),
        "eager": module,
    }
    with torch.no_grad():
        for call in calls.values():
            call(x)
        held = [{n: spent_us(lambda c=c: c(x)) for n, c in calls.items()} for _ in range(rounds)]  # fmt: skip
    return {name: min(row[name] for row in held) for name in calls}


def main() -> None:
    """Print a line for each module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=150)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for name, (make, shape) in CASES.items():
        least = contest(make(), torch.randn(shape), rounds)
        times = "  ".join(f"{n} {value:6.1f} µs" for n, value in least.items())
        print(f"{name:38s} {times}  {least['ours'] / least['inductor']:.2f} of inductor")


if __name__ == "__main__":
    main()
