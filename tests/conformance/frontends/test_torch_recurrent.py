"""Recurrent layers of torch over sequences of lengths that are known and that are not, against eager mode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tilewright as tw
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.frontends.torch.recurrent import whole_recurrences
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn = torch.nn
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    ("LSTM", {"proj_size": 5}),
    ("GRU", {"bidirectional": True, "bias": False}),
    ("RNN", {"num_layers": 2, "nonlinearity": "relu"}),
]


def layer(kind: str, options: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return getattr(nn, kind)(7, 9, **options).eval()


def sequences(options: dict[str, Any], steps: int, batch: int) -> Any:
    shape = (batch, steps, 7) if options.get("batch_first") else (steps, batch, 7)
    return torch.randn(shape)


def same(found: Any, wanted: Any) -> None:
    leaves = torch.utils._pytree.tree_leaves
    for ours, theirs in zip(leaves(found), leaves(wanted), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def captured(module: Any, options: dict[str, Any]) -> Captured:
    """With names for the length and the batch."""
    steps, batch = (
        torch.export.Dim("steps", min=1, max=512),
        torch.export.Dim("batch", max=64),
    )
    places = {0: batch, 1: steps} if options.get("batch_first") else {0: steps, 1: batch}
    return Captured(module, args=(sequences(options, 11, 3),), dynamic_shapes=(places,))


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_layer_runs_over_sequences_of_every_length(
    kind: str, options: dict[str, Any]
) -> None:
    module = layer(kind, options)
    graph = load(captured(module, options)).graph
    for size in ((11, 3), (1, 2), (40, 1)):
        x = sequences(options, *size)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(x))
        same([torch.from_numpy(a) for a in evaluate(graph, [x.numpy()])], wanted)


def test_a_layer_that_is_compiled_gives_what_it_gives() -> None:
    module = layer("GRU", {})
    given = captured(module, {})
    model = tw.compile(module, args=given.args, dynamic_shapes=given.dynamic_shapes)
    for size in ((11, 3), (40, 1)):
        x = sequences({}, *size)
        with torch.no_grad():
            same(model(x), module(x))


def test_a_long_sequence_is_a_loop_whose_length_costs_no_nodes() -> None:
    module = layer("LSTM", {})
    counts = [
        len(load(Captured(module, args=(torch.randn(steps, 2, 7),))).graph.nodes)
        for steps in (60, 600)
    ]
    assert counts[0] == counts[1]


def test_layers_of_other_threads_run_as_ever_while_one_traces() -> None:
    module, x = layer("LSTM", {}), torch.randn(3, 2, 7)
    wanted = module(x)
    with whole_recurrences(), ThreadPoolExecutor(1) as other:
        same(other.submit(module, x).result(), wanted)


def test_contexts_that_overlap_leave_torch_as_it_was() -> None:
    held = nn.modules.rnn._VF
    first, second = whole_recurrences(), whole_recurrences()
    with ThreadPoolExecutor(1) as other:
        first.__enter__()
        other.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        same(layer("GRU", {})(torch.ones(3, 2, 7)), layer("GRU", {})(torch.ones(3, 2, 7)))
        other.submit(second.__exit__, None, None, None).result()
    assert nn.modules.rnn._VF is held


def test_a_layer_that_dynamo_traces_is_whole() -> None:
    module, x = layer("LSTM", {}), torch.randn(60, 2, 7)
    with torch.no_grad(), whole_recurrences():
        exported = torch.export.export(module, (x,), strict=True)
    targets = [str(node.target) for node in exported.graph.nodes]
    assert "tilewright.lstm.default" in targets
