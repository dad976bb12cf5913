"""Records what IREE's interpreter answers, for the tests that compare ours with it.

Run by hand with the extra `interop` installed, whenever cases are added:

    python tests/conformance/vm/record_iree.py

What it is not: a test.  Writes `iree_arithmetic.json`, `iree_programs.json` and `iree_failures.json`
beside itself.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

STATUSES = range(1, 17)  # IREE's runtime does not come back from 17
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import iree.runtime as iree  # noqa: E402 - after the path

from fakes.vm_modules import (  # noqa: E402
    arithmetic_module,
    arithmetic_opcodes,
    operands_of,
)
from fakes.vm_programs import (  # noqa: E402
    OURS_ALONE,
    PROGRAMS,
    failing_module,
    program_module,
)
from tilewright.formats.vmfb import ModuleDef, archive_bytes  # noqa: E402


def main() -> None:
    arithmetic = Machine(arithmetic_module())
    table = {
        opcode.name: [
            [*row, arithmetic.call(opcode.name, row)] for row in operands_of(opcode)
        ]
        for opcode in arithmetic_opcodes()
    }
    write("iree_arithmetic.json", table)
    programs = Machine(program_module(without=OURS_ALONE))
    names = [name for name in PROGRAMS if name not in OURS_ALONE]
    write("iree_programs.json", {name: programs.call(name, ()) for name in names})
    failures = Machine(failing_module())
    write("iree_failures.json", {str(n): failures.failure("fail", n) for n in STATUSES})


def write(name: str, table: dict[str, object]) -> None:
    lines = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
        for key, value in table.items()
    )
    Path(HERE, name).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


class Machine:
    """A module in IREE's runtime."""

    def __init__(self, module: ModuleDef) -> None:
        instance = iree.VmInstance()
        self.module = iree.VmModule.copy_buffer(instance, archive_bytes(module))
        self.context = iree.VmContext(instance, [self.module])

    def call(self, name: str, row: tuple[int, ...]) -> int:
        arguments, results = iree.VmVariantList(len(row)), iree.VmVariantList(1)
        for value in row:
            arguments.push_int(value)
        self.context.invoke(self.module.lookup_function(name), arguments, results)
        return results.get_variant(0)

    def failure(self, name: str, status: int) -> list[str]:
        """The status and the message of a call that fails."""
        arguments = iree.VmVariantList(1)
        arguments.push_int(status)
        try:
            self.context.invoke(
                self.module.lookup_function(name), arguments, iree.VmVariantList(0)
            )
        except Exception as error:
            found = re.search(r"\b([A-Z_]+); ([^;]*);", str(error))
            if found is None:
                raise
            return list(found.groups())
        raise AssertionError(f"{name}({status}) did not fail")


if __name__ == "__main__":
    main()
