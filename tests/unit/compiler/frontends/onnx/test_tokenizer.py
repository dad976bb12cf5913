"""Tokens of strings, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.parser import parse_model

import tilewright.onnx_backend as backend
from tilewright.base.errors import ModelError


def model(rank: int, **attributes: object) -> ModelProto:
    given = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **given)
    value = helper.make_tensor_value_info("x", TensorProto.STRING, ["n", "c"][:rank])
    result = helper.make_tensor_value_info("y", TensorProto.STRING, None)
    graph = helper.make_graph([node], "tokens", [value], [result])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "attributes",
    [
        {"separators": [""]},
        {"separators": [","]},
        {"separators": [", ", " ", ","], "mincharnum": 2},
        {"separators": ["[0-9]+", "\\s"]},
        {"separators": ["b|c", "a"]},
        {"separators": ["ab", "abc"]},
        {"tokenexp": "\\w+"},
        {"tokenexp": "(a)|[b-z]+", "mincharnum": 2},
        {"tokenexp": "[[:alpha:]]b|[^a-z]"},
        {"tokenexp": "a.b\\z"},
        {"tokenexp": "a|ab"},
        {"tokenexp": "a+?"},
        {"tokenexp": "ab|bc1?|b", "mincharnum": 2},
        {"tokenexp": "ab|bcab", "mincharnum": 3},
        {"tokenexp": "\\b\\w*"},
        {"tokenexp": "."},
        {"tokenexp": "(?s:.)"},
        {"tokenexp": "a", "separators": ["b"]},
        {"separators": ["a|ab"]},
        {"separators": ["b+?|^a", "c$"]},
    ],
)
@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize(
    "words",
    [
        ["a1b22c  é9 foo_bar", "", "abcabc"],
        [["a, bb ,ccc"], ["zz"]],
        ["", ""],
        ["xabyaz", "aab", "ab abc"],
        [["ab abc"], ["éa ébb"], ["a\nb"]],
    ],
)
def test_tokens_are_those_of_onnxruntime(
    attributes: dict[str, object], mark: int, words: list[object]
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    x = np.array(words, object)
    made = model(x.ndim, mark=mark, **attributes)
    session = runtime.InferenceSession(made.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    (found,) = backend.prepare(made).run([x])
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "are missing"),
        ({"separators": ["("]}, "is not a regular expression"),
        ({"separators": ["a*"]}, "a separator matches nothing at all"),
        ({"tokenexp": "\\pL"}, "a class of Unicode"),
        ({"tokenexp": "a", "mincharnum": 0}, "not positive"),
        ({"tokenexp": ".", "mincharnum": 2}, "tokens are characters"),
        ({"separators": ["\\b"]}, "a separator matches nothing at all"),
    ],
)
def test_what_has_no_meaning_is_refused(
    attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        backend.prepare(model(1, **attributes))


def counted(stopwords: list[str]) -> ModelProto:
    """What skl2onnx makes of a CountVectorizer."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    graph (string[N,1] x) => (float[N,4] y) <int64[1] flat = {-1}> {
        a = Reshape(x, flat)
        b = StringNormalizer<case_change_action = "LOWER", is_case_sensitive = 1, locale = "C">(a)
        c = com.microsoft.Tokenizer<mark = 0, mincharnum = 2, pad_value = "#", tokenexp = "[a-z]+">(b)
        d = Flatten(c)
        y = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 0,
            ngram_counts = [0, 3], ngram_indexes = [0, 1, 2, 3], pool_strings = ["fox", "the", "dog", "the", "fox"]>(d)
    }"""
    made = parse_model(text)
    if stopwords:
        made.graph.node[1].attribute.append(helper.make_attribute("stopwords", stopwords))
    return made


@pytest.mark.filterwarnings("ignore:.*reference implementation")
@pytest.mark.parametrize("words", [["The fox the FOX", "a dog"], ["?"], ["", "cat", "fox"]])
@pytest.mark.parametrize("stopwords", [[], ["cat"]])
def test_texts_of_any_length_are_counted(words: list[str], stopwords: list[str]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    made, x = counted(stopwords), np.array(words, object).reshape(-1, 1)
    session = runtime.InferenceSession(made.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(backend.prepare(made).run([x])[0], expected)
