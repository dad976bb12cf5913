"""Where the time of a call goes, kernel by kernel.

    python examples/04_profile.py                  # the layer of the examples
    python examples/04_profile.py model.onnx       # a model of yours, inputs made up

`tilewright bench model.vmfb` prints the same next to what the machine could do.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

import tilewright as tw
from small_models import encoder_layer
from tilewright.base.symbolic import evaluate

SIZES = {"batch": 4, "tokens": 64}
RUNS = 20


def make_up_inputs(model: tw.Model) -> list[np.ndarray]:
    """Normal numbers, or zeros for integers; dynamic sizes from `SIZES`, else 1."""
    random = np.random.default_rng(0)
    found: list[np.ndarray] = []
    for _, dtype, shape in model.inputs:
        extents = [evaluate(dim, defaultdict(lambda: 1, SIZES)) for dim in shape]
        values = random.standard_normal(extents) if dtype.is_float else np.zeros(extents)
        found.append(values.astype(dtype.numpy))
    return found


def main() -> None:
    """Run a few times and print the medians per kernel, slowest first."""
    parser = argparse.ArgumentParser(description="Print where the time of a call goes")
    parser.add_argument(
        "model", nargs="?", type=Path, help="default: a layer of an encoder"
    )
    path: Path | None = parser.parse_args().model
    if path is not None and not path.exists():
        parser.error(f"there is no {path}")
    model = tw.compile(path or encoder_layer())
    inputs = make_up_inputs(model)
    runs = [model.profile(*inputs) for _ in range(RUNS)]
    sizes = model.session.executor.dimensions_of(inputs)

    times: dict[str, float] = defaultdict(float)
    work: dict[str, float] = defaultdict(float)
    for position, (step, _) in enumerate(runs[0]):
        name = step.target or step.kind
        times[name] += (
            float(np.median([run[position][1].duration_ns for run in runs])) / 1e3
        )
        work[name] += evaluate(step.flops, sizes)

    table = Table(title=f"{sum(times.values()):.0f} µs in {len(times)} kernels")
    for heading, justify in (("kernel", "left"), ("µs", "right"), ("GFLOP/s", "right")):
        table.add_column(heading, justify=justify)
    table.add_column("share", width=30)
    for name, taken in sorted(times.items(), key=lambda item: -item[1]):
        bar = ProgressBar(total=max(times.values()), completed=taken, width=30)
        table.add_row(name, f"{taken:.1f}", f"{work[name] / taken / 1e3:.1f}", bar)
    Console().print(table)


if __name__ == "__main__":
    main()
