import numpy as np
import onnx
import pytest

import tilewright
import tilewright.onnx_backend as backend
from fakes import onnx_models
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import CoverageReport, Status, coverage

BODY = """graph (float[N, 8] x, int64[5, 5] s, string[2] words) => (float[N, 8] y) {
  a = Relu(x)
  b = Magic(a)
  c = Relu<shiny = 1>(x)
  d = ImageDecoder(x, x)
  v = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
    ngram_counts = [0], ngram_indexes = [0], pool_int64s = [7]>(s)
  y = Add(a, x)
}"""


def report() -> CoverageReport:
    model = onnx_models.parse(BODY)
    return coverage(model)


def by_op() -> dict[str, object]:
    return {r.op_type: r for r in report().rows}


def test_every_op_type_has_one_row_worst_first() -> None:
    rows = report().rows
    assert [r.op_type for r in rows][-1] == "Add"
    assert {r.op_type: r.count for r in rows} == {
        "Relu": 2,
        "Magic": 1,
        "ImageDecoder": 1,
        "TfIdfVectorizer": 1,
        "Add": 1,
    }
    order = [Status.UNSUPPORTED, Status.FALLBACK, Status.KERNEL]
    ranks = [order.index(r.status) for r in rows]
    assert ranks == sorted(ranks)


def test_status_and_reasons_name_the_nodes() -> None:
    rows = by_op()
    names = ("Magic", "ImageDecoder", "TfIdfVectorizer", "Add")
    magic, image, counts, add = (rows[n] for n in names)
    assert magic.status is Status.UNSUPPORTED
    assert magic.reasons[0].text == "op 'Magic' is not supported"
    assert magic.reasons[0].nodes == ("b",)
    assert "not supported" in image.reasons[0].text
    assert counts.status is Status.FALLBACK
    assert counts.reasons[0].text.startswith("op 'ngram_counts' has no kernel")
    assert (add.status, add.reasons) == (Status.KERNEL, ())


def test_types_and_dynamic_dimensions_are_listed() -> None:
    found = report()
    assert found.dynamic_dims == ("N",)
    assert by_op()["Add"].dtypes == ("f32",)
    assert by_op()["Add"].dynamic_dims == ("N",)
    assert found.inputs == ("x: f32[N, 8]", "s: i64[5, 5]")


def test_the_model_itself_can_have_problems() -> None:
    found = report()
    assert not found.supported
    assert any("words" in p.reason and not p.op_type for p in found.problems)
    assert "input 'words': type string is not supported" in str(found)


def test_the_report_reads_as_a_table() -> None:
    text = str(report())
    assert text.startswith("<proto>: 6 nodes, opset 21, 0 B of weights")
    assert "dynamic dimensions: N" in text
    assert "op 'Magic' is not supported (at 'b')" in text
    assert text.endswith("op types: 1 kernel, 1 fallback, 3 unsupported")


def test_nodes_behind_an_unsupported_one_are_still_checked() -> None:
    model = onnx_models.parse(
        "graph (float[3] x) => (float[3] y) { a = Magic(x) b = Relu(a) y = Trick(b) }"
    )
    statuses = {r.op_type: r.status for r in coverage(model).rows}
    assert statuses == {
        "Magic": Status.UNSUPPORTED,
        "Trick": Status.UNSUPPORTED,
        "Relu": Status.KERNEL,
    }


def test_a_function_of_the_model_counts_by_its_nodes() -> None:
    model = onnx_models.parse(
        """graph (float[N] x) => (float[N] y) { y = local.twice(x) }
        <domain: "local", opset_import: ["" : 21]>
        twice (a) => (b) { c = Neg(a) b = Neg(c) }"""
    )
    assert [(r.op_type, r.count) for r in coverage(model).rows] == [("Neg", 2)]


def test_an_expanded_op_counts_as_itself() -> None:
    model = onnx_models.parse(
        "graph (float[5] x) => (uint8[5] y, float s, uint8 z) "
        "{ y, s, z = DynamicQuantizeLinear(x) }"
    )
    (row,) = coverage(model).rows
    assert (row.op_type, row.count, row.status) == (
        "DynamicQuantizeLinear",
        1,
        Status.KERNEL,
    )


@pytest.mark.parametrize("data", [b"", b"garbage"])
def test_only_bytes_that_are_no_model_raise(data: bytes) -> None:
    with pytest.raises(ModelError):
        coverage(data)


def test_an_opset_of_the_future_is_reported_not_raised() -> None:
    model = onnx_models.parse("graph (float[3] x) => (float[3] y) { y = Relu(x) }")
    model.opset_import[0].version = 999
    found = coverage(model)
    assert [p.reason for p in found.problems] == [
        f"uses opset 999, expected 1 to {onnx.defs.onnx_opset_version()}"
    ]


