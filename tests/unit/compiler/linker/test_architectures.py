from __future__ import annotations

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.compiler.linker.architectures import (
    ARCHITECTURES,
    Value,
    architecture_by_number,
)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_rule_writes_only_its_width(name: str) -> None:
    for rule in ARCHITECTURES[name].rules.values():
        if rule.value in (Value.REFUSED, Value.IGNORED):
            continue
        for value in (0, rule.multiple * 3, -rule.multiple, rule.high, rule.low):
            data = bytearray(b"\xff" * 32)
            rule.write(data, 8, value)
            assert len(data) == 32
            assert data[:8] == b"\xff" * 8
            assert data[8 + max(rule.width, 8) :] == b"\xff" * (24 - max(rule.width, 8))


def test_instruction_fields_are_put_where_the_machine_reads_them() -> None:
    arm = ARCHITECTURES["aarch64"].rules
    code = bytearray.fromhex("00000094")  # bl .
    arm[283].write(code, 0, -8)
    assert code == bytearray.fromhex("feffff97")
    code = bytearray.fromhex("00000090")  # adrp x0, .
    arm[275].write(code, 0, 0x5000)
    assert code == bytearray.fromhex("200000b0")
    riscv = ARCHITECTURES["riscv64"].rules
    code = bytearray.fromhex("ef000000")  # jal ra, .
    riscv[17].write(code, 0, 2048)
    assert code == bytearray.fromhex("ef001000")
    code = bytearray.fromhex("01a0")  # c.j .
    riscv[45].write(code, 0, -2)
    assert code == bytearray.fromhex("fdbf")


@pytest.mark.parametrize(
    ("before", "kind", "after", "offset"),
    [
        ("488b05 00000000", 42, "488d05 00000000", 3),
        ("ff15 00000000", 41, "67e8 00000000", 2),
        ("ff25 00000000", 41, "e9 00000000 90", 1),
    ],
)
def test_indirect_accesses_become_direct(
    before: str, kind: int, after: str, offset: int
) -> None:
    code = bytearray.fromhex(before)
    place = len(code) - 4
    assert ARCHITECTURES["x86_64"].relax(code, place, kind, -4) == (2, offset)
    if offset == 1:
        code[1:5] = b"\0" * 4
    assert code == bytearray.fromhex(after)


@pytest.mark.parametrize("before", ["483b05 00000000", "488305 00000000"])
def test_other_instructions_keep_their_table_slot(before: str) -> None:
    code = bytearray.fromhex(before)
    assert ARCHITECTURES["x86_64"].relax(code, 3, 42, -4) is None
    assert code == bytearray.fromhex(before)


def test_unknown_machines_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ArchiveError, match=r"ELF machine 8 .* 62 \(x86_64\)"):
        architecture_by_number(8, "a.o")
