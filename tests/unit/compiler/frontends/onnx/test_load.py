import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fakes import onnx_models
from fakes.growth import grows_in_proportion
from tilewright.base.errors import ModelError, UserError
from tilewright.compiler.frontends.onnx import load, load_model
from tilewright.compiler.frontends.onnx.importer import Importer
from tilewright.compiler.frontends.onnx.model import open_model
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.verifier import verify

RELU = "graph (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"


def run(model: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    graph = load(model)
    verify(graph)
    return evaluate(graph, list(arrays))


def ops(body: str, **options: int) -> list[str]:
    return [n.op for n in load(onnx_models.parse(body, **options)).nodes]


@pytest.mark.parametrize("form", ["path", "text", "bytes", "proto"])
def test_a_model_loads_from_every_source(tmp_path: Path, form: str) -> None:
    model = onnx_models.parse(RELU)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    sources = {"path": path, "text": str(path), "bytes": path.read_bytes(), "proto": model}
    graph = load(sources[form])
    assert [n.op for n in graph.nodes] == ["relu"]
    assert [str(v.type) for v in graph.inputs] == ["f32[N, 3]"]
    assert graph.output_names == ["y"]


def test_metadata_says_what_the_model_says() -> None:
    model = onnx_models.parse(RELU)
    model.producer_name, model.producer_version = "maker", "1.2"
    metadata = load_model(model).metadata
    assert (metadata.opset, metadata.producer) == (21, "maker 1.2")
    assert dict(metadata.opsets)["com.microsoft"] == 1


def test_nodes_remember_their_names_in_the_model(tmp_path: Path) -> None:
    model = onnx_models.parse(RELU)
    model.graph.node[0].name = "act"
    onnx.save(model, tmp_path / "m.onnx")
    assert str(load(tmp_path / "m.onnx").nodes[0].location) == "m.onnx: node 'act'"


# --- weights


def test_weights_in_the_file_are_mapped_not_copied(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = onnx_models.one_node("MatMul", [weights[:2], weights], constants=(1,))
    onnx.save(model, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    (held,) = [n.attributes["value"] for n in graph.nodes if n.op == "constant"]
    assert not held.flags.owndata
    np.testing.assert_array_equal(held, weights)


def test_external_weights_are_found_beside_the_model(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = onnx_models.one_node("MatMul", [weights[:2], weights], constants=(1,))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").stat().st_size >= weights.nbytes
    (result,) = evaluate(load(path), [weights[:2]])
    np.testing.assert_allclose(result, weights[:2] @ weights, rtol=1e-4, atol=1e-5)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"external data 'w\.bin': no such file"):
        load(path)


def test_transposed_weights_stay_views(tmp_path: Path) -> None:
    weights = np.zeros((48, 64), np.float32)
    model = onnx_models.one_node(
        "Gemm", [np.ones((2, 64), np.float32), weights], constants=(1,), transB=1
    )
    onnx.save(model, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    assert [n.op for n in graph.nodes] == ["constant", "matmul"]
    assert graph.nodes[0].attributes["value"].base is not None


def test_initializers_listed_as_inputs_are_no_inputs() -> None:
    model = onnx_models.parse(
        "graph (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }",
        ir_version=3,
        opset=8,
    )
    assert [v.name for v in load(model).inputs] == ["x"]


def test_sparse_initializers_are_written_out() -> None:
    model = onnx_models.parse("graph (float[3] x) => (float[3] y) { y = Add(x, s) }")
    sparse = model.graph.sparse_initializer.add(dims=[3])
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([5], np.float32), "s"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([1], np.int64)))
    (result,) = run(model, np.ones(3, np.float32))
    np.testing.assert_array_equal(result, [1, 6, 1])


# --- inputs


def test_input_shapes_fix_dimensions() -> None:
    graph = load(onnx_models.parse(RELU), input_shapes={"x": (4, 3)})
    assert str(graph.outputs[0].type) == "f32[4, 3]"


def test_input_values_turn_inputs_into_constants() -> None:
    model = onnx_models.parse(
        "graph (float[2, 3] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }"
    )
    assert [v.name for v in load(model).inputs] == ["x", "s"]
    graph = load(model, input_values={"s": [3, 2]})
    assert [v.name for v in graph.inputs] == ["x"]
    assert str(graph.outputs[0].type) == "f32[3, 2]"


@pytest.mark.parametrize(
    "value", [[3.0, 2.0], np.array([3, 2], np.uint8), [[True], [False]], [np.inf, np.nan]]
)
def test_input_values_take_the_type_of_the_input(value: object) -> None:
    shape = ",".join(map(str, np.shape(value)))
    model = onnx_models.parse(
        f"graph (float[{shape}] x) => (float[{shape}] y) {{ y = Identity(x) }}"
    )
    (found,) = evaluate(load(model, input_values={"x": value}), [])
    np.testing.assert_array_equal(found, np.asarray(value, np.float32))


@pytest.mark.parametrize(
    "values",
    [
        {"t": [1]},
        {"s": [[1, 2]]},
        {"s": [1, 2, 3]},
        {"s": [3.5, 2]},
        {"s": [np.nan, 2]},
        {"s": [3j, 2]},
        {"s": np.array([(1 << 64) - 3, 2], np.uint64)},
        {"x": np.full((2, 3), 1e300)},
    ],
)
def test_input_values_that_do_not_fit_are_refused(values: dict[str, object]) -> None:
    model = onnx_models.parse(
        "graph (float[2, 3] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }"
    )
    with pytest.raises(UserError):
        load(model, input_values=values)


# --- shapes as data


def test_the_head_split_of_a_transformer_leaves_no_shape_tensors() -> None:
    graph = load(
        onnx_models.parse(
            """graph (float[B, S, 64] x) => (float[B, 4, S, 16] y)
            <int64[1] heads = {4}, int64[1] size = {-1}, int64 i0 = {0}, int64 i1 = {1},
             int64[1] zero = {0}> {
              shape = Shape(x)
              b = Gather(shape, i0)
              s = Gather(shape, i1)
              bu = Unsqueeze(b, zero)
              su = Unsqueeze(s, zero)
              target = Concat<axis = 0>(bu, su, heads, size)
              split = Reshape(x, target)
              y = Transpose<perm = [0, 2, 1, 3]>(split)
            }"""
        )
    )
    assert [n.op for n in graph.nodes] == ["reshape", "transpose"]
    assert str(graph.outputs[0].type) == "f32[B, 4, S, 16]"


def test_a_causal_mask_of_dynamic_length_is_computed_from_iota() -> None:
    body = """graph (int64[B, S] ids) => (bool[S, S] mask)
        <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] second = {1}> {
          shape = Shape(ids)
          s = Gather(shape, one)
          r = Range(zero, s, one)
          row = Unsqueeze(r, first)
          column = Unsqueeze(r, second)
          mask = LessOrEqual(row, column)
        }"""
    model = onnx_models.parse(body)
    (result,) = run(model, np.zeros((2, 5), np.int64))
    np.testing.assert_array_equal(result, np.tril(np.ones((5, 5), bool)))


def test_a_minus_one_guard_in_an_expand_is_decided() -> None:
    # torch writes where(shape == -1, 1, shape); no dimension is -1.
    body = """graph (float[1, 3] x, float[N, 3] like) => (float[N, 3] y)
        <int64[2] minus = {-1, -1}, int64[2] ones = {1, 1}> {
          shape = Shape(like)
          guard = Equal(shape, minus)
          target = Where(guard, ones, shape)
          y = Expand(x, target)
        }"""
    assert ops(body) == ["broadcast_to"]


def test_a_dimension_needed_as_data_becomes_a_shape_tensor() -> None:
    body = """graph (float[N, 3] x) => (float[N, 3] y) <int64 zero = {0}> {
          shape = Shape(x)
          n = Gather(shape, zero)
          f = Cast<to = 1>(n)
          y = Div(x, f)
        }"""
    x = np.ones((5, 3), np.float32)
    (result,) = run(onnx_models.parse(body), x)
    np.testing.assert_allclose(result, x / 5)


# --- functions and control flow

FUNCTION = """graph (float[N] x) => (float[N] y) { y = local.scaled<factor = 3.0>(x) }
<domain: "local", opset_import: ["" : 21]>
scaled <factor: float = 2.0> (a) => (b) {
  f = Constant <value_float: float = @factor> ()
  b = Mul (a, f)
}"""


@pytest.mark.parametrize(("call", "factor"), [("<factor = 3.0>", 3), ("", 2)])
def test_local_functions_are_inlined_with_their_attributes(call: str, factor: int) -> None:
    body = FUNCTION.replace("<factor = 3.0>", call)
    (result,) = run(onnx_models.parse(body), np.ones(4, np.float32))
    np.testing.assert_array_equal(result, np.full(4, factor))


def test_a_function_that_calls_itself_is_refused() -> None:
    body = FUNCTION.replace("b = Mul (a, f)", "b = local.scaled (a)")
    with pytest.raises(ModelError, match="nest deeper"):
        load(onnx_models.parse(body))


def test_an_op_without_a_row_comes_apart_through_its_schema() -> None:
    x = np.linspace(-1, 1, 5).astype(np.float32)
    model = onnx_models.parse(
        "graph (float[5] x) => (uint8[5] y, float s, uint8 z) "
        "{ y, s, z = DynamicQuantizeLinear(x) }"
    )
    y, scale, zero = run(model, x)
    np.testing.assert_allclose((y.astype(np.float32) - zero) * scale, x, atol=0.01)


IF = """graph (float[3] x, bool c) => (float[3] y) <bool t = {1}> {
  y = If (CONDITION) <
    then_branch = g1 () => (float[3] a) { a = Neg(x) },
    else_branch = g2 () => (float[3] b) { b = Exp(x) }
  >
}"""


def test_an_if_with_a_known_condition_keeps_one_branch() -> None:
    assert ops(IF.replace("CONDITION", "t")) == ["neg"]


@pytest.mark.parametrize("condition", [True, False])
def test_an_if_on_data_selects_between_both_branches(condition: bool) -> None:
    x = np.array([0, 1, -2], np.float32)
    (result,) = run(onnx_models.parse(IF.replace("CONDITION", "c")), x, np.array(condition))
    np.testing.assert_allclose(result, -x if condition else np.exp(x), rtol=1e-6)


LOOP = """graph (float[3] x, bool go, int64 n) => (float[3] y, float[K, 3] all)
  <int64 trips = {3}, bool always = {1}> {
  y, all = Loop (TRIPS, GO, x) <
    body = g (int64 i, bool c, float[3] v) => (bool again, float[3] w, float[3] scan) {
      again = Identity(c)
      w = Add(v, v)
      scan = Identity(w)
    }
  >
}"""


def test_a_loop_of_known_length_is_unrolled() -> None:
    body = LOOP.replace("TRIPS", "trips").replace("GO", "always")
    x = np.ones(3, np.float32)
    y, scan = run(onnx_models.parse(body), x, np.array(True), np.array(0))
    np.testing.assert_array_equal(y, x * 8)
    np.testing.assert_array_equal(scan, np.stack([x * 2, x * 4, x * 8]))


@pytest.mark.parametrize(("trips", "go"), [("n", "always"), ("trips", "go")])
def test_a_loop_that_depends_on_data_is_a_loop(trips: str, go: str) -> None:
    model = onnx_models.parse(LOOP.replace("TRIPS", trips).replace("GO", go))
    assert "while" in {node.op for node in load(model).nodes}
    x = np.ones(3, np.float32)
    for count, flag in ((3, True), (0, True), (3, False)):
        y, scan = run(model, x, np.array(flag), np.array(count))
        done = (count if trips == "n" else 3) if flag or go == "always" else 0
        np.testing.assert_array_equal(y, x * 2**done)
        np.testing.assert_array_equal(
            scan, [x * 2**i for i in range(1, done + 1)] or scan[:0]
        )


def test_a_loop_in_which_a_type_changes_is_written_out() -> None:
    body = """graph (float[1] x) => (float[K] y) <int64 trips = {200}> {
      y = Loop (trips, , x) <
        body = g (int64 i, bool c, float[L] v) => (bool again, float[M] w) {
          u = Neg(x)
          w = Concat<axis = 0>(v, u)
          again = Identity(c)
        }
      >
    }"""
    (result,) = run(onnx_models.parse(body), np.ones(1, np.float32))
    assert result.shape == (201,)


def test_an_early_stop_without_scans_is_a_selection() -> None:
    body = """graph (float[1] x) => (float[1] y) <int64 trips = {5}, float[1] top = {10}> {
      start = Less(x, top)
      y = Loop (trips, start, x) <
        body = g (int64 i, bool c, float[1] v) => (bool again, float[1] w) {
          w = Add(v, v)
          again = Less(w, top)
        }
      >
    }"""
    model = onnx_models.parse(body)
    for start, expected in [(1.0, 16.0), (12.0, 12.0), (0.01, 0.32)]:
        (result,) = run(model, np.array([start], np.float32))
        np.testing.assert_allclose(result, [expected], rtol=1e-6)


# --- what is wrong


def test_every_problem_is_in_one_error() -> None:
    body = """graph (float[3] x, string[2] words) => (float[3] y) {
      a = Magic(x)
      b = Magic(a)
      d = Softmax<axis = 7>(x)
      e = Relu<shiny = 1>(x)
      y = Abs(d)
    }"""
    with pytest.raises(ModelError) as caught:
        load(onnx_models.parse(body))
    text = str(caught.value)
    assert text.startswith("<proto>: 5 problems in the model\n")
    for expected in (
        "input 'words': type string is not supported",
        "Magic 'a', 'b': op 'Magic' is not supported",
        "Softmax 'd': axis 7 is out of range for rank 1",
        "Relu 'e': attribute 'shiny' is not supported",
    ):
        assert expected in text
    assert "Abs" not in text


def test_a_single_problem_names_its_node_and_suggests() -> None:
    with pytest.raises(ModelError) as caught:
        load(onnx_models.parse("graph (float[3] x) => (float[3] y) { y = Softmaxx(x) }"))
    assert str(caught.value) == (
        "<proto>: node 'y' (Softmaxx): op 'Softmaxx' is not supported\n"
        "hint: did you mean 'Softmax' or 'LogSoftmax'?"
    )


@pytest.mark.parametrize("op", ["ImageDecoder", "local.Image"])
def test_what_is_no_slip_of_the_pen_says_how_to_give_it_a_meaning(op: str) -> None:
    body = f"graph (uint8[3] x) => (uint8[a, b, 3] y) {{ y = {op}(x) }}"
    with pytest.raises(ModelError, match=r"hint: .*onnx_operators\.register_function"):
        load(onnx_models.parse(body))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "graph (float[3] x) => (float[3] y) { y = Add(x, z) }",
            "input 'z' is not defined",
        ),
        ("graph (float[3] x) => (float[3] y) { z = Neg(x) }", "'y' is not produced"),
        (
            "graph (float[3] x) => (float[3] x1) { x1 = Neg(x) x1 = Neg(x) }",
            "defined twice",
        ),
        ("graph (float[3] x, float[4] z) => (float[3] y) { y = Add(x, z) }", "broadcast"),
        ("graph (float[3] x, int64[3] z) => (float[3] y) { y = Add(x, z) }", "i64"),
        ("graph (float[3] x) => (float[3] y) { y = Concat(x, x) }", "'axis' is missing"),
    ],
)
def test_a_model_that_makes_no_sense_says_why(body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(onnx_models.parse(body))


def _with_another_w(kind: str, array: np.ndarray) -> onnx.ModelProto:
    model = onnx_models.parse(
        "graph (float[1] x) => (float[1] y) <float[1] w = {1}> { y = Add(x, w) }"
    )
    values = onnx.numpy_helper.from_array(array, "w")
    if kind == "dense":
        model.graph.initializer.append(values)
    else:
        places = onnx.numpy_helper.from_array(np.arange(len(array)), "p")
        model.graph.sparse_initializer.append(
            onnx.helper.make_sparse_tensor(values, places, [len(array)])
        )
    return model


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    "array", [np.float32([2]), np.int32([1]), np.float32([1, 1]), np.float64([1])]
)
def test_initializers_of_one_name_that_differ_are_refused(
    kind: str, array: np.ndarray
) -> None:
    """The last of them was taken."""
    with pytest.raises(ModelError, match="initializer 'w': is there twice, with different"):
        load(_with_another_w(kind, array))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_an_initializer_that_is_there_twice_with_equal_bytes_is_one(kind: str) -> None:
    (y,) = run(_with_another_w(kind, np.float32([1])), np.float32([4]))
    assert y.tolist() == [5]


