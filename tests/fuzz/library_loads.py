"""Libraries with changed tables, loaded in a process each: how many end it.

What it is: a measure of how much of the damage `read_shared_library` sees.  Code is left as it is, because
nobody can tell right code from wrong; a constructor that becomes other code is such a case, too.
What it is not: about files that are refused (`format_mutations.py library`), nor about intent.
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/library_loads.py --count 4000
"""

from __future__ import annotations

import argparse
import collections
import lzma
import os
import random
import signal
import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tilewright.formats.elf.structures as elf
from fuzz import format_mutations as mutations
from tilewright.base.errors import TilewrightError
from tilewright.formats.elf.shared_library import read_shared_library
from tilewright.runtime import load_module

TIME_LIMIT_S = 10
TABLES_BYTES = 2304  # in front of the code: where most changes go


def library() -> bytes:
    """A library of TVM's, without the blob that another test is about."""
    data = lzma.decompress((mutations.LIBRARIES / "tvm_0_27_mlp.so.xz").read_bytes())
    return data.replace(b"__tvm_ffi__library_bin\0", b"__tvm_ffi__library_xyz\0")


def changed(data: bytes, number: int) -> bytes:
    """The library with one to three changes outside of its code."""
    chooser = random.Random(f"loads:{number}")
    made = bytearray(data)
    reach = len(data) if chooser.random() < 0.3 else TABLES_BYTES
    for _ in range(chooser.choice((1, 1, 1, 2, 3))):
        change = chooser.choice(
            (mutations._flip, mutations._byte, mutations._number, mutations._copy)
        )
        change(made, chooser, reach)
    made = made[: len(data)].ljust(len(data), b"\0")
    (headers,) = struct.unpack_from("<Q", data, 32)
    for at in range(headers, headers + 56 * data[56], 56):
        kind, flags, begin, _, _, length = elf.PROGRAM_HEADER.unpack_from(data, at)[:6]
        if kind == elf.PT_LOAD and flags & elf.PF_X:
            made[begin : begin + length] = data[begin : begin + length]
    return bytes(made)


def load_elsewhere(path: Path) -> str:
    """What becomes of a process that loads a file."""
    child = os.fork()
    if child == 0:
        signal.alarm(TIME_LIMIT_S)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            load_module(path)
        except TilewrightError:
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)}"
    words = {0: "loaded", 1: "refused by the system", 2: "another exception"}
    return words.get(os.WEXITSTATUS(status), f"ended with {os.WEXITSTATUS(status)}")


def main() -> None:
    """Run a range of inputs; print those that end the process, and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    data = library()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "changed.so"
        path.write_bytes(data)
        load_module(path)  # everything that loading imports
        for number in range(options.first, options.first + options.count):
            made = changed(data, number)
            try:
                read_shared_library(made)
            except TilewrightError:
                counts["refused"] += 1
                continue
            path.unlink()
            path.write_bytes(made)
            outcome = load_elsewhere(path)
            counts[outcome] += 1
            if outcome.startswith(("ended", "another")):
                places = [hex(i) for i in range(len(data)) if data[i] != made[i]]
                sys.stdout.write(f"{number}: {outcome}: {' '.join(places[:8])}\n")
    sys.stdout.write(f"{dict(counts)}\n")


if __name__ == "__main__":
    main()
