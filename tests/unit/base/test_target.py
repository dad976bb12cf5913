from __future__ import annotations

import itertools
from typing import Any

import pytest

from tilewright.base import dtypes
from tilewright.base.errors import TargetError
from tilewright.base.target import LEVELS, Target


def test_a_cpu_name_brings_its_features_and_caches() -> None:
    target = Target.parse("x86_64 -mcpu=znver4")
    assert target.vector_bits == 512
    assert target.vector_registers == 32
    assert target.vector_lanes(dtypes.f32) == 16
    assert target.vector_lanes(dtypes.i8) == 64
    assert target.l2_bytes == 1 << 20
    assert target.has("avx512vnni")


@pytest.mark.parametrize(
    ("level", "bits", "registers"), [("v2", 128, 16), ("v3", 256, 16), ("v4", 512, 32)]
)
def test_levels_set_vector_width_and_register_count(
    level: str, bits: int, registers: int
) -> None:
    target = Target.level(level)
    assert (target.vector_bits, target.vector_registers) == (bits, registers)
    assert Target.parse(level) == target
    assert Target.parse(f"x86_64-{level}") == target


def test_levels_grow() -> None:
    rows = list(LEVELS.values())
    assert all(weak < strong for weak, strong in itertools.pairwise(rows))


@pytest.mark.parametrize(
    "text",
    [
        "x86_64 -mcpu=znver4",
        "x86_64-windows -mcpu=haswell -mattr=+avxvnni,-bmi2",
        "aarch64-macos -mcpu=apple-m1",
        "riscv64 -mcpu=generic-rv64v",
        "x86_64 -mcpu=x86-64-v3 -l1d=48K -l2=2M -l3=0",
    ],
)
def test_text_form_reads_back_as_an_equal_target(text: str) -> None:
    target = Target.parse(text)
    assert Target.parse(str(target)) == target


def test_host_target_reads_back_and_runs_on_itself() -> None:
    target = Target.host()
    assert Target.parse(str(target)).features == target.features
    assert target.runs_on(target)
    assert target.l1d_bytes >= 8 << 10


def test_triples_and_architecture_aliases_are_understood() -> None:
    assert Target.parse("arm64-apple-darwin") == Target.parse("aarch64-macos")
    assert Target.parse("x86_64-pc-windows-msvc").os == "windows"
    assert Target.parse("linux-aarch64") == Target.parse("aarch64-linux")
    assert Target.parse("macos-arm64") == Target.parse("aarch64-macos")
    assert Target.parse("windows-x86_64 -mcpu=znver4").cpu == "znver4"
    assert Target.parse("riscv64-unknown-linux-gnu").vector_bits == 32


def test_code_for_a_weaker_level_runs_on_a_stronger_machine_only() -> None:
    weak, strong = Target.level("v2"), Target.level("v4")
    assert weak.runs_on(strong)
    assert not strong.runs_on(weak)
    assert not Target.parse("aarch64").runs_on(strong)


def test_a_feature_goes_with_what_rests_on_it_and_comes_with_what_it_rests_on() -> None:
    without = Target.parse("x86_64 -mcpu=znver4 -mattr=-fma")
    assert without.vector_bits == 256
    assert not [name for name in without.features if name.startswith("avx512")]
    old = Target.parse("x86_64 -mcpu=znver4 -mattr=-sse3")
    assert (old.vector_bits, old.has_fma, old.has_masks) == (128, False, False)
    more = Target.parse("v2 -mattr=+avx512vl")
    assert (more.vector_bits, more.has_fma, more.has_masks) == (512, True, True)
    for target in (without, old, more, Target.parse("aarch64 -mattr=+sve2")):
        assert Target.parse(str(target)) == target


