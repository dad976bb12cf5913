"""Attention as torch's kernels are asked for it, as data."""

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.compiler.frontends.torch.load import load_program
from tilewright.compiler.frontends.torch.program import (
    Input,
    Operation,
    Output,
    Program,
    Ref,
    Role,
)
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.schema import TensorType


def test_the_kernel_for_cpus_shares_heads_of_keys_without_being_asked() -> None:
    few, many = TensorType(f32, (1, 2, 5, 8)), TensorType(f32, (1, 4, 3, 8))
    inputs = tuple(
        Input(name, Role.USER, many if name == "query" else few)
        for name in ("query", "key", "value")
    )
    operation = Operation(
        "a", "aten._scaled_dot_product_flash_attention_for_cpu.default",
        {entry.name: Ref(entry.name) for entry in inputs}, (many, None), is_list=True,
    )  # fmt: skip
    item = Operation("y", "getitem", {"self": Ref("a"), "index": 0}, (many,))
    model = Program("test", inputs, (operation, item), (Output(Ref("y")),))
    drawn = np.random.default_rng(0)
    shapes = ((1, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    q, k, v = (drawn.standard_normal(shape, np.float32) for shape in shapes)
    (found,) = evaluate(load_program(model).graph, [q, k, v])
    scores = np.einsum("bhqd,bhkd->bhqk", q, np.repeat(k, 2, 1)) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    wanted = np.einsum("bhqk,bhkd->bhqd", weights, np.repeat(v, 2, 1))
    assert np.allclose(found, wanted, atol=1e-5)
