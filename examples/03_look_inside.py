"""Follow one model through every level, down to its machine code.

python examples/03_look_inside.py            # the kernel of a matmul with bias and ReLU
python examples/03_look_inside.py softmax    # another one
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.rule import Rule

import tilewright as tw
from tilewright.api.model import KernelView
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

console = Console(highlight=False, soft_wrap=True)


def build() -> tw.Model:
    """softmax(relu(x @ w + b)) over any number of rows."""
    random = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (symbol("rows", 1), 24)))
    w = b.constant(random.standard_normal((24, 32), np.float32), "w")
    bias = b.constant(random.standard_normal(32, np.float32), "bias")
    b.output("y", b.softmax(b.relu(b.add(b.matmul(x, w), bias)), axis=-1))
    return tw.compile(b.graph)


def show(title: str, text: str, lines: int = 40) -> None:
    """Print the beginning of a level."""
    console.print(Rule(title, align="left"))
    found = text.rstrip().splitlines()
    console.print("\n".join(found[:lines]), markup=False)
    if len(found) > lines:
        console.print(f"… {len(found) - lines} more lines", style="dim")


def find_kernel(model: tw.Model, name: str) -> KernelView:
    """The kernel called `name`, or the first whose name begins so."""
    for kernel in model.kernels:
        if kernel.name.startswith(name):
            return kernel
    known = ", ".join(kernel.name for kernel in model.kernels)
    raise SystemExit(f"there is no kernel '{name}'\nhint: known are {known}")


def main() -> None:
    """Print every level of one kernel."""
    parser = argparse.ArgumentParser(description="Print a kernel at every level")
    parser.add_argument("kernel", nargs="?", default="matmul")
    model = build()
    kernel = find_kernel(model, parser.parse_args().kernel)
    show("graph: each top-level node is one kernel", model.graph_ir)
    show(f"naive: '{kernel.name}' as its ops declare it", kernel.naive_ir)
    show("kernel: after the schedule", kernel.kernel_ir)
    show("notes: why the schedule looks so", "\n".join(kernel.notes))
    show("lowered: linear indices, lanes, copies instead of loops", kernel.lowered_ir)
    show("LLVM IR", kernel.source)
    show("assembly", kernel.assembly)


if __name__ == "__main__":
    main()
