"""Records what IREE's interpreter answers, for the tests that compare ours with it.

Run by hand with the extra `interop` installed, whenever cases are added:

    python tests/conformance/vm/record_iree.py

What it is not: a test.  Writes `iree_arithmetic.json` beside itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import iree.runtime as iree  # noqa: E402 - after the path

from fakes.vm_modules import (  # noqa: E402
    arithmetic_module,
    arithmetic_opcodes,
    operands_of,
)
from tilewright.formats.vmfb import write_archive  # noqa: E402


def main() -> None:
    instance = iree.VmInstance()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "arithmetic.vmfb")
        write_archive(arithmetic_module(), path)
        module = iree.VmModule.mmap(instance, str(path))
        context = iree.VmContext(instance, [module])
        table = {
            opcode.name: [
                [*row, call(context, module.lookup_function(opcode.name), row)]
                for row in operands_of(opcode)
            ]
            for opcode in arithmetic_opcodes()
        }
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(rows, separators=(',', ':'))}"
        for name, rows in table.items()
    )
    Path(HERE, "iree_arithmetic.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    sys.stdout.write(f"{len(table)} opcodes, {sum(map(len, table.values()))} cases\n")


def call(context: object, function: object, row: tuple[int, ...]) -> int:
    arguments, results = iree.VmVariantList(len(row)), iree.VmVariantList(1)
    for value in row:
        arguments.push_int(value)
    context.invoke(function, arguments, results)
    return results.get_variant(0)


if __name__ == "__main__":
    main()
