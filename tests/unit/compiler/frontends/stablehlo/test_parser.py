"""Texts of modules as trees, and what is said of those that are none."""

import re

import numpy as np
import pytest

from fakes.growth import grows_in_proportion
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo import load
from tilewright.compiler.frontends.stablehlo.parser import parse
from tilewright.compiler.frontends.stablehlo.tree import (
    Dense,
    Fields,
    Keyword,
    Labels,
    Module,
    Number,
    Operation,
    ScalarType,
    TensorType,
)
from tilewright.compiler.graph.evaluator import evaluate


def only(text: str) -> Module:
    (module,) = parse(text, "case.mlir")
    return module


def body(operations: str, arguments: str = "%a: tensor<2xf32>") -> list[Operation]:
    module = only(f"func.func @main({arguments}) {{\n{operations}\nreturn\n}}")
    found = module.functions["main"].body
    assert found is not None
    return list(found.operations[:-1])


def literal(text: str) -> np.ndarray:
    (operation,) = body(f"%0 = stablehlo.constant dense<{text}")
    value = operation.attributes["value"]
    assert isinstance(value, Dense)
    return value.array


def test_pretty_and_generic_forms_give_the_same_operation() -> None:
    pretty, generic = body(
        "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
        '%1 = "stablehlo.transpose"(%a) <{permutation = array<i64: 1, 0>}> '
        ": (tensor<2x3xf32>) -> tensor<3x2xf32> loc(unknown)",
        "%a: tensor<2x3xf32> {jax.arg = true}",
    )
    assert pretty.name == generic.name == "stablehlo.transpose"
    assert (
        pretty.attributes == generic.attributes == {"permutation": (Number(1), Number(0))}
    )
    assert str(pretty.results[0].type) == str(generic.results[0].type) == "tensor<3x2xf32>"


def test_a_module_has_its_name_attributes_and_functions() -> None:
    module = only(
        "#loc = loc(unknown)\n!t = tensor<?x4xf32, #stablehlo.bounds<8, ?>>\n"
        "module @jit_f attributes {mhlo.num_replicas = 1 : i32} {\n"
        "  func.func private @f(!t) -> !t\n"
        "  func.func public @main(%x: !t) -> (!t {a.b}) {\n"
        "    %0:2 = call @g(%x) : (!t) -> (!t, !t) // comment\n"
        "    return %0#1 : !t\n  }\n}"
    )
    assert module.name == "jit_f"
    assert module.functions["f"].body is None
    main = module.functions["main"]
    type_ = main.type.inputs[0]
    assert isinstance(type_, TensorType)
    assert (type_.shape, type_.bounds) == ((None, 4), (8, None))
    assert main.body is not None
    call, leave = main.body.operations
    assert leave.operands == (call.results[1],)


@pytest.mark.parametrize(
    "note",
    [
        '#foo<"x">', "#foo.bar<{a = [1 : i64]}, @b>", "#foo.bar<(d0) -> (d0), [?]>", "#foo.bar",
        "#sdy.sharding<@mesh, [{}, {?}]>", "!foo.bar<x>", "affine_map<(d0) -> (d0)>",
        "sparse<[[0]], 1> : tensor<2xi32>", "distinct[0]<1 : i64>",
    ],
)  # fmt: skip
def test_attributes_of_other_dialects_are_notes(note: str) -> None:
    (found,) = body(
        f"%0 = stablehlo.abs %a {{foo.note = {note}, foo.after = 1 : i32}} : tensor<2x3xf32>",
        "%a: tensor<2x3xf32>",
    )
    assert set(found.attributes) == {"foo.note", "foo.after"}
    after = found.attributes["foo.after"]
    assert isinstance(after, Number)
    assert after.value == 1


