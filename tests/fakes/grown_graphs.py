"""A hypothesis strategy of small graphs over the catalogue, with a dynamic batch.

Every step takes values made before and adds one op that fits; what nobody uses and a few others
become outputs.  Used by property tests of passes and of the whole compiler.
"""

import numpy as np
from hypothesis import strategies as st

from tilewright.base import symbolic
from tilewright.base.dtypes import bool_, f32
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

N = symbolic.symbol("N", 1)
UNARY = ("relu", "neg", "exp", "sigmoid", "tanh", "abs", "identity", "erf")
BINARY = ("add", "sub", "mul", "max", "min")
REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max")
SCALARS = (0.0, 1.0, 0.5, 2.0, -3.0)


class Maker:
    """One graph in the making; every `step_…` returns a new value or None when nothing fits."""

    def __init__(self, draw):
        self.draw = draw
        self.builder = GraphBuilder()
        self.values = []
        self.seed = draw(st.integers(0, 1000))
        self.random = np.random.default_rng(self.seed)

    def one(self, options):
        return self.draw(st.sampled_from(list(options)))

    def any_value(self):
        return self.one(self.values[-4:])

    def op(self, name, operands, **attributes):
        return self.builder.op(name, operands, attributes)

    def constant(self, shape):
        array = self.random.standard_normal(shape).astype(np.float32)
        return self.builder.constant(array)

    def bounded(self, value):
        """Keep numbers small so that chains of exp and mul stay finite."""
        return self.op("tanh", [value])

    def step_unary(self):
        value = self.any_value()
        name = self.one(UNARY)
        return self.op(name, [self.bounded(value) if name == "exp" else value])

    def step_scalar(self):
        scalar = self.builder.constant(np.float32(self.one(SCALARS)))
        operands = [self.any_value(), scalar]
        return self.op(self.one(BINARY), operands[:: self.one((1, -1))])

    def step_binary(self):
        left = self.any_value()
        same = [v for v in self.values if v.type.shape == left.type.shape]
        return self.bounded(self.op(self.one(BINARY), [left, self.one(same)]))

    def step_row(self):
        value = self.any_value()
        if not value.type.rank or not isinstance(value.type.shape[-1], int):
            return None
        return self.op(self.one(BINARY), [value, self.constant((value.type.shape[-1],))])

    def step_where(self):
        value = self.any_value()
        test = self.op("less", [value, self.builder.constant(np.float32(0.1))])
        return self.op("where", [test, value, self.builder.constant(np.float32(0.5))])

    def step_transpose(self):
        value = self.any_value()
        perm = self.draw(st.permutations(range(value.type.rank)))
        return self.op("transpose", [value], perm=tuple(perm))

    def step_reshape(self):
        value = self.any_value()
        shape = list(value.type.shape)
        places = [i for i, d in enumerate(shape) if isinstance(d, int) and d % 2 == 0]
        choice = self.one(("merge", "split", "unit"))
        if choice == "merge" and len(shape) > 1:
            at = self.draw(st.integers(0, len(shape) - 2))
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif choice == "split" and places:
            at = self.one(places)
            shape[at : at + 1] = [shape[at] // 2, 2]
        else:
            shape.insert(self.draw(st.integers(0, len(shape))), 1)
        return self.op("reshape", [value], shape=tuple(shape)) if len(shape) < 6 else None

    def step_slice(self):
        value = self.any_value()
        axes = [i for i, d in enumerate(value.type.shape) if isinstance(d, int) and d > 2]
        if not axes:
            return None
        axis = self.one(axes)
        size = self.draw(st.integers(1, value.type.shape[axis] - 1))
        start = self.draw(st.integers(0, value.type.shape[axis] - size))
        return self.op(
            "slice", [value], axes=(axis,), starts=(start,), sizes=(size,), steps=(1,)
        )

    def step_concat(self):
        value = self.any_value()
        if not value.type.rank:
            return None
        axis = self.draw(st.integers(0, value.type.rank - 1))
        fits = [
            v
            for v in self.values
            if v.type.rank == value.type.rank
            and all(
                a == b or i == axis
                for i, (a, b) in enumerate(zip(v.type.shape, value.type.shape, strict=True))
            )
        ]
        return self.op("concat", [value, self.one(fits)], axis=axis)

    def step_pad(self):
        value = self.any_value()
        rank = value.type.rank
        pads = tuple(self.draw(st.integers(0, 1)) for _ in range(2 * rank))
        return self.op("pad", [value], pads=pads)

    def step_reduce(self):
        value = self.any_value()
        if not value.type.rank:
            return None
        axis = self.draw(st.integers(0, value.type.rank - 1))
        return self.op(
            self.one(REDUCTIONS), [value], axes=(axis,), keepdims=self.draw(st.booleans())
        )

    def step_rows(self):
        value = self.any_value()
        if not value.type.rank:
            return None
        return self.op(self.one(("softmax", "layer_norm", "rms_norm")), [value])

    def step_normalize(self):
        """A layer norm spelled out."""
        value = self.any_value()
        if not value.type.rank:
            return None
        mean = self.op("reduce_mean", [value], axes=(-1,), keepdims=True)
        centred = self.op("sub", [value, mean])
        square = self.op("pow", [centred, self.builder.constant(np.float32(2))])
        variance = self.op("reduce_mean", [square], axes=(-1,), keepdims=True)
        shifted = self.op("add", [variance, self.builder.constant(np.float32(1e-3))])
        return self.op("div", [centred, self.op("sqrt", [shifted])])

    def step_matmul(self):
        value = self.any_value()
        if value.type.rank < 2 or not isinstance(value.type.shape[-1], int):
            return None
        columns = self.one((1, 3, 4, 17))
        weights = self.constant((value.type.shape[-1], columns))
        return self.bounded(self.op("matmul", [value, weights]))

    def step_attention(self):
        """A product with a computed right operand."""
        value = self.any_value()
        if value.type.rank < 2:
            return None
        perm = (*range(value.type.rank - 2), value.type.rank - 1, value.type.rank - 2)
        return self.bounded(
            self.op("matmul", [value, self.op("transpose", [value], perm=perm)])
        )

    def step_convolution(self):
        images = [v for v in self.values if v.type.rank in (3, 4) and self.is_image(v)]
        if not images:
            return None
        x = self.one(images)
        channels, rank = x.type.shape[1], x.type.rank - 2
        groups = self.one([g for g in (1, channels) if channels % g == 0])
        filters = groups * self.one((1, 2) if groups > 1 else (3, 4))
        taps = self.one((1, 3))
        weights = self.constant((filters, channels // groups, *([taps] * rank)))
        result = self.op(
            "conv",
            [x, weights, self.constant((filters,))],
            groups=groups,
            pads=(taps // 2,) * (2 * rank),
            strides=(self.one((1, 2)),) * rank,
        )
        return self.bounded(result)

    def step_batch_norm(self):
        images = [v for v in self.values if v.type.rank == 4 and self.is_image(v)]
        if not images:
            return None
        x = self.one(images)
        shape = (x.type.shape[1], 1, 1)
        return self.op(
            "add", [self.op("mul", [x, self.constant(shape)]), self.constant(shape)]
        )

    def step_pool(self):
        images = [v for v in self.values if v.type.rank == 4 and self.is_image(v)]
        if not images:
            return None
        name = self.one(("max_pool", "average_pool"))
        return self.op(name, [self.one(images)], kernel=(2, 2), pads=(1, 1, 0, 0))

    def is_image(self, value):
        _, channels, *spatial = value.type.shape
        return isinstance(channels, int) and all(
            isinstance(d, int) and d > 2 for d in spatial
        )

    def step_output(self):
        """Hand out something in the middle."""
        value = self.any_value()
        self.builder.output(f"extra{len(self.builder.graph.outputs)}", value)
        return value


STEPS = tuple(name for name in vars(Maker) if name.startswith("step_"))


@st.composite
def graphs(draw, most_steps=12):
    """A random graph with one or two inputs of rank 2 to 4."""
    maker = Maker(draw)
    shapes = [(N, 6), (N, 4, 5, 6), (2, N, 8), (3, 4), (1, 3, 8)]
    for index in range(draw(st.integers(1, 2))):
        type_ = TensorType(f32, maker.one(shapes))
        maker.values.append(maker.builder.input(f"x{index}", type_))
    for _ in range(draw(st.integers(1, most_steps))):
        made = getattr(maker, maker.one(STEPS))()
        if isinstance(made, Value) and made.type.dtype is not bool_:
            maker.values.append(made)
    used = {v for node in maker.builder.graph.nodes for v in node.operands}
    for index, value in enumerate(maker.values):
        if value not in used or value is maker.values[-1]:
            maker.builder.output(f"y{index}", value)
    return maker.builder.graph
