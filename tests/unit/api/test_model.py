"""The façade's functions: compile, look inside, save, load again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.small_models import (
    mlp,
    save,
    scale_and_shift,
    scale_and_shift_reference,
    with_host_op,
)
from tilewright.api.model import resolve_targets
from tilewright.base import dtypes
from tilewright.base.diagnostics import Diagnostics, TilewrightWarning
from tilewright.base.errors import ModelError, UserError
from tilewright.base.target import Target
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.formats.artifact import extract
from tilewright.formats.vmfb import read_archive

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
SCALE = np.array([1, 2, -1], np.float32)


def check(results: object) -> None:
    expected = scale_and_shift_reference(X, SCALE)
    assert isinstance(results, tuple)
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.fixture(scope="module")
def model() -> tw.Model:
    return tw.compile(scale_and_shift())


def test_a_model_may_be_a_proto_bytes_a_path_or_text(tmp_path: Path) -> None:
    proto = scale_and_shift()
    path = save(proto, tmp_path / "m.onnx")
    for source in (proto, proto.SerializeToString(), path, str(path)):
        check(tw.compile(source)(X, SCALE))


def test_a_graph_compiles_too_and_stays_as_it_was() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (2, 3)))
    b.output("y", b.add(b.relu(x), b.constant(np.float32(0))))
    before = [node.op for node in b.graph]
    for _ in range(2):
        y = tw.compile(b.graph)(X[:2])
        np.testing.assert_array_equal(y, np.maximum(X[:2], 0))
    assert [node.op for node in b.graph] == before


def test_other_objects_are_no_models() -> None:
    with pytest.raises(
        ModelError, match=r"got int, expected a path, bytes, an onnx\.ModelProto, "
    ):
        tw.compile(42)
    broken = Graph("broken", outputs=[Value(TensorType(dtypes.f32, (2,)), "y")])
    with pytest.raises(ModelError, match="broken: graph is not valid"):
        tw.compile(broken)


def test_outputs_that_nobody_could_tell_apart_are_refused() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (2,)))
    b.output("y", b.op("neg", [x]))
    b.output("y", b.op("relu", [x]))
    for ask in (tw.compile, tw.compare):
        with pytest.raises(ModelError, match="2 different outputs are called 'y'"):
            ask(b.graph)


def test_what_is_for_onnx_models_is_refused_beside_a_graph() -> None:
    b = GraphBuilder()
    b.output("y", b.op("neg", [b.input("x", TensorType(dtypes.f32, (2,)))]))
    for ask in (tw.compile, tw.compare):
        with pytest.raises(UserError, match=r"is for files of models\nhint: .* inputs"):
            ask(b.graph, input_shapes={"x": (3,)})


@pytest.mark.parametrize("opt_level", [0, 1, 2])
def test_every_optimization_level_computes_the_same(opt_level: int) -> None:
    check(tw.compile(scale_and_shift(), opt_level=opt_level)(X, SCALE))


@pytest.mark.slow
def test_each_level_of_optimization_makes_another_program_of_the_same_results() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[batch,16,9,9] x) => (float[batch,16,9,9] y)
        <float[16,16,3,3] w, float[16] b> {
            h = Conv <pads = [1, 1, 1, 1]> (x, w, b)
            r = Relu (h)
            c = Conv <pads = [1, 1, 1, 1]> (r, w)
            y = Add (c, x)
        }"""
    )
    random = np.random.default_rng(0)
    for name, shape in (("w", (16, 16, 3, 3)), ("b", (16,))):
        array = random.standard_normal(shape, np.float32) / 12
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feeds = {"x": random.standard_normal((2, 16, 9, 9), np.float32)}
    models = [tw.compile(proto, opt_level=level, threads=1) for level in (0, 1, 2)]
    ops = [[node.op for node in model.compiled.graph] for model in models]
    assert ("conv" in ops[0], "contract" in ops[0], "fused" in ops[0]) == (
        True,
        False,
        False,
    )
    assert ("conv" in ops[1], "contract" in ops[1], "fused" in ops[1]) == (
        False,
        True,
        False,
    )
    assert "fused" in ops[2]
    counts = [len(model.kernels) for model in models]
    assert counts[2] < counts[1]
    expected = models[0].run(feeds)
    for model in models[1:]:
        for name, got in model.run(feeds).items():
            np.testing.assert_allclose(got, expected[name], rtol=2e-5, atol=2e-5)


