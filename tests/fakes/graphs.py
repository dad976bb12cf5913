"""Graphs as text for tests of passes: parse, run, compare, evaluate before and after."""

import numpy as np

from fakes.contractions import form_of
from tilewright.base import symbolic
from tilewright.compiler.graph.compare import difference
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.text import dimension_symbols, resources, to_text
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import PassContext, run_passes
from tilewright.compiler.readers.graph_text import parse_graph

EVERYTHING_HELD = frozenset(
    {
        "folded",
        "simplified",
        "bias-apart",
        "channels-last",
        "convolutions-legal",
        "packed",
        "live",
    }
)


def parse(text):
    """A graph over the catalogue, verified."""
    graph = parse_graph(text, catalogue.schema)
    verify(graph)
    return graph


def copy_of(graph):
    """The same graph again, through its text."""
    return parse_graph(to_text(graph), catalogue.schema, resources=resources(graph))


def random_inputs(graph, seed=0, dims=None):
    """Arrays for the inputs: ordinary floats, integers 0..2; symbols 3, 4, 5 … unless given."""
    rng = np.random.default_rng(seed)
    names = list(dimension_symbols(graph))
    known = {name: 3 + i for i, name in enumerate(names)} | dict(dims or {})
    arrays = []
    for value in graph.inputs:
        shape = tuple(symbolic.evaluate(d, known) for d in value.type.shape)
        dtype = value.type.dtype
        if dtype.is_float:
            array = rng.standard_normal(shape).astype(dtype.numpy)
        elif dtype.is_bool:
            array = rng.random(shape) < 0.5
        else:
            array = rng.integers(0, 3, shape).astype(dtype.numpy)
        arrays.append(np.asarray(array))
    return arrays


def assert_same_results(before, after, *, seed=0, tolerance=1e-5, dims=None):
    """Both graphs give the same outputs on random inputs."""
    inputs = random_inputs(before, seed, dims)
    for old, new in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        assert old.dtype == new.dtype
        assert old.shape == new.shape
        if old.dtype.kind in "biu":
            np.testing.assert_array_equal(new, old)
        else:
            np.testing.assert_allclose(
                new.astype(np.float64),
                old.astype(np.float64),
                rtol=tolerance,
                atol=tolerance,
            )


def run(passes, text, *, context=None):
    """The graph of `text` after `passes`; verified, results compared with before."""
    graph = parse(text)
    before = copy_of(graph)
    run_passes(graph, passes, context or PassContext(), held=EVERYTHING_HELD)
    verify(graph)
    assert_same_results(before, graph)
    return graph


def assert_becomes(passes, before, after):
    """`passes` turn the graph of text `before` into that of `after`, but for names."""
    graph = run(passes, before)
    expected = parse(after)
    found = difference(graph, expected)
    assert found is None, (
        f"{found}\n--- got\n{to_text(graph)}\n--- expected\n{to_text(expected)}"
    )


def assert_stays(passes, text):
    """`passes` leave the graph of `text` alone."""
    graph = parse(text)
    result = run_passes(graph, passes, held=EVERYTHING_HELD)
    assert not result.modified, to_text(graph)


def only(graph, op):
    """The one node of an op."""
    (node,) = (n for n in graph.nodes if form_of(n) == op)
    return node


def ops(graph):
    """The ops in order, constants left out."""
    return [form_of(node) for node in graph.nodes if node.op != "constant"]
