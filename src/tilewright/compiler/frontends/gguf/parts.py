"""Parts of a model as they are written: each has a name, which errors say and reports list.

What all kinds of layers are made of: products with tensors of the file, norms.  Called by `transformer` and by what it
calls for networks and forms of attention.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import final

from tilewright.base import dtypes
from tilewright.base.errors import TilewrightError
from tilewright.compiler.frontends.gguf.hyperparameters import Hyperparameters
from tilewright.compiler.frontends.gguf.weights import Projection, Weights
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.record import Record
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Graph, Location
from tilewright.formats.gguf import GgufFile


@final
@dataclass(slots=True)
class Parts:
    """Writes parts of a model into a graph; `records` say what became of each.

    Raises (every method): ModelError naming the tensor or the part that is wrong.
    """

    graph: Graph
    file: GgufFile
    form: Hyperparameters
    records: list[Record] = field(default_factory=list[Record])
    maker: NodeMaker = field(init=False)
    weights: Weights = field(init=False)

    def __post_init__(self) -> None:
        self.maker = NodeMaker(self.graph)
        self.weights = Weights(self.maker, self.file)

    @contextmanager
    def part(self, op_type: str, name: str) -> Generator[None]:
        """What is written inside is a part of the model by this name, which errors say."""
        self.maker.location = Location(self.file.location, name)
        self.maker.emitted = []
        try:
            yield
        except TilewrightError as error:
            error.location = error.location or self.maker.location
            raise
        record = Record(op_type, "", name, emitted=self.maker.emitted)
        self.records.append(record)

    def kind(self, name: str) -> str:
        """The type of a tensor's numbers, by the name of what it is the weight of."""
        found = self.file.tensors.get(f"{name}.weight")
        return "missing" if found is None else found.type.name

    def scaled(self, x: Tensor, factor: float) -> Tensor:
        """`x` times a number."""
        e = self.maker
        return x if factor == 1.0 else e.op("mul", x, e.scalar(factor, dtypes.f32))

    def norm(
        self, x: Tensor, name: str, *, optional: bool = False, epsilon: float | None = None
    ) -> Tensor:
        """Rows of `x: [.., size]` normalised by the tensors of a name.

        Args:
            x: the rows.
            name: of the tensors, without their ends.
            optional: leave rows as they are where there are no such tensors.
            epsilon: keeps it from division by zero; default: that of the model.
        """
        kind = self.form.architecture.norm
        if optional and not self.weights.has(f"{name}.weight"):
            return x
        if kind == "plain":
            with self.part("LayerNorm", name):
                return self.normalised(x, epsilon=epsilon)
        size = x.shape[-1]
        assert isinstance(size, int)
        with self.part("RMSNorm" if kind == "rms" else "LayerNorm", name):
            # Files of falcon-h1 leave the end of a name out.
            tensor = name if self.weights.has(name) else f"{name}.weight"
            scale = self.weights.vector(tensor, size)
            bias = f"{name}.bias"
            if kind == "rms" or not self.weights.has(bias):
                return self.normalised(x, scale, epsilon=epsilon)
            moved = self.weights.vector(bias, size)
            return self.normalised(x, scale, moved, epsilon=epsilon)

    def normalised(
        self, x: Tensor, *weights: Tensor, epsilon: float | None = None
    ) -> Tensor:
        """Rows of `x: [.., size]` normalised as the architecture does it."""
        op = "rms_norm" if self.form.architecture.norm == "rms" else "layer_norm"
        small = self.form.epsilon if epsilon is None else epsilon
        return self.maker.op(op, x, *weights, axis=-1, epsilon=small)

    def product(self, x: Tensor, parts: list[Projection]) -> Tensor:
        """`x: [1, n, K]` as `[1, n, rows of all projections]`."""
        name = parts[0].name
        with self.part(f"Linear({self.kind(name)})", name):
            return self.weights.product(x, parts)
