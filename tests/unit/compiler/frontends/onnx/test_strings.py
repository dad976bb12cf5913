"""String operators on the host: what each means, at its edges, and what it refuses."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright.onnx_backend as backend
from tilewright.base.errors import InputError, ModelError

STRING, FLOAT, INT64, BOOL = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL  # fmt: skip


def text(*words: object) -> np.ndarray:
    return np.array(words, object)


def run(
    op: str, arrays: list[np.ndarray], outputs: int = 1, **attributes: object
) -> list[object]:
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name,
            STRING if a.dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(a.dtype),
            a.shape,
        )
        for name, a in zip(names, arrays, strict=True)
    ]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "one", inputs, results)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    return list(backend.prepare(model).run(arrays))


def test_strings_are_joined_element_by_element_and_broadcast() -> None:
    (found,) = run("StringConcat", [text("a", "").reshape(2, 1), text("x", b"y")])
    assert found.tolist() == [["ax", "ay"], ["x", "y"]]


def test_strings_are_equal_or_not() -> None:
    (found,) = run("Equal", [text("a", "b", ""), text("a", "B", "")])
    assert (found.dtype, found.tolist()) == (np.bool_, [True, False, True])


@pytest.mark.parametrize(
    ("attributes", "rows", "counts"),
    [
        ({}, [["a", "b", "c"], ["d", "", ""]], [3, 1]),
        ({"delimiter": ","}, [["a b  c"], [" d "]], [1, 1]),
        ({"maxsplit": 1}, [["a", "b  c"], ["d", ""]], [2, 1]),
    ],
)
def test_strings_are_split_and_filled_up(
    attributes: dict[str, object], rows: list[list[str]], counts: list[int]
) -> None:
    pieces, found = run("StringSplit", [text("a b  c", " d ")], 2, **attributes)
    assert pieces.tolist() == rows
    assert found.tolist() == counts


def test_words_are_dropped_and_changed() -> None:
    words = text("The", "cat", "the", "end")
    dropped = {"stopwords": ["the"]}
    (found,) = run("StringNormalizer", [words], case_change_action="UPPER", **dropped)
    assert found.tolist() == ["CAT", "END"]
    (found,) = run(
        "StringNormalizer", [words.reshape(1, 4)], is_case_sensitive=1, **dropped
    )
    assert found.tolist() == [["The", "cat", "end"]]
    (found,) = run("StringNormalizer", [text("the")], **dropped)
    assert found.tolist() == [""]
    with pytest.raises(InputError, match=r"expected \[N\] or \[1, N\]"):
        run("StringNormalizer", [words.reshape(2, 2)])


@pytest.mark.parametrize(("locale", "expected"), [("C", "aÜn"), ("en_US", "aün")])
def test_a_locale_says_which_letters_have_cases(locale: str, expected: str) -> None:
    (found,) = run(
        "StringNormalizer", [text("AÜN")], case_change_action="LOWER", locale=locale
    )
    assert np.asarray(found).tolist() == [expected]


def test_a_pattern_has_to_match_all_of_a_string() -> None:
    (found,) = run("RegexFullMatch", [text("ab", "abc", "")], pattern="a?b?")
    assert found.tolist() == [True, False, True]
    with pytest.raises(ModelError, match="is not a regular expression"):
        run("RegexFullMatch", [text("a")], pattern="(")


@pytest.mark.parametrize(
    ("pattern", "words", "expected"),
    [
        (r"\w+", ["abc_1", "é", ""], [True, False, False]),
        (r"\d", ["3", "\u0663"], [True, False]),
        ("[[:alpha:][:digit:]]+", ["aZ9", "a:"], [True, False]),
        (r"a\z", ["a", "a\n"], [True, False]),
        ("[[:^digit:]]*", ["a", "1"], [True, False]),
        ("(?i)é", ["É", "e"], [True, False]),
        ("a$", ["a", "a\n"], [True, False]),
    ],
)
def test_classes_of_patterns_are_those_of_ascii(
    pattern: str, words: list[str], expected: list[bool]
) -> None:
    (found,) = run("RegexFullMatch", [text(*words)], pattern=pattern)
    assert np.asarray(found).tolist() == expected


def test_strings_become_numbers_and_numbers_strings() -> None:
    (found,) = run("Cast", [text("1.5", "-inf", "NaN", "1e-3")], to=FLOAT)
    np.testing.assert_array_equal(found, np.array([1.5, -np.inf, np.nan, 1e-3], np.float32))
    (found,) = run("Cast", [text("-12", "9007199254740993")], to=INT64)
    assert found.tolist() == [-12, 9007199254740993]
    (found,) = run("Cast", [text("0", "1", "False", "x")], to=BOOL)
    assert found.tolist() == [False, True, False, True]
    (found,) = run("Cast", [np.array([0.1, -3, np.inf], np.float32)], to=STRING)
    assert [float(word) for word in found] == pytest.approx([0.1, -3, np.inf])
    with pytest.raises(InputError, match="'word' is not a number"):
        run("Cast", [text("word")], to=FLOAT)


def test_strings_are_moved_like_numbers() -> None:
    words = text("a", "b", "c", "d").reshape(2, 2)
    assert run("Gather", [words, np.array([1, -1])], axis=1)[0].tolist() == [
        ["b", "b"],
        ["d", "d"],
    ]
    assert run("Concat", [words, words[:1]], axis=0)[0].shape == (3, 2)
    assert run("Flatten", [words.reshape(2, 1, 2)], axis=2)[0].shape == (2, 2)
    assert run("Identity", [words])[0].tolist() == words.tolist()


def test_strings_are_reshaped_to_a_shape_that_is_known() -> None:
    words = text("a", "b", "c", "d")
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
           g (string[4] x) => (string[a,b] y) {
             shape = Constant<value_ints = [2, -1]> ()
             y = Reshape (x, shape)
           }"""
    )
    (found,) = backend.prepare(model).run([words])
    assert found.tolist() == [["a", "b"], ["c", "d"]]


