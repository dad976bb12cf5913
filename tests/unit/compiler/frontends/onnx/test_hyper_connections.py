"""Streams of features and gates between them, beside onnxruntime's CPU kernels."""

import numpy as np
import pytest

from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(23)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("gates", [(2, 1, 3), (2, 1, 3, 1), (2, 1, 3, 5)])
def test_streams_are_summed_and_injected_into(gates: tuple[int, ...]) -> None:
    streams, made = floats(2, 1, 3, 5), floats(2, 1, 5)
    agrees("HyperConnectionPreMix", [streams, floats(*gates)], reduction_scale=0.5)
    agrees("HyperConnectionPostMix", [streams, made, floats(*gates)])
    agrees("HyperConnectionPostMix", [streams, made, floats(*gates), floats(2, 1, 3, 3)])


def test_streams_may_be_flat() -> None:
    flat = floats(2, 1, 15)
    agrees("HyperConnectionPreMix", [flat, floats(2, 1, 3)], num_branches=3)
    agrees("HyperConnectionPreMix", [flat, floats(2, 1, 15)], num_branches=3)
    arrays = [flat, floats(2, 1, 5), floats(2, 1, 3), floats(2, 1, 3, 3)]
    agrees("HyperConnectionPostMix", arrays, num_branches=3)
    with pytest.raises(ModelError, match="gates f32"):
        ours("HyperConnectionPreMix", [flat, floats(3)], num_branches=3)


def test_what_is_looked_up_passes_a_gate() -> None:
    arrays = [
        floats(2, 4, 3, 5), floats(2, 4, 3, 5), floats(2, 4, 5), floats(3, 5), floats(3, 5)
    ]  # fmt: skip
    agrees("EngramGate", arrays)
    agrees("EngramGate", [*arrays, floats(3, 5)], outputs=2, epsilon=0.1)
