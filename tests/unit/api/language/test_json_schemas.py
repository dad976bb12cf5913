from __future__ import annotations

import contextlib
import datetime
import json
import math
import random
import uuid
from decimal import Decimal
from typing import Any

import pytest

from fakes.growth import grows_in_proportion
from fakes.json_schema_check import is_allowed
from tilewright.api.language.grammars import DEAD, Automaton, Nonterminal
from tilewright.api.language.json_schemas import ANY_OBJECT, grammar_of
from tilewright.base.errors import UserError


def _read(text: str) -> Any:
    """JSON, with all digits of its numbers."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def _is_of(schema: Any, text: str) -> bool:
    automaton = Automaton(*grammar_of(schema))
    state = automaton.follow_all(automaton.start, text.encode())
    return state != DEAD and automaton.may_end(state)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 3},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 1, None]}, "maxItems": 2},
        "boss": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TEXTS: list[tuple[Any, list[str], list[str]]] = [
    (
        PERSON,
        ['{"name": "Ö", "age": 0}', '{"name":"abc","age":150,"tags":[]}', ' {\n  "name": "a",\n  "age": 7\n}',
         '{"name":"a","age":1,"tags":["a",null],"boss":{"name":"b","age":2,"boss":null}}'],
        ['{"name": "", "age": 0}', '{"name":"abcd","age":1}', '{"age":1,"name":"a"}', '{"name":"a"}',
         '{"name":"a","age":151}', '{"name":"a","age":1,"tags":["c"]}', '{"name":"a","age":1,"tags":[1,1,1]}',
         '{"name":"a","age":1,"more":1}', '{"name":"a","age":1,"boss":{"name":"b"}}', '{"name":"a","age":1,}'],
    ),
    (
        {"properties": {"aa": {}, "ab": {"type": "boolean"}}, "additionalProperties": {"type": "null"}, "required": ["x"]},
        ['{"x":null}', '{"aa":[1,{}],"ab":true,"x":null,"y":null}', '{"ab":false, "x": null, "aab":null, "":null}'],
        ["{}", '{"aa":1}', '{"x":1}', '{"x":null,"aa":null}', '{"x":null,"\\u0061a":null}'],
    ),
    (
        {"type": ["string", "null"], "minLength": 2},
        ['"ab"', "null", '"\\n\\u00e9"', '"😀a"'],
        ['"a"', '""', "1", '"\\ud83d"', '"a\nb"'],
    ),
    ({"const": {"a": [1, "ü"]}}, ['{"a": [1, "ü"]}'], ['{"a": [1, "u"]}', "{}"]),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1},
        ["[1]", '[1, "a"]'], ["[]", '["a"]', '[1, "a", 2]'],
    ),
    (
        {"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        ["[1, true]", "[1,true,false]"], ["[1]", "[1,2]", "[1,true,false,true]"],
    ),
    ({"type": "array", "maxItems": 0}, ["[]", "[ ]"], ["[1]"]),
    ({"type": "array", "items": False}, ["[]"], ["[1]"]),
    ({"type": "number", "exclusiveMinimum": 0}, ["0.5", "17"], ["0", "0.0", "-1"]),
    ({"type": "integer", "exclusiveMaximum": 2.5, "minimum": 0.5}, ["1", "2"], ["0", "3", "1.0"]),
    ({"minimum": 3, "maximum": 4}, ["3", "3.5", "4"], ["2.9", "4.1"]),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}], "title": "either"}, ['"a"', "1"], ["1.5", "{}"]),
    ({"allOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"enum": ["x"]}}}, ['"x"'], ['"y"']),
    ({"enum": ["a", 1], "type": "integer"}, ["1"], ['"a"']),
    (ANY_OBJECT, ["{}", '{"a":{"b":[1,-2.5e3,"x",true,null]}}'], ["[]", '{"a":}', '{"a":1,}', "1"]),
    ({}, ["[]", "1", '"a"', "null"], ["", "nul", "[1,]"]),
    (
        {"type": "object", "properties": {"a\nb": {}, 'a"': {}, "a\\": {}, "a": {"type": "null"}}, "additionalProperties": True},
        ['{"a\\nb":1,"x":2}', '{"a\\"":1}', '{"ab":1}', '{"a":null, "": 1}'],
        ['{"a\\q":1}', '{"a\\u":1}', '{"x":1,"a":2}', '{"a\nb":1}'],
    ),
    ({"type": "string", "anyOf": [{"const": 1}, {"const": "a"}]}, ['"a"'], ["1"]),
    (
        {"type": ["integer", "null"], "oneOf": [{"type": "number"}, {"$ref": "#/$defs/s"}], "$defs": {"s": {"type": ["string", "null"]}}},
        ["1", "null"], ["1.5", '"a"'],
    ),
    ({"type": "array", "$ref": "#/$defs/s", "$defs": {"s": {"anyOf": [True, {"type": "string"}]}}}, ["[1]"], ['"a"', "1"]),
    ({"type": "number", "minimum": -3.4e38, "maximum": 3.4e38}, ["0.5", "-9999999999999999"], ["9e99", "1e5"]),
    ({"maximum": 1e16, "type": "number"}, ["9999999999999999", "-1.5"], ["9e99", "1e17", "10000000000000001"]),
    ({"type": "integer", "exclusiveMinimum": -1e30, "maximum": 10**400}, ["-9999999999999999", "9999999999999999"], ["1e5"]),
    ({"type": "number", "minimum": -(10**400), "exclusiveMaximum": 3, "maximum": 3}, ["2", "-1"], ["3", "1e1"]),
    (
        {"prefixItems": [{"type": "integer"}], "unevaluatedItems": {"type": "null"}},
        ["[1]", "[1, null]"], ["[null]", "[1, 1]"],
    ),
    ({"type": "array", "unevaluatedItems": False}, ["[]"], ["[1]"]),
    ({"type": "array", "items": {"const": 1}, "uniqueItems": False, "propertyNames": True}, ["[1,1]"], ["[2]"]),
    ({"const": 1, "enum": [1, True, "a", 1.0], "type": "integer"}, ["1", "1.0"], ["true", '"a"']),
    (
        {"oneOf": [{"$ref": "#/$defs/A%20b/0"}, {"$ref": "#/$defs/c~0/1"}], "discriminator": {"propertyName": "kind"},
         "$defs": {"A b": [{"const": "a"}], "c~": [1, {"const": "c"}]}, "x-order": 3},
        ['"a"', '"c"'], ["1", '"b"'],
    ),
    ({"anyOf": [{"type": "object", "properties": {"a": False}, "required": ["a"]}, {"const": 2}]}, ["2"], ["{", '{"a'] ),
    ({"properties": {"a": {"$ref": "#/$defs/no"}}, "$defs": {"no": {"items": False, "type": "array"}}}, ['{"a":[]}', "{}"], ['{"a":[1]}']),
    ({"enum": ["ab", "a", "abc", "b", "", "ab"], "nullable": True}, ['"ab"', '"a"', '"abc"', '"b"', '""'], ['"c"', '"abcd"']),
    (
        {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}, {"type": "null"}], "$defs": {
            "cat": {"properties": {"kind": {"const": "cat", "default": "cat"}, "lives": {"type": "integer"}}, "type": "object"},
            "dog": {"properties": {"kind": {"const": "dog", "default": "dog"}, "lives": {"type": "integer"}}, "type": "object"}}},
        ['{"kind":"cat"}', '{"kind": "dog", "lives": 1}', "null"], ["{}", '{"lives":1}', '{"kind":"cow"}'],
    ),
    (
        {"oneOf": [{"$ref": "#/$defs/one", "type": ["object", "string"]}, {"type": "object", "properties": {"k": {"const": 2}}}],
         "$defs": {"one": {"allOf": [{"type": ["object", "null"], "properties": {"k": {"const": 1}}}], "type": ["object", "null"]}}},
        ['{"k":1}', '{"k":2}'], ["null", '"k"', "{}", '{"k":3}'],
    ),
    (
        {"oneOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"], "properties": {"b": {}}}]},
        ['{"a":1}', '{"b":[]}'], ["{}", '{"a":1,"b":2}', "[1]"],
    ),
    (
        {"items": {"oneOf": [{"type": "integer", "maximum": 3}, {"minimum": 3, "exclusiveMinimum": 3, "type": "number"},
                             {"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2}, {"enum": [None, True]}]}},
        ["[3]", "[4, 3.5]", '["x"]', '["ab", null]'], ["[2.5]", "[false]"],
    ),
    ({"type": "string", "minLength": 2, "maxLength": 4}, ['"ab"', '"\\u00e9é😀x"'], ['"a"', '"abcde"', '"\\ud800a"']),
]  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", range(len(TEXTS)))
def test_a_grammar_has_what_its_schema_allows(case: int) -> None:
    schema, fine, wrong = TEXTS[case]
    assert [text for text in fine if not _is_of(schema, text)] == []
    assert [text for text in wrong if _is_of(schema, text)] == []
    for text in fine:
        json.loads(text)


def _random_text(automaton: Automaton, rng: random.Random, most: int) -> bytes | None:
    """A text of the grammar, byte by byte; None where it has no end within so many."""
    state, text = automaton.start, bytearray()
    while len(text) < most:
        ways = [b for b in range(256) if automaton.follow(state, b) != DEAD]
        if automaton.may_end(state) and (not ways or rng.random() < 0.3):
            return bytes(text)
        # Ends are likelier than the middle of strings.
        likely = [b for b in ways if b in b'"}],:0123456789truefalsnu']
        byte = rng.choice(likely if likely and rng.random() < 0.8 else ways)
        text.append(byte)
        state = automaton.follow(state, byte)
    return None


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", range(len(TEXTS)))
def test_whatever_a_grammar_has_is_json_that_its_schema_allows(case: int) -> None:
    automaton, rng = Automaton(*grammar_of(TEXTS[case][0])), random.Random(case)
    found = [_random_text(automaton, rng, 400) for _ in range(40)]
    whole = [text for text in found if text is not None]
    assert len(whole) > 3
    for text in whole:
        assert is_allowed(_read(text.decode("utf-8", "replace")), TEXTS[case][0]), text


def test_what_checks_schemas_knows_wrong_values() -> None:
    for schema, fine, _ in TEXTS:
        assert all(is_allowed(_read(text), schema) for text in fine), schema
    assert not is_allowed(Decimal("9e99"), {"maximum": 1e16})
    assert not is_allowed({"a": Decimal(1)}, {"properties": {"a": {"type": "null"}}})
    assert not is_allowed(Decimal(1), {"type": "string", "anyOf": [{"const": 1}]})


def test_formats_are_those_of_their_standards() -> None:
    rng = random.Random(1)
    for name, read in {
        "date": datetime.date.fromisoformat, "date-time": datetime.datetime.fromisoformat,
        "uuid": uuid.UUID, "time": datetime.time.fromisoformat,
    }.items():  # fmt: skip
        automaton = Automaton(*grammar_of({"type": "string", "format": name}))
        count = 0
        while count < 30:
            text = _random_text(automaton, rng, 200)
            if text is None or text.startswith((b'"0000', b' "0000', b"\n")):
                continue
            count += 1
            read(json.loads(text))
    assert _is_of({"format": "date"}, '"2024-12-31"')
    assert not _is_of({"format": "date"}, '"2023-02-29"')
    assert not _is_of({"format": "time"}, '"24:00:00Z"')
    assert _is_of({"type": "string", "format": "email"}, '"anything"')


REFUSED: list[tuple[Any, str]] = [
    ({"type": "strin"}, "'type' at # is 'strin', expected null boolean"),
    ({"type": []}, "'type' at # is"),
    ({"properties": {"a": {"pattern": "x"}}}, "'pattern' at #/properties/a, which is not supported"),
    ({"not": {}}, "'not' at #"),
    ({"properties": {"a": 3}}, "the schema is 3 at #/properties/a, expected an object"),
    ({"properties": []}, "at #/properties, expected an object"),
    ({"required": ["a"], "additionalProperties": False}, "names 'a', which is no property"),
    ({"$ref": "#/$defs/a"}, "names '#/$defs/a', which is not there"),
    ({"$ref": "other.json"}, "'$ref' at # is 'other.json', expected '#/...'"),
    ({"$ref": "#"}, "'$ref' names '#', which is itself"),
    ({"anyOf": []}, "'anyOf' at # allows nothing"),
    ({"enum": []}, "'enum' at # allows nothing"),
    ({"enum": "a"}, "'enum' at # is no list"),
    ({"enum": ["a"], "type": "integer"}, "'enum' at # allows nothing"),
    ({"const": float("nan")}, "which is no JSON"),
    ({"allOf": [{}, {}]}, "'allOf' at # has 2 parts, expected one"),
    ({"anyOf": [{}], "properties": {}}, "'properties' beside 'anyOf' at #"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "allows no number at #"),
    ({"type": "number", "minimum": 0.5}, "a bound with a fraction at #"),
    ({"type": "number", "minimum": "1"}, "'minimum' at # is '1', expected a number"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "'minLength' at # is 3, for at most 2"),
    ({"type": "string", "maxLength": 5000}, "'maxLength' at # is 5000, expected at most 4096"),
    ({"type": "string", "maxLength": 1.5}, "'maxLength' at # is 1.5, expected a number of them"),
    ({"type": "string", "format": "date", "maxLength": 5}, "a format and a length at #"),
    ({"prefixItems": [{}], "minItems": 2}, "'minItems' at # is 2, for 1 items"),
    ({"type": "object", "propertyNames": False}, "'propertyNames' at #"),
    ({"type": "array", "contains": False}, "'contains' at #"),
    ({"type": "array", "contains": True}, "'contains' at #"),
    ({"enum": ["\ud800"]}, "which is no JSON"),
    ({"properties": {"\udfff": {}}}, "which is no JSON"),
    ({"type": "string", "format": []}, "'format' at # is [], expected a name"),
    ({"type": "string", "minLength": math.inf}, "'minLength' at # is inf, expected a number of them"),
    ({"type": "string", "minLength": math.nan}, "'minLength' at # is nan, expected a number of them"),
    ({"type": "string", "minLength": 10**5000}, "'minLength' at # is a large int, expected at most 4096"),
    ({"type": "integer", "minimum": 10**400}, "numbers of more than 16 digits at #"),
    ({"type": "integer", "minimum": 1e20}, "numbers of more than 16 digits at #"),
    ({"type": "number", "exclusiveMaximum": -1e20}, "numbers of more than 16 digits at #"),
    ({"type": "number", "minimum": math.nan}, "'minimum' at # is nan, expected a number"),
    ({"type": "object", "required": ["a", 3]}, "'required' at # has 3, expected names"),
    ({"required": 3}, "'required' at # is no list"),
    ({"const": 1, "enum": [2]}, "'const' at # allows nothing"),
    ({"anyOf": [{}], "minLength": 3}, "'minLength' beside 'anyOf' at #"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}}, "names '#/$defs/a', which is itself"),
    ({"$ref": "#/$defs/0", "$defs": [{"$ref": "#/$defs/1"}, {"$ref": "#/$defs/0"}]}, "which is itself"),
    ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "the schema allows no text"),
    ({"type": "string", "anyOf": [{"const": 1}]}, "the schema allows no text"),
    ({"oneOf": [{"type": "integer"}, {"type": "null"}, {"type": "number"}]}, "parts 0 and 2 of 'oneOf' at # may allow the same value"),
    ({"oneOf": [{"type": "string"}, {"properties": {"a": {}}, "required": ["a"]}]}, "parts 0 and 1 of 'oneOf' at # may"),
    ({"items": {"oneOf": [{"type": "object"}] * 2}}, "parts 0 and 1 of 'oneOf' at #/items may"),
    ({"oneOf": [{"const": 1}, {"enum": [2, 1.0]}]}, "parts 0 and 1 of 'oneOf' at #"),
    ({"oneOf": [{"const": n} for n in range(300)]}, "'oneOf' at # has too many parts to be told apart"),
    ({"oneOf": [{"$ref": "#"}, {"type": "null"}]}, "'oneOf' at #"),
    ({"enum": [f"{n}" * 30000 for n in range(10, 30)]}, "the schema is too large"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_cannot_be_kept_to_is_refused_by_name(case: int) -> None:
    schema, message = REFUSED[case]
    with pytest.raises(UserError) as raised:
        grammar_of(schema)
    assert message in str(raised.value)
    assert raised.value.hint


def test_deep_schemas_are_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"items": schema}
    with pytest.raises(UserError, match="too deep"):
        grammar_of(schema)


BRANCH = {"type": "object", "required": ["left", "op"], "additionalProperties": False}
AMBIGUOUS: list[tuple[Any, str]] = [
    ({"$defs": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}}] * 4}}, "$ref": "#/$defs/a"}, "[" * 40 + "]" * 40),
    (
        {"$defs": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": n} for n in range(1, 9)]}}, "$ref": "#/$defs/a"},
        "[" * 40 + "]" * 40,
    ),
    (
        {"$defs": {"e": {"anyOf": [{"type": "integer"}] + [
            {**BRANCH, "properties": {"left": {"$ref": "#/$defs/e"}, "op": {"const": op}}} for op in "abcdefg"
        ]}}, "$ref": "#/$defs/e"},
        '{"left": ' * 30 + "1" + ', "op": "c"}' * 30,
    ),
    ({"anyOf": [{"type": "string", "minLength": 4096, "maxLength": 4096}] * 300}, '"' + "x" * 4096 + '"'),
]  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", range(len(AMBIGUOUS)))
def test_alternatives_that_begin_alike_cost_no_more_than_their_number(case: int) -> None:
    schema, text = AMBIGUOUS[case]
    automaton = Automaton(*grammar_of(schema))
    assert automaton.must_end(automaton.follow_all(automaton.start, text.encode()))
    assert automaton.size < 800 * len(text)


def test_many_properties_cost_no_more_than_their_number() -> None:
    def work(count: int) -> None:
        parts = {f"property_{n}": {"enum": [n]} for n in range(count)}
        assert Automaton(*grammar_of({"properties": parts})).size

    assert grows_in_proportion(work, 50, 1_600)


def test_parts_that_name_each_other_may_be_deep_only_so_far() -> None:
    parts = {str(n): {"items": {"$ref": f"#/$defs/{n + 1}"}} for n in range(2000)}
    schema = {"$ref": "#/$defs/0", "$defs": {**parts, "2000": {}}}
    with pytest.raises(UserError, match="too deep"):
        grammar_of(schema)


def test_whatever_a_schema_is_the_error_is_ours() -> None:
    rng = random.Random(9)
    odd = [
        None,
        [],
        {},
        "",
        "a",
        -1,
        1.5,
        math.nan,
        math.inf,
        10**5000,
        True,
        False,
        [[]],
        [{}],
        {"a": 3},
        "#/a",
        ["\ud800"],
    ]
    words = [
        "type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties", "required", "additionalProperties",
        "unevaluatedProperties", "items", "prefixItems", "minItems", "maxItems", "unevaluatedItems", "minLength",
        "maxLength", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "not", "contains", "x",
    ]  # fmt: skip
    made = 0
    for _ in range(700):
        schema: dict[str, Any] = {rng.choice(words): rng.choice(odd) for _ in range(2)}
        if rng.random() < 0.5:
            schema["type"] = rng.choice(["object", "array", "string", "number", "integer"])
        with contextlib.suppress(UserError):
            Automaton(*grammar_of(rng.choice([schema, {"items": schema}])))
            made += 1
    assert made > 35


def test_a_grammar_and_its_root_are_made() -> None:
    grammar, root = grammar_of({})
    assert isinstance(root, Nonterminal)
    assert grammar.alternatives(root)
