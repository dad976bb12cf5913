import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import flow_graphs
from fakes.graphs import parse
from tilewright.base.errors import InputError
from tilewright.runtime.hal.device import Device
from tilewright.runtime.library import session_machine
from tilewright.runtime.library.session_machine import machine_of_sessions
from tilewright.runtime.packed.machine_module import InstrumentResult
from tilewright.runtime.session import Session
from tilewright.runtime.virtual_machine.machine import VirtualMachine

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
two (float[N, 3] x, float[3, 5] w) => (float[N, 5] y, float[N, 5] z) {
  y = MatMul (x, w)
  s = Softmax (y)
  z = MatMul (s, v)
}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = MODEL.replace("v)", "q)").replace(
        "s = Softmax (y)", "s = Softmax (y) q = Constant <value = float[5, 5] {%s}> ()"
    ) % ", ".join(str(i / 7) for i in range(25))
    path = tmp_path_factory.mktemp("machine") / "two.vmfb"
    tw.compile(onnx.parser.parse_model(text), threads=1, jobs=1).save(path)
    return path


def machine(path: Path, engine: Any = None, memory_cfg: Any = None) -> VirtualMachine:
    def open_session(function: str, device: Device) -> Session:
        return Session.from_file(path, device=device, engine=engine, function=function)

    return VirtualMachine(
        machine_of_sessions(open_session, ("main",)), tw.cpu(0), memory_cfg
    )


def inputs(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n)
    return random.random((n, 3), np.float32), random.random((3, 5), np.float32)


def arrays(results: Any) -> list[np.ndarray]:
    return [np.from_dlpack(one) for one in results]


def assert_same(got: Any, wanted: tuple[np.ndarray, ...]) -> None:
    for ours, theirs in zip(arrays(got), wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("engine", ["plan", "vm"])
@pytest.mark.parametrize("memory_cfg", [None, "naive"])
def test_functions_give_what_the_session_gives(
    path: Path, engine: str, memory_cfg: str | None
) -> None:
    session, vm = tw.load(path), machine(path, engine, memory_cfg)
    for n in (1, 4, 0, 4):
        assert_same(vm["main"](*inputs(n)), session(*inputs(n)))


def test_inputs_are_set_by_the_names_of_the_model(path: Path) -> None:
    vm = machine(path)
    x, w = inputs(7)
    vm.set_input("main", w=w, x=x)
    vm.invoke_stateful("main")
    assert_same(vm.get_outputs("main"), tw.load(path)(x, w))


def test_an_input_that_does_not_fit_is_named(path: Path) -> None:
    x, w = inputs(2)
    with pytest.raises(InputError, match="input 'x'"):
        machine(path)["main"](x.astype(np.float64), w)


def test_each_kernel_is_told_with_its_tensors(path: Path) -> None:
    vm, told = machine(path, "plan"), []

    def instrument(
        _: object, symbol: str, before: bool, result: object, *tensors: Any
    ) -> int:
        del result
        told.append((symbol, before, [tuple(t.shape) for t in tensors]))
        return InstrumentResult.NO_OP

    vm.set_instrument(instrument)
    x, w = inputs(4)
    assert_same(vm["main"](x, w), tw.load(path)(x, w))
    assert len(told) % 2 == 0
    for (name, before, shapes), (again, after, _) in zip(
        told[::2], told[1::2], strict=True
    ):
        assert (before, after) == (True, False)
        assert name == again
        assert all(shapes)
    assert (4, 5) in told[-1][2]


def test_kernels_of_a_loop_are_told_in_every_trip(tmp_path: Path) -> None:
    found = tmp_path / "loop.vmfb"
    model = tw.compile(parse(flow_graphs.INDEXING))
    model.save(found)
    vm, told = machine(found, "plan"), []
    vm.set_instrument(lambda _, symbol, before, *rest: told.append(symbol) or 0)
    given = np.arange(5, dtype=np.float32), np.array([4, 0, -2])
    assert np.from_dlpack(vm["main"](*given)) == model(*given) == 7
    conditions = [symbol for symbol in told if symbol.startswith("less")]
    assert len(conditions) == 2 * 4


def test_a_kernel_that_is_left_out_writes_nothing(path: Path) -> None:
    vm = machine(path, "plan")
    vm.set_instrument(lambda *_: InstrumentResult.SKIP_RUN)
    y, z = arrays(vm["main"](*inputs(4)))
    assert not y.any()
    assert not z.any()


def test_bytecode_is_told_as_a_whole(path: Path) -> None:
    vm, told = machine(path, "vm"), []
    vm.set_instrument(lambda _, symbol, before, *rest: told.append((symbol, before)) or 0)
    vm["main"](*inputs(2))
    assert told == [("main", True), ("main", False)]


def test_the_word_after_a_call_has_its_result(path: Path) -> None:
    vm, results = machine(path, "vm"), []
    vm.set_instrument(lambda _, symbol, before, result, *rest: results.append(result) or 0)
    got = vm["main"](*inputs(2))
    before, after = results
    assert before is None
    assert_same(got, tuple(arrays(after)))


def test_a_profile_has_the_kernels_and_their_shapes(path: Path) -> None:
    report = machine(path, "plan").profile("main", *inputs(4))
    steps = tw.load(path).variant.plan.steps
    assert [row["Name"] for row in report.calls] == [s.target or s.kind for s in steps]
    assert all("float32[" in row["Argument Shapes"] for row in report.calls)


def test_percents_of_a_profile_are_of_a_call_that_nobody_watches(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the watch, weights are copied: that is no time of the call."""
    copied: list[int] = []

    def slowly(array: np.ndarray) -> object:
        copied.append(1)
        clock.now_ns += 10**12
        return session_machine.tensor_of(np.array(array))

    clock = SimpleNamespace(now_ns=0)
    monkeypatch.setattr(session_machine, "_seen", slowly)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock.now_ns)
    report = machine(path, "plan").profile("main", *inputs(4))
    assert copied
    assert report.device_metrics["cpu0"]["Duration (us)"].value == 0


def test_naive_memory_is_not_kept(path: Path) -> None:
    def open_session(function: str, device: Device) -> Session:
        sessions.append(Session.from_file(path, device=device, function=function))
        return sessions[-1]

    sessions: list[Session] = []
    for memory_cfg in ("naive", "pooled"):
        made = machine_of_sessions(open_session, ("main",))
        VirtualMachine(made, tw.cpu(0), memory_cfg)["main"](*inputs(300))
    naive, pooled = sessions
    assert naive.memory.kept_bytes == 0
    assert pooled.memory.kept_bytes > 0


def test_a_loaded_artifact_and_a_build_have_the_same_machine(path: Path) -> None:
    x, w = inputs(5)
    wanted = tw.load(path)(x, w)
    loaded = tw.runtime.load_module(path)
    assert_same(tw.VirtualMachine(loaded, tw.cpu(0))["main"](x, w), wanted)
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        one (float[N] x) => (float[N] y) { y = Relu (x) }"""
    )
    vm = tw.VirtualMachine(tw.build(model, threads=1, jobs=1), tw.cpu(0))
    vm.set_input("main", x=x[:, 0] - 0.5)
    vm.invoke_stateful("main")
    assert np.array_equal(
        np.from_dlpack(vm.get_outputs("main")), np.maximum(x[:, 0] - 0.5, 0)
    )
