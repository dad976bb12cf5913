"""Sessions run artifacts through either engine on any device."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import tilewright as tw
from fakes.sessions import ENGINES, check, inputs, opened
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
from tilewright.runtime.session import Session
from tilewright.runtime.session_options import BytecodeOptions, HostOptions, PlanOptions

DEVICES = ("local-task://?threads=2", "local-sync")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_and_devices_agree_for_every_size(
    path: Path, engine: str, device: str
) -> None:
    session = opened(path, engine, device=device)
    for n in (1, 2, 7, 1):
        check(session(*inputs(n)), *inputs(n))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_stays_in_its_process(path: Path, engine: str) -> None:
    session = opened(path, engine)
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            UserError, match=r"a Session holds memory(.|\n)*tilewright\.load"
        ):
            use(session)
    check(session(*inputs(2)), *inputs(2))


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
        with pytest.raises((ArchiveError, DeviceError), match=r"ngram_counts|host_call"):
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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_begins_calls_forked_beside_the_first_one_of_its_parent(
    tmp_path: Path,
) -> None:
    tw.compile(mlp(3), threads=2, jobs=1).save(tmp_path / "m.vmfb")
    script = [sys.executable, "-c", FORK_BESIDE_THE_FIRST_BEGUN_CALL, tmp_path / "m.vmfb"]
    subprocess.run(script, check=True, timeout=90)


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
