"""Exported models under the graph and the debug executor give the bits of their sessions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from figures.worker import read_inputs
from tilewright.formats.graph_json import UNKNOWN, read_graph

pytestmark = pytest.mark.slow
NETWORKS = (
    "mlp_b1", "mlp_b64", "mobilenetv2", "resnet50", "bert_base", "gpt2_decode", "minilm_l6",
    "whisper_tiny_encoder", "yolo_detector",
)  # fmt: skip


def outputs_of(result: object) -> list[np.ndarray]:
    return list(result) if isinstance(result, tuple) else [np.asarray(result)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_runs_as_its_factory_and_as_a_graph_of_its_kernels(
    models_folder: Path, name: str
) -> None:
    path = models_folder / f"{name}.onnx"
    assert path.exists(), f"{name} is not exported: make models"
    inputs = read_inputs(path)
    model = tw.compile(path)
    expected = outputs_of(model(*inputs.values()))
    factory = model.build()
    nets = [tw.graph_executor.GraphModule(factory["default"](tw.cpu(0)))]
    graph = read_graph(factory.graph_json)
    if all(UNKNOWN not in shape for shape in graph.entries.shape):
        members = json.loads(factory.graph_json)
        del members["metadata"]
        executor = tw.graph_executor.create(json.dumps(members), factory.lib, tw.cpu(0))
        nets.append(tw.graph_executor.GraphModule(executor))
        nets[1].set_input(**factory.params)
    for net in nets:
        for key, value in enumerate(inputs.values()):
            net.set_input(key, value)
        for _ in range(2):
            net.run()
            for index, output in enumerate(expected):
                assert np.array_equal(net.get_output(index), output)


@pytest.mark.parametrize("name", ["mobilenetv2", "minilm_l6"])
def test_the_nodes_of_a_model_lead_to_its_outputs(models_folder: Path, name: str) -> None:
    path = models_folder / f"{name}.onnx"
    inputs = read_inputs(path)
    model = tw.compile(path)
    expected = outputs_of(model(*inputs.values()))
    executor = model.build()["default"](tw.cpu(0))
    debug = tw.debug_executor.GraphModuleDebug(executor)
    other = tw.debug_executor.GraphModuleDebug(model.build()["default"](tw.cpu(0)))
    named = dict(zip(model.session.executor.input_names, inputs.values(), strict=True))
    result = debug.run(number=1, min_repeat_ms=0, **named)
    found = [tensor for row in result.tensors for tensor in row]
    for output in expected:
        assert any(np.array_equal(tensor, output) for tensor in found)
    assert tw.debug_executor.first_divergence(debug, other, **named) is None
