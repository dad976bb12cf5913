"""Custom calls: notes are read over, old names are what they mean, others are refused by name."""

import numpy as np
import pytest

from fakes.stablehlo_text import run
from tilewright.base.errors import ModelError

X = np.float32([[0.5, -1.5, 3], [2, 1, 0]])


def call(name: str, attributes: str = "", result: str = "tensor<2x3xf32>") -> np.ndarray:
    body = f"""
    %r = stablehlo.custom_call @{name}(%x) {{{attributes}}} : (tensor<2x3xf32>) -> {result}
    return %r : {result}"""
    return run(body, "%x: tensor<2x3xf32>", X)[0]


def test_notes_about_placement_change_nothing() -> None:
    text = 'backend_config = "", mhlo.sharding = "{replicated}"'
    np.testing.assert_array_equal(call("Sharding", text), X)


def test_old_names_are_what_they_mean() -> None:
    text = "mhlo.attributes = {}, mhlo.version = 1 : i64"
    np.testing.assert_allclose(call("mhlo.sinh", text), np.sinh(X), rtol=1e-6)


def test_another_name_is_refused_with_it() -> None:
    with pytest.raises(ModelError, match="custom call 'lapack_spotrf' is not supported"):
        call("lapack_spotrf")


def test_a_composite_is_the_operation_that_it_is_called_after() -> None:
    text = """
    %r = stablehlo.composite "chlo.erf" %x {decomposition = @nobody} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %r : tensor<2x3xf32>"""
    (found,) = run(text, "%x: tensor<2x3xf32>", X)
    assert found[0, 0] == pytest.approx(0.5204999)


def test_operands_broadcast_as_in_numpy() -> None:
    text = """
    %r = chlo.broadcast_multiply %x, %y : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    return %r : tensor<2x3xf32>"""
    y = np.float32([1, 2, 3])
    (found,) = run(text, "%x: tensor<2x3xf32>, %y: tensor<3xf32>", X, y)
    np.testing.assert_array_equal(found, X * y)
