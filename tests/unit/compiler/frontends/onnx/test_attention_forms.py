"""Attention as exporters write it: each form becomes one op, and one kernel, with the numbers of its oracle.

What it is: what torch's exporters, onnxruntime's optimizer and ONNX itself write for the attention of model
families, down to one node or a chain of nodes with small odd sizes.  What it is not: the rules one by one
(`transforms/test_recognize_attention.py`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.passes import run_passes
from tilewright.compiler.pipeline import neutral_passes

# fmt: off
OPEN = {"B": 2, "N": 5, "R": 5, "K": 7}

CHAINS = {
    "T5: no factor, a bias and a mask": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[1,3,5,7] bias, "
        "float[2,1,1,7] mask) => (float[2,3,5,6] y) { t=Transpose <perm=[0,1,3,2]>(k) "
        "s=MatMul(q,t) b=Add(bias,mask) a=Add(s,b) p=Softmax<axis=-1>(a) y=MatMul(p,v)}"
    ),
    "Swin: windows with shifted masks": (
        "(float[8,3,5,4] q, float[8,3,5,4] k, float[8,3,5,4] v, float[3,5,5] rel, "
        "float[4,5,5] mask) => (float[8,3,5,4] y) <float sc={0.5}, int64[5] five={2,4,3,5,5}, "
        "int64[4] four={8,3,5,5}, int64[1] zero={0}, int64[2] ax={0,2}> { t=Transpose "
        "<perm=[0,1,3,2]>(k) s=MatMul(q,t) s1=Mul(s,sc) r=Unsqueeze(rel,zero) a=Add(s1,r) "
        "f=Reshape(a,five) m=Unsqueeze(mask,ax) b=Add(f,m) c=Reshape(b,four) "
        "p=Softmax<axis=-1>(c) y=MatMul(p,v)}"
    ),
    "CLIP: joined heads and a causal mask": (
        "(float[2,3,5,4] q, float[2,3,5,4] k, float[2,3,5,4] v, float[2,1,5,5] causal) => "
        "(float[6,5,4] y) <float sc={0.5}, int64[3] three={6,5,4}, int64[4] four={2,3,5,5}, "
        "int64[3] back={6,5,5}> { q1=Mul(q,sc) q2=Reshape(q1,three) k2=Reshape(k,three) "
        "v2=Reshape(v,three) t=Transpose<perm=[0,2,1]>(k2) s=MatMul(q2,t) f=Reshape(s,four) "
        "a=Add(f,causal) b=Reshape(a,back) p=Softmax<axis=-1>(b) y=MatMul(p,v2)}"
    ),
    "BLOOM: joined heads, a bias of distance": (
        "(float[6,5,4] q, float[6,4,7] k, float[6,7,4] v, float[6,1,7] alibi, bool[2,1,5,7] "
        "mask) => (float[6,5,4] y) <float sc={0.5}, float beta={1.0}, float "
        "low={-3.4028234e38}, int64[4] four={2,3,5,7}, int64[3] back={6,5,7}> { s=MatMul(q,k) "
        "s1=Mul(s,sc) al=Mul(alibi,beta) a=Add(al,s1) f=Reshape(a,four) b=Where(mask,low,f) "
        "p=Softmax<axis=-1>(b) p2=Reshape(p,back) y=MatMul(p2,v)}"
    ),
    "Falcon: a bias before the factor": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,1,7] alibi, "
        "float[2,1,5,7] mask) => (float[2,3,5,6] y) <float sc={0.5}> { t=Transpose "
        "<perm=[0,1,3,2]>(k) s=MatMul(q,t) a=Add(s,alibi) b=Mul(a,sc) c=Add(b,mask) "
        "p=Softmax<axis=-1>(c) y=MatMul(p,v)}"
    ),
    "heads that share one of keys": (
        "(float[2,3,5,4] q, float[2,1,7,4] k, float[2,1,7,6] v) => (float[2,3,5,6] y) <float "
        "sc={0.5}> { t=Transpose <perm=[0,1,3,2]>(k) s=MatMul(q,t) b=Mul(s,sc) "
        "p=Softmax<axis=-1>(b) y=MatMul(p,v)}"
    ),
    "groups of heads as an axis": (
        "(float[2,3,2,5,4] q, float[2,3,1,7,4] k, float[2,3,1,7,6] v, float[2,1,1,5,7] mask) "
        "=> (float[2,3,2,5,6] y) <float sc={0.5}> { t=Transpose<perm=[0,1,2,4,3]>(k) "
        "s=MatMul(q,t) b=Mul(s,sc) c=Add(b,mask) p=Softmax<axis=-1>(c) y=MatMul(p,v)}"
    ),
    "Whisper: half of the factor on either side": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) <float "
        "r={0.7071067}> { t=Transpose <perm=[0,1,3,2]>(k) t1=Mul(t,r) q1=Mul(q,r) "
        "s=MatMul(q1,t1) p=Softmax<axis=-1>(s) y=MatMul(p,v)}"
    ),
    "GPT-2: a division, a choice and a mask": (
        "(float[2,3,5,4] q, float[2,3,5,4] k, float[2,3,5,4] v, bool[1,1,5,5] shown, "
        "float[2,1,1,5] mask) => (float[2,3,5,4] y) <float root={2.0}, float "
        "low={-3.4028234e38}> { t=Transpose <perm=[0,1,3,2]>(k) s=MatMul(q,t) d=Div(s,root) "
        "w=Where(shown,d,low) a=Add(w,mask) p=Softmax<axis=-1>(a) y=MatMul(p,v)}"
    ),
    "torch: keys transposed flat, rows without a key": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, bool[2,1,5,7] mask) => "
        "(float[2,3,5,6] y) <float r={0.7071067}, float z={0.0}, float inf={-3.4028234e38}, "
        "int64[3] flat={-1,7,4}, int64[4] back={2,3,4,7}> { f=Reshape(k,flat) "
        "t=Transpose<perm=[0,2,1]>(f) t1=Reshape(t,back) t2=Mul(t1,r) q1=Mul(q,r) "
        "s=MatMul(q1,t2) w=Where(mask,z,inf) a=Add(s,w) p=Softmax<axis=-1>(a) n=IsNaN(p) "
        "p1=Where(n,z,p) y=MatMul(p1,v)}"
    ),
    "Llama: keys repeated by Expand": (
        "(float[2,6,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v, float[2,1,5,7] mask) => "
        "(float[2,6,5,4] y) <int64[1] two={2}, int64[5] wide={2,3,2,7,4}, int64[4] "
        "four={2,6,7,4}, float sc={0.5}, int64[5] reps={1,1,2,1,1}, int64[6] "
        "idx={0,0,1,1,2,2}> { ku=Unsqueeze(k,two) ke=Expand(ku,wide) kr=Reshape(ke,four) "
        "vu=Unsqueeze(v,two) ve=Expand(vu,wide) vr=Reshape(ve,four) t=Transpose "
        "<perm=[0,1,3,2]>(kr) s=MatMul(q,t) b=Mul(s,sc) c=Add(b,mask) p=Softmax<axis=-1>(c) "
        "y=MatMul(p,vr)}"
    ),
    "keys repeated by Tile": (
        "(float[2,6,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v, float[2,1,5,7] mask) => "
        "(float[2,6,5,4] y) <int64[1] two={2}, int64[5] wide={2,3,2,7,4}, int64[4] "
        "four={2,6,7,4}, float sc={0.5}, int64[5] reps={1,1,2,1,1}, int64[6] "
        "idx={0,0,1,1,2,2}> { ku=Unsqueeze(k,two) ke=Tile(ku,reps) kr=Reshape(ke,four) "
        "vu=Unsqueeze(v,two) ve=Tile(vu,reps) vr=Reshape(ve,four) t=Transpose "
        "<perm=[0,1,3,2]>(kr) s=MatMul(q,t) b=Mul(s,sc) c=Add(b,mask) p=Softmax<axis=-1>(c) "
        "y=MatMul(p,vr)}"
    ),
    "keys repeated by Gather": (
        "(float[2,6,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v, float[2,1,5,7] mask) => "
        "(float[2,6,5,4] y) <int64[1] two={2}, int64[5] wide={2,3,2,7,4}, int64[4] "
        "four={2,6,7,4}, float sc={0.5}, int64[5] reps={1,1,2,1,1}, int64[6] "
        "idx={0,0,1,1,2,2}> { kr=Gather<axis=1>(k,idx) vr=Gather<axis=1>(v,idx) t=Transpose "
        "<perm=[0,1,3,2]>(kr) s=MatMul(q,t) b=Mul(s,sc) c=Add(b,mask) p=Softmax<axis=-1>(c) "
        "y=MatMul(p,vr)}"
    ),
    "Swin v2: a factor for each head": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[1,3,5,7] bias) => "
        "(float[2,3,5,6] y) <float[3,1,1] ls={4.0,5.0,6.0}> { t=Transpose <perm=[0,1,3,2]>(k) "
        "s=MatMul(q,t) b=Mul(s,ls) c=Add(b,bias) p=Softmax<axis=-1>(c) y=MatMul(p,v)}"
    ),
    "YOLO: columns before rows": (
        "(float[2,3,4,5] q, float[2,3,4,7] k, float[2,3,6,7] v) => (float[2,3,6,5] y) <float "
        "sc={0.5}> { t=Transpose <perm=[0,1,3,2]>(q) s=MatMul(t,k) b=Mul(s,sc) "
        "p=Softmax<axis=-1>(b) pt=Transpose <perm=[0,1,3,2]>(p) y=MatMul(v,pt)}"
    ),
    "diffusion: one head, columns before rows": (
        "(float[2,5,4] q, float[2,4,7] k, float[2,6,7] v) => (float[2,6,5] y) <float "
        "sc={0.5}> { s=MatMul(q,k) b=Mul(s,sc) p=Softmax<axis=2>(b) "
        "pt=Transpose<perm=[0,2,1]>(p) y=MatMul(v,pt)}"
    ),
    "Einsum": (
        "(float[2,5,3,4] q, float[2,7,3,4] k, float[2,7,3,6] v) => (float[2,5,3,6] y) <float "
        "sc={0.5}> { s=Einsum<equation=\"bihd,bjhd->bhij\">(q,k) b=Mul(s,sc) "
        "p=Softmax<axis=-1>(b) y=Einsum<equation=\"bhij,bjhd->bihd\">(p,v)}"
    ),
    "no batch": (
        "(float[5,4] q, float[7,4] k, float[7,6] v) => (float[5,6] y) <float sc={0.5}> { "
        "t=Transpose<perm=[1,0]>(k) s=MatMul(q,t) b=Mul(s,sc) p=Softmax<axis=-1>(b) "
        "y=MatMul(p,v)}"
    ),
    "Perceiver: queries of every batch": (
        "(float[1,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) <float "
        "sc={0.5}> { t=Transpose <perm=[0,1,3,2]>(k) s=MatMul(q,t) b=Mul(s,sc) "
        "p=Softmax<axis=-1>(b) y=MatMul(p,v)}"
    ),
    "f16 with powers in f32": (
        "(float16[2,3,5,4] q, float16[2,3,7,4] k, float16[2,3,7,6] v, float16[2,1,1,7] mask) "
        "=> (float16[2,3,5,6] y) { t=Transpose <perm=[0,1,3,2]>(k) s=MatMul(q,t) "
        "a=Add(s,mask) c=Cast<to=1>(a) p=Softmax<axis=-1>(c) h=Cast<to=10>(p) y=MatMul(h,v)}"
    ),
    "GPT-Neo: a small number where keys hide": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, bool[1,1,5,7] hid) => "
        "(float[2,3,5,6] y) <float low={-10000.0}, float sc={0.5}> { t=Transpose "
        "<perm=[0,1,3,2]>(k) s=MatMul(q,t) b=Mul(s,sc) w=Where(hid,low,b) "
        "p=Softmax<axis=-1>(w) y=MatMul(p,v)}"
    ),
    "open sizes, a joined projection": (
        "(float[B,N,3,3,4] x, float[B,1,1,N] mask) => (float[B,N,12] y) <int64 i0={0}, int64 "
        "i1={1}, int64 i2={2}, float sc={0.5}, int64[3] out={0,0,12}> { "
        "p5=Transpose<perm=[2,0,3,1,4]>(x) q=Gather<axis=0>(p5,i0) k=Gather<axis=0>(p5,i1) "
        "v=Gather<axis=0>(p5,i2) t=Transpose <perm=[0,1,3,2]>(k) s=MatMul(q,t) b=Mul(s,sc) "
        "a=Add(b,mask) p=Softmax<axis=-1>(a) o=MatMul(p,v) ot=Transpose<perm=[0,2,1,3]>(o) "
        "y=Reshape(ot,out)}"
    ),
    "MultiHeadAttention: bias, mask and relative bias": (
        "(float[2,5,12] q, float[2,7,12] k, float[2,7,12] v, float[36] bias, int32[2,7] pad, "
        "float[2,3,5,7] rel) => (float[2,5,12] y) { "
        "y=com.microsoft.MultiHeadAttention<num_heads=3>(q,k,v,bias,pad,rel)}"
    ),
    "MultiHeadAttention: lengths": (
        "(float[2,5,12] q, float[2,7,12] k, float[2,7,12] v, int32[2] pad) => (float[2,5,12] "
        "y) { y=com.microsoft.MultiHeadAttention<num_heads=3>(q,k,v,,pad)}"
    ),
    "MultiHeadAttention: a cache": (
        "(float[2,5,12] q, float[2,5,12] k, float[2,5,12] v, float[2,3,2,4] pk, "
        "float[2,3,2,4] pv) => (float[2,5,12] y, float[2,3,7,4] a, float[2,3,7,4] b) { "
        "y,a,b=com.microsoft.MultiHeadAttention<num_heads=3, "
        "unidirectional=1>(q,k,v,,,,pk,pv)}"
    ),
    "com.microsoft Attention: causal, a mask": (
        "(float[2,5,12] x, float[12,36] w, float[36] b, int32[2,5] pad) => (float[2,5,12] y) "
        "{ y=com.microsoft.Attention<num_heads=3, unidirectional=1>(x,w,b,pad)}"
    ),
    "com.microsoft Attention: lengths": (
        "(float[2,5,12] x, float[12,36] w, float[36] b, int32[2] pad) => (float[2,5,12] y) { "
        "y=com.microsoft.Attention<num_heads=3>(x,w,b,pad)}"
    ),
    "com.microsoft Attention: a cache": (
        "(float[2,5,12] x, float[12,36] w, float[36] b, float[2,2,3,4,4] past) => "
        "(float[2,5,12] y, float[2,2,3,9,4] present) { "
        "y,present=com.microsoft.Attention<num_heads=3>(x,w,b,,past)}"
    ),
}

NODES = {
    "opset 23: plain": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) { "
        "y=Attention(q,k,v)}"
    ),
    "opset 23: causal": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) { "
        "y=Attention<is_causal=1>(q,k,v)}"
    ),
    "opset 23: bool": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, bool[5,7] m) => "
        "(float[2,3,5,6] y) { y=Attention<scale=0.3>(q,k,v,m)}"
    ),
    "opset 23: bool causal": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, bool[2,1,5,7] m) => "
        "(float[2,3,5,6] y) { y=Attention<is_causal=1>(q,k,v,m)}"
    ),
    "opset 23: float": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[2,3,5,7] m) => "
        "(float[2,3,5,6] y) { y=Attention(q,k,v,m)}"
    ),
    "opset 23: 3d gqa": (
        "(float[2,5,24] q, float[2,7,12] k, float[2,7,12] v) => (float[2,5,24] y) { "
        "y=Attention<q_num_heads=6,kv_num_heads=3>(q,k,v)}"
    ),
    "opset 23: gqa": (
        "(float[2,6,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v) => (float[2,6,5,4] y) { "
        "y=Attention(q,k,v)}"
    ),
    "opset 23: past": (
        "(float[2,3,5,4] q, float[2,3,5,4] k, float[2,3,5,6] v, float[2,3,2,4] pk, "
        "float[2,3,2,6] pv) => (float[2,3,5,6] y, float[2,3,7,4] a, float[2,3,7,6] b) { "
        "y,a,b=Attention<is_causal=1>(q,k,v,,pk,pv)}"
    ),
    "opset 23: gqa past mask": (
        "(float[2,6,5,4] q, float[2,3,5,4] k, float[2,3,5,6] v, bool[5,7] m, float[2,3,2,4] "
        "pk, float[2,3,2,6] pv) => (float[2,6,5,6] y, float[2,3,7,4] a, float[2,3,7,6] b) { "
        "y,a,b=Attention(q,k,v,m,pk,pv)}"
    ),
    "opset 23: softcap": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) { "
        "y=Attention<softcap=0.7>(q,k,v)}"
    ),
    "opset 23: softcap mask": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[5,7] m) => "
        "(float[2,3,5,6] y) { y=Attention<softcap=0.7>(q,k,v,m)}"
    ),
    "opset 23: precision": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) { "
        "y=Attention<softmax_precision=1>(q,k,v)}"
    ),
    "opset 23: f16 precision": (
        "(float16[2,3,5,4] q, float16[2,3,7,4] k, float16[2,3,7,6] v) => (float16[2,3,5,6] y) "
        "{ y=Attention<softmax_precision=1>(q,k,v)}"
    ),
    "opset 23: symbolic": (
        "(float[B,3,R,4] q, float[B,3,K,4] k, float[B,3,K,6] v) => (float[B,3,R,6] y) { "
        "y=Attention<is_causal=1>(q,k,v)}"
    ),
    "opset 24: lengths": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, int64[2] n) => "
        "(float[2,3,5,6] y) { y=Attention(q,k,v,,,,n)}"
    ),
    "opset 24: lengths causal mask": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[5,7] m, int64[2] n) => "
        "(float[2,3,5,6] y) { y=Attention<is_causal=1>(q,k,v,m,,,n)}"
    ),
    "opset 24: lengths short mask": (
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v, float[5,6] m, int64[2] n) => "
        "(float[2,3,5,6] y) { y=Attention(q,k,v,m,,,n)}"
    ),
}
# fmt: on
FORMS = CHAINS | NODES


def model_of(name: str) -> onnx.ModelProto:
    opset = int(name.split()[1][:2]) if name in NODES else 17
    head = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]> g '
    model = onnx.parser.parse_model(head + FORMS[name])
    model.ir_version = 10
    return model


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random numbers; masks that leave every row its first key, lengths within the keys."""
    random = np.random.default_rng(1)
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or OPEN[d.dim_param] for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        array = random.standard_normal(shape).astype(dtype)
        if dtype == np.bool_:
            array = random.random(shape) < 0.6
            array[..., 0] = value.name != "hid"
        elif dtype.kind == "i":
            lengths = np.array([3, 5], dtype)
            array = lengths if len(shape) == 1 else np.arange(shape[1]) < lengths[:, None]
        feeds[value.name] = array.astype(dtype)
    return feeds


