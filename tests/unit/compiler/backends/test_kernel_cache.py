"""Kernels kept between compilations: the same bytes, no work; anything else is a miss."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright as tw
from fakes.small_models import mlp, scale_and_shift
from tilewright.base import dtypes
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends import kernel_cache
from tilewright.compiler.backends.cpu import backend as cpu
from tilewright.compiler.backends.cpu import stages
from tilewright.compiler.backends.kernel_cache import KernelRequest, recall
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.packaging.archive import save_archive
from tilewright.compiler.packaging.parts import make_artifact
from tilewright.compiler.printers.llvm_text.module import KernelModule
from tilewright.compiler.schedule import rules
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import Decisions, space_of

TARGET = Target.level("v3")


def dynamic(lower: int = 1, upper: int | None = 4096, columns: int = 24) -> Graph:
    """Symbolic rows, a contraction, a row reduction with scratch, a pointwise tail."""
    n = symbol("n", lower, upper)
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (n, columns)))
    y = b.input("y", TensorType(dtypes.f32, (columns, 2 * n)))
    b.output("z", b.softmax(b.matmul(b.relu(x), y), axis=-1))
    return b.graph


@pytest.fixture
def cache(tmp_path: Path) -> CompilationCache:
    return CompilationCache(folder=tmp_path / "cache", limit_bytes=1 << 24)


def compiled_with(
    cache: CompilationCache | None, graph: Graph, target: Target = TARGET, threads: int = 2
) -> pipeline.Compiled:
    options = pipeline.CompileOptions(
        targets=(target,), threads=threads, jobs=1, cache=cache, opt_level=1
    )
    return pipeline.compile_model(graph, options)


def archive_of(compiled: pipeline.Compiled, path: Path) -> bytes:
    model = tw.Model(compiled)
    model.save(path)
    return path.read_bytes()


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> Kernel:
        raise AssertionError("made again")

    monkeypatch.setattr(rules, "schedule", never)
    monkeypatch.setattr(stages, "write_kernel", never)


MODELS = pytest.mark.parametrize("graph", [dynamic, mlp, scale_and_shift])


@pytest.mark.thinned(3)
@MODELS
def test_a_hit_makes_nothing_and_the_archive_has_the_same_bytes(
    graph: Callable[[], Graph],
    cache: CompilationCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = archive_of(compiled_with(None, graph()), tmp_path / "without.vmfb")
    cold = compiled_with(cache, graph())
    assert all(record.compiled.seconds > 0 for record in cold.kernels[0])
    forbid(monkeypatch)
    warm = compiled_with(cache, graph())
    assert all(record.compiled.seconds == 0 for record in warm.kernels[0])
    verdicts = [[r.verdict for r in c.kernels[0]] for c in (cold, warm)]
    assert verdicts[0] == verdicts[1]
    assert archive_of(cold, tmp_path / "cold.vmfb") == without
    assert archive_of(warm, tmp_path / "warm.vmfb") == without


@pytest.mark.slow
@MODELS
def test_levels_made_again_are_those_that_the_first_compilation_had(
    graph: Callable[[], Graph],
    cache: CompilationCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    had: dict[str, str] = {}
    emit_kernel = stages.emit_kernel

    def remember(kernel: Kernel, target: Target) -> KernelModule:
        had[kernel.name] = kernel_text(kernel)
        return emit_kernel(kernel, target)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "emit_kernel", remember)
        cold = tw.Model(compiled_with(cache, graph()))
    warm = tw.Model(compiled_with(cache, graph()))
    assert len(warm.kernels) == len(had) > 0
    for old, new in zip(cold.kernels, warm.kernels, strict=True):
        assert new.lowered_ir == had[new.name]
        assert kernel_text(new._record.scheduled) == new.kernel_ir
        for level in (
            "naive_ir",
            "kernel_ir",
            "lowered_ir",
            "source",
            "assembly",
            "notes",
        ):
            assert getattr(old, level) == getattr(new, level)
    assert warm.sources() == cold.sources()


@pytest.mark.slow
def test_a_warm_compilation_starts_no_process_for_llvm_and_loads_no_rules_and_no_stages(
    tmp_path: Path,
) -> None:
    program = (
        "import sys\n"
        "import tilewright as tw\n"
        "from fakes.small_models import mlp\n"
        "model = tw.compile(mlp(), jobs=1)\n"
        "model.save(sys.argv[1])\n"
        "from tilewright.compiler.backends.cpu import pool\n"
        "made_with = 'compiler.lowering.vectorize', 'compiler.schedule.rules.run'\n"
        "print(bool(pool._holder()), *(f'tilewright.{name}' in sys.modules for name in made_with))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path),
    }
    archives: list[bytes] = []
    for expected in ("True", "False"):
        path = tmp_path / f"{expected}.vmfb"
        ran = subprocess.run(
            [sys.executable, "-c", program, str(path)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.split() == [expected] * 3
        archives.append(path.read_bytes())
    assert archives[0] == archives[1]


def request_of(graph: Graph, target: Target = TARGET, threads: int = 2) -> KernelRequest:
    return KernelRequest(pipeline.find_kernels(graph)[0].naive, target, threads)


def test_the_key_tells_apart_all_that_decides_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caches = dataclasses.replace(TARGET.caches, l2_bytes=TARGET.caches.l2_bytes * 2)
    ways = dataclasses.replace(TARGET.caches, l1d_ways=TARGET.caches.l1d_ways + 4)
    requests = [
        request_of(dynamic()),
        request_of(dynamic(lower=2)),
        request_of(dynamic(upper=None)),
        request_of(dynamic(), threads=1),
        request_of(dynamic(), Target.level("v2")),
        request_of(dynamic(), dataclasses.replace(TARGET, caches=caches)),
        request_of(dynamic(), dataclasses.replace(TARGET, caches=ways)),
        request_of(dynamic(columns=25)),
    ]
    decided = (Decisions.parse(f"pointwise vectors={n}") for n in (1, 2))
    requests += [dataclasses.replace(requests[0], decisions=each) for each in decided]
    keys = [request.key for request in requests]
    monkeypatch.setattr(kernel_cache, "SOURCES_DIGEST", "other sources")
    keys.append(request_of(dynamic()).key)
    monkeypatch.undo()
    monkeypatch.setattr(cpu, "llvm_identity", lambda: "another LLVM")
    keys.append(request_of(dynamic()).key)
    assert len(set(keys)) == len(keys)


def test_a_request_is_scheduled_as_was_decided() -> None:
    request = request_of(dynamic())
    space = space_of(request.naive, MachineModel.of(TARGET), threads=2)
    decided = next(space.neighbours(space.best()))
    kernel = dataclasses.replace(request, decisions=decided).schedule()
    assert kernel.notes[-1] == f"decided: {decided}"
    assert request.schedule().notes[-1] == f"decided: {space.best()}"


def test_the_key_does_not_depend_on_the_name() -> None:
    request = request_of(dynamic())
    renamed = dataclasses.replace(request.naive, name="other")
    assert KernelRequest(renamed, TARGET, 2).key == request.key


@pytest.mark.slow
def test_a_kernel_of_another_name_is_found_under_its_own(cache: CompilationCache) -> None:
    (record, *_) = compiled_with(cache, dynamic()).kernels[0]
    renamed = dataclasses.replace(record.naive, name="another")
    found = recall(KernelRequest(renamed, TARGET, 2), cache)
    assert found is not None
    assert found.name == found.compiled.export.name == found.signature.name == "another"
    assert found.kernel_ir.startswith("kernel another(")
    assert found.kernel_ir == kernel_text(found.scheduled)
    assert found.compiled.object_bytes == record.compiled.object_bytes


@pytest.mark.slow
def test_an_entry_reads_back_with_the_bounds_of_its_dimensions(
    cache: CompilationCache,
) -> None:
    for record in compiled_with(cache, dynamic(2, 999)).kernels[0]:
        found = recall(record.request, cache)
        assert found is not None
        assert found.signature == record.signature
        assert [(s.lower, s.upper) for s in found.signature.dims] == [
            (s.lower, s.upper) for s in record.signature.dims
        ]
        assert str(found.signature.grid) == str(record.signature.grid)


@pytest.mark.slow
def test_an_entry_without_its_object_is_a_miss_and_is_made_again(
    cache: CompilationCache,
) -> None:
    (first, *_) = compiled_with(cache, dynamic()).kernels[0]
    cache._path(first.compiled.object_key).unlink()
    assert recall(first.request, cache) is None
    (again, *_) = compiled_with(cache, dynamic()).kernels[0]
    assert again.compiled.seconds > 0
    assert again.compiled.object_bytes == first.compiled.object_bytes
    assert recall(first.request, cache) is not None


def test_damaged_and_truncated_entries_are_misses(cache: CompilationCache) -> None:
    (record, *_) = compiled_with(cache, dynamic()).kernels[0]
    path = cache._path(record.request.key)
    data = path.read_bytes()
    for damaged in (
        b"",
        data[:20],
        data[:-1],
        data[:50] + bytes([data[50] ^ 0xFF]) + data[51:],
    ):
        path.write_bytes(damaged)
        assert recall(record.request, cache) is None


@pytest.mark.parametrize(
    "payload", [b"not compressed", b"x\x9c\x03\x00\x00\x00\x00\x01"], ids=["raw", "empty"]
)
def test_a_whole_entry_of_another_form_is_a_miss(
    payload: bytes, cache: CompilationCache
) -> None:
    request = request_of(dynamic())
    cache.put(request.key, payload)
    assert recall(request, cache) is None


@pytest.mark.slow
def test_two_processes_compile_into_one_cache(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "import tilewright as tw\n"
        "from fakes.small_models import mlp\n"
        "for _ in range(3):\n"
        "    tw.compile(mlp(), target='v3', threads=2, jobs=1).save(sys.argv[1])\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path),
    }
    paths = [tmp_path / f"{n}.vmfb" for n in range(2)]
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], env=environment)
        for path in paths
    ]
    assert [process.wait(120) for process in running] == [0, 0]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    options = pipeline.CompileOptions(targets=(TARGET,), threads=2, jobs=1)
    parts = pipeline.compile_model(mlp(), options).parts
    assert parts[0].image in paths[0].read_bytes()


@pytest.mark.slow
def test_the_folder_stays_below_its_limit(tmp_path: Path) -> None:
    small = CompilationCache(folder=tmp_path, limit_bytes=20_000)
    for lower in range(1, 5):
        compiled_with(small, dynamic(lower))
    sizes = [p.stat().st_size for p in tmp_path.glob("??/*")]
    assert sum(sizes) <= small.limit_bytes
    archive = tmp_path / "after.vmfb"
    parts = compiled_with(small, dynamic(1)).parts
    assert save_archive(parts, make_artifact(parts), archive) == archive.stat().st_size


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "changed",
    [
        {"signature": None},
        {"signature": {"parameters": [], "dims": [], "grid": [1, 2, 3]}},
        {"export": [1]},
        {"object": ["no", "key"]},
    ],
)
def test_an_entry_of_another_form_is_a_miss(
    cache: CompilationCache, changed: dict[str, object]
) -> None:
    (record, *_) = compiled_with(cache, mlp()).kernels[0]
    key = record.request.key
    payload = cache.get(key)
    assert payload is not None
    members = json.loads(zlib.decompress(payload)) | changed
    cache.put(key, zlib.compress(json.dumps(members).encode()))
    assert recall(record.request, cache) is None
    cache.put(key, zlib.compress(b"[" * 100_000))
    assert recall(record.request, cache) is None
