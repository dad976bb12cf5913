"""A model of floats becomes one whose products have weights of 4 or 8 bits in blocks.

What is written are `MatMulNBits` nodes, which onnxruntime reads, too; everything else stays as it is.  Only what
products multiply by is touched: activations stay floats, unless nodes are to permit that they are rounded.  Called by `api.quantize`.

Source: onnxruntime's contrib operator MatMulNBits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, final

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tilewright.base.errors import ModelError, UserError
from tilewright.base.text import did_you_mean
from tilewright.compiler.frontends.onnx.model import Source, open_model
from tilewright.compiler.frontends.onnx.row import MICROSOFT
from tilewright.compiler.frontends.onnx.tensors import to_array

Array = np.ndarray[Any, np.dtype[Any]]

_FLOATS: Final = (TensorProto.FLOAT, TensorProto.FLOAT16)
_BLOCKS: Final = (16, 32, 64, 128, 256)
_BITS: Final = (4, 8)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How weights are stored.

    Attributes:
        bits: of a weight, 4 or 8.
        block: weights that share a scale, along the sum.
        symmetric: zero is the middle of the range; else each block has a zero point.
        int8_activations: rows may be rounded to 8 bits where they meet the weights (`accuracy_level` 4).
        include, exclude: patterns (`fnmatch`) of names of nodes; no `include`: all.
    """

    bits: int = 4
    block: int = 32
    symmetric: bool = True
    int8_activations: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise UserError for what cannot be written."""
        if self.bits not in _BITS:
            raise UserError(f"weights of {self.bits} bits", hint="4 or 8")
        if self.block not in _BLOCKS:
            raise UserError(
                f"blocks of {self.block} weights",
                hint=f"one of {', '.join(map(str, _BLOCKS))}",
            )


@final
@dataclass(frozen=True, slots=True)
class QuantizedNode:
    """A product with new weights.

    Attributes:
        error: root mean square of what weights changed by, relative to that of the weights.
        largest: the largest change of one weight.
        before_bytes, after_bytes: of its weights.
    """

    name: str
    weight: str
    shape: tuple[int, int]
    error: float
    largest: float
    before_bytes: int
    after_bytes: int


@final
@dataclass(frozen=True, slots=True)
class KeptNode:
    """A product that stays as it was, and why."""

    name: str
    reason: str


@final
@dataclass(frozen=True, slots=True, eq=False)
class QuantizedModel:
    """The new model, and what became of each product."""

    model: ModelProto
    nodes: tuple[QuantizedNode, ...]
    kept: tuple[KeptNode, ...]
    before_bytes: int
    after_bytes: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """[N, K] weights in blocks along K, as `MatMulNBits` has them, and what they stand for."""

    stored: Array
    scale: Array
    zero: Array | None
    real: Array


def pack_weights(weights: Array, form: WeightFormat) -> Packed:
    """Round [N, K] floats to blocks."""
    columns, depth = weights.shape
    blocks = -(-depth // form.block)
    wide = np.zeros((columns, blocks * form.block), np.float32)
    wide[:, :depth] = weights
    values = wide.reshape(columns, blocks, form.block)
    scale, zero = _ranges(values, form)
    # Integers are those of the scale that is stored.
    scale = scale.astype(weights.dtype)
    factor = scale.astype(np.float32)[..., None]
    most = (1 << form.bits) - 1
    numbers = np.clip(np.rint(values / factor) + zero[..., None], 0, most).astype(np.uint8)
    real = (numbers.astype(np.float32) - zero[..., None]) * factor
    kept = None if form.symmetric else _packed_bits(zero.astype(np.uint8), form.bits)
    stored = _packed_bits(numbers, form.bits)
    return Packed(stored, scale, kept, real.reshape(columns, -1)[:, :depth])


def _ranges(values: Array, form: WeightFormat) -> tuple[Array, Array]:
    """The scale and zero point of each block, both f32; a block of zeros has scale 1."""
    most = (1 << form.bits) - 1
    low, high = values.min(-1), values.max(-1)
    if form.symmetric:
        # The number of largest size gets the one that has no opposite.
        far = np.where(np.abs(low) > np.abs(high), low, high)
        scale = far / np.float32(-(1 << (form.bits - 1)))
        zero = np.full(scale.shape, 1 << (form.bits - 1), np.float32)
    else:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = (high - low) / np.float32(most)
        zero = np.zeros(scale.shape, np.float32)
    scale = np.where(np.abs(scale) < np.finfo(np.float16).tiny, np.float32(1), scale)
    if not form.symmetric:
        zero = np.clip(np.rint(-low / scale), 0, most)
    return scale.astype(np.float32), zero.astype(np.float32)


def _packed_bits(numbers: Array, bits: int) -> Array:
    """[..., n] numbers as bytes, the first of two in the low half."""
    if bits == 8:
        return np.ascontiguousarray(numbers)
    if numbers.shape[-1] % 2:
        pad = [(0, 0)] * (numbers.ndim - 1) + [(0, 1)]
        numbers = np.pad(numbers, pad)
    return numbers[..., ::2] | numbers[..., 1::2] << np.uint8(4)


# --- models ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """A product by known weights: `turned` if they lie as [N, K]."""

    node: NodeProto
    weight: str
    turned: bool
    bias: str


def quantize_weights(
    source: Source,
    form: WeightFormat,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> QuantizedModel:
    """The model with weights in blocks.

    Args:
        source: an ONNX model, which stays as it is.
        form: how weights are stored, and whose.
        advance: hears how many of how many products are done.

    Raises: UserError for a form that there is not, and for patterns that fit no product; ModelError for a
        file that is none or a model without products by known weights.
    """
    form.check()
    opened = open_model(source)
    model = ModelProto()
    model.CopyFrom(opened.proto)
    arrays = _Weights(model.graph, lambda tensor: to_array(tensor, opened.storage))
    products = [p for n in model.graph.node if (p := arrays.product(n)) is not None]
    if not products:
        raise ModelError("no product has weights that the model holds")
    chosen = _chosen([_name(p.node) for p in products], form)
    before = arrays.size_bytes()
    found: list[QuantizedNode] = []
    kept: list[KeptNode] = []
    for count, product in enumerate(products, 1):
        reason = (
            "not chosen" if _name(product.node) not in chosen else arrays.problem(product)
        )
        if reason:
            kept.append(KeptNode(_name(product.node), reason))
        else:
            found.append(_replace(model.graph, product, arrays, form))
        advance(count, len(products))
    _clean(model.graph)
    if all(entry.domain != MICROSOFT for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    arrays.embed()
    after = _Weights(model.graph, arrays.read).size_bytes()
    return QuantizedModel(model, tuple(found), tuple(kept), before, after)


def _name(node: NodeProto) -> str:
    return node.name or node.output[0]


def _chosen(names: Sequence[str], form: WeightFormat) -> set[str]:
    """The names that the patterns leave.  Raises: UserError for a pattern that fits none."""
    for pattern in (*form.include, *form.exclude):
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = did_you_mean(pattern, names) or f"products: {' '.join(names[:8])}"
            raise UserError(f"no product is called '{pattern}'", hint=hint)

    def fits(name: str, patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    return {
        name
        for name in names
        if fits(name, form.include or ("*",)) and not fits(name, form.exclude)
    }


@final
class _Weights:
    """The constants of a graph by name, and who makes the rest."""

    def __init__(self, graph: GraphProto, read: Callable[[TensorProto], Array]) -> None:
        self.graph = graph
        self.read = read
        self.tensors = {t.name: t for t in graph.initializer}
        self.makers = {output: n for n in graph.node for output in n.output}
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    self.tensors[node.output[0]] = attribute.t
        # What a caller may replace is not known.
        for value in graph.input:
            self.tensors.pop(value.name, None)

    def product(self, node: NodeProto) -> _Product | None:
        """What is multiplied by known weights, if that is all the node does."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in ("MatMul", "Gemm"):
            return None
        values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        plain = values.get("alpha", 1.0) == 1 and values.get("beta", 1.0) == 1
        if values.get("transA", 0) or not plain:
            return None
        weight, turned = node.input[1], bool(values.get("transB", 0))
        maker = self.makers.get(weight)
        if maker is not None and maker.op_type == "Transpose":
            perms = [list(a.ints) for a in maker.attribute if a.name == "perm"]
            if perms in ([], [[1, 0]]):
                weight, turned = maker.input[0], not turned
        tensor = self.tensors.get(weight)
        if tensor is None or len(tensor.dims) != 2 or tensor.data_type not in _FLOATS:
            return None
        return _Product(node, weight, turned, node.input[2] if len(node.input) > 2 else "")

    def array(self, product: _Product) -> Array:
        """[N, K]."""
        found = self.read(self.tensors[product.weight])
        return found if product.turned else found.T

    def problem(self, product: _Product) -> str:
        """Why weights cannot be rounded; empty if they can."""
        array = self.array(product)
        if not array.size:
            return "no weights"
        return "" if np.isfinite(array).all() else "weights that are not finite"

    def is_vector(self, name: str, size: int) -> bool:
        """Whether a constant is one number for each of `size` columns."""
        return name in self.tensors and list(self.tensors[name].dims) == [size]

    def size_bytes(self) -> int:
        """Of all constants."""
        return sum(
            int(np.prod([*t.dims], dtype=np.int64)) * helper.tensor_dtype_to_np_dtype(t.data_type).itemsize
            for t in self.graph.initializer
        )  # fmt: skip

    def embed(self) -> None:
        """Constants from other files become part of the model, which has no folder yet."""
        for tensor in _tensors(self.graph):
            if tensor.data_location == TensorProto.EXTERNAL:
                array = np.ascontiguousarray(self.read(tensor))
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _replace(
    graph: GraphProto, product: _Product, arrays: _Weights, form: WeightFormat
) -> QuantizedNode:
    """Put a product by blocks in the place of one by floats."""
    array, name = arrays.array(product), _name(product.node)
    columns, depth = array.shape
    packed = pack_weights(array, form)
    base = f"{name}.{product.weight}"
    parts = [("packed", packed.stored), ("scales", packed.scale), ("zeros", packed.zero)]
    inputs = [product.node.input[0]]
    size = 0
    for suffix, part in parts:
        inputs.append("" if part is None else f"{base}.{suffix}")
        if part is not None:
            size += part.nbytes
            graph.initializer.append(numpy_helper.from_array(part, inputs[-1]))
    _write(graph, product, inputs, arrays.is_vector(product.bias, columns), {
        "K": depth, "N": columns, "bits": form.bits, "block_size": form.block,
        **({"accuracy_level": 4} if form.int8_activations else {}),
    })  # fmt: skip
    wide = array.astype(np.float32)
    change = packed.real - wide
    norm = float(np.sqrt(np.square(wide, dtype=np.float64).sum()))
    error = float(np.sqrt(np.square(change, dtype=np.float64).sum())) / (norm or 1.0)
    return QuantizedNode(
        name, product.weight, (depth, columns), error, float(np.abs(change).max()),
        array.nbytes, size,
    )  # fmt: skip


