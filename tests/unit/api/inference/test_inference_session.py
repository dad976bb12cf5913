"""Programs written for onnxruntime run with one import changed; each runs on both here."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.datasets import get_example

import tilewright as tw
from fakes.small_models import save
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import InputError, ModelError, UserError

MODEL = """<ir_version: 10, opset_import: ["": 21], producer_name: "maker", domain: "here", model_version: 3,
 doc_string: "of a test", metadata_props: ["key": "value"]>
g (float[batch, 6] x, float[batch, 6] y) => (float[batch, 6] sum, float[batch, 6] product) {
    sum = Add(x, y)
    product = Mul(x, y)
}"""
X = np.arange(12, dtype=np.float32).reshape(2, 6)
Y = X[::-1].copy()
BOTH = pytest.mark.parametrize("ort", [onnxruntime, tw], ids=["onnxruntime", "tilewright"])


def model() -> bytes:
    return onnx.parser.parse_model(MODEL).SerializeToString()


def session(ort: ModuleType, **options: object) -> tw.InferenceSession:
    return ort.InferenceSession(model(), **options)


@BOTH
def test_a_session_tells_what_it_takes_and_gives(ort: ModuleType) -> None:
    opened = session(ort, providers=["CPUExecutionProvider"])
    first, second = opened.get_inputs()
    assert (first.name, first.type, list(first.shape)) == (
        "x",
        "tensor(float)",
        ["batch", 6],
    )
    assert second.name == "y"
    assert [out.name for out in opened.get_outputs()] == ["sum", "product"]
    assert opened.get_overridable_initializers() == []
    assert opened.get_providers() == ["CPUExecutionProvider"]
    assert opened.get_provider_options() == {"CPUExecutionProvider": {}}
    meta = opened.get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.domain) == ("maker", "g", "here")
    assert (meta.version, meta.description) == (3, "of a test")
    assert meta.custom_metadata_map == {"key": "value"}


@BOTH
def test_outputs_come_in_the_order_that_is_asked_for(ort: ModuleType) -> None:
    opened = session(ort)
    for names in (None, []):
        total, product = opened.run(names, {"x": X, "y": Y})
        np.testing.assert_array_equal(total, X + Y)
        np.testing.assert_array_equal(product, X * Y)
    product, total = opened.run(["product", "sum"], {"y": Y, "x": X}, ort.RunOptions())
    np.testing.assert_array_equal(total, X + Y)
    np.testing.assert_array_equal(product, X * Y)
    assert isinstance(opened.run(["sum"], {"x": X, "y": Y}), list)


@BOTH
def test_options_are_set_as_attributes(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_free_dimension_override_by_name("batch", 2)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    for level in (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options.graph_optimization_level = level
        opened = session(ort, sess_options=options)
        assert opened.get_inputs()[0].shape == [2, 6]
        np.testing.assert_array_equal(opened.run(["sum"], {"x": X, "y": Y})[0], X + Y)
        assert opened.get_session_options().intra_op_num_threads == 1


@BOTH
def test_bound_inputs_and_outputs_are_used_where_they_are(ort: ModuleType) -> None:
    opened = session(ort)
    binding = opened.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_input("y", "cpu", 0, np.float32, Y.shape, Y.ctypes.data)
    total = np.zeros_like(X)
    binding.bind_output("sum", "cpu", 0, np.float32, total.shape, total.ctypes.data)
    binding.bind_output("product")
    binding.synchronize_inputs()
    opened.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(total, X + Y)
    copies = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(copies[1], X * Y)
    values = binding.get_outputs()
    assert values[0].data_ptr() == total.ctypes.data
    np.testing.assert_array_equal(values[1].numpy(), X * Y)
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()


@BOTH
def test_values_are_bound_read_and_overwritten(ort: ModuleType) -> None:
    opened = session(ort)
    x = ort.OrtValue.ortvalue_from_numpy(X.copy())
    total = ort.OrtValue.ortvalue_from_shape_and_type(X.shape, np.float32)
    assert (x.data_type(), x.element_type(), x.shape()) == ("tensor(float)", 1, [2, 6])
    assert (x.is_tensor(), x.has_value(), x.device_name()) == (True, True, "cpu")
    binding = opened.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("y", ort.OrtValue.ortvalue_from_numpy(Y))
    binding.bind_ortvalue_output("sum", total)
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(total.numpy(), X + Y)
    x.update_inplace(Y)
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(total.numpy(), Y + Y)
    (again,) = opened.run_with_ort_values(["sum"], {"x": x, "y": x})
    np.testing.assert_array_equal(again.numpy(), Y + Y)


@BOTH
def test_a_run_that_ends_later_calls_back(ort: ModuleType) -> None:
    ended, seen = threading.Event(), []

    def callback(results: list[np.ndarray], data: object, error: str) -> None:
        seen.append((results, data, error))
        ended.set()

    session(ort).run_async(["product"], {"x": X, "y": Y}, callback, "mine")
    assert ended.wait(20)
    (results, data, error) = seen[0]
    np.testing.assert_array_equal(results[0], X * Y)
    assert (data, error) == ("mine", "")


@BOTH
def test_profiling_writes_a_timeline(ort: ModuleType, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "mine")
    opened = session(ort, sess_options=options)
    for _ in range(2):
        np.testing.assert_array_equal(opened.run(["sum"], {"x": X, "y": Y})[0], X + Y)
    assert opened.get_profiling_start_time_ns() > 0
    path = Path(opened.end_profiling())
    assert path.parent == tmp_path
    assert path.name.startswith("mine_")
    assert json.loads(path.read_text())


@BOTH
@pytest.mark.parametrize("name", ["mul_1.onnx", "sigmoid.onnx"])
def test_the_models_of_the_public_samples_run(ort: ModuleType, name: str) -> None:
    opened = ort.InferenceSession(
        get_example(name), providers=ort.get_available_providers()
    )
    argument = opened.get_inputs()[0]
    assert argument.type == "tensor(float)"
    x = np.random.default_rng(0).random(argument.shape, np.float32)
    (result,) = opened.run([opened.get_outputs()[0].name], {argument.name: x})
    peer = onnxruntime.InferenceSession(get_example(name)).run(None, {argument.name: x})
    np.testing.assert_allclose(result, peer[0], rtol=1e-6)


@BOTH
def test_the_module_says_what_it_runs_on(ort: ModuleType) -> None:
    assert ort.get_device() == "CPU"
    assert "CPUExecutionProvider" in ort.get_available_providers()
    assert "CPUExecutionProvider" in ort.get_all_providers()


@BOTH
def test_the_process_has_words_of_its_own(ort: ModuleType) -> None:
    assert ort.get_version_string() == ort.__version__
    ort.disable_telemetry_events()
    ort.enable_telemetry_events()
    ort.set_default_logger_verbosity(0)
    ort.set_default_logger_severity(2)


@pytest.mark.parametrize("severity", [-1, 5, "warning", True])
def test_a_level_that_there_is_not_is_refused(severity: object) -> None:
    with pytest.raises(UserError, match="severity is "):
        tw.set_default_logger_severity(severity)  # type: ignore[arg-type]


def test_the_level_of_the_process_is_that_of_sessions_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tilewright.api.inference.process._level", 2)
    slow = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
g (int64[N] x) => (float[1] y) { y = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 1,
    max_skip_count = 0, ngram_counts = [0], ngram_indexes = [0], pool_int64s = [7]>(x) }""")

    def warned(level: int) -> bool:
        options = tw.SessionOptions()
        options.log_severity_level = level
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            tw.InferenceSession(slow.SerializeToString(), options)
        return bool(found)

    assert warned(-1)
    tw.set_default_logger_severity(3)
    assert not warned(-1)
    assert warned(2)


