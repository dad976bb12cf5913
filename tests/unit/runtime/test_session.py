"""Sessions run artifacts through either engine on any device, from whatever arrays users have."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import ml_dtypes
import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.api.load import run_reference
from tilewright.base.errors import (
    ArchiveError,
    DeviceError,
    InputError,
    TargetError,
    UserError,
)
from tilewright.base.target import Target
from tilewright.formats.variant_choice import choose_variant
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.drivers.registry import create_device
from tilewright.runtime.plan_executor import as_array
from tilewright.runtime.session import Session
from tilewright.runtime.session_options import BytecodeOptions, HostOptions, PlanOptions

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[N, 6] x, float[6] b) => (float[N, 6] v, int64[N] i, float[N, 6] s) {
    s = Add(x, b)
    r = Relu(s)
    i = ArgMax <axis = 1, keepdims = 0> (r)
    c = Cast <to = 17> (r)
    q = Cast <to = 1> (c)
    t = Transpose (r)
    square = MatMul (t, r)
    d = Det (square)
    size = Abs (d)
    below = Neg (size)
    v = Max (q, below)
}"""
ENGINES = ("plan", "vm")
DEVICES = ("local-task://?threads=2", "local-sync")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dynamic model of which one op has no kernel, for two levels of x86-64 where that is the CPU."""
    target = tmp_path_factory.mktemp("session") / "model.vmfb"
    levels = ("v2", "v3") if Target.host().arch == "x86_64" else None
    with quiet():
        model = tw.compile(onnx.parser.parse_model(MODEL), threads=1, jobs=1, levels=levels)
    model.save(target)
    return target


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def opened(path: Path, engine: str | None = None, **options: object) -> Session:
    return Session.from_file(path, engine=engine, host_function=run_reference, **options)


def inputs(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n)
    return random.standard_normal((n, 6)).astype(np.float32), np.arange(6, dtype=np.float32)


def check(results: object, x: np.ndarray, b: np.ndarray) -> None:
    v, i, s = results
    assert np.array_equal(s, x + b)
    rounded = np.maximum(x + b, 0).astype(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(v, rounded.astype(np.float32))
    assert np.array_equal(i, np.argmax(np.maximum(x + b, 0), axis=1))
    assert i.dtype == np.int64


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_and_devices_agree_for_every_size(
    path: Path, engine: str, device: str
) -> None:
    session = opened(path, engine, device=device)
    for n in (1, 2, 7, 1):
        check(session(*inputs(n)), *inputs(n))


@pytest.mark.parametrize("kind", ["local-task", "local-sync"])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_memory_of_a_device_bounds_calls(path: Path, engine: str, kind: str) -> None:
    session = opened(path, engine, device=f"{kind}://?memory=64K")
    for n in (1, 7, 40, 2, 60):
        check(session(*inputs(n)), *inputs(n))
    with pytest.raises(DeviceError, match=r"65536.*\(RESOURCE_EXHAUSTED\)\n.*\?memory="):
        session(*inputs(100_000))
    check(session(*inputs(7)), *inputs(7))


def test_a_plan_of_one_size_that_needs_more_than_the_device_may_use_is_not_loaded(
    tmp_path: Path,
) -> None:
    tw.compile(mlp()).save(tmp_path / "m.vmfb")
    with pytest.raises(DeviceError, match=r"a call needs \d+ bytes .* may use 128"):
        opened(tmp_path / "m.vmfb", "plan", device="local-task://?memory=128")


@pytest.mark.parametrize("engine", ENGINES)
def test_arrays_come_by_place_by_name_or_in_a_mapping(path: Path, engine: str) -> None:
    session = opened(path, engine)
    x, b = inputs(3)
    check(session(x, b), x, b)
    check(session(x, b=b), x, b)
    check(session(b=b, x=x), x, b)
    check(session({"x": x, "b": b}), x, b)
    named = session.run({"x": x, "b": b})
    assert list(named) == ["v", "i", "s"]


@pytest.mark.parametrize("engine", ENGINES)
def test_lists_and_foreign_arrays_are_taken(path: Path, engine: str) -> None:
    session = opened(path, engine)
    x, b = inputs(2)

    class OnlyDlpack:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    class OnlyArray:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return self.array

    check(session(OnlyDlpack(x), OnlyArray(b)), x, b)


def test_dlpack_input_is_not_copied() -> None:
    x = np.zeros(4, np.float32)
    assert np.shares_memory(as_array(memoryview(x)), x)

    class Producer:
        def __dlpack__(self, **options: object) -> object:
            return x.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert np.shares_memory(as_array(Producer()), x)


@pytest.mark.parametrize("given", ["a capsule twice", "nothing", "a number"])
def test_what_gives_no_tensor_is_no_array(given: str) -> None:
    x = np.ones(3, np.float32)
    capsule = x.__dlpack__()
    tensors = {"a capsule twice": capsule, "nothing": None, "a number": 5}

    class Producer:
        def __dlpack__(self, **_: object) -> object:
            return tensors[given]

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    producer = Producer()
    if given == "a capsule twice":
        assert np.shares_memory(as_array(producer), x)
    with pytest.raises(InputError, match="got Producer, expected an array"):
        as_array(producer)


@pytest.mark.needs_torch
def test_torch_tensors_go_in_and_results_come_out_through_dlpack(path: Path) -> None:
    torch = pytest.importorskip("torch")
    x, b = inputs(2)
    results = opened(path)(torch.from_numpy(x).requires_grad_(), torch.from_numpy(b))
    tensor = torch.from_dlpack(results[2])
    assert np.shares_memory(tensor.numpy(), results[2])
    narrow = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    assert as_array(narrow).astype(np.float32).tolist() == [1.5, -2.0]
    assert as_array(narrow.to(torch.float8_e5m2)).astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.needs_torch
@pytest.mark.parametrize("engine", ENGINES)
def test_torch_tensors_that_are_negated_as_they_are_read_give_what_they_say(
    path: Path, engine: str
) -> None:
    torch = pytest.importorskip("torch")
    x, b = inputs(2)
    negated = torch.complex(torch.from_numpy(x), torch.from_numpy(x)).conj().imag
    assert negated.is_neg()
    check(opened(path, engine)(negated, torch.from_numpy(b)), -x, b)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(1 << 40, 5), (1 << 40,), (1, 1 << 40, 6)])
def test_the_shape_of_an_array_is_looked_at_before_it_is_copied(
    path: Path, engine: str, shape: tuple[int, ...]
) -> None:
    session = opened(path, engine)
    for _ in range(3):  # later calls of a shape may be replayed
        with pytest.raises(InputError, match=r"input 'x': got f32\[|sizes are too large"):
            session(np.broadcast_to(np.float32(1), shape), inputs(1)[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_copy_for_which_there_is_no_memory_is_an_error_in_words(
    tmp_path: Path, engine: str
) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[N] x, int64[1] s) => (float[M] y) { y = Slice(x, s, s) }"""
    with quiet():
        tw.compile(onnx.parser.parse_model(text), jobs=1).save(tmp_path / "m.vmfb")
    huge = np.broadcast_to(np.float32(1), (1 << 45,))
    with pytest.raises((DeviceError, InputError), match=r"no memory|too large"):
        opened(tmp_path / "m.vmfb", engine)(huge, np.array([0]))


