"""What a library may use of the machine is what Python finds: numbers of threads, quotas of control groups of both versions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fakes.exported_library import compile_and_run
from tilewright.base import host, knobs
from tilewright.base.errors import UserError

NATIVE = Path(__file__).resolve().parents[5] / "native"
CPU_V1 = "sys/fs/cgroup/cpu/job"
BOTH_V1 = "sys/fs/cgroup/cpu,cpuacct/job"
CASES = {
    "none": ({}, 0),
    "version 2, an outer group": (
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
        },
        3,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "5:cpuset:/\n3:cpu,cpuacct:/job\n0::/\n",
            f"{CPU_V1}/cpu.cfs_quota_us": "50000\n",
            f"{CPU_V1}/cpu.cfs_period_us": "100000\n",
        },
        1,
    ),
    "version 1, the folder of two controllers": (
        {
            "proc/self/cgroup": "3:cpuacct,cpu:/job/inner\n",
            f"{BOTH_V1}/cpu.cfs_quota_us": "400000\n",
            f"{BOTH_V1}/cpu.cfs_period_us": "100000\n",
            f"{BOTH_V1}/inner/cpu.cfs_quota_us": "-1\n",
            f"{BOTH_V1}/inner/cpu.cfs_period_us": "100000\n",
        },
        4,
    ),
    "version 1, another controller": (
        {
            "proc/self/cgroup": "3:cpuset:/job\n",
            f"{CPU_V1}/cpu.cfs_quota_us": "50000\n",
            f"{CPU_V1}/cpu.cfs_period_us": "100000\n",
        },
        0,
    ),
    "the tighter one of both": (
        {
            "proc/self/cgroup": "1:cpu:/job\n0::/new\n",
            f"{CPU_V1}/cpu.cfs_quota_us": "200000\n",
            f"{CPU_V1}/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/new/cpu.max": "800000 100000\n",
        },
        2,
    ),
}
PROGRAM = """
#include <stdio.h>
#include "library/place.h"
int main(void) {
  for (int i = 0; i < COUNT; ++i) {
    char root[4096];
    snprintf(root, sizeof(root), "%s/%d", ROOT, i);
    printf("%u\\n", tw_place_quota(root));
  }
  return 0;
}
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


THREADS = """
#include <stdio.h>
#include <stdlib.h>
#include "library/place.h"
#include "tw_model.h"
int main(int count, char** texts) {
  for (int i = 1; i < count; ++i) {
    uint32_t found = 0;
    setenv("TILEWRIGHT_THREADS", texts[i], 1);
    if (tw_place_thread_count(&found) == TW_MODEL_OK) printf("%u%c", found, 0);
    else printf("%s%c", tw_error_text(), 0);
  }
  return 0;
}
"""
COUNTS = {
    "2": 2, " 2 ": 2, "\t\n\v\f\r2\t\n\v\f\r": 2, "4096": 4096, "007": 7, "0" * 17 + "2": 2,
    "": None, " ": None, "  ": None, "\n": None, "+2": None, "-0": None, "-1": None, " -1": None, "4097": None,
    "two": None, "2 2": None, "1e3": None, "0x2": None, "2\xa0": None, "\xa02": None, "\x1c2": None,
    "\u0662": None, "0" * 18 + "2": None, "9" * 40: None, "x" + "\xe9" * 60: None,
}  # fmt: skip


def run_place(program: str, folder: Path, *arguments: str) -> str:
    """What a program prints that is made of `place.c`."""
    return compile_and_run(
        program,
        folder,
        *(f"-I{NATIVE / part}" for part in ("include", "src", "src/program")),
        str(NATIVE / "src" / "library" / "place.c"),
        str(NATIVE / "src" / "program" / "error.c"),
        *(
            "-D_GNU_SOURCE",
            "-ldl",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
        ),
        arguments=arguments,
    )


def test_a_number_of_threads_is_the_same_in_c_and_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits with blanks around them; blanks alone were 0 in C, and what is said was cut within a character."""
    *in_c, end = run_place(THREADS, tmp_path, *COUNTS).split("\0")
    assert not end
    for (text, count), found in zip(COUNTS.items(), in_c, strict=True):
        monkeypatch.setenv("TILEWRIGHT_THREADS", text)
        if count is not None:
            assert (found, knobs.THREADS.get()) == (str(count), count)
            continue
        with pytest.raises(UserError) as caught:
            knobs.THREADS.get()
        told = f"TILEWRIGHT_THREADS: got '{text}', expected a number from 0 to 4096\nhint: "
        assert str(caught.value).startswith(told)
        assert found.startswith(told)


@pytest.mark.slow
def test_quotas_are_those_that_python_finds(tmp_path: Path) -> None:
    roots = [write(tmp_path / str(i), files) for i, (files, _) in enumerate(CASES.values())]
    out = run_place(
        PROGRAM.replace("ROOT", f'"{tmp_path}"').replace("COUNT", str(len(roots))), tmp_path
    )
    found = dict(zip(CASES, map(int, out.split()), strict=True))
    assert found == {name: cores for name, (_, cores) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_python_rounds_them_to_the_same_cores(name: str, tmp_path: Path) -> None:
    files, cores = CASES[name]
    quota = host.cgroup_quota(write(tmp_path, files))
    assert (0 if quota is None else max(1, math.floor(quota + 0.5))) == cores
