"""Compile once, run with any shape; or fix a size and let the compiler use it.

    python examples/02_dynamic_shapes.py

Dimensions of an ONNX model that have a name stay symbols: loop bounds, buffer sizes and grids are
expressions of them, and a call fills in the numbers.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
from small_models import encoder_layer

random = np.random.default_rng(1)


def arrays(batch: int, tokens: int) -> np.ndarray:
    """A batch of sequences of made-up features."""
    return random.standard_normal((batch, tokens, 64), np.float32)


def show_any_shape() -> None:
    """One compilation serves every batch and length, an empty batch included."""
    model = tw.compile(encoder_layer())
    for name, dtype, shape in (*model.inputs, *model.outputs):
        print(f"{name}: {dtype}[{', '.join(map(str, shape))}]")
    for batch, tokens in ((1, 1), (3, 17), (8, 64), (0, 17)):
        y = model(arrays(batch, tokens))
        print(f"batch {batch}, {tokens} tokens → {y.shape}")

    # A batch computes what its rows compute alone.
    x = arrays(4, 9)
    alone = np.concatenate([model(row[None]) for row in x])
    print(
        f"largest difference of a batch to its rows: {np.abs(model(x) - alone).max():.1e}"
    )


def show_fixed_shape() -> None:
    """`input_shapes` fixes sizes: the memory plan becomes static, the calls cheaper."""
    fixed = tw.compile(encoder_layer(), input_shapes={"x": (1, 16, 64)})
    print(f"fixed: one arena of {fixed.memory.arena_bytes} bytes")
    named = tw.compile(encoder_layer(), input_shapes={"x": ("rows", 16, 64)})
    print(f"half fixed: x is {', '.join(map(str, named.inputs[0][2]))}")


def show_refusal() -> None:
    """What does not fit is refused by name, before anything runs."""
    model = tw.compile(encoder_layer())
    for wrong in (arrays(1, 5)[..., :63], arrays(1, 5).astype(np.float64)):
        try:
            model(wrong)
        except tw.InputError as error:
            print(f"refused: {error}")


if __name__ == "__main__":
    show_any_shape()
    show_fixed_shape()
    show_refusal()
