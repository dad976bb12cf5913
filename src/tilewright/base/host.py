"""The machine this process runs on: CPU model, features, caches and the cores we may use.

Reads what the operating system publishes (`/proc/cpuinfo`, sysfs, cgroups, the affinity mask).  Where there is no such
file, or it lists what the CPU does not show this process (an emulator, CPUID under a mask), numpy's own detection
is asked.  Not a target (see `target`): this is
raw observation, and every reader has a fallback, so a missing file never is an error.  Called by
`Target.host()` and by the runtime to size its worker pool.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import numpy as np

from tilewright.base.knobs import numpy_is_told
from tilewright.base.record import record
from tilewright.base.text import whole_number

# Spellings of LLVM for the flags that Linux prints differently; all others lose their underscores.
_LINUX_FLAGS: Final = {
    "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "bmi1": "bmi", "abm": "lzcnt",
    "lahf_lm": "sahf",
    "avx512_bf16": "avx512bf16", "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx_vnni": "avxvnni", "amx_tile": "amx-tile", "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16", "amx_fp16": "amx-fp16", "avx512_fp16": "avx512fp16",
    "avx_ifma": "avxifma", "avx_vnni_int8": "avxvnniint8",
}  # fmt: skip
# The features that matter to kernels; what else a CPU has is left out of targets. MIRROR PROCESSOR FEATURES.
_LLVM_X86: Final = frozenset({
    "amx-bf16", "amx-fp16", "amx-int8", "amx-tile", "avx", "avx2", "avx512bf16", "avx512bitalg",
    "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512fp16", "avx512ifma", "avx512vbmi",
    "avx512vbmi2", "avx512vl", "avx512vnni", "avx512vpopcntdq", "avxifma", "avxvnni",
    "avxvnniint8", "bmi", "bmi2", "cx16", "cx8", "f16c", "fma", "fxsr", "gfni", "lzcnt", "mmx",
    "movbe", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "sse4a", "ssse3",
    "vaes", "xsave",
})  # fmt: skip
_LINUX_ARM: Final = {
    "fp": "fp-armv8", "asimd": "neon", "aes": "aes", "sha2": "sha2", "crc32": "crc",
    "atomics": "lse", "fphp": "fullfp16", "asimddp": "dotprod", "sve": "sve", "sve2": "sve2",
    "i8mm": "i8mm", "bf16": "bf16", "asimdfhm": "fp16fml",
}  # fmt: skip
_NUMPY_FLAGS: Final = {
    "SSE": "sse", "SSE2": "sse2", "SSE3": "sse3", "SSSE3": "ssse3", "SSE41": "sse4.1",
    "SSE42": "sse4.2", "POPCNT": "popcnt", "AVX": "avx", "F16C": "f16c", "FMA3": "fma",
    "AVX2": "avx2", "AVX512F": "avx512f", "AVX512CD": "avx512cd", "AVX512VL": "avx512vl",
    "AVX512BW": "avx512bw", "AVX512DQ": "avx512dq", "AVX512VNNI": "avx512vnni",
    "AVX512IFMA": "avx512ifma", "AVX512VBMI": "avx512vbmi", "AVX512VBMI2": "avx512vbmi2",
    "AVX512BITALG": "avx512bitalg", "AVX512FP16": "avx512fp16", "NEON": "neon",
    "ASIMDHP": "fullfp16", "ASIMDDP": "dotprod", "SVE": "sve", "BMI": "bmi", "BMI2": "bmi2",
    "LZCNT": "lzcnt", "MOVBE": "movbe", "CX16": "cx16", "LAHF": "sahf",
}  # fmt: skip
# CPUs by (vendor, family) and a range of models; the name is LLVM's.
_X86_MODELS: Final[tuple[tuple[str, int, int, int, str], ...]] = (
    ("AuthenticAMD", 0x17, 0x00, 0x2F, "znver1"),
    ("AuthenticAMD", 0x17, 0x30, 0xFF, "znver2"),
    ("AuthenticAMD", 0x19, 0x00, 0x0F, "znver3"),
    ("AuthenticAMD", 0x19, 0x10, 0x1F, "znver4"),
    ("AuthenticAMD", 0x19, 0x20, 0x5F, "znver3"),
    ("AuthenticAMD", 0x19, 0x60, 0xAF, "znver4"),
    ("AuthenticAMD", 0x1A, 0x00, 0xFF, "znver5"),
    ("GenuineIntel", 6, 0x3C, 0x3C, "haswell"),
    ("GenuineIntel", 6, 0x3F, 0x3F, "haswell"),
    ("GenuineIntel", 6, 0x3D, 0x3D, "broadwell"),
    ("GenuineIntel", 6, 0x4F, 0x4F, "broadwell"),
    ("GenuineIntel", 6, 0x55, 0x55, "skylake-avx512"),
    ("GenuineIntel", 6, 0x4E, 0x5E, "skylake"),
    ("GenuineIntel", 6, 0x8E, 0x9E, "skylake"),
    ("GenuineIntel", 6, 0x6A, 0x6C, "icelake-server"),
    ("GenuineIntel", 6, 0x7D, 0x7E, "icelake-client"),
    ("GenuineIntel", 6, 0x8C, 0x8D, "tigerlake"),
    ("GenuineIntel", 6, 0x8F, 0x8F, "sapphirerapids"),
    ("GenuineIntel", 6, 0xCF, 0xCF, "emeraldrapids"),
    ("GenuineIntel", 6, 0xAD, 0xAE, "graniterapids"),
    ("GenuineIntel", 6, 0x97, 0x9A, "alderlake"),
    ("GenuineIntel", 6, 0xB7, 0xBF, "raptorlake"),
)
_ARCHITECTURES: Final = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


@final
@record(kw_only=True)
class Caches:
    """Data caches as one core sees them.  Units: bytes; 0 = there is none."""

    l1d_bytes: int = 32 << 10
    l1d_ways: int = 8
    l2_bytes: int = 512 << 10
    l3_bytes: int = 0
    line_bytes: int = 64


@final
@record(kw_only=True)
class HostCpu:
    """What this machine's CPU is.  `cpu` is LLVM's name, empty when unknown."""

    arch: str
    os: str
    cpu: str
    features: frozenset[str]
    caches: Caches


def describe(root: Path = Path("/"), detected: Mapping[str, bool] | None = None) -> HostCpu:
    """Observe the machine.

    Args:
        root: replaces the file system's root in tests.
        detected: what the CPU tells this process it has, by numpy's names; default: what numpy found.
    """
    arch = architecture()
    table = _numpy_table() if detected is None else detected
    rows = _cpuinfo(root / "proc/cpuinfo")
    cpu, features = _READERS.get(arch, _read_unknown)(rows)
    # What numpy was told to leave out is there all the same.
    missing = frozenset[str]() if numpy_is_told() else _features(table, has=False)
    if not features or features & missing:
        cpu, features = "", _features(table, has=True)
    return HostCpu(
        arch=arch,
        os=_operating_system(),
        cpu=cpu,
        features=features,
        caches=read_caches(root / "sys/devices/system/cpu/cpu0/cache"),
    )


def architecture() -> str:
    """The instruction set, as targets and images name it."""
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, machine) or "x86_64"


def _operating_system() -> str:
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def _cpuinfo(path: Path) -> Mapping[str, str]:
    """The first processor's rows of /proc/cpuinfo; empty when there is no such file."""
    rows: dict[str, str] = {}
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return rows
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        rows[key.strip().lower()] = value.strip()
    return rows


