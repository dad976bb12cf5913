"""The texts about Relax executables are TVM's, character by character."""

from __future__ import annotations

import pytest

from fakes.relax_executables import RELEASES, stored_executables
from tilewright.formats.relax_executable import (
    format_builder_calls,
    format_executable,
    format_statistics,
    read_relax_executable,
)


@pytest.mark.parametrize("release", RELEASES)
def test_listing_and_statistics_are_those_of_tvm(release: str) -> None:
    for stored in stored_executables(release).values():
        executable = read_relax_executable(stored.data)
        assert format_executable(executable) == stored.text
        # TVM cuts the bracket of an empty shape off
        expected = stored.statistics.replace("shapetupl]", "shapetuple[]")
        assert format_statistics(executable) == expected


def test_builder_calls_name_registers_constants_and_jumps() -> None:
    data = stored_executables("0.27")["loop.bytecode"].data
    lines = format_builder_calls(read_relax_executable(data)).splitlines()
    assert lines[:3] == [
        "ib = rx.Builder()",
        'with ib.function("main", num_inputs=1):',
        '    ib.emit_call("vm.builtin.alloc_shape_heap", args=[ib.r(vm), ib.imm(1)], dst=ib.r(1))',
    ]
    assert '    ib.emit_call("step", args=[ib.c(2), ib.r(0)], dst=ib.r(2))' in lines
    assert "    ib.emit_goto(2)" in lines
    assert "    ib.emit_ret(ib.r(17))" in lines
