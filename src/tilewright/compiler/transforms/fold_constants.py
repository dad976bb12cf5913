"""Constant folding with the oracles of the ops.

What is made of constants becomes a constant, as long as it stays small or does not grow much
beyond what it is made of: weights are transposed and packed here, but nothing is blown up by a
broadcast.  Symbolic sizes stop it.  Packing and layout changes themselves are other passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast, final

import numpy as np

from tilewright.base.errors import InputError, ModelError
from tilewright.base.record import record
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.evaluator import evaluate_node
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.placement import LINE_BYTES, empty_at_line
from tilewright.compiler.graph.schema import Array, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.quantization import widens_bytes
from tilewright.compiler.passes import Emitter, GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.matching import constant_of


@final
@record(kw_only=True)
class FoldConstants(GraphPass):
    """Replace a node by its value when all its operands are constants, or when it has no elements.

    Requires: nothing.  Ensures: types unchanged; no pure node without elements remains, and none on
    constants whose result has at most `limit_bytes`, or at most `growth` times the bytes of its operands, or which are
    the weights of a contraction.  With `keep_bytes`, tensors of bytes are not made wider; with
    `keep_blocks`, those of bytes with a scale per block.

    A constant that only folded nodes used is let go at once, so at any time there is one copy of
    the weights and the tensor at work.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"folded"})
    limit_bytes: int = 1 << 16
    growth: float = 2.0
    keep_bytes: bool = False
    keep_blocks: bool = False

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """Fold in node order, so that chains fold in one go."""
        count, made = 0, list[Node]()
        with Editor(graph) as edit:
            for node in edit.nodes():
                if _is_empty(node):
                    _empty(node, edit)
                    count += 1
                elif self._folds(node, edit):
                    made += _fold(node, edit)
                    count += 1
            for node in made:
                _settle(node)
            return PassResult(edit.modified, {"folded": count} if count else {})

    def _folds(self, node: Node, edit: Editor) -> bool:
        if node.regions or not node.has(Trait.PURE) or node.has(Trait.CONSTANT):
            return False
        arrays = [constant_of(v) for v in node.present_operands]
        given = [a for a in arrays if a is not None]
        if len(given) != len(arrays) or not attributes_are_numbers(node):
            return False
        types = [v.type for v in node.present_operands]
        keeps = self.keep_bytes or (self.keep_blocks and node.attributes.get("block_size"))
        if keeps and widens_bytes(types, [v.type for v in node.results]):
            return False
        size_bytes = 0
        for value in node.results:
            size = value.type.size_bytes
            if not isinstance(size, int):
                return False
            size_bytes += size
        made_of = sum(_stored_bytes(a) for a in given)
        if size_bytes <= max(self.limit_bytes, self.growth * made_of):
            return True
        return _is_weight(node, edit)


def _is_empty(node: Node) -> bool:
    """Whether no result of a pure node has an element, whatever its operands hold."""
    if node.regions or not node.has(Trait.PURE) or node.has(Trait.CONSTANT):
        return False
    shapes = [value.type.shape for value in node.results]
    are_numbers = all(isinstance(size, int) for shape in shapes for size in shape)
    return are_numbers and all(0 in shape for shape in shapes)


def _empty(node: Node, edit: Editor) -> None:
    emit = Emitter(edit, catalogue.schema, node)
    operands = node.present_operands
    shapes = [cast("tuple[int, ...]", v.type.shape) for v in node.results]
    arrays = [
        np.zeros(shape, value.type.dtype.numpy)
        for shape, value in zip(shapes, node.results, strict=True)
    ]
    edit.replace(node, [emit.constant(array) for array in arrays])
    release(edit, operands)


def _is_weight(node: Node, edit: Editor, depth: int = 8) -> bool:
    """Whether a contraction takes the result, moved perhaps, as weights: those lie in memory."""
    for value in node.results:
        for user in edit.users(value):
            if user.has(Trait.CONTRACTION) and user.operands[1] is value:
                return True
            if depth and _passes_on(user, value) and _is_weight(user, edit, depth - 1):
                return True
    return False


def _passes_on(user: Node, value: Value) -> bool:
    """Whether `user` makes of `value` nothing but weights: it moves it, or reckons with constants."""
    if user.has(Trait.MOVEMENT):
        return True
    return user.has(Trait.ELEMENTWISE) and all(
        v is value or _is_made_of_constants(v) for v in user.present_operands
    )


def _is_made_of_constants(value: Value, depth: int = 4) -> bool:
    if constant_of(value) is not None:
        return True
    node = value.node
    if node is None or not depth or not node.has(Trait.PURE):
        return False
    return all(_is_made_of_constants(v, depth - 1) for v in node.present_operands)


def _stored_bytes(array: Array) -> int:
    """Bytes that the elements take in memory; a broadcast view counts once."""
    size = array.dtype.itemsize
    for extent, stride in zip(array.shape, array.strides, strict=True):
        size *= extent if stride else min(extent, 1)
    return size


def attributes_are_numbers(node: Node) -> bool:
    """Whether no attribute is a size that only a call knows."""
    for spec in node.schema.attributes:
        held = node.attributes.get(spec.name)
        symbolic = isinstance(held, tuple) and not all(isinstance(d, int) for d in held)
        if spec.kind == "dims" and symbolic:
            return False
    return True


def _fold(node: Node, edit: Editor) -> list[Node]:
    """Put constants in the place of a node.  Returns: those that are new."""
    arrays = [None if v is None else constant_of(v) for v in node.operands]
    try:
        results = evaluate_node(node, arrays)
    except InputError as error:
        # What a call would be told of its data is the model's fault here.
        raise ModelError(error.message, location=error.location) from error
    emit = Emitter(edit, catalogue.schema, node)
    operands = node.present_operands
    made = [emit.constant(array) for array in results]
    edit.replace(node, made)
    release(edit, operands)
    return [value.node for value in made if value.node is not None]


def _settle(constant: Node) -> None:
    """Put the elements where kernels shall read them: memory of their own, at the boundary of a cache line.

    A view that shows little of a large array would keep the array alive.  Vectors that straddle
    two lines cost two reads; with vectors as wide as a line, all of them would.
    """
    array = cast("Array | None", constant.attributes.get("value"))
    if array is None:  # let go: what was made of it is a constant, too
        return
    base = array.base
    is_small_view = isinstance(base, np.ndarray) and base.nbytes > 4 * array.nbytes
    if is_small_view or array.ctypes.data % LINE_BYTES:
        place = empty_at_line(array.shape, array.dtype)
        place[...] = array
        constant.attributes["value"] = place


def release(edit: Editor, values: Sequence[Value]) -> None:
    """Let go of what nobody reads any more, of constants with their elements."""
    for value in dict.fromkeys(values):
        node = value.node
        if node is None or not edit.contains(node):
            continue
        edit.erase_dead(node)
        if not edit.contains(node):
            node.attributes.clear()
