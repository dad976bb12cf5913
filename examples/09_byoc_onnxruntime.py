"""Hand a part of a model to onnxruntime: a pattern, a code generator, a module that is saved with the model.

pip install onnxruntime
python examples/09_byoc_onnxruntime.py

The bytes of the module are an ONNX model: whoever loads the file needs onnxruntime and the loader.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime

import tilewright as tw
from subgraph_to_onnx import to_onnx
from tilewright import byoc
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder


class OnnxRuntimeModule(byoc.Module):
    """An ONNX model as a packed function of the name of its graph."""

    kind = "onnxruntime"
    properties = byoc.ModuleProperties.RUNNABLE | byoc.ModuleProperties.BINARY_SERIALIZABLE

    def __init__(self, model: bytes) -> None:
        super().__init__()
        self.model = model
        self.name = onnx.load_model_from_string(model).graph.name
        self.session = onnxruntime.InferenceSession(model)

    def find_function(self, name: str) -> object:
        return byoc.array_function(self.run) if name == self.name else None

    def function_names(self) -> tuple[str, ...]:
        return (self.name,)

    def run(self, *arrays: np.ndarray) -> None:
        inputs = self.session.get_inputs()
        feeds = {i.name: a for i, a in zip(inputs, arrays, strict=False)}
        results = self.session.run(None, feeds)
        for target, result in zip(arrays[len(inputs) :], results, strict=True):
            target[...] = result

    def save_to_bytes(self) -> bytes:
        return self.model


product = byoc.is_op("matmul")(byoc.wildcard().has_dtype("f32"), byoc.is_const())
pattern = byoc.is_op("add")(product, byoc.is_const()).optional(byoc.is_op("relu", "tanh"))
byoc.register_module_kind("onnxruntime", OnnxRuntimeModule)


@byoc.register_codegen("onnxruntime", patterns=[("dense", pattern)])
def generate(graph: byoc.Graph, name: str, _: Mapping[str, object]) -> byoc.Module:
    """The module of a subgraph."""
    return OnnxRuntimeModule(to_onnx(graph, name))


def network() -> byoc.Graph:
    """softmax(dense(relu(dense(x)))) over any number of rows."""
    random, b = np.random.default_rng(0), GraphBuilder()
    h = b.input("x", TensorType(f32, (symbol("rows", 1), 32)))
    for rows, columns in ((32, 64), (64, 8)):
        w = b.constant(random.standard_normal((rows, columns), np.float32))
        h = b.relu(b.add(b.matmul(h, w), b.constant(random.random(columns, np.float32))))
    b.output("y", b.softmax(h, axis=1))
    return b.graph


def main() -> None:
    """Every engine, from memory and from files."""
    model = tw.compile(network(), byoc=["onnxruntime"])
    steps = model.compiled.parts[0].plan.steps
    print("steps:", ", ".join(f"{step.kind} {step.target}" for step in steps))
    x = np.random.default_rng(1).random((5, 32), np.float32)
    expected = np.asarray(tw.compile(network())(x))

    def check(subject: str, y: object) -> None:
        print(f"{subject}:", np.allclose(np.asarray(y), expected, rtol=1e-5, atol=1e-6))

    with tempfile.TemporaryDirectory() as folder:
        check("compiled", model(x))
        model.save(f"{folder}/model.vmfb")
        for engine in ("plan", "vm"):
            session = tw.load(f"{folder}/model.vmfb", engine=engine)
            check(f"from a file, engine {engine}", session(x))
        net = tw.graph_executor.GraphModule(model.build()["default"](tw.cpu(0)))
        net.run(x=x)
        check("graph executor", np.from_dlpack(net.get_output(0)))
        model.build().export_library(f"{folder}/model.so")
        library = tw.runtime.load_module(f"{folder}/model.so")
        check("exported library", np.from_dlpack(library["main"](x)))


if __name__ == "__main__":
    main()
