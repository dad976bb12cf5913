"""Compiling many kernels: sharing, cache, worker processes, errors, other architectures."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.base import dtypes
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import InternalError, UserError
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import show
from tilewright.compiler.backends.cpu import compile as compile_module
from tilewright.compiler.backends.cpu import handover, pool, stages
from tilewright.compiler.backends.cpu.backend import BACKEND
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Const,
    For,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Space,
    Store,
    Unary,
)
from tilewright.compiler.printers.llvm_text.module import KernelModule
from tilewright.formats.elf import parse_image
from tilewright.formats.executable import QUERY_FUNCTION

HOST = Target.level("v3")


def scaled(name: str, factor: float, target: Target = HOST, op: str = "exp") -> Kernel:
    x, y = Buffer("x", dtypes.f32, (64,)), Buffer("y", dtypes.f32, (64,))
    i, v = symbol("i"), symbol("v")
    place = (i * 8 + v,)
    value = Binary(
        "mul", Unary(op, Load(x, place), dtypes.f32), Const(factor, dtypes.f32), dtypes.f32
    )
    vector = For(Symbol("v"), 8, (Store(y, place, value),), LoopKind.VECTOR)
    return Kernel(
        name, (Parameter(x, AccessMode.READ), Parameter(y, AccessMode.WRITE)), (), (),
        (For(Symbol("i"), 8, (vector,), LoopKind.GRID_X),),
    )  # fmt: skip


def test_kernels_come_back_in_order_with_their_own_names():
    kernels = [scaled("b", 2), scaled("a", 3), scaled("c", 2)]
    compiled = BACKEND.generate(kernels, HOST)
    assert [k.name for k in compiled] == ["b", "a", "c"]
    assert [k.export.name for k in compiled] == ["b", "a", "c"]
    assert all(k.export.binding_count == 2 for k in compiled)


def test_equal_kernels_share_one_object():
    first, other, same = BACKEND.generate(
        [scaled("b", 2), scaled("a", 3), scaled("c", 2)], HOST
    )
    assert first.export.function == same.export.function != other.export.function
    assert first.object_bytes is same.object_bytes
    image = parse_image(BACKEND.link([first, other, same], "three", HOST))
    assert QUERY_FUNCTION in image.symbols


def test_the_same_kernels_give_the_same_bytes():
    def build() -> bytes:
        return BACKEND.link(BACKEND.generate([scaled("a", 3)], HOST), "x", HOST)

    assert build() == build()


def test_progress_counts_every_kernel():
    seen: list[tuple[int, str]] = []
    kernels = [scaled("a", 1.5), scaled("b", 2.5), scaled("c", 1.5)]
    BACKEND.generate(kernels, HOST, progress=lambda *event: seen.append(event))
    assert [done for done, _ in seen] == [1, 2, 3]
    assert {name for _, name in seen} == {"a", "b", "c"}


def test_a_kernel_is_asked_for_when_the_one_before_is_on_its_way(monkeypatch):
    events: list[str] = []
    submit = compile_module._submit

    def kernels() -> Iterator[Kernel]:
        for name in "ab":
            events.append(f"schedule {name}")
            yield scaled(name, ord(name))

    def submitted(task: pool.Task, count: int) -> None:
        events.append(f"generate {task.name}")
        submit(task, count)

    monkeypatch.setattr(compile_module, "_submit", submitted)
    BACKEND.generate(kernels(), HOST)
    assert events == [
        "schedule a", "generate kernel 'a'", "schedule b", "generate kernel 'b'"
    ]  # fmt: skip


def test_the_cache_spares_the_second_compilation(tmp_path, monkeypatch):
    cache = CompilationCache(folder=tmp_path, limit_bytes=1 << 20)
    kernels = [scaled("a", 4), scaled("b", 5)]
    cold = BACKEND.generate(kernels, HOST, cache=cache)
    assert all(k.seconds > 0 for k in cold)

    def never(*args: object, **settings: object) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compile_module, "shared_pool", never)
    warm = BACKEND.generate(kernels, HOST, cache=cache)
    assert [k.object_bytes for k in warm] == [k.object_bytes for k in cold]
    assert all(k.seconds == 0 for k in warm)


def test_the_cache_tells_targets_apart(tmp_path):
    cache = CompilationCache(folder=tmp_path, limit_bytes=1 << 20)
    v2 = Target.level("v2")
    (wide,) = BACKEND.generate([scaled("a", 4)], HOST, cache=cache)
    (narrow,) = BACKEND.generate([scaled("a", 4, v2)], v2, cache=cache)
    assert wide.object_bytes != narrow.object_bytes


def test_worker_processes_give_the_same_objects(monkeypatch):
    monkeypatch.setattr(compile_module, "ONE_WORKER_SECONDS", 0.0)
    kernels = [scaled(f"k{n}", n) for n in range(12)]
    try:
        parallel = BACKEND.generate(kernels, HOST, jobs=2)
    finally:
        pool.stop()
    alone = BACKEND.generate(kernels, HOST, jobs=1)
    assert [k.object_bytes for k in parallel] == [k.object_bytes for k in alone]


@pytest.mark.slow
def test_a_script_without_a_main_guard_may_compile_in_parallel(tmp_path):
    script = tmp_path / "script.py"
    here = Path(__file__)
    script.write_text(
        "import sys, importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('kernels', {str(here)!r})\n"
        "kernels = importlib.util.module_from_spec(spec); spec.loader.exec_module(kernels)\n"
        "kernels.compile_module.ONE_WORKER_SECONDS = 0.0\n"
        "made = kernels.BACKEND.generate([kernels.scaled(f'k{n}', n) for n in range(6)],\n"
        "                               kernels.HOST, jobs=2)\n"
        "print('compiled', len(made))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "compiled 6\n", done.stderr
    assert done.returncode == 0


def test_a_worker_that_dies_is_replaced(monkeypatch):
    monkeypatch.setattr(compile_module, "ONE_WORKER_SECONDS", 0.0)
    try:
        BACKEND.generate([scaled("a", 1)], HOST, jobs=2)
        workers = pool.shared_pool(2)
        for process in tuple(workers.processes.values()):  # another may start meanwhile
            process.popen.kill()
            process.popen.wait()
        (again,) = BACKEND.generate([scaled("a", 11)], HOST, jobs=2)
        assert again.object_bytes
    finally:
        pool.stop()


def test_kernels_handed_over_are_those_written_here(tmp_path, monkeypatch):
    kernels = [scaled(f"k{n}", n % 5) for n in range(8)]
    here = BACKEND.generate(kernels, HOST)
    cache = CompilationCache(folder=tmp_path, limit_bytes=1 << 20)
    monkeypatch.setattr(compile_module, "ONE_WORKER_SECONDS", -1.0)
    written: list[str] = []
    monkeypatch.setattr(
        stages, "emit_kernel", lambda kernel, _: written.append(kernel.name)
    )
    seen: list[int] = []
    try:
        cold = BACKEND.generate(
            kernels, HOST, jobs=2, cache=cache, progress=lambda done, _: seen.append(done)
        )
        warm = BACKEND.generate(kernels, HOST, jobs=2, cache=cache)
    finally:
        pool.stop()
    for made in (cold, warm):
        assert [k.source for k in made] == [k.source for k in here]
        assert [k.object_bytes for k in made] == [k.object_bytes for k in here]
        assert [k.object_key for k in made] == [k.object_key for k in here]
        assert [k.export for k in made] == [k.export for k in here]
    assert not written
    assert seen == list(range(1, 9))
    assert all(k.seconds > 0 for k in cold)
    assert all(k.seconds == 0 for k in warm)


def test_what_a_worker_cannot_write_is_written_or_fails_here(monkeypatch):
    monkeypatch.setattr(compile_module, "ONE_WORKER_SECONDS", -1.0)
    local = Buffer("scratch", dtypes.f32, (symbol("n", 1),), Space.WORKGROUP)
    y = Buffer("y", dtypes.f32, (1,))
    body = (Store(y, (0,), Const(0.0, dtypes.f32)),)
    wrong = Kernel("k", (Parameter(y, AccessMode.WRITE),), (), (local,), body)

    def refusing(*_: object) -> bytes:
        raise RecursionError

    try:
        with pytest.raises(InternalError) as there:
            BACKEND.generate([wrong], HOST, jobs=2)
        with pytest.raises(InternalError) as here:
            BACKEND.generate([wrong], HOST)
        assert str(there.value) == str(here.value)
        monkeypatch.setattr(handover.pickle, "dumps", refusing)
        (made,) = BACKEND.generate([scaled("a", 3)], HOST, jobs=2)
        assert made.object_bytes
    finally:
        pool.stop()


def test_what_no_worker_can_write_is_written_one_after_the_other(monkeypatch):
    """Each inside of the one before, many such answers at once were too deep for Python."""
    monkeypatch.setattr(compile_module, "ONE_WORKER_SECONDS", -1.0)
    kernels = [scaled(f"k{n}", n) for n in range(9)]
    held: list[pool.Task] = []
    depths: list[int] = []

    def submit(task: pool.Task, _: int) -> None:
        if task.product == "object":
            task.done(b"object", 0.1)
            return
        held.append(task)
        if len(held) == len(kernels):
            for each in held:
                each.done(handover.answer(b"no kernel", each.settings), 0.0)

    def write(kernel: Kernel) -> KernelModule:
        depths.append(len(inspect.stack(0)))
        return stages.write_kernel(kernel, HOST)

    monkeypatch.setattr(compile_module, "_submit", submit)
    made = compile_module.compile_kernels(kernels, write, HOST, jobs=2)
    assert [k.name for k in made] == [k.name for k in kernels]
    assert len(depths) == len(kernels)
    assert len(set(depths)) == 1


def test_without_threads_for_workers_the_work_is_done_here(monkeypatch):
    def none_left(count: int) -> pool.WorkerPool:
        raise OSError("can't start new thread")

    monkeypatch.setattr(compile_module, "ONE_WORKER_SECONDS", 0.0)
    monkeypatch.setattr(compile_module, "shared_pool", none_left)
    kernels = [scaled(f"k{n}", n) for n in range(3)]
    made = BACKEND.generate(kernels, HOST, jobs=2)
    assert [k.name for k in made] == ["k0", "k1", "k2"]


@pytest.mark.slow
def test_a_compilation_that_fails_leaves_the_workers_to_others(monkeypatch):
    monkeypatch.setattr(compile_module, "ONE_WORKER_SECONDS", 0.0)

    def kernels() -> Iterator[Kernel]:
        yield from (scaled(f"k{n}", n) for n in range(5))
        raise InternalError("stopped half way")

    workers = pool.shared_pool(2)
    try:
        with pytest.raises(InternalError, match="half way"):
            BACKEND.generate(kernels(), HOST, jobs=2)
        assert not workers.closed
        (made,) = BACKEND.generate([scaled("k7", 7)], HOST, jobs=2)
        assert made.object_bytes
        assert pool.shared_pool(2) is workers
    finally:
        pool.stop()


def test_an_error_in_a_worker_arrives_with_the_kernel_name():
    results: list[object] = []
    workers = pool.shared_pool(1)
    try:
        import threading

        finished = threading.Event()

        def done(result: object, seconds: float) -> None:
            results.append(result)
            finished.set()

        settings = compile_module.settings_of(HOST, compile_module.Options())
        workers.submit(
            pool.Task("kernel 'broken'", "host", settings, "this is no LLVM IR", done)
        )
        assert finished.wait(60)
    finally:
        pool.stop()
    (error,) = results
    assert isinstance(error, InternalError)
    assert "broken" in str(error)
    assert "LLVM rejects our code" in str(error)


# An instruction that the processor does not have: LLVM ends its process.
FATAL_IR = """
declare <16 x float> @llvm.x86.avx512.rcp14.ps.512(<16 x float>, <16 x float>, i16)
define void @f(ptr %p) {
  %x = load <16 x float>, ptr %p
  %y = call <16 x float> @llvm.x86.avx512.rcp14.ps.512(<16 x float> %x, <16 x float> %x, i16 -1)
  store <16 x float> %y, ptr %p
  ret void
}
"""


def test_what_llvm_cannot_go_on_with_is_an_error_that_names_kernel_and_target():
    v2 = Target.parse("x86_64-v2")
    try:
        with pytest.raises(InternalError) as caught:
            BACKEND.assembly(FATAL_IR, v2, name="kernel 'rcp'")
        assert caught.value.location == "kernel 'rcp'"
        assert caught.value.message.startswith(
            "the process that generates code for 'x86_64 -mcpu=x86-64-v2' died twice: LLVM ERROR: "
        )
        # the next request finds a worker
        assert "ret" in BACKEND.assembly("define void @g() { ret void }", v2)
    finally:
        pool.stop()


@pytest.mark.slow
def test_this_process_never_loads_llvm():
    script = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('kernels', {str(Path(__file__))!r})\n"
        "k = importlib.util.module_from_spec(spec); spec.loader.exec_module(k)\n"
        "made = k.BACKEND.generate([k.scaled('k', 2)], k.HOST)\n"
        "k.BACKEND.link(made, 'x', k.HOST)\n"
        "k.BACKEND.assembly(made[0].source, k.HOST)\n"
        "print('llvmlite' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "False\n", done.stderr


def test_local_memory_is_declared_in_pages():
    local = Buffer("local", dtypes.f32, (1500,), Space.WORKGROUP)
    y = Buffer("y", dtypes.f32, (1,))
    body = (
        Store(local, (1499,), Const(1.0, dtypes.f32)),
        Store(y, (0,), Load(local, (1499,))),
    )
    kernel = Kernel("k", (Parameter(y, AccessMode.WRITE),), (), (local,), body)
    (compiled,) = BACKEND.generate([kernel], HOST)
    assert compiled.export.local_memory_pages == 2


def test_local_memory_of_unknown_size_is_refused_by_name():
    n = symbol("n", 1)
    local = Buffer("scratch", dtypes.f32, (n,), Space.WORKGROUP)
    y = Buffer("y", dtypes.f32, (1,))
    body = (Store(local, (0,), Const(1.0, dtypes.f32)), Store(y, (0,), Load(local, (0,))))
    kernel = Kernel(
        "k", (Parameter(y, AccessMode.WRITE),), (Symbol("n", 1),), (local,), body
    )
    with pytest.raises(InternalError, match="kernel 'k': local buffer 'scratch'"):
        BACKEND.generate([kernel], HOST)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["aarch64", "riscv64", "x86_64-v2", "x86_64-v4"])
@pytest.mark.parametrize("op", ["exp", "sin", "erf", "sqrt"])
def test_other_targets_produce_executables(name, op):
    target = Target.parse(name)
    compiled = BACKEND.generate([scaled("k", 2, target, op)], target)
    image = parse_image(BACKEND.link(compiled, "lib", target))
    assert image.machine == target.arch
    assert QUERY_FUNCTION in image.symbols


def test_every_stage_of_the_backend_can_be_shown():
    x = scaled("k", 2)
    names = [stage.name for stage in BACKEND.stages(HOST)]
    assert names == [
        "serialize-threads", "expand-casts", "flatten", "decide", "fuse-multiply-add",
        "multiply-quotients", "vectorize", "unroll", "transpose", "expand-math", "llvm",
    ]  # fmt: skip
    texts = {name: show(BACKEND, x, HOST, name) for name in names}
    assert "8 lanes" not in texts["fuse-multiply-add"]
    assert "8 lanes" in texts["vectorize"]
    assert "exp(" in texts["transpose"]
    assert "exp(" not in texts["expand-math"]
    assert "define hidden i32 @tw_" in texts["llvm"]
    with pytest.raises(UserError, match="back end 'cpu' has no stage 'unrol'") as caught:
        show(BACKEND, x, HOST, "unrol")
    assert caught.value.hint == "did you mean 'unroll'?"


def test_assembly_of_a_compiled_kernel_is_text():
    (compiled,) = BACKEND.generate([scaled("k", 2)], HOST)
    assert "ymm" in BACKEND.assembly(compiled.source, HOST)


def test_code_of_wide_vector_targets_uses_wide_registers():
    target = Target.level("v4")
    x, y = Buffer("x", dtypes.f32, (64,)), Buffer("y", dtypes.f32, (64,))
    v = symbol("v")
    body = (For(Symbol("v"), 64, (Store(y, (v,), Load(x, (v,))),), LoopKind.VECTOR),)
    kernel = Kernel(
        "k", (Parameter(x, AccessMode.READ), Parameter(y, AccessMode.WRITE)), (), (), body
    )
    (compiled,) = BACKEND.generate([kernel], target)
    assert "zmm" in BACKEND.assembly(compiled.source, target)