def labelled() -> onnx.ModelProto:
    """Scores of two classes with names, as sequences of maps."""
    make = onnx.helper.make_node
    nodes = [
        make("Relu", ["x"], ["r"]),
        make(
            "LinearClassifier",
            ["r"],
            ["label", "p"],
            domain="ai.onnx.ml",
            coefficients=[1.0, 0.0, 0.0, 1.0],
            intercepts=[0.0, 0.0],
            classlabels_strings=["a", "b"],
            post_transform="SOFTMAX",
        ),
        make(
            "ZipMap", ["p"], ["scores"], domain="ai.onnx.ml", classlabels_strings=["a", "b"]
        ),
    ]
    value = onnx.helper.make_tensor_value_info
    maps = onnx.helper.make_sequence_type_proto(
        onnx.helper.make_map_type_proto(
            onnx.TensorProto.STRING,
            onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, []),
        )
    )
    graph = onnx.helper.make_graph(
        nodes,
        "labelled",
        [value("x", onnx.TensorProto.FLOAT, ["N", 2])],
        [
            value("label", onnx.TensorProto.STRING, ["N"]),
            onnx.helper.make_value_info("scores", maps),
        ],
    )
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_a_model_whose_strings_the_host_computes_is_supported_and_says_by_what() -> None:
    model = labelled()
    found = coverage(model)
    assert found.supported
    assert found.needs_host
    assert "tilewright.onnx_backend runs it, compile does not" in str(found)
    assert found.inputs == ("x: f32[N, 2]",)
    assert [o.partition("[")[0] for o in found.outputs] == [
        "label: string",
        "scores: sequence of map",
    ]
    rows = {r.op_type: r for r in found.rows}
    assert rows["ai.onnx.ml::ZipMap"].status is Status.FALLBACK
    assert "the host computes its strings" in rows["ai.onnx.ml::ZipMap"].reasons[0].text
    assert rows["Relu"].status is Status.KERNEL


@pytest.mark.slow
def test_what_coverage_says_of_strings_is_what_runs() -> None:
    x = np.array([[1, 2], [4, 3]], np.float32)
    label, scores = backend.run_model(labelled(), [x])
    assert label.tolist() == ["b", "a"]
    assert scores[1]["a"] > scores[1]["b"]
    with pytest.raises(ModelError, match="computed on the host"):
        tilewright.compile(labelled())


def test_what_no_host_computes_either_stays_unsupported() -> None:
    model = labelled()
    model.graph.node[0].op_type = "Magic"
    found = coverage(model)
    assert not found.supported
    assert not found.needs_host
    assert found.host_note == ""


def test_a_model_of_which_nothing_is_compiled_needs_the_host_alone() -> None:
    model = onnx_models.parse(
        'graph (string[N] x) => (string[N] y) { y = StringNormalizer<case_change_action = "UPPER">(x) }'
    )
    found = coverage(model, judge=lambda graph: pytest.fail("there are no kernels"))
    assert found.supported
    assert found.needs_host
    assert found.inputs == ("x: string[N]",)


def test_a_model_of_tensors_needs_no_host() -> None:
    model = onnx_models.parse("graph (float[3] x) => (float[3] y) { y = Relu(x) }")
    assert not coverage(model).needs_host


def reasons(body: str, opset: int = 21) -> dict[str, str]:
    """By node what is wrong with it, when all of the model is looked at once."""
    found: dict[str, list[str]] = {}
    for problem in coverage(onnx_models.parse(body, opset=opset)).problems:
        found.setdefault(problem.node, []).append(problem.reason)
    return {node: "; ".join(texts) for node, texts in found.items()}


WRONG_NODES = {
    "b = Relu<bogus = 1, worse = 2>(a)": "attribute 'bogus' is not supported; attribute 'worse' is not supported",
    "b = Relu(a, a)": "has 2 operands, expected at most 1",
    "b = Add(a)": "operand 2 is missing",
    "b = Where(a, , a)": "operand 2 is missing",
    "b = Concat<axis = 1>()": "operand 1 is missing",
    "b = Concat<axis = 1.5>(a, a)": "attribute 'axis' is not an int",
    "b = Cast(a)": "attribute 'to' is missing",
    "b, c = Neg(a)": "output 2 ('c') is not supported",
    "b = Crop<scale = 2>(a, a)": "attribute 'scale' is not a list of ints; attribute 'border' is missing; has 2 operands, expected at most 1",
    "b, c = Affine<gamma = 1>(a)": "attribute 'gamma' is not supported; output 2 ('c') is not supported",
    "b = com.microsoft.Relu(a)": "op 'Relu' of domain 'com.microsoft' is not supported",
}


