"""What a library may use of the machine is what Python finds: quotas of control groups of both versions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fakes.exported_library import compile_and_run
from tilewright.base import host

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


def test_quotas_are_those_that_python_finds(tmp_path: Path) -> None:
    roots = [write(tmp_path / str(i), files) for i, (files, _) in enumerate(CASES.values())]
    out = compile_and_run(
        PROGRAM.replace("ROOT", f'"{tmp_path}"').replace("COUNT", str(len(roots))),
        tmp_path,
        *(f"-I{NATIVE / part}" for part in ("include", "src", "src/program")),
        str(NATIVE / "src" / "library" / "place.c"),
        str(NATIVE / "src" / "program" / "error.c"),
        *(
            "-D_GNU_SOURCE",
            "-ldl",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
        ),
    )
    found = dict(zip(CASES, map(int, out.split()), strict=True))
    assert found == {name: cores for name, (_, cores) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_python_rounds_them_to_the_same_cores(name: str, tmp_path: Path) -> None:
    files, cores = CASES[name]
    quota = host.cgroup_quota(write(tmp_path, files))
    assert (0 if quota is None else max(1, math.floor(quota + 0.5))) == cores