@pytest.mark.parametrize("engine", ENGINES)
def test_arrays_for_outputs_that_cannot_take_them_are_named(
    path: Path, engine: str
) -> None:
    session = opened(path, engine)
    x, b = inputs(3)
    given = {"x": x, "b": b}
    read_only = np.zeros((3, 6), np.float32)
    read_only.flags.writeable = False
    for outputs, text in [
        ({"s": read_only}, "output 's': expected a dense array of f32[3, 6] in row-major"),
        ({"s": np.zeros((6, 3), np.float32).T}, "output 's': expected a dense array of"),
        ({"s": np.zeros((3, 6))}, "output 's': got f64[3, 6], expected f32[3, 6]"),
        ({"s": np.ma.zeros((3, 6), np.float32)}, "output 's': got MaskedArray, expected"),
        ({"s": [[0.0] * 6] * 3}, "output 's': got list, expected an array of numpy"),
        ({"z": x}, "got output 'z', expected some of: v, i, s"),
        ([x], "got list for outputs, expected a mapping from names to arrays"),
    ]:
        with pytest.raises(InputError, match=re.escape(text)):
            session.run(given, outputs)  # pyright: ignore[reportArgumentType]
    taken = np.zeros((3, 6), np.float32)
    with pytest.raises(InputError, match="output 's': got"):
        session.run(given, {"v": taken, "s": x[:2]})
    assert not taken.any(), "written, though another cannot be"
    assert session.run(given, {"s": taken, "v": None})["s"] is taken  # pyright: ignore[reportArgumentType]
    assert np.array_equal(taken, x + b)