def test_without_optimization_every_op_has_a_kernel_of_its_own() -> None:
    kernels = [len(tw.compile(scale_and_shift(), opt_level=n).kernels) for n in (0, 2)]
    assert kernels[0] == 4
    assert kernels[1] < kernels[0]


def test_input_shapes_fix_and_name_dimensions() -> None:
    fixed = tw.compile(scale_and_shift(), input_shapes={"x": [4, 3]})
    assert fixed.inputs[0] == ("x", dtypes.f32, (4, 3))
    check(fixed(X, SCALE))
    named = tw.compile(scale_and_shift(), input_shapes={"x": ["rows", 3]})
    assert str(named.inputs[0][2][0]) == "rows"
    with pytest.raises(UserError, match="input_shapes names 'q'"):
        tw.compile(scale_and_shift(), input_shapes={"q": [1]})


@pytest.mark.parametrize("scale", [SCALE, SCALE.tolist(), tuple(SCALE.tolist())])
def test_inputs_may_be_fixed_to_values(scale: object) -> None:
    model = tw.compile(scale_and_shift(), input_values={"scale": scale})
    assert [name for name, _, _ in model.inputs] == ["x"]
    check(model(X))


def test_every_level_of_a_kernel_can_be_printed(model: tw.Model) -> None:
    assert "graph" in model.graph_ir
    for kernel in model.kernels:
        assert kernel.name in repr(kernel)
        for text in (kernel.naive_ir, kernel.kernel_ir, kernel.lowered_ir):
            assert kernel.name in text
            assert "for " in text
        assert "define" in kernel.source
        assert "ret" in kernel.assembly
        assert all(isinstance(note, str) for note in kernel.notes)


def test_the_signature_memory_and_profile_are_at_hand(model: tw.Model) -> None:
    assert [name for name, _, _ in model.inputs] == ["x", "scale"]
    assert [name for name, _, _ in model.outputs] == ["y", "z"]
    assert model.memory.weights_bytes == 0, "its only constant is an immediate"
    assert len(model.profile(X, SCALE)) == len(model.compiled.parts[0].plan.steps)
    assert list(model.run({"x": X, "scale": SCALE})) == ["y", "z"]


def test_what_was_saved_computes_the_same_bits(model: tw.Model, tmp_path: Path) -> None:
    size = model.save(tmp_path / "m.vmfb")
    assert (tmp_path / "m.vmfb").stat().st_size == size
    loaded = tw.load(tmp_path / "m.vmfb")
    for a, b in zip(loaded(X, SCALE), model(X, SCALE), strict=True):
        np.testing.assert_array_equal(a, b)


def test_sources_may_be_left_out_of_the_file(model: tw.Model, tmp_path: Path) -> None:
    large = model.save(tmp_path / "large.vmfb")
    small = model.save(tmp_path / "small.vmfb", sources=False)
    assert small < large
    artifact = extract(read_archive((tmp_path / "large.vmfb").read_bytes(), "m"))
    assert dict(artifact.sources) == model.sources()
    kernel = model.kernels[0].name
    assert {"graph", f"naive/{kernel}", f"kernel/{kernel}", f"llvm/{kernel}"} <= set(
        artifact.sources
    )


def test_compiling_twice_gives_the_same_file(tmp_path: Path) -> None:
    files = []
    for name in ("a.vmfb", "b.vmfb"):
        tw.compile(mlp(), cache=name == "a.vmfb").save(tmp_path / name)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]


def test_a_file_is_not_written_over_when_saving_fails(
    model: tw.Model, tmp_path: Path
) -> None:
    path = tmp_path / "folder.vmfb"
    path.mkdir()
    with pytest.raises(UserError, match=r"folder\.vmfb: is a folder, expected a file"):
        model.save(path)
    assert list(tmp_path.iterdir()) == [path]


def test_the_files_of_a_model_are_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = mlp()
    path = tmp_path / "mlp.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.vmfb", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    model = tw.compile("mlp.onnx")
    monkeypatch.chdir("/")
    link = tmp_path / "link.vmfb"
    link.hardlink_to(path)
    for target in (tmp_path / "w.vmfb", link):
        before = target.read_bytes()
        with pytest.raises(UserError, match="is an input, which writing there would"):
            model.save(target)
        assert target.read_bytes() == before


@pytest.mark.thinned(2)
@pytest.mark.parametrize("lacking", ["-avx", "-f16c", "-sse4.2"])
def test_a_processor_without_a_feature_gets_code_without_what_rests_on_it(
    lacking: str,
) -> None:
    model = tw.compile(mlp(), target=f"x86_64 -mcpu=znver4 -mattr={lacking}", cache=False)
    assert model.kernels


