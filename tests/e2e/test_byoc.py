"""Code generators of users: the same numbers as without, in every engine, from memory and from a file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import f32
from tilewright.base.errors import ArchiveError, InputError, TilewrightError, UserError
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

pytest.importorskip("tvm_ffi")
from tilewright import byoc

GENERATOR = np.random.default_rng(0)
W, C = GENERATOR.random((16, 16), np.float32) - 0.5, GENERATOR.random(16, np.float32)
X = GENERATOR.random((5, 16), np.float32)
DENSE = byoc.is_op("add")(
    byoc.is_op("matmul")(byoc.wildcard(), byoc.is_const()), byoc.wildcard()
)


class DenseModule(byoc.Module):
    """`relu?(x @ w + c)` by numpy; its bytes are JSON."""

    kind = "test_dense"
    properties = byoc.ModuleProperties.RUNNABLE | byoc.ModuleProperties.BINARY_SERIALIZABLE

    def __init__(self, name: str, w: Any, c: Any, relu: bool) -> None:
        super().__init__()
        self.members = (name, w, c, relu)

    def find_function(self, name: str) -> Any:
        own, w, c, relu = self.members
        if name != own:
            return None

        def run(x: np.ndarray, y: np.ndarray) -> None:
            z = x @ np.float32(w) + np.float32(c)
            y[...] = np.maximum(z, 0) if relu else z

        return byoc.array_function(run)

    def function_names(self) -> tuple[str, ...]:
        return (self.members[0],)

    def save_to_bytes(self) -> bytes:
        return json.dumps(self.members).encode()


def load_dense(data: bytes) -> DenseModule:
    return DenseModule(*json.loads(data))


def generate(graph: Graph, name: str, options: Any) -> DenseModule:
    w, c = (a for a in map(byoc.constant_of, graph.values()) if a is not None)
    scale = options.get("scale", 1.0)
    relu = any(node.op == "relu" for node in graph)
    return DenseModule(name, (w * scale).tolist(), c.tolist(), relu)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    byoc.register_codegen(
        "test_dense", generate, patterns=[("dense", DENSE.optional(byoc.is_op("relu")))],
        merge=False,
    )  # fmt: skip
    byoc.register_module_kind("test_dense", load_dense)
    yield
    byoc.remove_codegen("test_dense")
    byoc.remove_module_kind("test_dense")


def network() -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (symbol("rows", 1), 16)))
    w, c = b.constant(W), b.constant(C)
    h = b.tanh(b.relu(b.add(b.matmul(x, w), c)))
    b.output("y", b.add(b.add(b.matmul(h, w), c), x))
    return b.graph


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return np.asarray(tw.compile(network())(X))


def test_a_compiled_model_calls_what_was_generated(expected: np.ndarray) -> None:
    model = tw.compile(network(), byoc=["test_dense"])
    steps = model.compiled.parts[0].plan.steps
    assert [s.kind for s in steps].count("call") == 2
    assert {m.kind for m in model.compiled.modules} == {"test_dense"}
    np.testing.assert_allclose(model(X), expected, rtol=1e-5)
    for rows in (1, 2, 100):
        x = GENERATOR.random((rows, 16), np.float32)
        np.testing.assert_allclose(
            np.asarray(model(x)), np.asarray(tw.compile(network())(x)), rtol=1e-4, atol=1e-6
        )


def test_options_reach_the_generator(expected: np.ndarray) -> None:
    model = tw.compile(network(), byoc={"test_dense": {"scale": 2.0}})
    assert not np.allclose(np.asarray(model(X)), expected)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("opt_level", [0, 1, 2])
@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_a_file_brings_its_modules(
    expected: np.ndarray, engine: Any, opt_level: int, tmp_path: Path
) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(network(), byoc=["test_dense"], opt_level=opt_level).save(path)
    session = tw.load(path, engine=engine)
    for _ in range(3):
        np.testing.assert_allclose(session(X), expected, rtol=1e-5)
    for rows in (1, 7):
        assert np.asarray(session(np.zeros((rows, 16), np.float32))).shape == (rows, 16)


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_calls_of_several_threads_do_not_mix(engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(network(), byoc=["test_dense"]).save(path)
    session, wrong = tw.load(path, engine=engine), []
    inputs = [GENERATOR.random((5, 16), np.float32) for _ in range(4)]
    answers = [np.asarray(session(x)) for x in inputs]

    def work(index: int) -> None:
        results = [np.asarray(session(inputs[index])) for _ in range(30)]
        wrong.extend(index for y in results if not np.array_equal(y, answers[index]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_a_kind_without_loader_is_named(engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(network(), byoc=["test_dense"]).save(path)
    byoc.remove_module_kind("test_dense")
    try:
        with pytest.raises(
            ArchiveError, match="no loader for modules of kind 'test_dense'"
        ):
            tw.load(path, engine=engine)(X)
    finally:
        byoc.register_module_kind("test_dense", load_dense)


@pytest.mark.slow
def test_another_process_with_the_loader_runs_the_file(
    expected: np.ndarray, tmp_path: Path
) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(network(), byoc=["test_dense"]).save(path)
    np.save(tmp_path / "x.npy", X)
    script = (
        "import json, sys; import numpy as np; import tilewright as tw\n"
        "sys.path[:0] = sys.argv[2:]\n"
        "import test_byoc\n"
        "tw.byoc.register_module_kind('test_dense', test_byoc.load_dense)\n"
        "folder = sys.argv[1]\n"
        "y = tw.load(folder + '/m.vmfb')(np.load(folder + '/x.npy'))\n"
        "np.save(folder + '/y.npy', y)\n"
    )
    here = Path(__file__).parent
    command = [sys.executable, "-c", script, str(tmp_path), str(here), str(here.parent)]
    subprocess.run(command, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    ["tw.load(path, engine='plan')(x)", "tw.load(path, engine='vm')(x)",
     "tw.runtime.load_module(path)['main'](x)"],
)  # fmt: skip
def test_a_module_in_c_needs_no_loader_of_the_user(call: str, tmp_path: Path) -> None:
    def make(graph: Graph, name: str, options: Any) -> byoc.Module:
        symbol_name = f"__tvm_ffi_{name}"
        return byoc.CSourceModule(
            "#include <tvm/ffi/c_api.h>\n"
            f"int {symbol_name}(void* s, const TVMFFIAny* a, int32_t n, TVMFFIAny* r)"
            " { return 0; }",
            [name],
        )

    byoc.register_codegen("test_dense", make, patterns=[("dense", DENSE)], override=True)
    path = tmp_path / "m.vmfb"
    tw.compile(network(), byoc=["test_dense"]).save(path)
    script = (
        "import sys; import numpy as np; import tilewright as tw\n"
        "path, x = sys.argv[1], np.zeros((5, 16), np.float32)\n"
        f"y = {call}\n"
        "assert np.from_dlpack(y).shape == (5, 16), y\n"
        "assert 'tilewright.byoc' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


def test_modules_of_a_stranger_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(network(), byoc=["test_dense"]).save(path)
    for engine in ("plan", "vm"):
        with pytest.raises(TilewrightError):
            tw.load(path, engine=engine, untrusted=True)(X)


def test_damaged_bytes_of_a_module_are_found(tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(network(), byoc=["test_dense"]).save(path)
    data = bytearray(path.read_bytes())
    place = data.index(b'["test_dense_matmul_add')
    data[place + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=r"damaged|checksum"):
        tw.load(path)


@pytest.mark.slow
def test_errors_of_the_code_say_which_node() -> None:
    class Failing(DenseModule):
        def find_function(self, name: str) -> Any:
            def run(*_: Any) -> None:
                raise InputError("too hot")

            return byoc.packed_function(run) if name == self.members[0] else None

    byoc.register_codegen(
        "test_failing", lambda g, name, options: Failing(name, 0, 0, False),
        patterns=[("dense", DENSE)],
    )  # fmt: skip
    try:
        with pytest.raises(
            InputError, match=r"function 'test_failing_matmul_add\w*': too hot"
        ):
            tw.compile(network(), byoc=["test_failing"])(X)
    finally:
        byoc.remove_codegen("test_failing")


class Unsaved(DenseModule):
    kind = "test_unsaved"
    properties = byoc.ModuleProperties.RUNNABLE

    def save_to_bytes(self) -> bytes:
        return byoc.Module.save_to_bytes(self)


def wrong_name(graph: Graph, name: str, options: Any) -> DenseModule:
    return DenseModule("other", 0, 0, False)


def broken(graph: Graph, name: str, options: Any) -> DenseModule:
    raise ZeroDivisionError("by nothing")


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (
            wrong_name,
            UserError,
            "the module of kind 'test_dense' has no function 'test_it_matmul",
        ),
        (broken, ZeroDivisionError, "by nothing"),
        (lambda *_: None, UserError, "what it returned is None, expected an object with"),
    ],
)
def test_a_generator_that_fails_is_named(
    function: Any, error: type[Exception], text: str
) -> None:
    byoc.register_codegen("test_it", function, patterns=[("dense", DENSE)])
    try:
        with pytest.raises(error, match=text) as caught:
            tw.compile(network(), byoc=["test_it"])
    finally:
        byoc.remove_codegen("test_it")
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "code generator 'test_it', subgraph 'test_it_matmul_add'" in told


def test_a_module_without_bytes_runs_but_is_not_saved(tmp_path: Path) -> None:
    def unsaved(graph: Graph, name: str, options: Any) -> Unsaved:
        return Unsaved(*generate(graph, name, options).members)

    byoc.register_codegen("test_unsaved", unsaved, patterns=[("dense", DENSE)], merge=False)
    try:
        model = tw.compile(network(), byoc=["test_unsaved"])
        model(X)
        with pytest.raises(
            InputError, match="kind 'test_unsaved' cannot be saved as bytes"
        ):
            model.save(tmp_path / "m.vmfb")
        assert not (tmp_path / "m.vmfb").exists()
    finally:
        byoc.remove_codegen("test_unsaved")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: tw.compile(network(), byoc=["nobody"]),
            "there is no code generator 'nobody'",
        ),
        (
            lambda: tw.compile(network(), byoc="test_dense"),
            "byoc is 'test_dense', expected",
        ),
        (
            lambda: byoc.register_codegen("test_dense", generate, patterns=[]),
            "there is a code generator 'test_dense' already",
        ),
        (
            lambda: byoc.register_codegen("a b", generate, patterns=[]),
            "'a b' is no name for a code generator",
        ),
        (
            lambda: byoc.register_codegen("new", generate, patterns=[DENSE]),  # type: ignore[list-item]
            "is no (name, pattern)",
        ),
        (
            lambda: byoc.register_codegen(5, generate, patterns=[]),  # type: ignore[call-overload]
            "the name of a code generator is 5",
        ),
        (
            lambda: byoc.register_codegen("new", 5, patterns=[]),  # type: ignore[arg-type]
            "code generator 'new' is 5, expected a function (graph, name, options)",
        ),
        (
            lambda: byoc.register_codegen("new", generate, patterns=DENSE),  # type: ignore[arg-type]
            "expected a sequence of (name, pattern)",
        ),
        (
            lambda: tw.compile(network(), byoc=[5]),  # type: ignore[list-item]
            "one of byoc is 5, expected a text",
        ),
        (
            lambda: tw.compile(network(), byoc={"test_dense": 5}),  # type: ignore[dict-item]
            "byoc['test_dense'] is 5, expected a mapping of options",
        ),
        (lambda: byoc.remove_codegen("nobody"), "there is no code generator 'nobody'"),
    ],
)
def test_what_there_is_not_is_named(call: Any, text: str) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert text in str(caught.value)


def test_passes_see_what_patterns_see() -> None:
    timing = tw.transform.PassTimingInstrument()
    with tw.transform.PassContext(instruments=[timing]):
        tw.compile(network(), byoc=["test_dense"])
    assert "partition-graph" in {name for name, _, changed in timing.rows if changed}


def test_the_graph_executor_of_a_build_calls_what_was_generated(
    expected: np.ndarray,
) -> None:
    built = tw.build(network(), byoc=["test_dense"])
    net = tw.graph_executor.GraphModule(built["default"](tw.cpu(0)))
    net.run(x=X)
    np.testing.assert_allclose(np.from_dlpack(net.get_output(0)), expected, rtol=1e-5)
    functions = [
        node["attrs"]["func_name"]
        for node in json.loads(built.graph_json)["nodes"]
        if "attrs" in node
    ]
    assert sum(name.startswith("test_dense_") for name in functions) == 2


def test_the_public_machines_call_what_was_generated(
    expected: np.ndarray, tmp_path: Path
) -> None:
    built = tw.build(network(), byoc=["test_dense"])
    debug = tw.debug_executor.create(built.graph_json, built.module, tw.cpu(0))
    for name, array in {**built.params, "x": X}.items():
        debug.set_input(name, array)
    debug.run()
    np.testing.assert_allclose(np.from_dlpack(debug.get_output(0)), expected, rtol=1e-5)
    built.export_library(tmp_path / "net.vmfb")
    for module in (built, tw.runtime.load_module(tmp_path / "net.vmfb")):
        machine = tw.VirtualMachine(module, tw.cpu(0))
        for y in (module["main"](X), machine["main"](X)):
            np.testing.assert_allclose(np.from_dlpack(y), expected, rtol=1e-5)
        assert "test_dense_matmul_add_relu" in machine.profile("main", X).table()


@pytest.mark.parametrize("whole", [False, True])
def test_the_parts_of_a_build_make_an_executor_that_calls_what_was_generated(
    expected: np.ndarray, *, whole: bool
) -> None:
    """Also where no kernel is left that is not generated."""
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, X.shape))
    b.output("y", b.relu(b.add(b.matmul(x, b.constant(W)), b.constant(C))))
    graph = b.graph if whole else network()
    want = tw.compile(graph)(X) if whole else expected
    graph_json, lib, params = tw.build(graph, byoc=["test_dense"])
    assert {one.kind for one in lib.imports} == {"test_dense"}
    net = tw.graph_executor.GraphModule(
        tw.graph_executor.create(graph_json, lib, tw.cpu(0))
    )
    net.set_input("x", X, **params)
    net.run()
    np.testing.assert_allclose(np.from_dlpack(net.get_output(0)), want, rtol=1e-5)


@pytest.mark.parametrize("made", [tw.graph_executor, tw.debug_executor])
def test_parts_without_a_kernel_of_ours_take_sizes_that_a_call_decides(made: Any) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (symbol("rows", 1), 16)))
    h = b.relu(b.add(b.matmul(x, b.constant(W)), b.constant(C)))
    b.output("y", b.add(b.matmul(h, b.constant(W)), b.constant(C)))
    graph_json, lib, params = tw.build(b.graph, byoc=["test_dense"])
    module = made.create(graph_json, lib, tw.cpu(0))
    net = tw.graph_executor.GraphModule(module) if made is tw.graph_executor else module
    for rows in (5, 2):
        want = np.maximum(X[:rows] @ W + C, 0) @ W + C
        net.set_input("x", X[:rows], **params)
        net.run()
        np.testing.assert_allclose(np.from_dlpack(net.get_output(0)), want, rtol=1e-5)
    if made is tw.debug_executor:
        assert net.debug_get_output(net.node_names[-1]).shape == (2, 16)


class OracleModule(byoc.Module):
    """Any subgraph, by the evaluator."""

    kind = "test_oracle"

    def __init__(self, graph: Graph, name: str) -> None:
        super().__init__()
        self.graph, self.name = graph, name

    def find_function(self, name: str) -> Any:
        count = len(self.graph.inputs)

        def run(*arrays: np.ndarray) -> None:
            results = byoc.evaluate(self.graph, list(arrays[:count]))
            for target, result in zip(arrays[count:], results, strict=True):
                target[...] = result

        return byoc.array_function(run) if name == self.name else None


@pytest.mark.slow
@pytest.mark.parametrize("opt_level", [0, 2])
def test_images_and_further_results_pass_through_unchanged(opt_level: int) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (symbol("n", 1), 4, 9, 9)))
    w = b.constant(GENERATOR.random((8, 4, 3, 3), np.float32) - 0.5)
    conv = b.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1))
    b.output("y", b.exp(b.relu(conv)))
    b.output("z", b.tanh(conv))
    patterns = [("conv", byoc.is_op("relu")(byoc.is_op("conv")))]
    byoc.register_codegen(
        "test_oracle",
        lambda graph, name, options: OracleModule(graph, name),
        patterns=patterns,
    )
    try:
        model = tw.compile(b.graph, byoc=["test_oracle"], opt_level=opt_level)
    finally:
        byoc.remove_codegen("test_oracle")
    (step,) = (s for s in model.compiled.parts[0].plan.steps if s.kind == "call")
    assert step.result_count == 2
    images = GENERATOR.random((2, 4, 9, 9), np.float32)
    plain = tw.compile(b.graph, opt_level=opt_level)
    for got, want in zip(model(images), plain(images), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_an_exported_library_brings_its_modules(
    expected: np.ndarray, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"net{suffix}"
    tw.build(network(), byoc=["test_dense"]).export_library(path)
    library = tw.runtime.load_module(path)
    assert {module.kind for module in library.imports} == {"test_dense"}
    np.testing.assert_allclose(np.from_dlpack(library["main"](X)), expected, rtol=1e-5)
    net = tw.graph_executor.GraphModule(library["default"](tw.cpu(0)))
    net.run(x=X)
    np.testing.assert_allclose(np.from_dlpack(net.get_output(0)), expected, rtol=1e-5)


@pytest.mark.slow
def test_an_exported_library_passes_tensors_that_have_dlpack(
    expected: np.ndarray, tmp_path: Path
) -> None:
    class Packed(DenseModule):
        kind = "test_packed"

        def find_function(self, name: str) -> Any:
            own, w, c, relu = self.members

            def run(x: Any, y: Any) -> None:
                z = np.from_dlpack(x) @ np.float32(w) + np.float32(c)
                np.from_dlpack(y)[...] = np.maximum(z, 0) if relu else z

            return byoc.packed_function(run) if name == own else None

    def packed(graph: Graph, name: str, options: Any) -> Packed:
        return Packed(*generate(graph, name, options).members)

    byoc.register_codegen("test_packed", packed, patterns=[("dense", DENSE)], merge=False)
    byoc.register_module_kind("test_packed", lambda data: Packed(*json.loads(data)))
    try:
        tw.build(network(), byoc=["test_packed"]).export_library(tmp_path / "net.so")
        library = tw.runtime.load_module(tmp_path / "net.so")
        np.testing.assert_allclose(np.from_dlpack(library["main"](X)), expected, rtol=1e-5)
    finally:
        byoc.remove_codegen("test_packed")
        byoc.remove_module_kind("test_packed")
