"""Shapes with a symbol per size, and values for the symbols around what schedules cut at.

What it is: one row per way a schedule treats a nest; the same rows with symbols (one kernel, many
sizes) and with numbers (a kernel per size).
What it is not: the declared cases of the ops, which are small and fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fakes.contractions import Form, convolution, depthwise, product
from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import make_node

Shape = Sequence[str | int]
SIZES = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    24,
    31,
    32,
    33,
    47,
    48,
    63,
    64,
    65,
    80,
    100,
    129,
)


@dataclass(frozen=True, eq=False)
class Sweep:
    """An op on operands whose sizes are names; `most` bounds the product of all sizes."""

    op: str
    shapes: tuple[Shape, ...]
    attributes: Mapping[str, object] | Form = field(default_factory=dict)
    most: int = 1 << 18
    smallest: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the sizes, in order."""
        return list(dict.fromkeys(d for s in self.shapes for d in s if isinstance(d, str)))

    def node(self, dims: Mapping[str, int] | None, dtype: DType) -> Node:
        """The node with symbols, or with the numbers of `dims`."""
        operands = [
            Value(TensorType(dtype, tuple(self._dim(d, dims) for d in shape)), "")
            for shape in self.shapes
        ]
        attributes = self.attributes
        if callable(attributes):
            attributes = attributes([value.type.shape for value in operands])
        return make_node(self.op, operands, attributes)

    def _dim(self, dim: str | int, dims: Mapping[str, int] | None) -> symbolic.Dim:
        if isinstance(dim, int):
            return dim
        return (
            symbolic.symbol(dim, self.smallest.get(dim, 1)) if dims is None else dims[dim]
        )

    def arrays(
        self, dims: Mapping[str, int], dtype: DType, random: np.random.Generator
    ) -> list[np.ndarray]:
        """Operands of these sizes."""
        found = []
        for shape in self.shapes:
            sizes = [d if isinstance(d, int) else dims[d] for d in shape]
            values = (
                random.standard_normal(sizes)
                if dtype.is_float
                else random.integers(-9, 9, sizes)
            )
            found.append(np.asarray(values).astype(dtype.numpy))
        return found

    def draw(self, random: np.random.Generator) -> dict[str, int]:
        """Sizes whose product is not too large."""
        while True:
            dims = {
                n: max(int(random.choice(SIZES)), self.smallest.get(n, 1))
                for n in self.names
            }
            if np.prod(list(dims.values()), dtype=np.int64) <= self.most:
                return dims