def test_an_artifact_opens_like_a_model(tmp_path: Path) -> None:
    options = tw.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "kept.vmfb")
    session(tw, sess_options=options)
    data = (tmp_path / "kept.vmfb").read_bytes()
    for source in (tmp_path / "kept.vmfb", data, bytearray(data), memoryview(data)):
        opened = tw.InferenceSession(source)
        np.testing.assert_array_equal(opened.run(["sum"], {"x": X, "y": Y})[0], X + Y)
        assert opened.get_modelmeta().graph_name
    path = save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    assert len(tw.InferenceSession(path).run(None, {"x": X, "y": Y})) == 2


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda s: s.run(None, {"x": X}), InputError, r"inputs \['y'\] are missing"),
        (lambda s: s.run(None, {"x": X, "y": Y, "z": Y}), InputError, "no input 'z'"),
        (lambda s: s.run(None, [X, Y]), InputError, "is a list, expected a mapping"),
        (lambda s: s.run(["sun"], {"x": X, "y": Y}), UserError, "no output 'sun'\n.*'sum'"),
        (lambda s: s.run(None, {"x": X[:1], "y": Y}), InputError, "expected"),
        (lambda s: s.run(None, {"x": X.astype(int), "y": Y}), InputError, "input 'x'"),
        (lambda s: s.io_binding().bind_output("z"), UserError, "no output 'z'"),
        (lambda s: s.io_binding().bind_cpu_input("z", X), UserError, "no input 'z'"),
        (
            lambda s: s.io_binding().bind_output("sum", "cuda"),
            UserError,
            "device 'cuda:0' is not there",
        ),
        (
            lambda s: s.io_binding().bind_output("sum", buffer_ptr=64),
            UserError,
            "without type and shape",
        ),
        (
            lambda s: s.io_binding().bind_input("x", "cpu", 0, None, (2, 6), 64),
            UserError,
            "no element type None",
        ),
        (
            lambda _: tw.OrtValue.from_dlpack(X, is_bool_tensor=True),
            UserError,
            "the bool tensor is float32, expected uint8",
        ),
    ],
)
def test_mistakes_are_named(
    wrong: Callable[[tw.InferenceSession], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        wrong(session(tw))


def test_bound_memory_of_another_shape_is_refused() -> None:
    opened = session(tw)
    binding = opened.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", Y)
    binding.bind_ortvalue_output("sum", tw.OrtValue.ortvalue_from_numpy(np.zeros(3)))
    with pytest.raises(UserError, match=r"output 'sum' is float64\[3\].*float32\[2, 6\]"):
        opened.run_with_iobinding(binding)


@pytest.mark.parametrize("turned", [False, True])
def test_outputs_that_are_bound_to_one_value_are_refused(turned: bool) -> None:
    memory = np.zeros((6, 2), np.float32).T if turned else np.zeros((2, 6), np.float32)
    value, opened = tw.OrtValue.ortvalue_from_numpy(memory), session(tw)
    binding = opened.io_binding()
    binding.bind_cpu_input("x", X + 1)
    binding.bind_cpu_input("y", Y)
    binding.bind_ortvalue_output("sum", value)
    binding.bind_ortvalue_output("product", value)
    with pytest.raises(UserError, match=r"output '\w+': got memory that output '\w+'"):
        opened.run_with_iobinding(binding)
    small = tw.OrtValue.ortvalue_from_numpy(np.zeros(3))
    binding.bind_ortvalue_output("product", small)
    with pytest.raises(UserError, match=r"output 'product' is float64\[3\]"):
        opened.run_with_iobinding(binding)
    assert not memory.any(), "written, though the other cannot be"
    binding.bind_output("product")
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory, X + 1 + Y)


def test_a_run_that_fails_later_says_so_in_the_callback() -> None:
    ended, seen = threading.Event(), []

    def callback(results: list[np.ndarray], data: object, error: str) -> None:
        seen.append((results, error))
        ended.set()

    session(tw).run_async(None, {"x": X[:1], "y": Y}, callback, None)
    assert ended.wait(20)
    assert seen[0][0] == []
    assert "expected" in seen[0][1]


def test_a_run_told_to_terminate_is_refused() -> None:
    options = tw.RunOptions()
    options.terminate = True
    with pytest.raises(UserError, match="told to terminate"):
        session(tw).run(None, {"x": X, "y": Y}, options)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        tw.InferenceSession(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is not an ONNX model"):
        tw.InferenceSession(b"garbage")
    with pytest.raises(UserError, match=r"expected tilewright\.SessionOptions"):
        session(tw, sess_options=onnxruntime.SessionOptions())
    options = tw.SessionOptions()
    options.intra_op_num_threads = -1
    with pytest.raises(UserError, match="intra_op_num_threads is -1"):
        session(tw, sess_options=options)


def test_providers_that_are_not_there_are_named() -> None:
    with pytest.warns(TilewrightWarning, match="'CUDAExecutionProvider' is not available"):
        session(tw, providers=["CUDAExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(tw, providers=[("CUDAExecutionProvider", {}), "CPUExecutionProvider"])
    with pytest.raises(UserError, match="is the text"):
        session(tw, providers="CPUExecutionProvider")


@pytest.mark.parametrize(
    "ask",
    [
        lambda o: o.register_custom_ops_library("x.so"),
        lambda o: o.add_initializer("w", None),
        lambda o: o.add_external_initializers([], []),
        lambda o: o.add_free_dimension_override_by_denotation("N", 1),
        lambda o: o.add_free_dimension_override_by_name("N", 0),
        lambda o: o.get_session_config_entry("none"),
    ],
)
def test_options_without_a_counterpart_are_refused(
    ask: Callable[[tw.SessionOptions], object],
) -> None:
    with pytest.raises(UserError):
        ask(tw.SessionOptions())


def test_misspelt_options_are_errors() -> None:
    with pytest.raises(AttributeError):
        tw.SessionOptions().intra_op_threads = 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intra_op_num_threads", "a"),
        ("intra_op_num_threads", None),
        ("intra_op_num_threads", 5000),
        ("inter_op_num_threads", 1.5),
        ("graph_optimization_level", "all"),
        ("graph_optimization_level", 7),
        ("graph_optimization_level", []),
        ("execution_mode", "parallel"),
        ("enable_profiling", "no"),
        ("use_deterministic_compute", "no"),
        ("profile_file_prefix", 5),
        ("optimized_model_filepath", 5),
        ("log_severity_level", "warning"),
        ("logid", 3),
    ],
)
def test_values_that_an_option_cannot_have_are_said(name: str, value: object) -> None:
    options = tw.SessionOptions()
    setattr(options, name, value)
    with pytest.raises(UserError, match=f"{name} is "):
        session(tw, sess_options=options)


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.run("sum", {"x": X, "y": Y}),
        lambda s: s.run(5, {"x": X, "y": Y}),
        lambda s: s.run([5], {"x": X, "y": Y}),
        lambda s: s.run(None, {"x": X, "y": Y}, "options"),
        lambda s: s.run(None, {"x": X, "y": Y}, onnxruntime.RunOptions()),
        lambda s: s.run_async(None, {"x": X, "y": Y}, None, None),
        lambda s: s.run_async(None, None, print, None),
        lambda s: s.run_with_ort_values(None, {"x": X, "y": Y}),
        lambda s: s.run_with_iobinding(None),
        lambda s: s.set_providers(5),
        lambda s: s.io_binding().bind_cpu_input(5, X),
        lambda s: s.io_binding().bind_ortvalue_input("x", X),
        lambda s: s.io_binding().bind_ortvalue_output("sum", X),
        lambda s: tw.IOBinding(5),
    ],
)
def test_arguments_of_the_wrong_kind_are_said(
    ask: Callable[[tw.InferenceSession], object],
) -> None:
    with pytest.raises(UserError, match="expected"):
        ask(session(tw))


