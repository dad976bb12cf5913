from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.base import host
from tilewright.base.target import LEVELS


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_x86_flags_get_the_names_of_llvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    _write(
        tmp_path / "proc/cpuinfo",
        "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 17\n"
        "flags\t: pni sse4_1 bmi1 abm avx512_vnni avx512f hypervisor\n\nvendor_id : x\n",
    )
    seen = host.describe(tmp_path, {})
    assert seen.cpu == "znver4"
    assert seen.features == {"sse3", "sse4.1", "bmi", "lzcnt", "avx512vnni", "avx512f"}


def test_an_unknown_x86_model_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    _write(tmp_path / "proc/cpuinfo", "vendor_id : Other\nflags : sse2 avx\n")
    seen = host.describe(tmp_path, {})
    assert (seen.arch, seen.cpu, seen.features) == ("x86_64", "", {"sse2", "avx"})


def test_arm_and_riscv_features_are_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    _write(tmp_path / "proc/cpuinfo", "Features : fp asimd asimddp\n")
    assert host.describe(tmp_path, {}).features == {"fp-armv8", "neon", "dotprod"}
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    _write(tmp_path / "proc/cpuinfo", "isa : rv64gcv_zba\n")
    assert host.describe(tmp_path, {}).features == frozenset("imafdcv")


def test_a_file_that_lists_what_the_processor_does_not_show_is_that_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    row = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nflags : "
    _write(tmp_path / "proc/cpuinfo", row + "sse2 sse4_2 sse4a avx avx2 fma avx_vnni\n")
    table = {"SSE2": True, "SSE42": True, "AVX": True, "AVX2": True, "FMA3": True}
    assert host.describe(tmp_path, table).cpu == "znver4"
    assert "avxvnni" in host.describe(tmp_path, table).features
    seen = host.describe(tmp_path, {**table, "AVX2": False})
    assert seen.cpu == ""
    assert seen.features == {"sse2", "sse4.2", "avx", "fma", "xsave"}
    more = host.describe(tmp_path, {**table, "AVX512F": True, "VNNI": False})
    assert "avx512f" not in more.features


def test_this_machine_shows_what_its_file_lists() -> None:
    seen = host.describe()
    assert seen == host.describe(detected={}) or not Path("/proc/cpuinfo").exists()


@pytest.mark.parametrize("name", ["NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"])
def test_what_numpy_was_told_to_leave_out_is_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numpy's own settings take features out of its table that the processor has."""
    if host.architecture() != "x86_64" or not Path("/proc/cpuinfo").exists():
        pytest.skip("reads /proc/cpuinfo of x86-64")
    seen = host.describe(detected={})
    monkeypatch.setenv(name, "AVX2")
    assert host.describe(detected={"SSE3": False, "SSE2": True}) == seen


def test_without_any_file_numpy_tells_the_features_and_caches_have_defaults(
    tmp_path: Path,
) -> None:
    seen = host.describe(tmp_path)
    assert seen.caches == host.Caches()
    if seen.arch == "x86_64":
        assert "sse2" in seen.features


def test_numpy_tells_of_whole_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    names = host._NUMPY_FLAGS
    for level in ("v2", "v3"):
        wanted = LEVELS[level] - LEVELS["v1"]
        known = {name: names[name] in wanted for name in names}
        core = SimpleNamespace(_multiarray_umath=SimpleNamespace(__cpu_features__=known))
        monkeypatch.setattr("numpy._core", core)
        assert host.describe(tmp_path).features == wanted


def test_caches_come_from_sysfs(tmp_path: Path) -> None:
    rows = (("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"))
    for number, (level, kind, size) in enumerate(rows):
        folder = tmp_path / f"index{number}"
        _write(folder / "level", level)
        _write(folder / "type", kind)
        _write(folder / "size", size)
        _write(folder / "ways_of_associativity", "12")
        _write(folder / "coherency_line_size", "64")
    found = host.read_caches(tmp_path)
    assert found == host.Caches(
        l1d_bytes=48 << 10, l1d_ways=12, l2_bytes=2 << 20, l3_bytes=0, line_bytes=64
    )


def test_cgroup_v2_quota_of_an_outer_group_counts(tmp_path: Path) -> None:
    _write(tmp_path / "proc/self/cgroup", "0::/outer/inner\n")
    _write(tmp_path / "sys/fs/cgroup/outer/cpu.max", "150000 100000")
    _write(tmp_path / "sys/fs/cgroup/outer/inner/cpu.max", "max 100000")
    assert host.cgroup_quota(tmp_path) == 1.5


def test_cgroup_v1_quota_counts(tmp_path: Path) -> None:
    _write(tmp_path / "proc/self/cgroup", "3:cpu,cpuacct:/job\n0::/\n")
    _write(tmp_path / "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000")
    _write(tmp_path / "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
    assert host.cgroup_quota(tmp_path) == 0.5
    assert host.usable_cores(tmp_path) == 1


def test_without_quota_the_affinity_mask_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 3, 5}, raising=False)
    assert host.cgroup_quota(tmp_path) is None
    assert host.usable_cores(tmp_path) == 3