def _conv(groups: int, stride: int, taps: int, layout: str = "NCHW") -> Sweep:
    pad = taps // 2
    return Sweep(
        "conv",
        (("N", 4, "H", "W"), (8, 4 // groups, taps, taps), (8,)),
        {
            "groups": groups,
            "strides": (stride, stride),
            "pads": (pad,) * 4,
            "layout": layout,
        },
        1 << 12,
        {"H": taps, "W": taps},
    )


SWEEPS: dict[str, Sweep] = {
    "matmul": Sweep("matmul", (("M", "K"), ("K", "N"))),
    "matmul_batch": Sweep("matmul", (("B", "M", "K"), ("B", "K", "N"))),
    "matmul_broadcast": Sweep("matmul", (("A", "B", "M", "K"), ("B", "K", "N"))),
    "matmul_row": Sweep("matmul", ((1, "K"), ("K", "N"))),
    "matmul_column": Sweep("matmul", (("M", "K"), ("K", 1))),
    "matmul_columns_fixed": Sweep("matmul", (("M", "K"), ("K", 40))),
    "matmul_depth_fixed": Sweep("matmul", (("M", 48), (48, "N"))),
    "packed": Sweep(
        "contract", (("M", "K"), (3, "K", 32)), product(70), 1 << 12
    ),
    "packed_batch": Sweep(
        "contract", (("B", "M", 24), (2, 24, 16)), product(31), 1 << 12
    ),
    "conv1": _conv(1, 1, 1),
    "conv3": _conv(1, 1, 3),
    "conv3_strided": _conv(1, 2, 3),
    "conv3_grouped": _conv(2, 1, 3),
    "conv5_depthwise": _conv(4, 1, 5),
    "conv_packed": Sweep(
        "contract",
        (("N", "H", "W", 5), (1, 2, 3, 3, 5, 16)),
        convolution(24),
        1 << 12,
        {"H": 3, "W": 3},
    ),
    "depthwise": Sweep(
        "contract", (("N", "H", "W", "C"), (3, 3, "C")), depthwise(), 1 << 14, {"H": 3, "W": 3}
    ),
    "softmax": Sweep("softmax", (("A", "B", "C"),)),
    "softmax_middle": Sweep("softmax", (("A", "B", "C"),), {"axis": 1}),
    "log_softmax": Sweep("log_softmax", (("A", "C"),)),
    "layer_norm": Sweep("layer_norm", (("A", "B", "C"), ("C",), ("C",))),
    "layer_norm_wide": Sweep("layer_norm", (("A", "B", "C"), ("B", "C"), ("B", "C")), {"axis": 1}),
    "rms_norm": Sweep("rms_norm", (("A", "C"), ("C",))),
    "sum_last": Sweep("reduce_sum", (("A", "B"),), {"axes": (1,), "keepdims": False}),
    "sum_first": Sweep("reduce_sum", (("A", "B"),), {"axes": (0,), "keepdims": False}),
    "max_middle": Sweep("reduce_max", (("A", "B", "C"),), {"axes": (1,), "keepdims": True}),
    "mean_all": Sweep("reduce_mean", (("A", "B", "C"),), {"axes": (0, 1, 2), "keepdims": False}),
    "mean_outer": Sweep("reduce_mean", (("A", "B", "C"),), {"axes": (0, 2), "keepdims": False}),
    "arg_max": Sweep("arg_max", (("A", "B"),), {"axis": 1, "keepdims": False}),
    "arg_min_first": Sweep("arg_min", (("A", "B"),), {"axis": 0, "keepdims": True}),
    "cumsum": Sweep("cumsum", (("A", "B"),), {"axis": 0}),
    "add_rows": Sweep("add", (("A", "B"), ("B",))),
    "add_columns": Sweep("mul", (("A", "B"), ("A", 1))),
    "add_outer": Sweep("sub", (("A", 1, "C"), ("B", 1))),
    "exp": Sweep("exp", (("A", "B"),)),
    "transpose": Sweep("transpose", (("A", "B"),), {"perm": (1, 0)}),
    "transpose_inner": Sweep("transpose", (("A", "B", "C"),), {"perm": (0, 2, 1)}),
    "transpose_outer": Sweep("transpose", (("A", "B", "C"),), {"perm": (1, 0, 2)}),
    "transpose_all": Sweep("transpose", (("A", "B", "C"),), {"perm": (2, 1, 0)}),
    "pad": Sweep("pad", (("A", "B"),), {"pads": (1, 2, 0, 3)}),
    "pad_edge": Sweep("pad", (("A", "B"),), {"pads": (1, 2, 0, 3), "mode": "edge"}),
    "concat": Sweep("concat", (("A", "B"), ("A", "C"), ("A", "B")), {"axis": 1}),
    "concat_first": Sweep("concat", (("A", "C"), ("B", "C")), {"axis": 0}),
    "add_cross": Sweep("add", ((1, "B"), ("A", 1))),
    "tile": Sweep("tile", (("A", "B"),), {"repeats": (2, 3)}),
    "max_pool": Sweep(
        "max_pool", (("N", "C", "H", "W"),),
        {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}, 1 << 14, {"H": 3, "W": 3},
    ),
    "average_pool": Sweep(
        "average_pool", (("N", "H", "W", "C"),),
        {"kernel": (2, 3), "pads": (0, 1, 1, 1), "layout": "NHWC"}, 1 << 14, {"H": 3, "W": 3},
    ),
    "pack": Sweep("pack_panels", (("K", "N"),), {"panel": 16}),
    "trilu": Sweep("trilu", (("A", "B", "C"),), {"upper": False}),
}  # fmt: skip
