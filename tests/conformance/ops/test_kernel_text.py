"""The kernels of every op and of real models come back from their text, at every stage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.exported_models import NETWORKS
from fakes.lowered import lower
from tilewright.base.errors import ModelError
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.builder import make_node
from tilewright.compiler.ops.declaration import OpDecl, type_of
from tilewright.compiler.printers.llvm_text.function import emit_kernel
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

ROWS = [row for row in catalogue.all_ops() if row.cases and not row.on_host]
TARGET = Target.level("v3")
MACHINE = MachineModel.of(TARGET)


def naive_kernels(row: OpDecl, limit: int | None) -> Iterator[Kernel]:
    """Of the first cases, with numbers and with symbols for sizes."""
    for case in itertools.islice(cases.instances(row), limit):
        for dynamic in (False, True):
            types = [
                None
                if a is None
                else TensorType(
                    type_of(a).dtype, cases.symbolic_shape(a.shape) if dynamic else a.shape
                )
                for a in case.operands
            ]
            values = [None if found is None else Value(found, "") for found in types]
            try:
                node = make_node(case.op, values, case.attributes)
            except ModelError:
                continue  # the op needs a number where the case has a symbol
            if can_build(node):
                yield build_kernel(node, case.op)


def come_back(kernel: Kernel) -> Kernel:
    """The kernel read from its text, which it must print."""
    text = kernel_text(kernel)
    found = parse_kernel(text)
    assert kernel_text(found) == text
    return found


def check(naive: Kernel) -> None:
    """At every stage; and what comes back goes on as what was printed."""
    come_back(naive)
    scheduled = promote_scratch(schedule(naive, MACHINE, threads=2))
    lowered = lower(scheduled, TARGET)
    come_back(lowered)
    again = lower(come_back(scheduled), TARGET)
    assert emit_kernel(again, TARGET).text == emit_kernel(lowered, TARGET).text


@pytest.mark.parametrize("row", ROWS[::4], ids=lambda row: row.name)
@pytest.mark.sampled(3)
def test_kernels_of_an_op_come_back_from_their_text(row: OpDecl) -> None:
    for kernel in naive_kernels(row, 1):
        check(kernel)


@pytest.mark.nightly
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_kernels_of_all_cases_come_back_from_their_text(row: OpDecl) -> None:
    for kernel in naive_kernels(row, None):
        check(kernel)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("network", NETWORKS)
def test_kernels_of_a_network_come_back_from_their_text(
    models_folder: Path, network: str
) -> None:
    path = models_folder / f"{network}.onnx"
    assert path.exists(), f"{network} is not exported: make models"
    options = pipeline.CompileOptions(targets=(TARGET,), threads=2)
    graph = pipeline.import_model(path, options).graph
    pipeline.optimize(graph, options)
    for group in pipeline.find_kernels(graph):
        check(group.naive)
