"""Literals whose elements stand at the end of the text."""

import re

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import load
from tilewright.compiler.graph.evaluator import evaluate

MODULE = """module {
  func.func @main() -> (tensor<3xf32>, tensor<2xi1>) {
    %0 = stablehlo.constant dense_resource<blob1> : tensor<3xf32>
    %1 = stablehlo.constant dense_resource<"a name"> : tensor<2xi1>
    return %0, %1 : tensor<3xf32>, tensor<2xi1>
  }
}
"""
METADATA = """{-#
  dialect_resources: {
    builtin: {
      blob1: "0x040000000000803F0000004000004040",
      "a name": "0x010000000100"
    },
    other: {x: {y: "0x04"}}
  },
  external_resources: {mlir_reproducer: {verify: true}}
#-}
"""


def test_elements_at_the_end_of_the_text_are_those_of_literals() -> None:
    found = evaluate(load((MODULE + METADATA).encode()).graph, [])
    np.testing.assert_array_equal(found[0], np.float32([1, 2, 3]))
    np.testing.assert_array_equal(found[1], [True, False])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (METADATA, "", "3:44: the text has no elements called 'blob1'"),
        ("blob1:", "blob2:", "3:44: the text has no elements called 'blob1'"),
        ("0x04000000", "0x04", "literal of tensor<3xf32>: got 9 bytes, expected 12"),
        ("0x04000000", "04000000", "11:14: resource 'blob1' is no hexadecimal number"),
        ("0x010000000100", "0x01", "12:17: resource 'a name' is no hexadecimal number"),
        ("4040\"", "40ZZ\"", "literal of tensor<3xf32>: non-hexadecimal number"),
        ("builtin: {", "builtin: [", "10:14: got '[', expected '{'"),
        ("#-}", "#-", "expected '}'"),
        ("#-}", "#-} 3", "17:5: got '3', expected the end of the text"),
        ("true}}", "true}", "18:1: got the end of the text"),
    ],
)  # fmt: skip
def test_damaged_elements_are_refused(before: str, after: str, message: str) -> None:
    text = (MODULE + METADATA).replace(before, after, 1)
    with pytest.raises(ModelError, match=re.escape(message)):
        load(text.encode())


def test_elements_that_nobody_names_are_read_for_their_errors() -> None:
    text = "func.func @main() { return }\n{-# dialect_resources: #-}"
    with pytest.raises(ModelError, match=r"2:24: got '#-', expected '\{'"):
        load(text.encode())