@pytest.mark.parametrize(
    ("shape", "address"),
    [
        ([2, 6], 0),
        ([2, 6], -5),
        ([2, 6], 1 << 70),
        ([2, 6], "x"),
        ([-2, 6], None),
        ("ab", None),
        ([1 << 40, 1 << 40], None),
        (5, None),
    ],
)
def test_what_can_be_no_memory_is_refused(shape: object, address: object) -> None:
    binding = session(tw).io_binding()
    if address is None:  # a sound one, which differs from process to process
        address = X.ctypes.data
    with pytest.raises(UserError, match="expected"):
        binding.bind_input("x", "cpu", 0, np.float32, shape, address)
    with pytest.raises(UserError, match="expected"):
        binding.bind_output("sum", "cpu", 0, np.float32, shape, address)


def test_values_need_a_shape_that_memory_can_have() -> None:
    for shape in ([-1], "ab", [1 << 60], 5, np.array(5)):
        with pytest.raises(UserError, match="expected"):
            tw.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)


def test_outputs_are_not_written_to_memory_that_is_read_only() -> None:
    opened = session(tw)
    place = np.zeros((2, 6), np.float32)
    place.flags.writeable = False
    binding = opened.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", Y)
    binding.bind_ortvalue_output("sum", tw.OrtValue.ortvalue_from_numpy(place))
    with pytest.raises(UserError, match="output 'sum' goes to memory that is read-only"):
        opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(place, 0)


def test_where_to_keep_the_artifact_is_looked_at_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tilewright.api.model.compile", None)
    options = tw.SessionOptions()
    options.optimized_model_filepath = "kept.onnx"
    with pytest.raises(UserError, match=r"there is no format '\.onnx'"):
        session(tw, sess_options=options)