def test_an_artifact_is_not_written_as_something_else(
    model: tw.Model, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"there is no format '\.so'") as caught:
        model.save(tmp_path / "m.so")
    assert str(caught.value.hint).startswith("formats: .vmfb (")


def test_ops_on_the_host_are_a_warning_with_their_cost() -> None:
    with pytest.warns(
        TilewrightWarning, match=r"op 'ngram_counts' has no kernel.*moves \d+ bytes"
    ):
        model = tw.compile(with_host_op())
    x = np.array([[1, 2, 2, 7, -1], [3, 3, 0, 1, 1]], np.float32)
    np.testing.assert_array_equal(model(x), [[-1, -2, 0], [-2, 0, -2]])


def test_ordinary_models_compile_without_warnings() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        tw.compile(mlp())
    assert heard == []


def test_phases_are_announced_in_order() -> None:
    class Watcher:
        def __init__(self) -> None:
            self.phases: list[str] = []
            self.progress: list[tuple[int, int]] = []

        def phase(self, name: str) -> None:
            self.phases.append(name)

        def advance(self, done: int, total: int) -> None:
            self.progress.append((done, total))

    watcher = Watcher()
    compiled = tw.compile(mlp(), progress=watcher, jobs=1).compiled
    assert watcher.phases == list(compiled.seconds)
    assert watcher.phases[0] == "import"
    assert all(0 < done <= total for done, total in watcher.progress)
    assert watcher.progress[-1][0] == watcher.progress[-1][1]


def test_coverage_is_told_before_any_work() -> None:
    assert tw.coverage(mlp()).supported
    odd = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (y) { y = Odd (x) }'
    )
    assert not tw.coverage(odd).supported


# --- targets ---------------------------------------------------------------------------------


def test_targets_are_the_host_a_text_an_object_or_levels() -> None:
    host = Target.host()
    assert resolve_targets(None, None) == (host,)
    assert resolve_targets("host", None) == (host,)
    assert resolve_targets(host, None) == (host,)
    znver4 = Target.parse("x86_64 -mcpu=znver4")
    assert resolve_targets("x86_64 -mcpu=znver4", None) == (znver4,)
    levels = resolve_targets("x86_64", ["v2", "v3"])
    assert [t.features for t in levels] == [
        Target.level("v2", os=host.os).features,
        Target.level("v3", os=host.os).features,
    ]


@pytest.mark.slow
def test_code_for_several_levels_is_in_one_artifact() -> None:
    model = tw.compile(mlp(), target="x86_64", levels=["v2", "v3", "v4"])
    assert len(model.compiled.parts) == 3
    assert len({len(part.image) for part in model.compiled.parts}) > 1
    if Target.host().arch == "x86_64":
        y = model(np.ones((5, 20), np.float32))
        np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-5)


def test_specs_unpack_and_have_names(model: tw.Model) -> None:
    first = model.inputs[0]
    name, dtype, shape = first
    assert (first.name, first.dtype, first.shape) == (name, dtype, shape)
    assert (first.name, first.dtype) == ("x", dtypes.f32)
    assert str(model.session.inputs[1]) == "scale: f32[3]"
    assert model.session.inputs == model.inputs


def test_a_model_begins_calls_that_the_standard_library_waits_for(model: tw.Model) -> None:
    calls = [model.begin(X, SCALE) for _ in range(3)]
    for call in concurrent.futures.as_completed(calls, 20):
        check(call.result())
    check(asyncio.run(model.async_call(X, SCALE)))


def test_objects_say_what_they_are(model: tw.Model) -> None:
    assert repr(model).startswith("<model '")
    for shown in (model, model.session):
        assert "x: f32[" in repr(shown)
        html = shown._repr_html_()
        assert "<td>scale</td>" in html
        assert "<td>f32</td>" in html
    kernel = model.kernels[0]
    assert kernel.name in repr(kernel)
    assert "<details>" in kernel._repr_html_()


def test_what_notebooks_show_is_escaped() -> None:
    shown = Diagnostics()
    shown.warn("<script>alert(1)</script>", location="a & b")
    html = shown._repr_html_()
    assert "<script>" not in html
    assert "a &amp; b" in html
    assert repr(shown) == "<diagnostics: 1 warning, 0 remarks>"
