"""Layers that sum up a text: in one step, in several, in chunks and token by token, it is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from fakes.language_models import Form
from fakes.recurrent_models import RecurrentReference, recurrent_forms
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf import load, read_hyperparameters
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.formats.gguf import read_gguf

FORMS = recurrent_forms()
TOKENS = [int(t) for t in np.random.default_rng(0).integers(0, 80, 150)]
ROOM = 160


def _kept(graph: Graph) -> dict[str, np.ndarray]:
    return {
        value.name: np.zeros(
            [s if isinstance(s, int) else ROOM for s in value.type.shape], np.float32
        )
        for value in graph.inputs[3:]
    }


def _step(start: int, stop: int) -> dict[str, np.ndarray]:
    return {
        "tokens": np.array([TOKENS[start:stop]]),
        "position": np.array([start]),
        "span": np.zeros(stop, np.bool_),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_the_graph_computes_what_the_papers_say(name: str) -> None:
    """Two chunks and a bit, a token, a part of a chunk."""
    form = FORMS[name]
    graph, reference = load(form.data()).graph, RecurrentReference(form)
    kept = _kept(graph)
    for start, stop in ((0, 131), (131, 132), (132, 150)):
        outputs = dict(
            zip(graph.output_names, evaluate(graph, _step(start, stop) | kept), strict=True)
        )
        found = outputs.pop("logits")[0]
        kept = {name.removeprefix("new_"): array for name, array in outputs.items()}
        expected = reference.logits(TOKENS[:stop])
        assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max(), (start, stop)


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FORMS)
def test_what_is_compiled_computes_what_the_papers_say(name: str) -> None:
    form = FORMS[name]
    model, one = (
        tw.compile(form.data()),
        tw.compile(form.data(), input_shapes={"tokens": (1, 1)}),
    )
    reference = RecurrentReference(form)
    kept = _kept(load(form.data()).graph)
    for start, stop in ((0, 2), (2, 66), (66, 67), (67, 68), (68, 150)):
        runs = one if stop == 68 else model
        outputs = runs.run(_step(start, stop) | kept)
        found = outputs.pop("logits")[0]
        kept = {name.removeprefix("new_"): array for name, array in outputs.items()}
        expected = reference.logits(TOKENS[:stop])
        assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max(), (start, stop)


def _with(name: str, **metadata: object) -> Form:
    form = FORMS[name]
    keys = {f"{form.architecture}.{k.replace('__', '.')}": v for k, v in metadata.items()}
    return replace(form, metadata={**form.metadata, **keys})


def test_sizes_that_do_not_fit_are_errors() -> None:
    wrong = {
        "128 columns of a state space are not 7 heads in 2 groups": {
            "ssm__time_step_rank": 7
        },
        "128 columns of a state space are not 8 heads in 3 groups": {"ssm__group_count": 3},
        "a whole number from 2 to 64": {"ssm__conv_kernel": 1},
        "ssm.state_size' is '0'": {"ssm__state_size": 0},
    }
    for message, metadata in wrong.items():
        with pytest.raises(ModelError, match=message):
            read_hyperparameters(read_gguf(_with("mamba2", **metadata).data()))
    with pytest.raises(ModelError, match=r"tensor 'blk.0.ssm_in.weight' is"):
        load(_with("mamba2", ssm__state_size=8).data())
    with pytest.raises(ModelError, match="3 sizes of networks, expected 4"):
        load(_with("nemotron_h", feed_forward_length=[0, 96, 0]).data())


def test_each_layer_has_the_parts_that_its_architecture_says() -> None:
    def parts(name: str) -> tuple[tuple[bool, ...], ...]:
        found = read_hyperparameters(read_gguf(FORMS[name].data())).parts
        return found.summed, found.attends, found.has_network

    yes, no = True, False
    assert parts("mamba2") == ((yes, yes), (no, no), (no, no))
    assert parts("falcon-h1") == ((yes, yes), (yes, yes), (yes, yes))
    assert parts("granitehybrid")[:2] == ((yes, no, yes), (no, yes, no))
    assert parts("nemotron_h") == (
        (yes, no, no, yes), (no, no, yes, no), (no, yes, no, no),
    )  # fmt: skip