@pytest.mark.parametrize("node", WRONG_NODES)
def test_what_is_wrong_with_a_node_is_said_behind_an_unknown_one_too(node: str) -> None:
    behind = f"graph (float[3] x) => (float[3] y) {{ a = Magic(x) {node} y = Neg(b) }}"
    known = f"graph (float[3] a) => (float[3] y) {{ {node} y = Neg(b) }}"
    unknown = {"a": "op 'Magic' is not supported"}
    assert reasons(behind) == unknown | {"b": WRONG_NODES[node]}
    assert reasons(known) == {"b": WRONG_NODES[node]}


def test_a_wrong_attribute_does_not_hide_what_else_is_wrong() -> None:
    body = """graph (float[3] x) => (float[3] y) {
      a = Relu<bogus = 1>(x) b = Transpose<shiny = 1, perm = [1, 1]>(a) y = Neg(b) z = Concat<axis = 7>(a, a) }"""
    found = reasons(body)
    assert found["a"] == "attribute 'bogus' is not supported"
    assert found["b"].startswith("attribute 'shiny' is not supported; ")
    assert "axis" in found["z"]


@pytest.mark.parametrize("condition", ["d", "c"])
def test_both_branches_are_looked_into(condition: str) -> None:
    body = f"""graph (float[3] x, bool c) => (float[3] y) {{
      a = Magic(x) d = Magic(c)
      y = If({condition}) <
        then_branch = t () => (float[3] r) {{ r = Trick(a) }},
        else_branch = e () => (float[3] s) {{ q = Neg<bogus = 1>(x) s = Trock(q) }}> }}"""
    assert reasons(body) == {
        "a": "op 'Magic' is not supported",
        "d": "op 'Magic' is not supported",
        "r": "op 'Trick' is not supported",
        "q": "attribute 'bogus' is not supported",
        "s": "op 'Trock' is not supported",
    }


def test_the_body_of_an_unknown_op_and_of_a_loop_behind_it_are_looked_into() -> None:
    body = """graph (float[3] x, int64 n, bool go) => (float[3] y) {
      a = Magic(x) <body = b () => (float[3] r) { r = Trick(x) }>
      y = Loop(n, go, a) <body = l (int64 i, bool on, float[3] v) => (bool on2, float[3] w) {
        on2 = Identity(on) u = Neg<bogus = 1>(v) w = Reshape(u) }> }"""
    assert reasons(body) == {
        "a": "op 'Magic' is not supported",
        "r": "op 'Trick' is not supported",
        "u": "attribute 'bogus' is not supported",
        "w": "operand 2 is missing",
    }


def test_the_functions_of_a_model_are_looked_into_behind_an_unknown_node() -> None:
    body = """graph (float[N] x) => (float[N] y) { a = Magic(x) b, c = local.pair(a, x) y = Trock(c) }
      <domain: "local", opset_import: ["" : 21]>
      pair (p, q) => (r, s) { t = Nag(p) r = Neg<bogus = 1>(t) s = Neg(q) }"""
    assert reasons(body) == {
        "a": "op 'Magic' is not supported",
        "b/t": "op 'Nag' is not supported",
        "b/r": "attribute 'bogus' is not supported",
        "y": "op 'Trock' is not supported",
    }


def test_an_attribute_of_another_version_is_left_to_the_row() -> None:
    body = "graph (float[3] x) => (float[3] y) { a = Magic(x) y = Relu<consumed_inputs = [0]>(a) }"
    assert reasons(body, opset=5) == {"a": "op 'Magic' is not supported"}


def test_elements_of_a_stand_in_are_not_called_data() -> None:
    model = onnx_models.parse(
        """graph (float[6] x, int64[2] s) => (float[N] y)
        <int64[2] a> { a = Magic(s) b = Neg(a) y = Unsqueeze(x, b) z = Trick(y) }"""
    )
    assert [p.node for p in coverage(model).problems] == ["a", "z"]


def test_what_may_be_left_out_at_the_end_is_not_missing() -> None:
    body = """graph (float[3] x, int64 n) => (float[3] y) {
      a = Magic(x) s = Loop(n, ) <body = l (int64 i, bool on) => (bool on2, float[3] w) {
        on2 = Identity(on) w = Neg(a) }>
      y = Clip(a, , ) }"""
    assert reasons(body, opset=12) == {"a": "op 'Magic' is not supported"}
