"""Changed bytecode is refused or fails with an error of ours; it never brings the process down."""

from __future__ import annotations

import random

import pytest

from fakes.vm_modules import arithmetic_module
from tilewright.base.errors import TilewrightError
from tilewright.formats.vmfb import archive_bytes, read_archive
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.ref import Instance

MUTATIONS = 25


@pytest.mark.thinned(2)
def test_mutated_arithmetic_runs_or_is_refused() -> None:
    data = archive_bytes(arithmetic_module())
    code = bytes(read_archive(data).bytecode)
    start = data.find(code)
    chooser = random.Random(7)
    refused = answered = 0
    for _ in range(MUTATIONS):
        changed = bytearray(data)
        for _ in range(chooser.choice((1, 2, 4))):
            changed[start + chooser.randrange(len(code))] = chooser.randrange(256)
        try:
            module = BytecodeModule(read_archive(bytes(changed)), Instance())
            context = Context([module])
        except TilewrightError:
            refused += 1
            continue
        for function in module.functions:
            arguments = [
                chooser.randrange(-(2**63), 2**63) for _ in function.convention.arguments
            ]
            try:
                context.lookup(f"{module.name}.{function.name}")(*arguments)
            except TilewrightError:
                continue
            answered += 1
    assert refused > MUTATIONS // 10
    assert answered > MUTATIONS