def refusal(use: Callable[[Session], object], session: Session) -> str | None:
    try:
        use(session)
    except UserError as error:
        return str(error)
    return None


@pytest.mark.thinned(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "use",
    [
        lambda session: session.inputs,
        lambda session: session.outputs,
        lambda session: session.threads,
        lambda session: session.memory.in_use_bytes,
        lambda session: session.device.id,
        lambda session: session.begin(*inputs(2)).result(),
        lambda session: session(*inputs(2)),
        lambda session: session.run({"x": inputs(2)[0], "b": inputs(2)[1]}),
        repr,
    ],
)
def test_a_session_may_be_closed_between_any_two_lines_of_what_uses_it(
    path: Path, engine: str, use: Callable[[Session], object]
) -> None:
    """As another thread does it: what was begun ends, or is told that the session is closed."""
    source = sys.modules[Session.__module__].__file__
    for count in range(1, 100):
        session = opened(path, engine)
        lines = iter(range(count))

        def trace(
            frame: FrameType, event: str, argument: object
        ) -> Callable[..., object] | None:
            del argument
            if frame.f_code.co_filename != source:
                return None
            if event == "line" and next(lines, None) is None:  # noqa: B023
                sys.settrace(None)
                session.close()  # noqa: B023
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        told = refusal(use, session)
        sys.settrace(before)
        assert told is None or "the session is closed" in told
        if next(lines, None) is not None:
            return  # it has fewer lines
    pytest.fail("it does not come to its end")


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_not_overwritten_by_later_calls(path: Path, engine: str) -> None:
    session = opened(path, engine)
    first = session(*inputs(4))
    kept = [np.copy(r) for r in first]
    for n in (4, 4, 5):
        session(*inputs(n + 10)[:2])
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_wrong_inputs_are_named(path: Path, engine: str) -> None:
    session = opened(path, engine)
    x, b = inputs(2)
    with pytest.raises(InputError, match=r"inputs \['b'\] are missing"):
        session({"x": x})
    with pytest.raises(InputError, match="no further input 'y'"):
        session(x, y=b)
    with pytest.raises(InputError, match=r"'b'.*got"):
        session(x, b[:5])
    with pytest.raises(InputError, match="got str, expected an array"):
        session(x, "b" * 3 + str(object))


def test_the_signature_is_the_models(path: Path) -> None:
    for engine in ENGINES:
        session = opened(path, engine)
        assert [(n, str(t), tuple(map(str, s))) for n, t, s in session.inputs] == [
            ("x", "f32", ("N", "6")),
            ("b", "f32", ("6",)),
        ]
        assert [n for n, _, _ in session.outputs] == ["v", "i", "s"]


@pytest.mark.parametrize("engine", ENGINES)
def test_profiles_list_what_ran(path: Path, engine: str) -> None:
    session = opened(path, engine)
    steps = session.profile(*inputs(3))
    assert sum(step.kind == "dispatch" for step, _ in steps) >= 1


def test_the_plan_is_the_default_and_the_vm_can_be_asked_for(path: Path) -> None:
    assert opened(path).engine == "plan"
    assert opened(path, "vm").engine == "vm"
    assert opened(path, device="local-sync").threads == 1
    assert opened(path, threads=2).threads == 2


def test_devices_that_plans_cannot_use_are_refused_with_a_way_out(path: Path) -> None:
    with pytest.raises(
        UserError, match="plans run on local devices, not on 'null'\nhint: "
    ):
        opened(path, "plan", device="null")
    with pytest.raises(UserError, match="unknown driver 'no-such'"):
        opened(path, device="no-such")


def test_an_artifact_alone_has_no_bytecode(path: Path) -> None:
    artifact = opened(path).artifact
    assert artifact is not None
    with pytest.raises(UserError, match="only the plan is at hand"):
        Session(artifact, BytecodeOptions())


def test_an_op_without_a_kernel_needs_its_reference(path: Path) -> None:
    for engine in ENGINES:
        with pytest.raises((ArchiveError, DeviceError), match=r"det|host_call"):
            Session.from_file(path, engine=engine)(*inputs(2))


