from __future__ import annotations

import itertools

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
    assert Target.parse("riscv64-unknown-linux-gnu").vector_bits == 32


def test_code_for_a_weaker_level_runs_on_a_stronger_machine_only() -> None:
    weak, strong = Target.level("v2"), Target.level("v4")
    assert weak.runs_on(strong)
    assert not strong.runs_on(weak)
    assert not Target.parse("aarch64").runs_on(strong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty target"),
        ("z80", "unknown architecture 'z80'"),
        ("x86_64-beos", "unknown system 'beos'"),
        ("x86_64 -mcpu=znver44", "did you mean 'znver4'"),
        ("x86_64 -mattr=avx2", "needs a leading"),
        ("x86_64 -mcpu", "has no value"),
        ("x86_64 -speed=9", "unknown target option '-speed'"),
        ("x86_64 -l2=big", "is not a size"),
    ],
)
def test_a_bad_target_says_which_word_is_wrong(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message.replace("(", r"\(")):
        Target.parse(text)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(TargetError, match="unknown x86-64 level 'v9'"):
        Target.level("v9")