def test_strings_are_measured_cut_turned_and_repeated() -> None:
    words = text("a", "b", "c", "d", "e", "f").reshape(2, 3)
    found = {
        "Shape": run("Shape", [words])[0],
        "Size": run("Size", [words])[0],
        "Transpose": run("Transpose", [words], perm=[1, 0])[0],
        "Squeeze": run("Squeeze", [words.reshape(2, 1, 3)])[0],
        "Tile": run("Tile", [words[:, :1], np.array([1, 2])])[0],
        "Expand": run("Expand", [words[:1], np.array([2, 1])])[0],
        "Slice": run(
            "Slice", [words, np.array([-1]), np.array([-9]), np.array([1]), np.array([-2])]
        )[0],
        "Where": run("Where", [np.array([[True], [False]]), words, words[:1]])[0],
    }
    assert {op: np.asarray(value).tolist() for op, value in found.items()} == {
        "Shape": [2, 3],
        "Size": 6,
        "Transpose": [["a", "d"], ["b", "e"], ["c", "f"]],
        "Squeeze": words.tolist(),
        "Tile": [["a", "a"], ["d", "d"]],
        "Expand": [["a", "b", "c"], ["a", "b", "c"]],
        "Slice": [["c", "a"], ["f", "d"]],
        "Where": [["a", "b", "c"], ["a", "b", "c"]],
    }


def test_strings_of_open_sizes_are_moved_and_their_sizes_read() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
           g (string[N,M] x) => (string[P,Q,1] y, int64[2] s, float[M,N] z) {
             last = Constant<value_ints = [2]> ()
             first = Constant<value_ints = [0]> ()
             one = Constant<value_ints = [1]> ()
             part = Slice (x, first, one, first)
             y = Unsqueeze (part, last)
             s = Shape (x)
             turned = Transpose (x)
             z = Cast<to = 1> (turned)
           }"""
    )
    y, s, z = backend.prepare(model).run([text("1", "2", "3", "4", "5", "6").reshape(2, 3)])
    assert y.tolist() == [[["1"], ["2"], ["3"]]]
    assert s.tolist() == [2, 3]
    np.testing.assert_array_equal(z, [[1, 4], [2, 5], [3, 6]])