@pytest.mark.parametrize("second", [b"two", b"one"])
def test_strings_of_one_name_are_one_where_they_are_equal(second: bytes) -> None:
    model = onnx_models.parse(RELU)
    for text in (b"one", second):
        model.graph.initializer.append(
            helper.make_tensor("s", TensorProto.STRING, [1], [text])
        )
    if second == b"one":
        assert [n.op for n in load(model).nodes] == ["relu"]
        return
    with pytest.raises(ModelError, match="initializer 's': is there twice, with different"):
        load(model)


def test_initializers_without_a_name_are_of_no_use() -> None:
    model = onnx_models.parse(RELU)
    model.graph.initializer.extend(numpy_helper.from_array(np.ones(n)) for n in (1, 2))
    (y,) = run(model, np.float32([[-1, 0, 1]]))
    assert y.tolist() == [[0, 0, 1]]


def test_an_attribute_that_is_there_twice_is_refused() -> None:
    model = onnx_models.parse(
        "graph (float[1] x) => (float[2] y) { y = Concat<axis = 0>(x, x) }"
    )
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    with pytest.raises(ModelError, match="attribute 'axis' is there twice"):
        load(model)


def test_opsets_outside_the_supported_range_are_refused() -> None:
    model = onnx_models.parse(RELU)
    model.opset_import[0].version = 999
    with pytest.raises(ModelError, match="uses opset 999, expected 1 to"):
        load(model)


