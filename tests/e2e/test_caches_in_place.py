"""Caches that a call appends to in the memory of the input: same numbers, nothing else moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.base.errors import InputError
from tilewright.runtime.session_options import Engine

ROWS = np.random.default_rng(3)
APPENDS = {
    "TensorScatter": (
        "(float[2,3,1,5] q, float[2,3,1,5] k, float[2,3,9,5] past, int64[2] at) "
        "=> (float[2,3,1,5] y, float[2,3,9,5] present) "
        "{ present=TensorScatter<axis=2>(past,k,at) y=Attention(q,present,present) }"
    ),
    "a ring": (
        "(float[2,3,2,5] q, float[2,3,2,5] k, float[2,3,9,5] past, int64[2] at) "
        "=> (float[2,3,2,5] y, float[2,3,9,5] present) "
        '{ present=TensorScatter<axis=2,mode="circular">(past,k,at) y=Attention(q,present,present) }'
    ),
    "ScatterND": (
        "(float[1,5] q, float[2,5] k, float[9,5] past, int64[2] at) "
        "=> (float[1,9] y, float[9,5] present) <int64[1] last={-1}> "
        "{ i=Unsqueeze(at,last) present=ScatterND(past,i,k) t=Transpose<perm=[1,0]>(present) "
        "y=MatMul(q,t) }"
    ),
    "rows as torch's exporter writes them": (
        "(float[2,3,1,5] q, float[2,3,2,5] k, float[2,3,9,5] past, int64[2] at) "
        "=> (float[2,3,1,5] y, float[2,3,9,5] present) <int64[1] last={-1}> "
        "{ i=Unsqueeze(at,last) a=Transpose<perm=[2,1,0,3]>(past) b=Transpose<perm=[2,1,0,3]>(k) "
        "c=ScatterND(a,i,b) present=Transpose<perm=[2,1,0,3]>(c) y=Attention(q,present,present) }"
    ),
    "a row of each sequence": (
        "(float[2,3,1,5] q, float[2,3,5] k, float[2,3,9,5] past, int64[2] at) "
        "=> (float[2,3,1,5] y, float[2,3,9,5] present) "
        "<int64[2,1] batch={0,1}, int64[1] last={-1}> "
        "{ p=Unsqueeze(at,last) i=Concat<axis=1>(batch,p) a=Transpose<perm=[0,2,1,3]>(past) "
        "b=ScatterND(a,i,k) present=Transpose<perm=[0,2,1,3]>(b) y=Attention(q,present,present) }"
    ),
    "another reader of the old": (
        "(float[1,5] q, float[2,5] k, float[9,5] past, int64[2] at) "
        "=> (float[9,5] y, float[9,5] present) <int64[1] last={-1}> "
        "{ i=Unsqueeze(at,last) present=ScatterND(past,i,k) a=Add(past,present) y=Mul(a,q) }"
    ),
}  # fmt: skip


def model_of(name: str) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["": 24]> g '
    return onnx.parser.parse_model(head + APPENDS[name])


def reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(each) for each in ReferenceEvaluator(model).run(None, feeds)]


def feeds_of(model: onnx.ModelProto, first: int) -> dict[str, np.ndarray]:
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        feeds[value.name] = ROWS.standard_normal(shape).astype(np.float32)
    feeds["at"] = np.array([first, 3])
    return feeds


@pytest.mark.thinned(3)
@pytest.mark.parametrize("engine", ["plan", "vm"])
@pytest.mark.parametrize("name", APPENDS)
def test_a_cache_that_is_updated_in_place_has_the_numbers_of_a_new_one(
    name: str, engine: Engine, tmp_path: object
) -> None:
    model = model_of(name)
    compiled = tw.compile(model, threads=1)
    compiled.save(f"{tmp_path}/m.vmfb")
    session = tw.load(f"{tmp_path}/m.vmfb", engine=engine, threads=1)
    feeds = feeds_of(model, 7)
    cache = feeds["past"].copy()
    for first in (7, 0, 5):
        feeds |= {"at": np.array([first, 3]), "past": cache.copy()}
        wanted = reference(model, feeds)
        found = session.run({**feeds, "past": cache}, {"present": cache})
        assert found["present"] is cache
        for a, b in zip(found.values(), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a, np.float32), b, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_grouped_attention_appends_to_caches_of_a_stated_size_in_place() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g '
        "(float[2,1,20] q, float[2,1,10] k, float[2,1,10] v, float[2,2,R,5] past, "
        "float[2,2,R,5] old, int32[2] last, int64[2,t] mask) "
        "=> (float[2,1,20] y, float[2,2,R,5] present, float[2,2,R,5] new) {"
        "n=Shape<start=1>(mask) total=Cast<to=6>(n) y,present,new=com.microsoft"
        ".GroupQueryAttention<num_heads=4,kv_num_heads=2>(q,k,v,past,old,last,total) }"
    )
    compiled = tw.compile(model, threads=1)
    keys, values = (ROWS.standard_normal((2, 2, 9, 5), np.float32) for _ in range(2))
    for total in (1, 4, 5, 9):
        feeds = {
            name: ROWS.standard_normal((2, 1, size), np.float32)
            for name, size in (("q", 20), ("k", 10), ("v", 10))
        } | {
            "last": np.array([total - 1, max(total - 3, 0)], np.int32),
            "mask": np.ones((2, total), np.int64),
        }
        wanted = compiled.run({**feeds, "past": keys.copy(), "old": values.copy()})
        caches = {"past": keys, "old": values}
        found = compiled.run({**feeds, **caches}, {"present": keys, "new": values})
        assert found["present"] is keys
        assert np.array_equal(keys[0, :, total - 1], feeds["k"][0].reshape(2, 5))
        for one, other in zip(found.values(), wanted.values(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "part",
    [lambda line: line[10:55], lambda line: line[:45], lambda line: line[45:]],
    ids=["a part", "the same of it", "beside it"],
)
def test_an_output_may_overlap_inputs_that_it_does_not_update(
    part: Callable[[np.ndarray], np.ndarray],
) -> None:
    model = model_of("another reader of the old")
    compiled = tw.compile(model, threads=1)
    feeds = feeds_of(model, 4)
    wanted = reference(model, feeds)
    line = np.zeros(90, np.float32)
    line[:45] = feeds["past"].reshape(-1)
    feeds["past"] = line[:45].reshape(9, 5)
    found = compiled.run(feeds, {"y": part(line).reshape(9, 5)})
    for a, b in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float32), b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"presents": np.zeros((9, 5), np.float32)}, "got output 'presents'"),
        ({"present": np.zeros((9, 4), np.float32)}, "output 'present'"),
        ({"present": np.zeros((9, 5), np.float64)}, "output 'present'"),
    ],
)
def test_arrays_that_are_no_place_for_an_output_are_refused(
    outputs: dict[str, np.ndarray], message: str
) -> None:
    model = model_of("ScatterND")
    with pytest.raises(InputError, match=message):
        tw.compile(model, threads=1).run(feeds_of(model, 1), outputs)
