"""Graphs as TVM 0.4 to 0.19 wrote them, and a maker of further ones.

The files have the shapes of things that TVM's code generator made (fused operators with hashes,
views by `__nop`, storages that are used again, devices); what they compute is for tests to say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Place = list[int]


class GraphMaker:
    """Adds nodes one by one; every entry gets a storage of its own unless one is named."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.rows: list[int] = [0]
        self.shapes: list[list[int]] = []
        self.dtypes: list[str] = []
        self.storages: list[int] = []
        self.inputs: list[int] = []

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Place:
        self.inputs.append(len(self.nodes))
        return self._add({"op": "null", "name": name, "inputs": []}, [shape], dtype)[0]

    def call(
        self,
        function: str,
        inputs: Sequence[Place],
        shapes: Sequence[Sequence[int]],
        dtype: str = "float32",
        *,
        name: str = "",
        storages: Sequence[int | None] = (),
        **attributes: str,
    ) -> list[Place]:
        found = {
            "num_outputs": str(len(shapes)),
            "num_inputs": str(len(inputs)),
            "flatten_data": "0",
            "func_name": function,
            **attributes,
        }
        node = {
            "op": "tvm_op",
            "name": name or f"{function}{len(self.nodes)}",
            "attrs": found,
            "inputs": list(inputs),
        }
        return self._add(node, shapes, dtype, storages)

    def view(self, source: Place, shape: Sequence[int], dtype: str = "float32") -> Place:
        storage = self.storages[self.rows[source[0]] + source[1]]
        return self.call(
            "__nop", [source], [shape], dtype, name="reshape_nop", storages=[storage]
        )[0]

    def members(self, heads: Sequence[Place], **attrs: Any) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "arg_nodes": self.inputs,
            "heads": list(heads),
            "attrs": {
                "dltype": ["list_str", self.dtypes],
                "storage_id": ["list_int", self.storages],
                "shape": ["list_shape", self.shapes],
                **attrs,
            },
            "node_row_ptr": self.rows,
        }

    def file(self, heads: Sequence[Place], **attrs: Any) -> bytes:
        return json.dumps(self.members(heads, **attrs), indent=2).encode()

    def _add(
        self,
        node: dict[str, Any],
        shapes: Sequence[Sequence[int]],
        dtype: str,
        storages: Sequence[int | None] = (),
    ) -> list[Place]:
        number = len(self.nodes)
        self.nodes.append(node)
        for index, shape in enumerate(shapes):
            named = storages[index] if index < len(storages) else None
            free = max(self.storages, default=-1) + 1
            self.shapes.append(list(shape))
            self.dtypes.append(dtype)
            self.storages.append(free if named is None else named)
        self.rows.append(self.rows[-1] + len(shapes))
        return [[number, index, 0] for index in range(len(shapes))]


def dense() -> bytes:
    """Of 0.8 to 0.19: two fused operators, hashes, the devices of all entries, a storage reused."""
    made = GraphMaker()
    x, weight = made.input("x", [1, 128]), made.input("p0", [64, 128])
    (hidden,) = made.call(
        "tvmgen_default_fused_nn_dense_nn_relu",
        [x, weight],
        [[1, 64]],
        hash="a2b7e0a88031366c",
        kernel_layout="",
    )
    bias = made.input("p1", [64])
    (total,) = made.call("tvmgen_default_fused_add", [hidden, bias], [[1, 64]], hash="07")
    flat = made.view(total, [64])
    (out,) = made.call(
        "tvmgen_default_fused_nn_relu", [flat], [[64]], storages=[2], flatten_data="1"
    )
    count = len(made.shapes)
    return made.file([out, total], device_index=["list_int", [1] * count])


def old() -> bytes:
    """Of 0.4: `attr`, places of two numbers, `control_deps`, types by number, metadata behind."""
    made = GraphMaker()
    data = made.input("data", [2, 3])[:2]
    left, right = made.call("split", [data], [[2, 1], [2, 2]])
    (joined,) = made.call("__copy", [left[:2]], [[2, 1]])
    for node in made.nodes[1:]:
        node["attr"] = node.pop("attrs")
    made.nodes[2]["control_deps"] = [0, 1]
    others = {"dtype": ["list_int", [0] * 4], "size": ["size_t", 64]}
    members = made.members([joined[:2], right[:2]], **others)
    return json.dumps({**members, "metadata": {"version": "0.4", "anything": [1]}}).encode()


def textures() -> bytes:
    """Of 0.9 on: storage scopes, integers, a scalar, a tensor with nothing in it."""
    made = GraphMaker()
    x = made.input("x", [], "int64")
    (y,) = made.call("fused_add", [x], [[]], "int64")
    (z,) = made.call("fused_slice", [y], [[0, 4]], "uint8")
    return made.file([y, z], storage_scope=["list_str", ["", "global", "global"]])


def files() -> tuple[bytes, ...]:
    return (dense(), old(), textures())