@pytest.mark.parametrize("opset", [1, 5])
def test_what_an_old_opset_never_had_is_looked_up_like_any_other(opset: int) -> None:
    model = onnx_models.parse(
        "graph (float[3] x) => (float[3] y) { y = Unheard(x) }", opset=opset
    )
    with pytest.raises(ModelError, match="op 'Unheard' is not supported"):
        load(model)


@pytest.mark.parametrize("data", [b"", b"no model", b"\x08\x0a", bytes(100)])
def test_bytes_that_are_no_model_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError, match="is not an ONNX model"):
        load(data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        load(tmp_path / "none.onnx")
    with pytest.raises(ModelError):
        load(tmp_path)


def mutated(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(found))
        change = rng.randrange(4)
        if change == 0:
            found[place] = rng.randrange(256)
        elif change == 1:
            found[place] ^= 1 << rng.randrange(8)
        elif change == 2:
            del found[place : place + rng.randrange(1, 9)]
        else:
            found[place:place] = rng.randbytes(rng.randrange(1, 9))
    return bytes(found)


@pytest.mark.filterwarnings("ignore:.*opset .* is taken, the last")
@pytest.mark.parametrize("seed", range(4))
def test_corrupt_models_give_a_model_error_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    paths = sorted((folder / "pytorch-operator").glob("*/model.onnx"))
    seeds = [rng.choice(paths).read_bytes() for _ in range(8)]
    seeds += [
        onnx_models.parse(body).SerializeToString()
        for body in (FUNCTION, IF.replace("CONDITION", "c"), LOOP.replace("TRIPS", "trips"))
    ]
    outcomes = set()
    for _ in range(150):
        try:
            load(mutated(rng.choice(seeds), rng))
            outcomes.add("loaded")
        except ModelError:
            outcomes.add("refused")
    assert outcomes == {"loaded", "refused"}


def test_every_region_of_a_model_can_be_mutated() -> None:
    x, w, r = (np.ones(s, np.float32) for s in ((3, 2, 4), (1, 20, 4), (1, 20, 5)))
    model = onnx_models.one_node("LSTM", [x, w, r], constants=(1, 2), hidden_size=5)
    data = model.SerializeToString()
    outcomes = set()
    for place in range(0, len(data), max(len(data) // 70, 1)):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        try:
            load(bytes(broken))
            outcomes.add("loaded")
        except ModelError:
            outcomes.add("refused")
    assert outcomes == {"loaded", "refused"}


def test_huge_shapes_cost_nothing() -> None:
    body = """graph (float[3] x) => (float[3] y)
      <int64[3] dims = {1000, 10000, 1000}> {
      big = ConstantOfShape(dims)
      total = Size(big)
      f = Cast<to = 1>(total)
      y = Mul(x, f)
    }"""
    (result,) = run(onnx_models.parse(body), np.ones(3, np.float32))
    np.testing.assert_allclose(result, np.full(3, 1e10, np.float32))


def test_tensor_types_without_a_row_are_named() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [2])
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "g", [value], [value]
    )
    with pytest.raises(ModelError, match="input 'x': type complex64 is not supported"):
        load(helper.make_model(graph))


def test_complex_numbers_are_refused_with_the_form_that_is_taken() -> None:
    model = onnx_models.parse("graph (float[2] x) => (float[2] y) { y = Identity (x) }")
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.COMPLEX64
    with pytest.raises(ModelError, match="type complex64 is not supported") as caught:
        load(model)
    assert "a last axis of size 2" in str(caught.value)


def test_weights_packed_for_one_processor_are_refused_with_the_way_around() -> None:
    text = "graph (float[1,8,4,4] x) => (float[1,8,4,4] y) { y = com.microsoft.nchwc.ReorderInput (x) }"
    model = onnx_models.parse(text)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(ModelError, match="ORT_ENABLE_EXTENDED"):
        load(model)


def test_outputs_are_told_apart_without_a_look_at_all_of_them() -> None:
    importer = Importer(open_model(onnx_models.parse(RELU)))
    values = [importer.maker.constant(np.int64([i]), "x") for i in range(3200)]

    def expose(count: int) -> None:
        importer.graph.outputs.clear()
        for number in range(count):
            importer._expose(values[number], f"y{number}")

    assert grows_in_proportion(expose, 100, 3200)
    assert {"y0", "y3199"} <= {*importer.graph.output_names}
