"""Random typed graphs over the catalogue, for comparing compiled code with the evaluator.

What it is: a hypothesis strategy of graphs (elementwise, reductions, rows, contractions,
movement; several types; sizes 0 and 1, dynamic sizes, shared values, several outputs) that are
numerically tame: what jumps (comparison, rounding, integer casts, indices) is fed with values
that every way to compute gives exactly.
What it is not: `fakes.random_graphs`, whose smaller graphs the tests of passes use.
"""

from __future__ import annotations

import random

import numpy as np
from hypothesis import strategies as st

from fuzz import contraction_steps, elementwise_steps, movement_steps, row_steps
from fuzz.graph_maker import FLOATS, INTEGERS, MOST_ELEMENTS, Maker, Steps, Tracked, size_of
from tilewright.base import dtypes, symbolic
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType

STEPS: Steps = (
    *elementwise_steps.STEPS,
    *row_steps.STEPS,
    *contraction_steps.STEPS,
    *movement_steps.STEPS,
)
# Steps that make the structure kernels are chosen by come more often.
_OFTEN: Steps = (
    contraction_steps.step_linear,
    contraction_steps.step_product,
    contraction_steps.step_convolution,
    row_steps.step_rows,
    row_steps.step_reduce,
    elementwise_steps.step_binary,
    movement_steps.step_transpose,
    movement_steps.step_reshape,
    contraction_steps.step_pool,
    movement_steps.step_parts,
)
_BAG = (*STEPS, *_OFTEN, *_OFTEN)
FEW_STEPS = 8


def make_graph(choose: random.Random, most_steps: int = FEW_STEPS) -> Graph:
    """A graph with one to three inputs of several types and ranks."""
    maker = Maker(choose)
    for index in range(choose.randint(1, 3)):
        rank = choose.choice((0, 1, 2, 2, 3, 3, 4, 4))
        shape = tuple(maker.one(maker.dims) for _ in range(rank))
        dtype = maker.one((*([dtypes.f32] * 9), *FLOATS, *INTEGERS, dtypes.bool_))
        while size_of(shape) > MOST_ELEMENTS:
            shape = shape[:-1]
        value = maker.builder.input(f"x{index}", TensorType(dtype, shape))
        maker.keep(Tracked(value, True, 3))
    _add_sizes(maker)
    steps = choose.randint(1, most_steps)
    for _ in range(4 * steps):
        if len(maker.builder.graph.nodes) < 2 * steps:
            maker.one(_BAG)(maker)
    return maker.finish()


def _add_sizes(maker: Maker) -> None:
    """Inputs for the symbols that no input has as a size of its own."""
    for dim in [d for d in maker.dims if not isinstance(d, int)]:
        if not any(dim in v.shape for v in maker.values):
            value = maker.builder.input(f"size_of_{dim}", TensorType(dtypes.f32, (dim,)))
            maker.keep(Tracked(value, True, 3))


def typed_graphs(*, most_steps: int = FEW_STEPS) -> st.SearchStrategy[Graph]:
    """The strategy: every choice is one of hypothesis, so graphs shrink."""
    randoms = st.randoms(use_true_random=False, note_method_calls=False)
    return randoms.map(lambda choose: make_graph(choose, most_steps))


def inputs_for(graph: Graph, dims: dict[str, int], seed: int) -> list[np.ndarray]:
    """Small whole numbers for every input."""
    random = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        shape = tuple(symbolic.evaluate(d, dims) for d in value.type.shape)
        dtype = value.type.dtype
        low, high = (0, 2) if dtype.is_bool else (0, 4) if not dtype.is_signed else (-3, 4)
        arrays.append(np.asarray(random.integers(low, high, shape)).astype(dtype.numpy))
    return arrays
