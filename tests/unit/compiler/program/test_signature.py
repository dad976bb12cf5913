"""Signatures: what the host asks about a kernel, read off its loops."""

from __future__ import annotations

from tilewright.base import dtypes
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program.ir import KernelSignature
from tilewright.compiler.program.signature import signature_of

N = symbol("n", 1, 1000)


def scheduled_signature(
    op: str, columns: int = 32, **attributes: object
) -> KernelSignature:
    b = GraphBuilder()
    y = b.op(op, [b.input("x", TensorType(dtypes.f32, (N, columns)))], attributes)
    assert isinstance(y, Value)
    b.output("y", y)
    (group,) = pipeline.find_kernels(b.graph)
    return signature_of(KernelRequest(group.naive, Target.level("v3"), 2).schedule())


def test_operands_come_before_results_before_scratch() -> None:
    signature = scheduled_signature("relu")
    assert [type_ for _, type_ in signature.parameters] == [
        TensorType(dtypes.f32, (N, 32)),
        TensorType(dtypes.f32, (N, 32)),
    ]
    assert [s.name for s in signature.dims] == ["n"]
    assert signature.name == "relu"


def test_a_pointwise_result_may_take_the_operands_place_and_not_the_reverse() -> None:
    assert scheduled_signature("relu").overwrites == {(0, 1)}


def test_a_result_that_needs_whole_rows_may_not() -> None:
    assert scheduled_signature("softmax", axis=1).overwrites == frozenset()


def test_the_grid_may_depend_on_dimensions() -> None:
    assert "n" in str(scheduled_signature("relu", columns=4096).grid)
