"""Sizes inside of kernels: a call in which one would be negative fails, as if it were a tensor of its own."""

import numpy as np
import pytest

import tilewright as tw
from fakes.onnx_models import parse
from tilewright.base.errors import InputError

FILLED = """agraph (float[N] x) => (float[P] y) <int64[1] five = {5}> {
    s = Shape(x)  d = Sub(five, s)  z = ConstantOfShape(d)  y = Concat<axis = 0>(x, z)
}"""
REPEATED = """agraph (float[N] x) => (float[P] y) <int64[1] five = {5}, float one = {1}> {
    s = Shape(x)  d = Sub(five, s)  z = Expand(one, d)  y = Concat<axis = 0>(x, z, x)
}"""


@pytest.mark.parametrize(("text", "copies"), [(FILLED, 1), (REPEATED, 2)])
def test_what_is_joined_with_less_than_nothing_fails_the_call(
    text: str, copies: int
) -> None:
    model = tw.compile(parse(text))
    for size in (1, 4, 5):
        (found,) = model.run({"x": np.ones(size, np.float32)}).values()
        assert found.shape == (5 + (copies - 1) * size,)
    for size in (6, 9):
        with pytest.raises(InputError, match=f"-N . 5. is {5 - size}"):
            model.run({"x": np.ones(size, np.float32)})
