"""A random ONNX model with control flow and sizes that data decides, and the inputs of some calls.

What it is: `make_case`, from a number to a case; the same number gives the same case.
What it is not: judging (`judging`) or making a case smaller (`shrinking`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from fuzz.flow import elementwise, lists, movement, rows, sizes
from fuzz.flow.maker import FLOATS, SAME, SIZES, TYPES, WHOLE, Maker, Size, Value
from fuzz.flow.regions import Regions, declared

OPSETS = ((8, 18), (9, 19), (10, 21), (10, 22))
PLAIN = (*elementwise.STEPS, *rows.STEPS, *movement.STEPS, *sizes.STEPS, *lists.STEPS)
REGIONS = Regions(PLAIN)
CALLS = 3
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)
Feeds = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Case:
    """A model with the inputs of its calls."""

    seed: int
    model: onnx.ModelProto
    calls: tuple[Feeds, ...]


def make_case(seed: int) -> Case:
    """The case of a number."""
    choose = random.Random(f"flow:{seed}")
    m = Maker(choose)
    inputs = _inputs(m)
    m.budget = m.number(4, 24)
    for _ in range(m.number(1, 3)):
        REGIONS.fill(m, 5)
        step = m.one((*REGIONS.steps(), *REGIONS.steps(), m.one(sizes.STEPS)))
        step(m)
    REGIONS.fill(m, 3)
    outputs = outputs_of(m)
    ir_version, opset = m.one(OPSETS)
    graph = helper.make_graph(
        m.frame.nodes,
        f"flow_{seed}",
        [declared(v) for v in inputs],
        [declared(v, free=True) for v in outputs],
        m.frame.initializers,
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    return Case(seed, model, tuple(_feeds(m, inputs, call) for call in range(CALLS)))


def _inputs(m: Maker) -> list[Value]:
    """Tensors of several types, and always a number of trips and a condition."""
    m.positive |= {"N", "M"}
    dims: list[Size] = ["N", "M", "N", m.one(SIZES), m.one(SIZES), 1]
    if m.chance(0.3):
        dims.append("Z")
    values = []
    for index in range(m.number(1, 3)):
        dtype = m.one(("float32",) * 5 + TYPES)
        shape = tuple(m.one(dims) for _ in range(m.one((0, 1, 1, 2, 2, 3))))
        kind = SAME if dtype in FLOATS and m.chance(0.3) else WHOLE
        finite = dtype not in FLOATS or m.chance(0.7)
        values.append(Value(f"x{index}", dtype, shape, kind, 4.0, finite))
    values.append(Value("n", "int64", (), WHOLE, 5.0))
    if m.chance(0.7):
        values.append(Value("p", "bool", (), WHOLE, 1.0))
    if m.chance(0.5):
        values.append(Value("mask", "bool", (m.one(dims),), WHOLE, 1.0))
    return [m.keep(v) for v in values]


def outputs_of(m: Maker) -> list[Value]:
    """What nobody reads, and some other values; each a value that a node makes."""
    used = {name for node in _nodes(m.frame.nodes) for name in node.input}
    made = {name for node in m.frame.nodes for name in node.output}
    ends = [v for v in m.frame.values if v.name not in used and v.name in made]
    others = [v for v in m.frame.values if v.name in made and v not in ends]
    chosen = [*ends[-5:], *m.choose.sample(others, min(len(others), 1)), *m.kept]
    if not chosen:
        value = m.frame.values[0]
        chosen = [replace(value, name=m.node("Identity", [value])[0])]
    return chosen


def _nodes(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes and those of all bodies."""
    found = list(nodes)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _nodes(list(attribute.g.node))
    return found


def _feeds(m: Maker, inputs: list[Value], call: int) -> Feeds:
    """Inputs of a call: other sizes, trips and conditions each time."""
    dims: dict[Size, int] = {"N": m.one(SIZES), "M": m.one(SIZES), "Z": m.one((0, 0, 1, 3))}
    found = {}
    for v in inputs:
        shape = tuple(dims[s] if isinstance(s, str) else s for s in v.shape)
        found[v.name] = array_for(m, v, shape)
    found["n"] = np.array((0, 1, 3)[call] if m.chance(0.7) else m.number(0, 5), np.int64)
    return found


def array_for(m: Maker, v: Value, shape: tuple[int, ...]) -> np.ndarray:
    """What an input is given."""
    if v.dtype == "bool":
        return np.asarray(m.numbers.random(shape) < m.one((0.0, 0.5, 0.5, 1.0)))
    low = 0 if v.dtype == "uint8" else -4
    array = np.asarray(m.numbers.integers(low, 5, shape)).astype(v.dtype)
    if v.kind == SAME:
        array = np.asarray(m.numbers.uniform(-4, 4, shape)).astype(v.dtype)
    if not v.finite and array.size:
        flat = array.reshape(-1)
        for _ in range(m.number(0, 3)):
            flat[m.number(0, flat.size - 1)] = m.one(SPECIAL)
        array = flat.reshape(shape)
    return array
