"""Export the zoo to ONNX, with inputs, torch's own outputs and a fact sheet per model.

What it is: the script behind ``make models``.  Per model it writes ``NAME.onnx``,
``NAME.inputs.npz``, ``NAME.ref.npz`` (torch eager: o0, o1, ...) and ``NAME.json``.
What it is not: part of the package; it needs torch and transformers, which Tilewright does not.
Who calls it: developers and ``make models``::

    python benchmarks/models/export.py build/models resnet50 bert_base
"""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import os
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import families
import zoo
from place_files import check_space, files_of_model

OPSET: Final = 18
BYTES_PER_EXPORT: Final = 6 << 30
MODEL_FILES: Final = (".onnx", ".inputs.npz", ".ref.npz", ".json")


def count_flops(example: zoo.Example) -> int:
    """Return the floating-point operations of matrix products and convolutions.

    Attention is taken apart into its products, as its fused form would be counted as nothing.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        example.module(*example.inputs.values())
    return counter.get_total_flops()


def streamed_bytes(model: onnx.ModelProto) -> int:
    """Return how many bytes one run must read at least: inputs, and weights that are not looked up.

    A table that only Gather reads contributes a few rows; those are left out.
    """
    readers: dict[str, set[str]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    total = 0
    for tensor in model.graph.initializer:
        if readers.get(tensor.name, set()) - {"Gather"}:
            item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            total += int(np.prod(tensor.dims, dtype=np.int64)) * item
    return total


def export_onnx(example: zoo.Example, path: Path) -> None:
    """Write the ONNX file, weights inside."""
    labels = {label for axes in example.dynamic.values() for label in axes.values()}
    dims = {label: torch.export.Dim(label, min=1, max=4096) for label in labels}
    shapes = [
        {axis: dims[label] for axis, label in example.dynamic.get(name, {}).items()}
        for name in example.inputs
    ]
    # as the forward method takes them: what it gathers in *values is a level of its own
    nested = inspect.signature(example.module.forward).bind(*shapes).arguments
    torch.onnx.export(
        example.module,
        tuple(example.inputs.values()),
        path,
        input_names=list(example.inputs),
        dynamic_shapes=tuple(nested.values()) if labels else None,
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def fact_sheet(name: str, example: zoo.Example, path: Path) -> dict[str, object]:
    """Return what the benchmarks need to know of a model without loading it."""
    model = onnx.load(path, load_external_data=False)
    operators = Counter(node.op_type for node in model.graph.node)
    inputs = {key: value.numpy() for key, value in example.inputs.items()}
    return {
        "name": name,
        "flops": count_flops(example),
        "parameters": sum(p.numel() for p in example.module.parameters()),
        "streamed_bytes": streamed_bytes(model) + sum(v.nbytes for v in inputs.values()),
        "onnx_bytes": path.stat().st_size,
        "opsets": {
            entry.domain or "ai.onnx": entry.version for entry in model.opset_import
        },
        "nodes": len(model.graph.node),
        "operators": dict(operators.most_common()),
        "inputs": {key: [str(v.dtype), list(v.shape)] for key, v in inputs.items()},
        "dynamic": {key: list(axes.values()) for key, axes in example.dynamic.items()},
        "torch": torch.__version__,
    }


def export(name: str, folder: Path) -> str:
    """Export one model of the zoo and return a line about it."""
    return export_example(name, zoo.build(name), folder)


def needed_bytes(example: zoo.Example, outputs: tuple[torch.Tensor, ...]) -> int:
    """Return how many bytes the files of a model take: weights, inputs and outputs."""
    tensors = [*example.module.parameters(), *example.module.buffers()]
    return sum(x.nbytes for x in (*tensors, *example.inputs.values(), *outputs))


def export_example(name: str, example: zoo.Example, folder: Path) -> str:
    """Write the four files of a model, all or none, and return a line about it."""
    start = time.perf_counter()
    with torch.no_grad():
        outputs = example.module(*example.inputs.values())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    check_space(name, {folder: needed_bytes(example, outputs)})
    with files_of_model(folder) as unfinished:
        facts = _write_files(name, example, outputs, unfinished)
    seconds = time.perf_counter() - start
    return (
        f"{name:24} {facts['flops'] / 1e9:8.3f} GFLOP {facts['parameters'] / 1e6:7.1f} M parameters"
        f" {facts['nodes']:5d} nodes {seconds:6.1f} s"
    )


def _write_files(
    name: str, example: zoo.Example, outputs: tuple[torch.Tensor, ...], folder: Path
) -> dict[str, object]:
    """Write the model, its arrays and its facts; return the facts."""
    path = folder / f"{name}.onnx"
    with torch.no_grad():
        export_onnx(example, path)
        facts = fact_sheet(name, example, path)
    np.savez(
        folder / f"{name}.inputs.npz",
        **{key: value.numpy() for key, value in example.inputs.items()},
    )
    np.savez(
        folder / f"{name}.ref.npz",
        **{f"o{index}": value.numpy() for index, value in enumerate(outputs)},
    )
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def try_export(name: str, folder: Path) -> tuple[bool, str]:
    """Export one model: whether it went well, and a line about it."""
    warnings.filterwarnings("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        return True, export(name, folder)
    except Exception as error:  # one that cannot be exported must not stop the others
        return False, f"{name:24} FAILED: {type(error).__name__}: {str(error)[:2000]}"


def default_jobs() -> int:
    """How many models at once: one per core that has the memory for it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // BYTES_PER_EXPORT))


def main(arguments: list[str] | None = None) -> int:
    """Export the models named, or all that are not there yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/models"))
    parser.add_argument(
        "names", nargs="*", help="models to export again; default: those missing"
    )
    parser.add_argument(
        "--micro", action="store_true", help="single operators and the MLP only"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=default_jobs(),
        help="models at once; default: %(default)s here, by cores and memory",
    )
    parser.add_argument(
        "--families",
        action="store_true",
        help="the further families instead of the model set",
    )
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    model_set = [name for name in zoo.ZOO if name not in families.FAMILIES]
    wanted = families.FAMILIES if options.families else model_set
    missing = [
        name
        for name in (zoo.MICROBENCHMARKS if options.micro else wanted)
        if not all((options.folder / f"{name}{suffix}").exists() for suffix in MODEL_FILES)
    ]
    names = options.names or missing
    failed = 0
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as workers:
        running = [workers.submit(try_export, name, options.folder) for name in names]
        for export_of_one in as_completed(running):
            is_fine, line = export_of_one.result()
            failed += not is_fine
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