def _write(
    graph: GraphProto,
    product: _Product,
    inputs: list[str],
    bias_fits: bool,
    attributes: dict[str, Any],
) -> None:
    """Rewrite the node in place; a bias of another shape is added behind it."""
    node, result = product.node, product.node.output[0]
    if product.bias and bias_fits:
        inputs = [*inputs, "", product.bias]
    while not inputs[-1]:
        inputs.pop()
    behind = bool(product.bias) and not bias_fits
    made = helper.make_node(
        "MatMulNBits", inputs, [f"{result}.product" if behind else result],
        name=node.name, domain=MICROSOFT, **attributes,
    )  # fmt: skip
    if behind:
        place = next(
            i for i, other in enumerate(graph.node) if other is node or other == node
        )
        added = helper.make_node("Add", [made.output[0], product.bias], [result])
        graph.node.insert(place + 1, added)
    node.CopyFrom(made)


def _clean(graph: GraphProto) -> None:
    """Drop transposes and weights that nobody reads any more."""
    used = {*_read_names(graph), *(o.name for o in graph.output)}
    for node in [n for n in graph.node if n.op_type in ("Transpose", "Constant")]:
        if not any(output in used for output in node.output):
            graph.node.remove(node)
    used = {*_read_names(graph), *(o.name for o in graph.output)}
    for tensor in [t for t in graph.initializer if t.name not in used]:
        graph.initializer.remove(tensor)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor that a graph holds, those of subgraphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _read_names(graph: GraphProto) -> Iterator[str]:
    """What nodes read, those of subgraphs too."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _read_names(inner)
                yield from (o.name for o in inner.output)


def serialized(model: ModelProto) -> bytes:
    """The model as a file.  Raises: UserError for more than such a file can hold."""
    if model.ByteSize() > onnx.checker.MAXIMUM_PROTOBUF:
        raise UserError("the model is still larger than 2 GB, which one file cannot hold")
    return model.SerializeToString()