@pytest.mark.skipif(Target.host().arch != "x86_64", reason="levels are for x86-64")
def test_the_best_code_for_the_machine_is_chosen(path: Path) -> None:
    artifact = opened(path).artifact
    assert artifact is not None
    v2, v3 = (Target.level(level) for level in ("v2", "v3"))
    assert choose_variant(artifact.variants, v3, "x").features == v3.features
    assert choose_variant(artifact.variants, v2, "x").features == v2.features
    bare = Target.parse("x86_64 -mcpu=x86-64")
    with pytest.raises(TargetError, match=r"x: no code for this CPU .*missing here"):
        choose_variant(artifact.variants, bare, "x")
    with pytest.raises(TargetError, match="no code for this CPU \\('aarch64'"):
        choose_variant(artifact.variants, Target.parse("aarch64"), "x")


@pytest.mark.skipif(Target.host().arch != "x86_64", reason="levels are for x86-64")
def test_a_machine_that_is_named_decides_over_the_code(path: Path) -> None:
    artifact = opened(path).artifact
    assert artifact is not None
    module = read_archive(path.read_bytes())
    host = HostOptions(host_function=run_reference)

    def session_of(kind: type[PlanOptions | BytecodeOptions], **options: object) -> Session:
        return Session(artifact, kind(host=replace(host, **options)), module=module)

    for kind in (PlanOptions, BytecodeOptions):
        for level in ("v2", "v3"):
            machine = Target.level(level)
            session = session_of(kind, machine=machine)
            assert session.device.machine == machine
            assert session.variant is not None
            assert session.variant.features == machine.features
            check(session(*inputs(3)), *inputs(3))
        device = create_device("local-sync", machine="v2")
        session = session_of(kind, device=device)
        assert session.variant is not None
        assert session.variant.features == Target.level("v2").features
        with pytest.raises(UserError, match="no machine can be chosen for it"):
            session_of(kind, device=device, machine=Target.host())
        with pytest.raises(TargetError, match="missing here: cx16"):
            session_of(kind, machine=Target.level("v1"))


def test_machines_refuse_modules_without_code_for_the_cpu(path: Path) -> None:
    lacking = "v1" if Target.host().arch == "x86_64" else "x86_64"
    virtual = BytecodeMachine(f"local-sync://?machine={lacking}")
    with pytest.raises(TargetError, match=r"^m: no code for this CPU \('x86_64'"):
        virtual.load(path.read_bytes(), "m")
    assert virtual.functions == ()


def test_bytes_in_memory_are_loaded_like_files(path: Path) -> None:
    for engine in ENGINES:
        session = Session.from_bytes(
            path.read_bytes(), engine=engine, host_function=run_reference
        )
        check(session(*inputs(2)), *inputs(2))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("device", DEVICES)
