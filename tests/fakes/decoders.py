"""A decoder with caches as onnxruntime's operators that generate text want it: two layers, eleven words.

Random weights; what a token is followed by depends on all that was read, on its place and on the mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS = 11
LAYERS = 2
END = 1

_HEAD = """decoder (int32[b, s] input_ids, int32[b, s] position_ids, int32[b, t] attention_mask,
        float[2, b, 2, p, 4] past_0, float[2, b, 2, p, 4] past_1)
    => (float[b, s, 11] logits, float[2, b, 2, t, 4] present_0, float[2, b, 2, t, 4] present_1)
    <float one = {1}, float hidden = {-10000}, float scale = {0.5}, int64 first = {0}, int64 second = {1},
     int64[1] axis0 = {0}, int64[1] axis1 = {1}, int64[2] axes = {1, 2}, int64[4] heads = {0, 0, 2, 4},
     int64[3] joined = {0, 0, 8}> {
    e = Gather(words, input_ids)  p = Gather(places, position_ids)  h0 = Add(e, p)
    m = Cast<to = 1>(attention_mask)  n = Sub(one, m)  padding = Mul(n, hidden)  padded = Unsqueeze(padding, axes)
    all = Shape(attention_mask)  total = Gather(all, second)  own = Shape(input_ids)  new = Gather(own, second)
    old = Sub(total, new)  keys = Range(first, total, second)  rows = Range(old, total, second)
    row = Unsqueeze(rows, axis1)  later = Greater(keys, row)  l = Cast<to = 1>(later)  causal = Mul(l, hidden)
    mask = Add(padded, causal)
"""
_LAYER = """
    q@ = MatMul(h@, wq@)  k@ = MatMul(h@, wk@)  v@ = MatMul(h@, wv@)
    qs@ = Reshape(q@, heads)  ks@ = Reshape(k@, heads)  vs@ = Reshape(v@, heads)
    qt@ = Transpose<perm = [0, 2, 1, 3]>(qs@)  kt@ = Transpose<perm = [0, 2, 1, 3]>(ks@)
    vt@ = Transpose<perm = [0, 2, 1, 3]>(vs@)
    pk@ = Gather<axis = 0>(past_@, first)  pv@ = Gather<axis = 0>(past_@, second)
    ka@ = Concat<axis = 2>(pk@, kt@)  va@ = Concat<axis = 2>(pv@, vt@)
    ku@ = Unsqueeze(ka@, axis0)  vu@ = Unsqueeze(va@, axis0)  present_@ = Concat<axis = 0>(ku@, vu@)
    turned@ = Transpose<perm = [0, 1, 3, 2]>(ka@)  s@ = MatMul(qt@, turned@)  scaled@ = Mul(s@, scale)
    seen@ = Add(scaled@, mask)  share@ = Softmax<axis = -1>(seen@)  o@ = MatMul(share@, va@)
    ot@ = Transpose<perm = [0, 2, 1, 3]>(o@)  flat@ = Reshape(ot@, joined)  r@ = Tanh(flat@)  h# = Add(h@, r@)
"""
_TAIL = "    scores = MatMul(h2, head)  logits = Add(scores, bias)\n}"


def decoder(seed: int = 0, ending: float = 0.0, words: int = WORDS) -> onnx.GraphProto:
    """The subgraph; `ending` makes the token that ends a text more likely; it scores the first `words`."""
    layers = [_LAYER.replace("@", str(i)).replace("#", str(i + 1)) for i in range(LAYERS)]
    graph = onnx.parser.parse_graph(_HEAD + "".join(layers) + _TAIL)
    random = np.random.default_rng(seed)
    shapes = {"words": (WORDS, 8), "places": (32, 8), "head": (8, WORDS)}
    shapes |= {f"w{kind}{layer}": (8, 8) for layer in range(LAYERS) for kind in "qkv"}
    arrays = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    arrays["bias"] = np.zeros(WORDS, np.float32)
    arrays["bias"][END] = ending
    arrays["head"], arrays["bias"] = arrays["head"][:, :words], arrays["bias"][:words]
    graph.output[0].type.tensor_type.shape.dim[2].dim_value = words
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return graph


def generating(
    op: str,
    operands: Sequence[np.ndarray | None],
    *,
    sizes: Sequence[int | str] | None = None,
    results: Sequence[str] = ("sequences",),
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one operator: prompts and floats are inputs, the other operands initializers."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(operands)]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    prompt = operands[0]
    assert prompt is not None
    held = [(n, a) for n, a in zip(names[1:], operands[1:], strict=True) if a is not None]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "text",
        [info("x0", TensorProto.INT32, sizes or prompt.shape)],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(a, n) for n, a in held],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


_ENCODER = """encoder (int32[b, s] encoder_input_ids, int32[b, s] encoder_attention_mask#) => (@) <int64[4] heads = {0, 0, 2, 4}> {
    e = Gather(words, encoder_input_ids)  h = Tanh(e)
"""
_CROSS = """
    ck@ = MatMul(h, wck@)  cs@ = Reshape(ck@, heads)  present_key_cross_@ = Transpose<perm = [0, 2, 1, 3]>(cs@)
    cv@ = MatMul(h, wcv@)  ct@ = Reshape(cv@, heads)  present_value_cross_@ = Transpose<perm = [0, 2, 1, 3]>(ct@)
"""
_READER = """decoder (int32[b, 1] input_ids, int32[b, t] encoder_attention_mask#) => (@)
    <float one = {1}, float hidden = {-10000}, float scale = {0.5}, int64[2] axes = {1, 2}, int64[4] heads = {0, 0, 2, 4},
     int64[3] joined = {0, 0, 8}> {
    h0 = Gather(words, input_ids)
    m = Cast<to = 1>(encoder_attention_mask)  n = Sub(one, m)  padding = Mul(n, hidden)  mask = Unsqueeze(padding, axes)
"""
_READING = """
    q@ = MatMul(h@, wq@)  k@ = MatMul(h@, wk@)  v@ = MatMul(h@, wv@)
    qs@ = Reshape(q@, heads)  ks@ = Reshape(k@, heads)  vs@ = Reshape(v@, heads)
    qt@ = Transpose<perm = [0, 2, 1, 3]>(qs@)  kt@ = Transpose<perm = [0, 2, 1, 3]>(ks@)
    vt@ = Transpose<perm = [0, 2, 1, 3]>(vs@)
    present_key_self_@ = Concat<axis = 2>(past_key_self_@, kt@)
    present_value_self_@ = Concat<axis = 2>(past_value_self_@, vt@)
    turned@ = Transpose<perm = [0, 1, 3, 2]>(present_key_self_@)  s@ = MatMul(qt@, turned@)  scaled@ = Mul(s@, scale)
    share@ = Softmax<axis = -1>(scaled@)  o@ = MatMul(share@, present_value_self_@)
    across@ = Transpose<perm = [0, 1, 3, 2]>(past_key_cross_@)  cs@ = MatMul(qt@, across@)  seen@ = Add(cs@, mask)
    part@ = Softmax<axis = -1>(seen@)  co@ = MatMul(part@, past_value_cross_@)  both@ = Add(o@, co@)
    ot@ = Transpose<perm = [0, 2, 1, 3]>(both@)  flat@ = Reshape(ot@, joined)  r@ = Tanh(flat@)  h# = Add(h@, r@)
"""


def _caches(kind: str, of: str, length: str) -> list[str]:
    """Keys and values of all layers, as text declares them."""
    return [
        f"float[b, 2, {length}, 4] {kind}_{part}_{of}_{layer}"
        for layer in range(LAYERS)
        for part in ("key", "value")
    ]


def encoder_and_decoder(
    seed: int = 0, ending: float = 0.0
) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """Subgraphs of a text that is read and one that is written, as exported from T5."""
    crosses = _caches("present", "cross", "s")
    encoder = _ENCODER.replace("#", "").replace("@", ", ".join(crosses))
    encoder += "".join(_CROSS.replace("@", str(i)) for i in range(LAYERS)) + "}"
    takes = _caches("past", "self", "p") + _caches("past", "cross", "t")
    gives = ["float[b, 1, 11] logits", *_caches("present", "self", "n")]
    reader = _READER.replace("#", ", " + ", ".join(takes)).replace("@", ", ".join(gives))
    layers = [_READING.replace("@", str(i)).replace("#", str(i + 1)) for i in range(LAYERS)]
    graphs = [
        onnx.parser.parse_graph(t) for t in (encoder, reader + "".join(layers) + _TAIL)
    ]
    random = np.random.default_rng(seed)
    kinds = ("q", "k", "v", "ck", "cv")
    shapes = {"words": (WORDS, 8), "head": (8, WORDS)}
    shapes |= {f"w{kind}{layer}": (8, 8) for layer in range(LAYERS) for kind in kinds}
    arrays = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    arrays["bias"] = np.zeros(WORDS, np.float32)
    arrays["bias"][END] = ending
    for graph in graphs:
        used = {name for node in graph.node for name in node.input}
        held = [numpy_helper.from_array(a, n) for n, a in arrays.items() if n in used]
        graph.initializer.extend(held)
    return graphs[0], graphs[1]


def with_first_token(
    encoder: onnx.GraphProto, decoder: onnx.GraphProto, *, asks: bool
) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """The older form: the encoder reads the first token of the texts, too; the decoder `asks` for what it has found."""
    first, other = onnx.GraphProto(), onnx.GraphProto()
    first.CopyFrom(encoder)
    other.CopyFrom(decoder)
    renamed = {
        "input_ids": "decoder_input_ids",
        "encoder_attention_mask": "encoder_attention_mask",
    }
    renamed |= {v.name: "nothing" for v in decoder.input if "_self_" in v.name}
    renamed |= {
        v.name: v.name.replace("past", "present")
        for v in decoder.input
        if "_cross_" in v.name
    }
    renamed |= {v.name: v.name for v in decoder.output}
    shaped = onnx.parser.parse_graph(
        """g (int32[b, s] encoder_input_ids) => (float[b, 2, p, 4] nothing) <int64[1] zero = {0}, int64[3] rest = {2, 0, 4}> {
        sizes = Shape(encoder_input_ids)  batch = Gather(sizes, zero)  shape = Concat<axis = 0>(batch, rest)
        nothing = ConstantOfShape(shape)  encoder_hidden_states = Identity(h)
    }"""
    )  # fmt: skip
    first.node.extend(shaped.node)
    first.initializer.extend(shaped.initializer)
    for node in decoder.node:
        copy = first.node.add()
        copy.CopyFrom(node)
        for names in (copy.input, copy.output):
            names[:] = [renamed.get(n, f"d_{n}") for n in names]
    for tensor in decoder.initializer:
        copy = first.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = f"d_{tensor.name}"
    token = first.input.add()
    token.CopyFrom(decoder.input[0])
    token.name = "decoder_input_ids"
    crossed = list(first.output)
    del first.output[:]
    hidden = helper.make_tensor_value_info(
        "encoder_hidden_states", TensorProto.FLOAT, ["b", "t", 8]
    )
    first.output.extend([decoder.output[0], hidden, *list(decoder.output)[1:], *crossed])
    if asks:
        inputs = list(other.input)
        del other.input[:]
        other.input.extend([*inputs[:2], hidden, *inputs[2:]])
    return first, other
