from __future__ import annotations

from fakes.loop_nests import product
from tilewright.compiler.analysis.strides import stride
from tilewright.compiler.kernel.rewrite import stores


def test_strides_are_those_of_memory() -> None:
    kernel = product(5, 7, 6)
    _zero, store = stores(kernel.body)
    assert stride(store, "j") == 1
    assert stride(store, "i") == 7
    assert stride(store, "k") == 0