def oracle(
    name: str, model: onnx.ModelProto, feeds: dict[str, np.ndarray]
) -> list[np.ndarray]:
    if name in NODES:
        return ReferenceEvaluator(model).run(None, feeds)
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(model.SerializeToString()).run(None, feeds)


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for a, b in zip(found, wanted, strict=True):
        tolerance = 5e-3 if a.dtype == np.float16 else 1e-5
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", FORMS)
def test_attention_is_one_op_in_every_form(name: str) -> None:
    model = model_of(name)
    feeds = feeds_of(model)
    graph = load(model.SerializeToString())
    run_passes(graph, neutral_passes())
    found = Counter(node.op for node in graph.nodes)
    assert (found["attention"], found["softmax"]) == (1, 0)
    results = evaluate(graph, [feeds[value.name] for value in graph.inputs])
    assert_close(results, oracle(name, model, feeds))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHAINS)
def test_kernels_of_every_form_agree_with_the_oracle(name: str) -> None:
    model = model_of(name)
    feeds = feeds_of(model)
    result = tilewright.compile(model)(*feeds.values())
    found = list(result) if isinstance(result, tuple) else [result]
    assert_close(found, oracle(name, model, feeds))


@pytest.mark.parametrize("count", [2, 3])
def test_packed_operands_are_taken_apart(count: int) -> None:
    """onnxruntime's CPU kernels take no packed operands: what is packed is given apart to the oracle."""
    runtime = pytest.importorskip("onnxruntime")
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g '
    apart = onnx.parser.parse_model(
        head + "(float[2,5,12] q, float[2,5,12] k, float[2,5,12] v) => (float[2,5,12] y) "
        "{ y=com.microsoft.MultiHeadAttention<num_heads=3>(q,k,v)}"
    )
    operands = "float[2,5,3,3,4] x" if count == 3 else "float[2,5,12] q, float[2,5,3,2,4] x"
    names = "x" if count == 3 else "q,x"
    packed = onnx.parser.parse_model(
        head + f"({operands}) => (float[2,5,12] y) "
        f"{{ y=com.microsoft.MultiHeadAttention<num_heads=3>({names})}}"
    )
    q, k, v = np.random.default_rng(2).standard_normal((3, 2, 5, 3, 4)).astype(np.float32)
    flat = {name: a.reshape(2, 5, 12) for name, a in zip("qkv", (q, k, v), strict=True)}
    wanted = runtime.InferenceSession(apart.SerializeToString()).run(None, flat)
    joined = np.stack((q, k, v)[3 - count :], 3)
    given = [joined] if count == 3 else [flat["q"], joined]
    assert_close(evaluate(load(packed.SerializeToString()), given), wanted)
