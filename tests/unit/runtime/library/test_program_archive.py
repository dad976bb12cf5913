"""Archives of numpy that a program reads may lie in every byte: nothing beside them is read."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime.library import export

# Reads every archive that is named, the good and the bad, in one process.
READER = """
#include <setjmp.h>
#include <stdlib.h>
static jmp_buf again;
#define exit(code) longjmp(again, 1)
#include "program_archive.h"
#undef exit
int main(int argc, char** argv) {
  (void)argc;
  int read = 0;
  for (char** path = argv + 1; *path; ++path) {
    if (setjmp(again)) continue;
    archive_t archive = open_archive(*path, *path);
    for (size_t i = 0; i < archive.count; ++i) {
      array_t array = {0};
      (void)is_called(&archive.entries[i], "name");
      read_member(&archive.entries[i], &array, *path);
      free(array.data);
    }
    close_archive(&archive);
    printf("%d\\n", ++read);
  }
  return 0;
}
"""


def mutated(data: bytes, random: np.random.Generator) -> bytes:
    """The file with some bytes replaced, mostly where sizes and offsets are, or cut."""
    out = bytearray(data)
    for _ in range(int(random.integers(1, 5))):
        end = random.random() < 0.6
        at = int(random.integers(max(0, len(out) - 300) if end else 0, len(out)))
        out[at] = int(random.choice([0, 1, 0x7F, 0x80, 0xFF, random.integers(256)]))
    return bytes(out[: int(random.integers(1, len(out)))] if random.random() < 0.1 else out)


@pytest.mark.slow
def test_archives_that_lie_are_never_read_beside(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    seeds: list[bytes] = []
    for count in (1, 3):
        stream = io.BytesIO()
        np.savez(stream, *[np.ones((3, 2), np.float32).T] * count)
        seeds.append(stream.getvalue())
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as archive:
        with archive.open("a.npy", "w", force_zip64=True) as entry:
            np.lib.format.write_array(entry, np.zeros((2, 0)))
        archive.comment = b"a comment"
    seeds.append(stream.getvalue())
    names = [f"{i}.npz" for i in range(3000)]
    for i, name in enumerate(names):
        data = seeds[i % len(seeds)]
        (tmp_path / name).write_bytes(mutated(data, random) if i >= len(seeds) else data)
    (tmp_path / "reader.c").write_text(READER)
    compiler = shutil.which("cc") or pytest.skip("no compiler of the system")
    folder = Path(export.__file__).parent
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-w", "-g", "-O1"]
    built = subprocess.run(
        [compiler, *flags, f"-I{folder}", "reader.c", "-o", "reader", "-lm"],
        cwd=tmp_path,
        check=False,
    )
    if built.returncode:
        pytest.skip("the compiler has no such sanitizer")
    options = "detect_leaks=0:allocator_may_return_null=1"
    done = subprocess.run(
        ["./reader", *names],
        cwd=tmp_path,
        env={**os.environ, "ASAN_OPTIONS": options},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > len(seeds)
