"""Models through portable C: the same results in every form, sources without a compiler, errors with a remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.c_kernel import needs_cc
from fakes.native_kernel import needs_x86
from fakes.small_models import mlp, scale_and_shift
from tilewright.base import knobs
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.compiler.backends.c import compile as c_compile
from tilewright.compiler.backends.c.backend import BACKEND, source_file
from tilewright.formats.byte_view import LazyBytes, view_bytes

X = np.random.default_rng(0).standard_normal((5, 20)).astype(np.float32)
V3 = "c x86_64-v3"


@needs_cc
@needs_x86
@pytest.mark.parametrize("target", ["c", V3])
@pytest.mark.slow
def test_a_model_computes_the_same_in_every_form(target: str, tmp_path: Path) -> None:
    model = tw.compile(mlp(), target=target)
    want = tw.compile(mlp(), target="x86_64-v3")(X)
    got = model(X)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "net.vmfb")
    np.testing.assert_array_equal(tw.load(tmp_path / "net.vmfb")(X), got)
    np.testing.assert_array_equal(tw.load(tmp_path / "net.vmfb", engine="vm")(X), got)
    model.export_library(tmp_path / "net.so")
    library = tw.runtime.load_module(tmp_path / "net.so")
    np.testing.assert_array_equal(np.from_dlpack(library["main"](X)), got)


@pytest.mark.slow
@needs_cc
@needs_x86
def test_with_the_machine_model_of_llvm_the_bits_are_those_of_llvm() -> None:
    through_c, through_llvm = (tw.compile(mlp(), target=t)(X) for t in (V3, V3[2:]))
    np.testing.assert_array_equal(through_c, through_llvm)


def test_for_any_cpu_there_are_loops_and_no_vectors() -> None:
    for name, has_vectors in (("c", False), ("c riscv64", False), (V3, True)):
        (kernel, *_) = tw.compile(mlp(), target=name).kernels
        assert kernel.language == "c"
        assert ("vector_size" in kernel.source) is has_vectors, name
        assert "for (int64_t" in kernel.source


def test_sources_need_no_compiler_and_running_says_which_to_install(tmp_path: Path) -> None:
    with knobs.override(cc="no-such-compiler"):
        model = tw.compile(scale_and_shift(), target=V3)
        model.export_library(tmp_path / "net.c")
        assert isinstance(model.compiled.parts[0].image, LazyBytes)
        with pytest.raises(UserError, match="there is no compiler 'no-such-compiler'") as e:
            model.save(tmp_path / "net.vmfb")
    assert e.value.hint is not None
    assert e.value.hint.startswith("install a C compiler")
    assert not (tmp_path / "net.vmfb").exists()


@pytest.mark.slow
@needs_cc
@needs_x86
def test_kernels_that_were_compiled_before_are_taken_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.base.c_compiler import toolchain

    target = Target.parse(V3)
    cache = CompilationCache(folder=tmp_path / "cache", limit_bytes=1 << 24)
    compiled = [r.compiled for r in tw.compile(mlp(), target=target).compiled.kernels[0]]
    first = bytes(view_bytes(BACKEND.link(compiled, "net", target, cache=cache)))
    run_all, ran = toolchain.run_all, list[str]()

    def remember(commands: list[list[str]], **options: str | None) -> list[str]:
        ran.extend(word for command in commands for word in command if word == "-c")
        return run_all(commands, **options)

    monkeypatch.setattr(toolchain, "run_all", remember)
    again = bytes(view_bytes(BACKEND.link(compiled, "net", target, cache=cache)))
    assert ran == []
    assert len(again) == len(first)


def test_the_tables_name_every_kernel_and_equal_code_once() -> None:
    (record, *_) = tw.compile(mlp(), target=V3).compiled.kernels[0]
    kernels = [record.compiled, record.compiled]
    text = c_compile.library_tables("net", [kernel.export for kernel in kernels])
    assert text.count(f'"{record.name}"') == 2
    assert text.count(f"int {record.compiled.export.function}(") == 1


def test_a_file_of_kernels_has_the_names_that_it_is_told() -> None:
    (record, *_) = tw.compile(mlp(), target=V3).compiled.kernels[0]
    text = source_file(
        [(record.scheduled, "first"), (record.scheduled, "second")], record.request.target
    )
    assert text.count("int first(") == text.count("int second(") == 1
