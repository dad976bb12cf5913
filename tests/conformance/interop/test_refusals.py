"""What IREE's tools print when they refuse a program is told apart by its first error."""

from __future__ import annotations

import pytest

from conformance.interop.refusals import Refusal, classify

OPERATOR = (
    "a.mlir:4:10: error: failed to legalize operation 'torch.operator' that was explicitly marked "
    'illegal: %0 = "torch.operator"(%arg0) <{name = "onnx.Swish"}> : (!torch.vtensor<[3],f32>)\n'
    '    %0 = torch.operator "onnx.Swish"(%arg0)\n'
    "a.mlir:4:10: error: conversion failed\n"
)


@pytest.mark.parametrize(
    ("said", "kind", "subject"),
    [
        (OPERATOR, "ONNX operator without a lowering", "Swish"),
        (
            "a.mlir:1:1: error: failed to legalize operation 'torch.aten.cumsum': %7 = ...",
            "operation without a lowering",
            "torch.aten.cumsum",
        ),
        (
            "a.mlir:1:1: error: 'tensor.cast' op operand type 'tensor<?xi1>' and result",
            "operation that a pass made and the verifier rejects",
            "tensor.cast",
        ),
        (
            "iree-lld: error: undefined symbol: fmod\n>>> referenced by",
            "function that the linker does not find",
            "fmod",
        ),
        (
            "LLVM ERROR: Unhandled type: si4\nPlease report\nStack dump:\n",
            "compiler crashes",
            "Unhandled type",
        ),
        ("Please report\nStack dump:\n0.\tProgram", "compiler crashes", "Stack dump"),
        (
            "OnnxImportError: Unknown ONNX tensor element type: 23",
            "element type unknown to the importer",
            "element type: 23",
        ),
        ("no result after 300 s", "compiler takes too long", "no result after 300 s"),
        ("<unknown>:0: error: LLVM broke\n", "another error of the compiler", "LLVM broke"),
        ("ValueError: no\nmore", "another error of the importer", "ValueError: no"),
        ("", "another error of the importer", ""),
    ],
)
def test_the_first_error_decides(said: str, kind: str, subject: str) -> None:
    assert classify(said) == Refusal(kind, subject)


def test_a_long_message_is_cut() -> None:
    assert len(classify(f"error: {'x' * 999}").subject) < 100
