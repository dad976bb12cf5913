from __future__ import annotations

import pytest

from tilewright.base.dtypes import bf16, f16, f32, f64, i8, i32
from tilewright.base.target import Target
from tilewright.compiler.ops.contraction import WORD_PRODUCTS
from tilewright.compiler.schedule.machine_model import MachineModel


@pytest.mark.parametrize(
    ("text", "lanes", "registers"),
    [("x86_64-v2", 4, 16), ("x86_64-v3", 8, 16), ("x86_64-v4", 16, 32), ("aarch64", 4, 32)],
)
def test_a_model_has_the_vectors_of_its_target(
    text: str, lanes: int, registers: int
) -> None:
    machine = MachineModel.of(Target.parse(text))
    assert machine.lanes(f32) == lanes
    assert (machine.lanes(f64), machine.lanes(i8)) == (lanes // 2, lanes * 4)
    assert machine.vector_registers == registers


def test_cores_that_differ_from_the_usual_one_are_rows() -> None:
    halves = MachineModel.of(Target.parse("x86_64 -mcpu=znver4"))
    narrow = MachineModel.of(Target.parse("x86_64 -mcpu=znver4 -mattr=+prefer-256-bit"))
    usual = MachineModel.of(Target.level("v4"))
    found = [m.multiply_adds_per_cycle for m in (halves, narrow, usual)]
    assert found == [1, 2, 2]


@pytest.mark.parametrize(
    "cpu",
    ["skylake-avx512", "cascadelake", "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids"],
)  # fmt: skip
def test_cores_of_one_line_find_the_same_mesh(cpu: str) -> None:
    core = MachineModel.of(Target.parse(f"x86_64 -mcpu={cpu}")).core
    assert core == MachineModel.of(Target.level("v4")).core
    ring = MachineModel.of(Target.parse("x86_64 -mcpu=icelake-client")).core
    assert (core.fill, ring.fill) == (0.2, 0)
    assert core.third_level < ring.third_level


def test_halves_pay_where_vectors_of_all_bits_take_twice_as_long() -> None:
    halved = MachineModel.of(Target.parse("x86_64 -mcpu=znver4")).halved
    assert halved is not None
    assert (halved.lanes(f32), halved.multiply_adds_per_cycle) == (8, 2)
    assert halved.halved is None
    assert all(MachineModel.of(Target.level(name)).halved is None for name in ("v3", "v4"))


def test_caches_are_those_of_the_target() -> None:
    machine = MachineModel.of(Target.parse("x86_64 -mcpu=znver4 -l2=256K"))
    assert machine.l2.size_bytes == 256 << 10
    assert machine.l1.ways == 8
    assert machine.l1.bandwidth > machine.l2.bandwidth > machine.main.bandwidth


def test_rows_are_multiplied_at_once_where_there_is_an_instruction_for_tiles() -> None:
    for cpu, rows in (("neoverse-n1", 1), ("neoverse-n2", 2)):
        machine = MachineModel.of(Target.parse(f"aarch64 -mcpu={cpu}"))
        assert machine.for_sums_of(i32).rows_at_once == rows
        assert machine.for_sums_of(f32).rows_at_once == 1


def test_products_of_words_are_those_of_the_extensions() -> None:
    """Bytes are extended, and 16-bit numbers multiplied, only where there is no product of bytes themselves."""
    for target, products in {
        "x86_64 -mcpu=x86-64-v3": {"extended", "moved_bytes", "shorts", "small_bytes"},
        "x86_64 -mcpu=icelake-server": {"bytes", "small_bytes"},
        "x86_64 -mcpu=znver4": {"bytes", "pairs", "small_bytes"},
        "aarch64 -mcpu=neoverse-n1": {"bytes", "small_bytes"},
        "aarch64 -mcpu=neoverse-n2": {"bytes", "long_bytes", "small_bytes"},
        "aarch64 -mcpu=cortex-a72": set[str](),
    }.items():
        found = MachineModel.of(Target.parse(target)).word_products
        assert found == products
        assert found <= {*WORD_PRODUCTS, "small_bytes", "moved_bytes"}


def test_floats_of_sixteen_bits_are_widened_where_that_is_an_instruction_or_two() -> None:
    for target, found in {
        "x86_64 -mcpu=x86-64-v2": ((bf16,), False),
        "x86_64 -mcpu=x86-64-v3": ((f16, bf16), False),
        "x86_64 -mcpu=x86-64-v4": ((f16, bf16), True),
        "aarch64 -mcpu=cortex-a72": ((f16, bf16), True),
        "riscv64": ((), False),
    }.items():
        machine = MachineModel.of(Target.parse(target))
        assert (machine.widened, machine.has_tall_tiles) == found, target