def _read_x86(rows: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    flags = frozenset(
        _LINUX_FLAGS.get(flag, flag.replace("_", ""))
        for flag in rows.get("flags", "").split()
    )
    vendor = rows.get("vendor_id", "")
    family, model = _number(rows.get("cpu family")), _number(rows.get("model"))
    for row_vendor, row_family, low, high, name in _X86_MODELS:
        if vendor == row_vendor and family == row_family and low <= model <= high:
            return name, flags & _LLVM_X86
    return "", flags & _LLVM_X86


def _read_arm(rows: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    flags = rows.get("features", "").split()
    return "", frozenset(_LINUX_ARM[flag] for flag in flags if flag in _LINUX_ARM)


def _read_riscv(rows: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    isa = rows.get("isa", "")
    letters = isa.removeprefix("rv64").split("_", 1)[0].replace("g", "imafd")
    return "", frozenset(letters) & frozenset("imafdcv")


def _read_unknown(rows: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    del rows
    return "", frozenset()


_READERS: Final = {"x86_64": _read_x86, "aarch64": _read_arm, "riscv64": _read_riscv}


def _numpy_table() -> Mapping[str, bool]:
    core: object = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
    return getattr(core, "__cpu_features__", {})


def _features(table: Mapping[str, bool], *, has: bool) -> frozenset[str]:
    """The features that numpy found, or those that it looked for and did not find."""
    found = {llvm for name, llvm in _NUMPY_FLAGS.items() if table.get(name) is has}
    # What saves the registers of AVX, where the system does; numpy has no name for it.
    return frozenset(found | {"xsave"} if has and "avx" in found else found)


def _number(text: str | None) -> int:
    number = None if text is None else whole_number(text)
    return -1 if number is None else number


def read_caches(folder: Path) -> Caches:
    """The caches that sysfs lists under `folder`; defaults where it is silent."""
    found: dict[str, int] = {}
    for entry in sorted(folder.glob("index*")):
        if _text(entry / "type") not in ("Data", "Unified"):
            continue
        level, size = _text(entry / "level"), _size_bytes(_text(entry / "size"))
        if level == "1":
            found["l1d_bytes"] = size
            found["l1d_ways"] = max(1, _number(_text(entry / "ways_of_associativity")))
            found["line_bytes"] = max(16, _number(_text(entry / "coherency_line_size")))
        elif level in ("2", "3"):
            found[f"l{level}_bytes"] = size
    return Caches(**{name: value for name, value in found.items() if value > 0})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _size_bytes(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if unit else text
    return (whole_number(digits) or 0) * (unit or 1)


def usable_cores(root: Path = Path("/")) -> int:
    """How many cores this process may keep busy: affinity mask and cgroup quota, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cgroup_quota(root)
    return count if quota is None else max(1, min(count, math.floor(quota + 0.5)))


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of CPU time the tightest enclosing cgroup grants, or None if unlimited.

    MIRROR QUOTA: `native/src/library/place.c`.
    """
    quotas = [_quota_v2(root, path) for path in _cgroup_paths(root, "")]
    quotas += [_quota_v1(root, path) for path in _cgroup_paths(root, "cpu")]
    limits = [quota for quota in quotas if quota is not None]
    return min(limits) if limits else None


def _cgroup_paths(root: Path, controller: str) -> list[str]:
    """The process's cgroup for `controller` ("" = v2) and all its parents, inner first."""
    paths = ["/"]
    for line in _text(root / "proc/self/cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and controller in fields[1].split(","):
            inner = fields[2]
            paths = [inner, *(str(parent) for parent in Path(inner).parents)]
    return list(dict.fromkeys(paths))


def _quota_v2(root: Path, path: str) -> float | None:
    words = _text(root / "sys/fs/cgroup" / path.lstrip("/") / "cpu.max").split()
    if len(words) != 2 or not words[0].isdigit() or _number(words[1]) <= 0:
        return None
    return int(words[0]) / int(words[1])


def _quota_v1(root: Path, path: str) -> float | None:
    for mount in ("cpu", "cpu,cpuacct"):
        folder = root / "sys/fs/cgroup" / mount / path.lstrip("/")
        quota = _number(_text(folder / "cpu.cfs_quota_us"))
        period = _number(_text(folder / "cpu.cfs_period_us"))
        if quota > 0 and period > 0:
            return quota / period
    return None
