from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from pathlib import Path
from tilewright.runtime.native import give_back_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

class Held: pass

# Blocks too small for pages of their own, in cycles; every 1000th keeps the heap from shrinking by itself.
gc.disable()
kept = []
for number in range(40_000):
    held = Held()
    held.own, held.data = held, bytes(2000)
    if number % 1000 == 0:
        kept.append(bytes(2000))
del held
before = resident()
give_back_freed_memory()
assert before - resident() > 20 << 20, (before, resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_what_was_freed_goes_back_to_the_system() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
