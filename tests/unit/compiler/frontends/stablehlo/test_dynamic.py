"""Operations whose sizes are operands that are known."""

import numpy as np
import pytest

from fakes.stablehlo_text import run
from tilewright.base.errors import ModelError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("line", "result", "expected"),
    [
        ('%r = stablehlo.dynamic_reshape %x, %s : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<2x6xf32>',
         "tensor<2x6xf32>", X.reshape(2, 6)),
        ('%r = "stablehlo.real_dynamic_slice"(%x, %a, %b, %c) : (tensor<3x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x2xf32>',
         "tensor<2x2xf32>", X[1:3, 0:4:2]),
        ('%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi64>) -> tensor<2x6xf32>',
         "tensor<2x6xf32>", np.tile(np.arange(6), (2, 1))),
        ('%r = "stablehlo.set_dimension_size"(%x, %four) {dimension = 1 : i64} : (tensor<3x4xf32>, tensor<i32>) -> tensor<3x4xf32>',
         "tensor<3x4xf32>", X),
    ],
)  # fmt: skip
def test_known_sizes_are_sizes(line: str, result: str, expected: np.ndarray) -> None:
    body = f"""
    %s = stablehlo.constant dense<[2, 6]> : tensor<2xi64>
    %a = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
    %b = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
    %c = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    %four = stablehlo.constant dense<4> : tensor<i32>
    {line}
    return %r : {result}"""
    (found,) = run(body, "%x: tensor<3x4xf32>", X)
    np.testing.assert_array_equal(found, expected)


def test_a_size_that_is_not_known_is_refused() -> None:
    body = """
    %r = "stablehlo.real_dynamic_slice"(%x, %a, %a, %a) : (tensor<3x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x2xf32>
    return %r : tensor<2x2xf32>"""
    with pytest.raises(ModelError, match="depends on data"):
        run(body, "%x: tensor<3x4xf32>, %a: tensor<2xi64>", X, np.array([1, 1]))