def test_sections_are_modules_of_their_own() -> None:
    text = "func.func @a() { return }\n// -----\nfunc.func @a() {\n  oops\n}"
    with pytest.raises(ModelError, match=r"case\.mlir:5:1"):
        parse(text, "case.mlir")
    assert len(parse(text.replace("  oops\n", "  return"))) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[1, -2], [3, 4]]> : tensor<2x2xi8>", np.int8([[1, -2], [3, 4]])),
        ("true> : tensor<3xi1>", np.array([True] * 3)),
        ("[]> : tensor<0x3xf32>", np.zeros((0, 3), np.float32)),
        ("> : tensor<0xf32>", np.zeros(0, np.float32)),
        ("0x7F800000> : tensor<f32>", np.float32(np.inf)),
        ("[0xFFC00000, -1.5e-1]> : tensor<2xf32>", np.float32([np.nan, -0.15])),
        ('"0x0000803F000000C0"> : tensor<2xf32>', np.float32([1, -2])),
        ('"0x0500"> : tensor<3x3xi1>', np.unpackbits(np.uint8([160, 0]))[:9].astype(bool)),
        ('"0xFF"> : tensor<11xi1>', np.ones(11, bool)),
        ('"0x00"> : tensor<11xi1>', np.zeros(11, bool)),
        ('"0xFF"> : tensor<i1>', np.array(True)),
        ("[1e39, -1e39]> : tensor<2xf32>", np.float32([np.inf, -np.inf])),
        ("18446744073709551615> : tensor<ui64>", np.uint64(2**64 - 1)),
        ("[(1.0,2.0), (3.0,-4.0)]> : tensor<2xcomplex<f32>>", np.complex64([1 + 2j, 3 - 4j])),
        ("[-8, 7]> : tensor<2xi4>", np.int8([-8, 7])),
    ],
)  # fmt: skip
def test_literals_hold_their_elements(text: str, expected: np.ndarray) -> None:
    found = literal(text)
    assert found.shape == expected.shape or text.startswith('"0x0500')
    wanted = np.asarray(expected).reshape(found.shape)
    np.testing.assert_array_equal(found.astype(wanted.dtype), wanted)


def test_a_splat_takes_the_memory_of_one_element() -> None:
    assert literal("0.0> : tensor<1000000000000xf32>").strides == (0,)


def test_dialects_have_attributes_of_their_own() -> None:
    (gather, convolution, cut) = body(
        '%0 = "stablehlo.gather"(%a, %a) {dimension_numbers = #stablehlo.gather<offset_dims = '
        "[1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>, "
        "mode = #stablehlo<precision DEFAULT>} "
        ": (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
        "%1 = stablehlo.convolution(%a, %a) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], "
        "window = {stride = [2], pad = [[1, 0]]} {batch_group_count = 1 : i64, precision_config "
        "= [#stablehlo<precision DEFAULT>]} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
        "%2 = stablehlo.slice %a [0:2, 1:4:2] : (tensor<2xf32>) -> tensor<2xf32>"
    )
    numbers = gather.attributes["dimension_numbers"]
    assert convolution.attributes["window_strides"] == (Number(2),)
    assert isinstance(numbers, Fields)
    assert numbers.named["offset_dims"] == (Number(1),)
    assert gather.attributes["mode"] == Keyword("DEFAULT")
    assert convolution.attributes["dimension_numbers"] == Labels(
        ("b", "0", "f"), ("0", "i", "o"), ("b", "0", "f")
    )
    assert cut.attributes == {
        "start_indices": (Number(0), Number(1)),
        "limit_indices": (Number(2), Number(4)),
        "strides": (Number(1), Number(2)),
    }


def test_rules_of_how_a_call_is_spread_over_machines_are_stepped_over() -> None:
    # What JAX writes beside the calls of LAPACK.
    (call,) = body(
        "%0 = stablehlo.custom_call @lapack_sgeqrf_ffi(%a) {mhlo.backend_config = {}, "
        "operand_layouts = [dense<[0, 1]> : tensor<2xindex>], sdy.sharding_rule = "
        "#sdy.op_sharding_rule<([i, j])->([k, l], [m]) {i=5, j=5, k=5, l=5, m=5}, custom>} "
        ": (tensor<2xf32>) -> tensor<2xf32>"
    )
    assert call.attributes["sdy.sharding_rule"] == Keyword("sdy.op_sharding_rule")
    assert call.attributes["operand_layouts"]


def test_reduce_and_while_have_regions() -> None:
    short, long, loop = body(
        "%0 = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [0] "
        ": (tensor<2xf32>, tensor<f32>) -> tensor<f32>\n"
        "%1:2 = stablehlo.reduce(%a init: %b), (%a init: %b) across dimensions = [0] "
        ": (tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)\n"
        " reducer(%c: tensor<f32>, %e: tensor<f32>) (%d: tensor<f32>, %f: tensor<f32>) {\n"
        "  stablehlo.return %d, %e : tensor<f32>, tensor<f32> }\n"
        "%2 = stablehlo.while(%i = %b) : tensor<f32> attributes {x.y = 1 : i32} cond {\n"
        "  stablehlo.return %i : tensor<f32> } do { stablehlo.return %b : tensor<f32> }",
        "%a: tensor<2xf32>, %b: tensor<f32>",
    )
    assert [o.name for o in short.regions[0].blocks[0].operations] == [
        "stablehlo.add",
        "stablehlo.return",
    ]
    block = long.regions[0].blocks[0]
    assert [v.name for v in block.arguments] == ["%c", "%d", "%e", "%f"]
    assert block.operations[0].operands == (block.arguments[1], block.arguments[2])
    assert len(loop.regions) == 2


