"""A random network as exporters write them: images, sequences or rows, any batch, several calls.

What it is: `make_network`, from a number to a case; the same number gives the same case.  Windows, norms,
attention, quantized operators and what stands between; bodies and sizes of data are rare.
What it is not: the models that are made of bodies and such sizes (`models`).
"""

from __future__ import annotations

import random

from onnx import helper

from fuzz.flow import (
    elementwise,
    images,
    lists,
    movement,
    quantized,
    rows,
    sequences,
    sizes,
)
from fuzz.flow.maker import WHOLE, Maker, Size, Value
from fuzz.flow.models import CALLS, Case, Feeds, array_for, outputs_of
from fuzz.flow.regions import Regions, declared

# Opset 21 is the first with blocks, 23 with attention.
OPSETS = ((10, 21), (10, 22), (11, 23))
FAMILIES = (images.STEPS, sequences.STEPS, quantized.STEPS)
BETWEEN = (*elementwise.STEPS, *movement.STEPS, *rows.STEPS)
RARE = (*sizes.STEPS, *lists.STEPS)
BATCHES = ((1, 2, 5), (3, 1, 4), (2, 7, 1))


def make_network(seed: int) -> Case:
    """The case of a number."""
    choose = random.Random(f"network:{seed}")
    m = Maker(choose)
    ir_version, opset = m.one(OPSETS)
    m.opset = opset
    inputs = _inputs(m)
    family = m.one(FAMILIES)
    steps = (*family * 4, *BETWEEN, *m.one(FAMILIES), m.one(RARE))
    regions = Regions(steps)
    m.budget = m.number(3, 14)
    while m.budget > 0:
        m.budget -= 1
        m.one(regions.steps() if m.chance(0.04) else steps)(m)
    outputs = outputs_of(m)
    graph = helper.make_graph(
        m.frame.nodes, f"network_{seed}", [declared(v) for v in inputs],
        [declared(v, free=True) for v in outputs], m.frame.initializers,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    return Case(seed, model, tuple(_feeds(m, inputs, call) for call in range(CALLS)))


def _inputs(m: Maker) -> list[Value]:
    """An image, a sequence or rows, another of the same sizes, and a number."""
    batch: Size = m.one(("N", "N", "N", "Z", 1, 2))
    m.positive |= {"N", "L", "H", "W"}
    length: Size = m.one(("L", "L", 1, 5, 8))
    depth = m.one((1, 3, 8, 12, 16))
    high, wide = (m.one((4, 5, 7, 8, 9, w)) for w in ("H", "W"))
    shapes: tuple[tuple[Size, ...], ...] = (
        (batch, m.one((1, 2, 3, 4, 6, 8)), high, wide), (batch, m.one((1, 3, 4)), high, wide),
        (batch, m.one((1, 2, 4)), length), (batch, length, depth), (batch, length, depth),
        (batch, depth),
    )  # fmt: skip
    shape = m.one(shapes)
    values = [Value("x0", "float32", shape, m.one((WHOLE, WHOLE, 1)))]
    if m.chance(0.5):
        dtype = m.one(
            ("float32", "float32", "int64", "int32", "uint8", "float64", "float16")
        )
        values.append(Value("x1", dtype, m.one((shape, m.one(shapes)))))
    values.append(Value("n", "int64", (), WHOLE, 5.0))
    return [m.keep(v) for v in values]


def _feeds(m: Maker, inputs: list[Value], call: int) -> Feeds:
    """Other sizes each time; a batch of none, and of one, among them."""
    dims: dict[Size, int] = {
        "N": m.one(BATCHES)[call], "Z": (0, 1, 3)[call], "L": m.one((1, 2, 5, 9, 16)),
        "H": m.one((3, 5, 8, 13)), "W": m.one((3, 4, 7, 16)),
    }  # fmt: skip
    return {
        v.name: array_for(
            m, v, tuple(dims[s] if isinstance(s, str) else s for s in v.shape)
        )
        for v in inputs
    }
