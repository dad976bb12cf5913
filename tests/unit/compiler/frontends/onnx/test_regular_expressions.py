"""Regular expressions, beside RE2 as onnxruntime has it."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import pytest
from onnx import TensorProto, helper

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.regular_expressions import regular_expression

LETTERS: Final = "abcABkKsS_1 \n-éÉſ\u212a.]e\v"
# Fragments of patterns, right and wrong, as a random choice puts them together.
FRAGMENTS: Final = [
    *"abcABkKsS_1 \n-éÉſ\u212a.^$|()*+?[]",
    *("{2}", "{1,}", "{,2}", "{0,3}", "{3,1}", "{01}", "*?", "+?"),
    *("(?i)", "(?i:", "(?m)", "(?s)", "(?-i)", "(?-)", "(?)", "(?:", "(?=", "(?im-s:", "(?U)"),
    *("(?P<n>", "(?<n>", "(?P=n)"),
    *(r"\b", r"\B", r"\A", r"\z", r"\Z", r"\d", r"\D", r"\s", r"\S", r"\w", r"\W", r"\v"),
    *(r"\n", r"\1", r"\12", r"\0", r"\x61", r"\x{e9}", r"\x", r"\Q", r"\E", r"\\", r"\.", r"\_"),
    *(r"\é", r"\-", "[[:alpha:]]", "[[:^digit:]]", "[[:foo:]]", "[[:^space:]a]", "[a-c]", "[^"),
    *("[^a]", r"[\w-]", "[a-]", "[]a]", r"[\d-z]", r"[^\W]", "[[:word:]", "[:alpha:]", "-z"),
]  # fmt: skip


def expected(pattern: str, texts: list[str]) -> list[bool] | None:
    """What matches; None: it is no pattern."""
    runtime = pytest.importorskip("onnxruntime")
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    graph = helper.make_graph(
        [node],
        "matches",
        [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, ["n"])],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8
    )
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options)
    except Exception:  # whatever it is called, the pattern is refused
        return None
    return session.run(None, {"x": np.array(texts, object)})[0].tolist()


def found(pattern: str, texts: list[str]) -> list[bool] | None:
    try:
        automaton = regular_expression(pattern)
    except TilewrightError:
        return None
    return [automaton.matches(text) for text in texts]


def words(draw: random.Random) -> list[str]:
    lengths = [0, *(draw.randrange(5) for _ in range(20))]
    return [*"abeé1", *("".join(draw.choices(LETTERS, k=n)) for n in lengths)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(4))
def test_random_patterns_match_what_they_match_in_onnxruntime(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(80):
        pattern = "".join(draw.choices(FRAGMENTS, k=draw.randint(1, 5)))
        texts = words(draw)
        assert found(pattern, texts) == expected(pattern, texts), repr(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "[[:^digit:]]*",
        "(?i)é",
        "(?i)s",
        "(?i)[^k]",
        r"(?i)\w",
        r"(?i)[[:^alpha:]]",
        r"\s",
        r"[\s]",
        r"[^\s]",
        r"[^\S\n]",
        "a$",
        "(?m)a$\n^b",
        r"[$]\$",
        r"\Qa.b\E*",
        r"\Q\E*a",
        r"\Qa",
        "",
        "|a",
        "(a|b)*?c{2,}",
        "a{,2}",
        "a{2,1001}",
        "(a{40}){26}",
        "(a{40}){25}",
        "a(?i)*",
        "a**",
        "a*?*",
        "(?P<n>a)(?P<n>b)",
        "(?P<é>a)",
        r"\07\101\8",
        r"\x{110000}",
        "[b-a]",
        r"[a-\d]",
        r"[\b]",
        "[[:alpha:",
        "[a",
        "a)",
        "(?i",
        "\\",
        r"(a)\1",
        "(?<!a)b",
        "(?#a)",
        "a++",
        "[[.a.]]",
        r"\e",
    ],
)
def test_forms_mean_what_they_mean_in_onnxruntime(pattern: str) -> None:
    texts = [
        *words(random.Random(3)),
        *LETTERS,
        "A\n",
        "a\nb",
        "$$",
        "a.b",
        "a.bbb",
        "bccc",
    ]
    assert found(pattern, texts) == expected(pattern, texts)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(a)\1", "has no other meaning"),
        ("(?P<n>a)(?P=n)", "begins no group"),
        ("[[:foo:]]", "there is no class 'foo'"),
        ("a**", "a repetition is repeated"),
        ("|*", "nothing to repeat"),
        ("a{1001}", "not of 0 to 1000 times"),
    ],
)
def test_what_re2_refuses_is_refused_in_words(pattern: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"is not a regular expression: .*{message}"):
        regular_expression(pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"\pL", "a class of Unicode"),
        (r"[\P{Greek}]", "a class of Unicode"),
        (r"\C", "single bytes"),
        ("(" * 200 + ")" * 200, "groups inside one another"),
    ],
)
def test_what_is_not_supported_is_said(pattern: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        regular_expression(pattern)


@pytest.mark.parametrize(
    ("pattern", "of_lines"),
    [("a.b", False), ("(?s)a.b", True), ("(?s:a.)b", True), ("(?s:a).b", False), ("(?s)(?-s:a.b)", False)],
)  # fmt: skip
def test_a_dot_takes_the_end_of_a_line_only_where_the_pattern_says(
    pattern: str, of_lines: bool
) -> None:
    texts = ["axb", "a\nb", "ab"]
    found = regular_expression(pattern)
    assert [found.matches(text) for text in texts] == [True, of_lines, False]
    assert expected(pattern, texts) == [True, of_lines, False]


def test_groups_stand_inside_one_another_a_hundred_deep() -> None:
    assert regular_expression("(" * 100 + "a" + ")" * 100).matches("a")
    with pytest.raises(UnsupportedError, match="more than 100 groups"):
        regular_expression("(" * 101 + "a" + ")" * 101)