@pytest.mark.parametrize("word", ["host", "native"])
def test_the_cpu_of_this_machine_is_none_of_another_architecture(word: str) -> None:
    here = Target.host().arch
    for arch in {"x86_64", "aarch64", "riscv64"} - {here}:
        with pytest.raises(TargetError, match=f"which is no {arch}") as caught:
            Target.parse(f"{arch} -mcpu={word}")
        assert f"name a CPU of {arch}: " in (caught.value.hint or "")
    assert Target.parse(f"{here} -mcpu={word}") == Target.host()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty target"),
        ("z80", "unknown architecture 'z80'"),
        (
            "cuda",
            "'cuda'\nhint: code for NVIDIA's GPUs is not made here, that of other compilers",
        ),
        (
            "vmvx",
            "'vmvx'\nhint: IREE's bytecode of kernels is not made here, that of other compilers can be loaded; architectures: a",
        ),
        (
            "wasm32-unknown-emscripten",
            "'wasm32'\nhint: WebAssembly is not made here; architectures: a",
        ),
        (
            "opencl -device=mali",
            "'opencl'\nhint: code for GPUs (OpenCL) is not made here; architectures",
        ),
        ("vulkan-spirv", "code for GPUs (Vulkan) is not made here; architectures"),
        ("rocm", "code for AMD's GPUs is not made here; architectures"),
        ("gpu", "code for GPUs is not made here; architectures"),
        ("x86_64-beos", "unknown system 'beos'"),
        (
            "x86_64-v9",
            "unknown level 'v9'\nhint: systems: linux macos windows; levels: v1 v2 v3 v4",
        ),
        ("aarch64-v9", "unknown system 'v9'\nhint: systems: linux macos windows"),
        ("x86_64 -mcpu=znver44", "did you mean 'znver4'"),
        ("x86_64 -mattr=avx2", "needs a leading '+' or '-'\nhint: write -mattr=+avx2"),
        (
            "x86_64 -mattr=+avx3",
            "unknown feature 'avx3' of x86_64\nhint: did you mean 'avx",
        ),
        ("riscv64 -mattr=+32bit", "unknown feature '32bit' of riscv64"),
        ("riscv64 -mattr=-d", "code for riscv64 cannot be without 'd'"),
        ("x86_64 -mattr=-sse2", "code for x86_64 cannot be without 'sse2'"),
        ("x86_64 -mattr=-64bit", "unknown feature '64bit' of x86_64"),
        (
            "znver4",
            "unknown architecture 'znver4'\nhint: did you mean 'x86_64 -mcpu=znver4'?",
        ),
        ("znver9", "'x86_64 -mcpu=znver"),
        ("neoverse-n1", "hint: did you mean 'aarch64 -mcpu=neoverse-n1'?"),
        ("-mcpu=haswell", "hint: did you mean 'x86_64 -mcpu=haswell'?"),
        ("x86_64-znver4", "hint: did you mean 'x86_64 -mcpu=znver4'?"),
        ("x86_65", "hint: did you mean 'x86_64'"),
        ("x86_64 -mcpu", "has no value"),
        ("x86_64 -speed=9", "unknown target option '-speed'"),
        ("x86_64 -l2=big", "is not a size"),
    ],
)
def test_a_bad_target_says_which_word_is_wrong(text: str, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arch": "z80"}, "unknown architecture 'z80'"),
        ({"os": "beos"}, "unknown system 'beos'"),
        (
            {"cpu": "znver44"},
            "unknown CPU 'znver44' of x86_64\nhint: did you mean 'znver4'",
        ),
        ({"features": frozenset({"sse", "sse2", "avx3"})}, "unknown feature 'avx3'"),
        ({"features": frozenset({"sse"})}, "cannot be without 'sse2'"),
        (
            {"features": frozenset({"sse", "sse2", "avx2"})},
            "feature 'avx2' needs 'avx', too",
        ),
    ],
)
def test_a_target_made_by_hand_is_checked_before_code_is_made_for_it(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(TargetError) as caught:
        Target(**fields).checked()
    assert message in str(caught.value)
    assert Target.host().checked() == Target.host()


def test_a_level_may_be_a_cpu_that_has_more_than_its_level() -> None:
    for name in ("cascadelake", "znver4", "x86-64-v3"):
        assert Target.level(name) == Target.parse(f"x86_64 -mcpu={name}")
    assert Target.level("znver4", os="windows").os == "windows"
    for name in ("any", "cortex-a76", "cascadelakes"):
        with pytest.raises(TargetError, match=f"unknown level '{name}'"):
            Target.level(name)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(TargetError, match="unknown level 'v9', expected v1 v2"):
        Target.level("v9")
