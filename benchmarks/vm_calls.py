"""Print what a call through the virtual machine costs, beside `iree.runtime`, in one interleaved run.

What it is: small modules (elementwise add; MLP 784-256-256-10, batch 1), numpy in and out, the same
executables on both runtimes; each contender's least time over many short rounds that take turns.
What it is not: a measure of kernels (``bench.py``).  Needs the extra `interop`.
Who calls it: developers::

    nice -n -10 python benchmarks/vm_calls.py --rounds 300
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

import tilewright
from tilewright.runtime.bytecode_machine import BytecodeMachine

SIZES: Final = (784, 256, 256, 10)
DEVICES: Final = {"local-sync": 1.0, "local-task": 0.5}  # device to bar
CALLS: Final = 10
_HEAD: Final = '<ir_version: 10, opset_import: ["" : 21]>'
Call = Callable[[], object]


def weights() -> list[tuple[np.ndarray, np.ndarray]]:
    """Matrix and bias of each layer."""
    random = np.random.default_rng(0)
    return [
        (
            (random.standard_normal((rows, columns)) * 0.05).astype(np.float32),
            random.standard_normal((1, columns)).astype(np.float32),
        )
        for rows, columns in itertools.pairwise(SIZES)
    ]


def add_onnx() -> onnx.ModelProto:
    """Y = a + b over four elements."""
    text = "add (float[4] a, float[4] b) => (float[4] y) { y = Add(a, b) }"
    return onnx.parser.parse_model(f"{_HEAD} {text}")


def mlp_onnx() -> onnx.ModelProto:
    """Three dense layers, relu between them."""
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    value = "x"
    for layer, (matrix, bias) in enumerate(weights()):
        tensors += [
            numpy_helper.from_array(matrix, f"w{layer}"),
            numpy_helper.from_array(bias, f"b{layer}"),
        ]
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Add", [f"m{layer}", f"b{layer}"], [f"a{layer}"]))
        value = f"a{layer}"
        if layer < len(SIZES) - 2:
            nodes.append(helper.make_node("Relu", [value], [f"r{layer}"]))
            value = f"r{layer}"
    float_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", float_type, [1, SIZES[0]])],
        [helper.make_tensor_value_info(value, float_type, [1, SIZES[-1]])],
        tensors,
    )
    opset = helper.make_opsetid("", 21)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def add_mlir() -> str:
    """The same for IREE's compiler."""
    kind = "tensor<4xf32>"
    return (
        f"module @add {{ func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{\n"
        f"%0 = arith.addf %a, %b : {kind}\nreturn %0 : {kind} }} }}"
    )


def mlp_mlir() -> str:
    """The same for IREE's compiler."""
    lines = [
        "module @mlp {",
        "func.func @main(%x: tensor<1x784xf32>) -> tensor<1x10xf32> {",
    ]
    lines.append("%zero = arith.constant 0.0 : f32")
    value = "%x"
    for i, (matrix, bias) in enumerate(weights()):
        rows, columns = matrix.shape
        kind, square = f"tensor<1x{columns}xf32>", f"tensor<{rows}x{columns}xf32>"
        operands = f"{value}, %w{i} : tensor<1x{rows}xf32>, {square}"
        lines += [
            f'%w{i} = arith.constant dense<"0x{matrix.tobytes().hex()}"> : {square}',
            f'%b{i} = arith.constant dense<"0x{bias.tobytes().hex()}"> : {kind}',
            f"%e{i} = tensor.empty() : {kind}",
            f"%f{i} = linalg.fill ins(%zero : f32) outs(%e{i} : {kind}) -> {kind}",
            f"%m{i} = linalg.matmul ins({operands}) outs(%f{i} : {kind}) -> {kind}",
            f"%a{i} = arith.addf %m{i}, %b{i} : {kind}",
        ]
        value = f"%a{i}"
        if i < len(SIZES) - 2:
            lines.append(f"%z{i} = arith.constant dense<0.0> : {kind}")
            lines.append(f"%r{i} = arith.maximumf {value}, %z{i} : {kind}")
            value = f"%r{i}"
    return "\n".join([*lines, f"return {value} : tensor<1x10xf32>", "}", "}"])


MODELS: Final = {"add": (add_onnx, add_mlir), "mlp": (mlp_onnx, mlp_mlir)}


def build(folder: Path) -> None:
    """Compile what is not there yet, with both compilers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (ours, theirs) in MODELS.items():
        target = folder / f"iree_{name}.vmfb"
        if not target.exists():
            source = folder / f"{name}.mlir"
            source.write_text(theirs(), encoding="utf-8")
            flags = [
                "--iree-hal-target-device=local",
                "--iree-hal-local-target-device-backends=llvm-cpu",
                "--iree-llvmcpu-target-cpu=host",
            ]
            subprocess.run(
                ["iree-compile", str(source), *flags, "-o", str(target)], check=True
            )
        if not (folder / f"ours_{name}.vmfb").exists():
            tilewright.compile(ours()).save(folder / f"ours_{name}.vmfb")


def contenders(folder: Path, name: str, device: str) -> dict[str, Call]:
    """What is measured, by label."""
    iree = importlib.import_module("iree.runtime")
    random = np.random.default_rng(1)
    shape, count = ((4,), 2) if name == "add" else ((1, SIZES[0]), 1)
    inputs = [random.standard_normal(shape).astype(np.float32) for _ in range(count)]
    config = iree.Config(device)
    module = iree.VmModule.mmap(config.vm_instance, str(folder / f"iree_{name}.vmfb"))
    context = iree.SystemContext(config=config)
    context.add_vm_module(module)
    theirs: Any = getattr(context.modules, module.name).main
    found: dict[str, Call] = {"iree.runtime": lambda: theirs(*inputs).to_host()}
    for whose in ("iree", "ours"):
        for mode in ("translate", "interpret"):
            machine = BytecodeMachine.from_file(
                folder / f"{whose}_{name}.vmfb", device, mode=mode
            )
            function = machine.function()
            found[f"{mode}, {whose} module"] = lambda f=function: f(*inputs)
    session = tilewright.load(folder / f"ours_{name}.vmfb", device=device)
    found["plan, ours module"] = lambda: session(*inputs)
    return found


def measure(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Least microseconds per call of each; the contenders take turns."""
    least = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(rounds):
        for label, call in calls.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            least[label] = min(least[label], (time.perf_counter_ns() - start) / CALLS)
    return {label: nanoseconds / 1000 for label, nanoseconds in least.items()}


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("build/vm_calls"))
    options = parser.parse_args()
    build(options.folder)
    table = Table(title="microseconds per call, and ratio to iree.runtime")
    for heading in ("model", "device", "what", "us", "ratio", "bar"):
        table.add_column(heading)
    for name in MODELS:
        for device, bar in DEVICES.items():
            times = measure(contenders(options.folder, name, device), options.rounds)
            for label, value in times.items():
                ratio = value / times["iree.runtime"]
                shown = f"≤ {bar}" if label == "translate, iree module" else ""
                table.add_row(name, device, label, f"{value:.1f}", f"{ratio:.2f}", shown)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