def test_calls_begin_now_and_end_later(path: Path, engine: str, device: str) -> None:
    session = opened(path, engine, device=device)
    given = [inputs(n) for n in range(1, 9)]
    expected = [session(*x) for x in given]
    calls = [session.begin(*x) for x in given]
    for call, results in zip(calls, expected, strict=True):
        for got, want in zip(call.result(60), results, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("engine", ENGINES)
def test_asyncio_awaits_calls_and_their_failures(path: Path, engine: str) -> None:
    session = opened(path, engine)
    x, b = inputs(3)

    async def main() -> list[object]:
        good, bad = session.async_call(x, b), session.async_call(x, b[:2])
        return await asyncio.gather(good, bad, return_exceptions=True)

    results, error = asyncio.run(main())
    np.testing.assert_array_equal(results[2], session(x, b)[2])
    assert isinstance(error, InputError | DeviceError)


FORK_BESIDE_THE_FIRST_BEGUN_CALL = """
import os, sys, threading, time
import numpy as np
import tilewright as tw
from tilewright.runtime.hal import host_threads

entered = threading.Event()

class SlowToMake:
    def __new__(cls, *arguments):
        entered.set()
        time.sleep(0.3)  # the fork comes now
        return original(*arguments)

original, host_threads.HostThreads = host_threads.HostThreads, SlowToMake
session = tw.load(sys.argv[1], threads=2)
x = np.ones((3, 20), np.float32)
expected = session(x)
thread = threading.Thread(target=lambda: session.begin(x).result(30))
thread.start()
assert entered.wait(30)
child = os.fork()
if child == 0:
    threading.Timer(20, lambda: os._exit(3)).start()
    for target in (session, tw.load(sys.argv[1], threads=2)):
        assert np.array_equal(target.begin(x).result(30), expected)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_begins_calls_forked_beside_the_first_one_of_its_parent(
    tmp_path: Path,
) -> None:
    tw.compile(mlp(3), threads=2, jobs=1).save(tmp_path / "m.vmfb")
    script = [sys.executable, "-c", FORK_BESIDE_THE_FIRST_BEGUN_CALL, tmp_path / "m.vmfb"]
    subprocess.run(script, check=True, timeout=90)


# --- several modules --------------------------------------------------------------------------------

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"
LIBRARY, CALLER, TOP = (
    ARCHIVES / f"iree-3.13.0-{name}_vmvx.vmfb" for name in ("library", "caller", "top")
)


@pytest.mark.parametrize("bytecode", [None, "translate", "interpret"])
def test_modules_import_from_those_before_and_share_their_state(
    bytecode: str | None,
) -> None:
    session = tw.load(TOP, libraries=[LIBRARY, str(CALLER)], bytecode=bytecode)
    assert session.engine == "vm"
    x = np.arange(5, dtype=np.float32)
    once = x * x + x
    for call in (1, 2, 3):
        y, count = session(x)
        np.testing.assert_array_equal(y, once * once + once)
        np.testing.assert_array_equal(count, [2 * call])


def test_functions_of_libraries_are_called_by_their_full_name() -> None:
    x = np.arange(5, dtype=np.float32)
    load = functools.partial(tw.load, CALLER, libraries=[LIBRARY], untrusted=True)
    np.testing.assert_array_equal(load(function="run")(x), x * x + x)
    np.testing.assert_array_equal(load(function="caller.run")(x), x * x + x)
    np.testing.assert_array_equal(load(function="library.square")(x), x * x)
    # Both modules have one of that name: the last one's is taken.
    np.testing.assert_array_equal(load(function="called")(x), x)
    with pytest.raises(UserError, match=r"has 2 functions.*\n.*caller.run, caller.called$"):
        load()
    with pytest.raises(UserError, match=r"no function 'library.cube'"):
        load(function="library.cube")


def test_libraries_come_before_those_that_import_from_them() -> None:
    with pytest.raises(DeviceError, match="module 'library' is missing") as caught:
        tw.load(CALLER, function="run")
    assert caught.value.hint == "register it before the modules that depend on it"
    with pytest.raises(DeviceError, match="module 'library' is missing"):
        tw.load(LIBRARY, libraries=[CALLER], function="square")
    with pytest.raises(DeviceError, match="'library' is registered twice"):
        tw.load(LIBRARY, libraries=[LIBRARY], function="square")
    with pytest.raises(
        ArchiveError, match=r"^/no/such: cannot read the file: No such file"
    ):
        tw.load(LIBRARY, libraries=["/no/such"], function="square")


def test_choices_that_do_not_exist_are_refused(path: Path) -> None:
    with pytest.raises(UserError, match="engine is 'soup', expected 'plan' or 'vm'"):
        opened(path, "soup")
    with pytest.raises(UserError, match="bytecode is 'soup', expected 'translate' or"):
        opened(path, bytecode="soup")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_that_an_artifact_lacks_is_refused_by_both_engines(
    path: Path, engine: str
) -> None:
    with pytest.raises(UserError, match="no function 'soup'") as caught:
        opened(path, engine, function="soup")
    assert caught.value.hint == "functions: module.main"
    x, b = inputs(2)
    for name in ("main", "module.main"):
        check(opened(path, engine, function=name)(x, b), x, b)


def test_what_asks_for_bytecode_takes_the_virtual_machine(path: Path) -> None:
    for options in ({"bytecode": "interpret"}, {"libraries": [LIBRARY]}):
        session = opened(path, **options)
        assert session.engine == "vm"
        check(session(*inputs(4)), *inputs(4))
        with pytest.raises(UserError, match="a plan runs no bytecode"):
            opened(path, "plan", **options)
    square = opened(path, libraries=[LIBRARY], function="library.square")
    assert [dtype.name for _, dtype, _ in square.inputs] == ["f32"]
    x = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(square(x), x * x)