ADD = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{\n  {}\n}}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("return %b : tensor<2xf32>", "2:10: value '%b' is not defined before its use"),
        ("return %a : tensor<3xf32>", "its type says \\(tensor<3xf32>\\)"),
        ("%a = stablehlo.abs %a : tensor<2xf32>\nreturn", "value '%a' is defined twice"),
        ("%0 = stablehlo.abs %a : tensor<2xf23\nreturn", "got 'return', expected '>'"),
        ("%0 = stablehlo.abs %a : tensr<2xf32>\nreturn", "did you mean 'tensor'"),
        ("%0 = stablehlo.abs %a", "got '}', expected ':'"),
        ("%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>", "nested as \\[2\\]"),
        ("%0 = stablehlo.constant dense<300> : tensor<i8>", "300 is out of range"),
        ("%0 = stablehlo.constant dense<\"0x00\"> : tensor<2xf32>", "got 1 bytes, expected 8"),
        ("%0 = stablehlo.constant dense<[[1], [2, 3]]> : tensor<3xi32>", "one bracket has 2"),
        ('"a.b"(%a)[^bb1] : (tensor<2xf32>) -> ()', "branches between blocks"),
        ("`", "character '`' begins nothing"),
        ("%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>\nreturn", "2:32: literal of"),
        ("%0 = stablehlo.constant dense<\"0x00\"> : tensor<2xf32>\nreturn", "2:32: literal of"),
        ('"a.b"() ({\n^bb0(%x: tensor<f32>, %x: tensor<f32>): }) : () -> ()', "3:23: value '%x' is"),
        ("#a", "got '#a', expected an operation"),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_column(line: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        parse(ADD.format(line), "case.mlir")
    assert str(caught.value).startswith("case.mlir:")


def test_an_argument_that_is_there_twice_is_named_where_it_stands() -> None:
    text = "func.func @main(%a: tensor<f32>,\n  %a: tensor<f32>) { return }"
    with pytest.raises(ModelError, match="2:3: value '%a' is defined twice"):
        parse(text, "case.mlir")


def test_a_cut_text_says_so() -> None:
    with pytest.raises(ModelError, match="the file is cut"):
        parse("func.func @main(", "case.mlir")


@pytest.mark.parametrize(
    "text",
    [
        "func.func @f() -> " + "tuple<" * 5000,
        ADD.format("%0 = stablehlo.constant dense<" + "[" * 5000),
        ADD.format('%0 = "a.b"() {x = ' + "[" * 5000),
        "func.func @f() { " + '"a.b"() ({' * 5000,
        ADD.format(f"%0 = stablehlo.constant dense<{'9' * 5000}> : tensor<i32>"),
        f"func.func @f(tensor<{'1x' * 5000}f32>)",
        f"func.func @f(tensor<{'9' * 20}xf32>)",
        ADD.format("%0:1000000000 = stablehlo.abs %a : tensor<2xf32>"),
    ],
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(ModelError):
        parse(text)


GENERIC = """
#loc1 = loc("x")
"builtin.module"() <{sym_name = "jit_f"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=1]>, sym_name = "mesh"}> {a.b = 1 : i32} : () -> ()
  "func.func"() <{arg_attrs = [{}], function_type = (tensor<2xf32>) -> tensor<2xf32>, sym_name = "f"}> ({
  ^bb0(%arg0: tensor<2xf32> loc("x")):
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc(#loc1)
    "func.return"(%0) : (tensor<2xf32>) -> () loc(#loc1)
  }) : () -> () loc(#loc1)
  "func.func"() <{function_type = (tensor<2xf32>) -> tensor<2xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2xf32>):
    %0 = "func.call"(%arg0) <{callee = @f}> : (tensor<2xf32>) -> tensor<2xf32>
    "func.return"(%0) : (tensor<2xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32} : () -> () loc(#loc1)
"""


def test_a_module_in_generic_form_is_the_one_in_pretty_form() -> None:
    module = only(GENERIC)
    assert (module.name, list(module.functions)) == ("jit_f", ["f", "main"])
    assert module.attributes["mhlo.num_partitions"] == Number(1, ScalarType("i32"))
    assert [o.name for o in module.operations()] == [
        "stablehlo.add", "func.return", "func.call", "func.return",
    ]  # fmt: skip
    (found,) = evaluate(load(GENERIC.encode()).graph, [np.float32([1, 2])])
    np.testing.assert_array_equal(found, [2, 4])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            'sym_name = "main"',
            'sym_name = "f"',
            "case.mlir:10:3: function '@f' is defined twice",
        ),
        ("(tensor<2xf32>) -> tensor<2xf32>, sym", "() -> (), sym", "does not fit its type"),
        ('"func.func"', '"stablehlo.func"', "expected functions"),
        ("^bb0(%arg0: tensor<2xf32>):", "^bb0(%arg1: tensor<2xf32>):", "not defined"),
    ],
)
def test_a_damaged_generic_module_is_refused(before: str, after: str, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        only(GENERIC.replace(before, after))


def test_a_place_after_an_operation_without_operands_is_stepped_over() -> None:
    found = only("module {\nfunc.func @main() {\nreturn loc(#loc6)\n} loc(#loc)\n}")
    assert [o.name for o in found.operations()] == ["return"]


def test_notes_about_machines_change_nothing() -> None:
    text = """module {
      sdy.mesh @mesh = <["a"=1, "b"=1]> {stablehlo.mesh = {axes = [{name = "a", size = 1 : i64}]}} loc(#loc)
      func.func @main(%a: tensor<2x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {?}]>}) -> tensor<2x3xf32> {
        sdy.sharding_group %a group_id=0 : tensor<2x3xf32>
        %0 = sdy.sharding_constraint %a <@mesh, [{"a"}, {"b", ?}]> : tensor<2x3xf32>
        %1 = sdy.reshard %0 <@mesh, [{"b":(1)1}, {}]> : tensor<2x3xf32> loc(#loc)
        %2 = sdy.propagation_barrier %1 allowed_direction=FORWARD : tensor<2x3xf32>
        return %2 : tensor<2x3xf32>
      }
    }"""
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = evaluate(load(text.encode()).graph, [given])
    np.testing.assert_array_equal(found, given)


def test_a_body_for_several_machines_is_refused_by_its_name() -> None:
    text = """module {
      sdy.mesh @mesh = <["a"=2]>
      func.func @main(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {
        %1 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"a"}, {}]>] out_shardings=[<@mesh, [{"a"}, {}]>] manual_axes={"a"} (%b: tensor<1x4xf32>) {
          %2 = stablehlo.add %b, %b : tensor<1x4xf32>
          sdy.return %2 : tensor<1x4xf32>
        } : (tensor<2x4xf32>) -> tensor<2x4xf32>
        %3 = stablehlo.add %1, %a : tensor<2x4xf32>
        return %3 : tensor<2x4xf32>
      }
    }"""
    with pytest.raises(ModelError, match=r"\(sdy.manual_computation\)"):
        load(text.encode())


def test_tuples_and_tokens_of_a_call_are_their_items_and_nothing() -> None:
    text = """func.func @main(%t: tuple<tensor<2xf32>, tuple<tensor<complex<f32>>>>, %o: !stablehlo.token) -> (tuple<tuple<tensor<complex<f32>>>, tensor<2xf32>>, !stablehlo.token) {
    %a = stablehlo.get_tuple_element %t[0] : (tuple<tensor<2xf32>, tuple<tensor<complex<f32>>>>) -> tensor<2xf32>
    %b = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2xf32>, tuple<tensor<complex<f32>>>>) -> tuple<tensor<complex<f32>>>
    %r = stablehlo.tuple %b, %a : tuple<tuple<tensor<complex<f32>>>, tensor<2xf32>>
    %p = stablehlo.after_all %o, %o : !stablehlo.token
    return %r, %p : tuple<tuple<tensor<complex<f32>>>, tensor<2xf32>>, !stablehlo.token
    }"""
    graph = load(text.encode()).graph
    assert [v.name for v in graph.inputs] == ["t_0", "t_1_0_real", "t_1_0_imaginary"]
    names = ["result_0_0_0_real", "result_0_0_0_imaginary", "result_0_1"]
    assert graph.output_names == names
    given = [np.float32([1, 2]), np.float32(3), np.float32(4)]
    found = evaluate(graph, given)
    for one, other in zip(found, (given[1], given[2], given[0]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("results", "line", "message"),
    [
        ("tensor<3xf32>", "return %a : tensor<2xf32>",
         r"result 0 of @main at 1:1: gives f32\[2\], its type says f32\[3\]"),
        ("tensor<2xi32>", "return %a : tensor<2xf32>", r"gives f32\[2\], its type says i32"),
        ("tensor<2xf32>", "return", "@main at 1:1: returns 0 values, its type says 1"),
        ("tensor<2xf32>", "", "@main at 1:1: returns 0 values, its type says 1"),
        ("tuple<tensor<2xf32>>", "return %a : tensor<2xf32>", "gives a tensor, its type says tuple<tensor<2xf32>>"),
        ("tuple<>", "%t = stablehlo.tuple %a : tuple<tensor<2xf32>>\nreturn %t : tuple<tensor<2xf32>>",
         "gives a tuple of 1 value, its type says tuple<>"),
        ("tensor<2xf32>", "%t = stablehlo.after_all : !stablehlo.token\nreturn %t : !stablehlo.token",
         r"gives a token, its type says tensor<2xf32>"),
        ("!stablehlo.token", "return %a : tensor<2xf32>", "gives a tensor, its type says !stablehlo.token"),
    ],
)  # fmt: skip
def test_a_function_that_returns_something_else_is_refused(
    results: str, line: str, message: str
) -> None:
    text = f"func.func @main(%a: tensor<2xf32>) -> {results} {{ {line} }}"
    with pytest.raises(ModelError, match=message):
        load(text.encode())


PRETTY_MAIN = (
    "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"
)


def test_modules_inside_of_modules_are_read_and_left_out() -> None:
    inner = "module @inner { func.func @main(%b: tensor<3xi32>) { return } }"
    text = f"module @outer {{ {inner} {PRETTY_MAIN} }}"
    assert list(parse(text)[0].functions) == ["main"]
    with pytest.raises(ModelError, match="1:86: got"):
        parse(text.replace("return } }", "retur", 1))


def test_modules_that_nest_without_end_are_refused() -> None:
    for opening in ("module {", "module @inner attributes {a = 1 : i32} {"):
        with pytest.raises(ModelError, match="nests deeper than 64 levels"):
            parse(opening * 20_000 + "}" * 20_000)
    parse("module {" * 60 + "}" * 60)


def named_types(first: str, next_: str) -> str:
    """Forty types, each of which holds the one before it twice."""
    lines = [f"!t0 = {first}"]
    lines += [f"!t{i} = {next_.replace('!t', f'!t{i - 1}')}" for i in range(1, 40)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("first", "next_"),
    [
        ("tuple<f32, f32>", "tuple<!t, !t>"),
        ("tuple<>", "tuple<!t, !t>"),
        ("(f32) -> f32", "(!t) -> (!t)"),
        ("(f32) -> f32", "(!t, !t) -> f32"),
    ],
)
@pytest.mark.parametrize("use", ["tensor<2x!t39>", "!t39"])
def test_types_that_unfold_without_end_are_refused(
    first: str, next_: str, use: str
) -> None:
    """The message that named such a type took all memory."""
    text = f"{named_types(first, next_)}\nfunc.func @f(%a: {use}) {{ return }}"
    with pytest.raises(ModelError, match="a type has more than 65536 parts"):
        parse(text, "case.mlir")


def test_types_of_many_parts_are_read() -> None:
    parts = ", ".join(["f32"] * 1000)
    module = only(f"!t = tuple<{parts}>\nfunc.func private @f(!t, !t) -> !t")
    assert len(module.functions["f"].type.inputs) == 2


@pytest.mark.slow
def test_the_time_for_a_text_grows_with_its_length() -> None:
    """Each list looked at a copy of the rest, each section at the lines before it."""

    def work(count: int) -> None:
        lists = "[0], " * count + "[0]"
        text = f"module attributes {{a = [{lists}]}} {{}}\n" + "// -----\n" * count
        assert parse(text, "case.mlir")

    assert grows_in_proportion(work, 200, 6_400)


def test_places_in_later_sections_are_those_of_the_file() -> None:
    with pytest.raises(ModelError, match=r"case\.mlir:5:3:"):
        parse("module {}\n// -----\nmodule {}\n// ----- note\n  oops", "case.mlir")


def test_a_literal_of_no_integers_may_have_brackets() -> None:
    assert literal("[]> : tensor<0xi32>").shape == (0,)
    assert literal("[[], []]> : tensor<2x0xi8>").shape == (2, 0)


@pytest.mark.parametrize("text", ["1.0", '"0x0000803F"', "[1.0]"])
def test_literals_that_no_memory_holds_are_refused_in_words(text: str) -> None:
    with pytest.raises(ModelError, match="no memory holds it"):
        literal(f"{text}> : tensor<4611686018427387904x4611686018427387904xf32>")
