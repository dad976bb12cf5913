"""Targets: which CPU code is made for and by what, and what a schedule needs to know about it.

A `Target` is plain data: back end, architecture, operating system, CPU name, features (LLVM's spellings)
and caches.  Not a code generator's option set and not the running machine (`host` observes that;
`Target.host()` turns it into a target).  Called by schedules, code generators, the command line
and the loaders that pick the best code of a fat artifact.

Text form: `[BACKEND] ARCH[-OS] [-mcpu=NAME] [-mattr=+a,-b] [-l1d=32K] [-l2=1M] [-l3=32M]`, also `host` and
an x86-64 level (`v3`, `x86_64-v3`); after the word of a back end the architecture may be left out.
`str(target)` reads back as an equal target.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import replace
from typing import Final, final

from tilewright.base import host
from tilewright.base.dtypes import DType
from tilewright.base.errors import TargetError
from tilewright.base.host import Caches
from tilewright.base.llvm_features import NEEDED, llvm_features, needed_by
from tilewright.base.record import record
from tilewright.base.text import did_you_mean, whole_number

BACKENDS: Final = {
    "cpu": "machine code, made by LLVM; what a target without such a word asks for",
    "c": "C for any compiler; alone for any CPU, so without vectors",
}
"""The words for back ends; `compiler.backends` has a folder for each."""
ANY_CPU: Final = "any"
"""The CPU of which nothing is expected but what every one of its architecture does."""

# --- feature tables ----------------------------------------------------------------------------
# Source: x86-64 psABI, "Micro-Architecture Levels"; LLVM's processor tables for the CPU rows.


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_V1: Final = _names("cx8 fxsr mmx sse sse2")
_V2: Final = _V1 | _names("cx16 popcnt sahf sse3 ssse3 sse4.1 sse4.2")
_V3: Final = _V2 | _names("avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave")
_V4: Final = _V3 | _names("avx512f avx512bw avx512cd avx512dq avx512vl")
LEVELS: Final = {"v1": _V1, "v2": _V2, "v3": _V3, "v4": _V4}
"""The x86-64 levels, weakest first."""

_ICE: Final = _V4 | _names(
    "avx512vnni avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq gfni vaes"
)
_SAPPHIRE: Final = _ICE | _names("avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16")
_DEFAULT_CACHES: Final = Caches()
_NEON: Final = frozenset({"neon", "fp-armv8"})
_N1: Final = _NEON | frozenset({"crc", "lse", "dotprod", "fullfp16"})


@final
@record
class _Cpu:
    """One row: the features and caches that come with a CPU name, and LLVM's name where it differs."""

    features: frozenset[str]
    caches: Caches = _DEFAULT_CACHES
    llvm: str = ""


def _caches(l1d_kib: int, l2_kib: int, l3_kib: int, ways: int = 8) -> Caches:
    return Caches(
        l1d_bytes=l1d_kib << 10, l2_bytes=l2_kib << 10, l3_bytes=l3_kib << 10, l1d_ways=ways
    )


_X86_CPUS: Final[dict[str, _Cpu]] = {
    ANY_CPU: _Cpu(frozenset(), llvm="x86-64"),
    "x86-64": _Cpu(_V1),
    "x86-64-v2": _Cpu(_V2),
    "x86-64-v3": _Cpu(_V3, _caches(32, 512, 8192)),
    "x86-64-v4": _Cpu(_V4, _caches(32, 1024, 16384)),
    "haswell": _Cpu(_V3, _caches(32, 256, 8192)),
    "broadwell": _Cpu(_V3, _caches(32, 256, 8192)),
    "skylake": _Cpu(_V3, _caches(32, 256, 8192)),
    "skylake-avx512": _Cpu(_V4, _caches(32, 1024, 16384)),
    "cascadelake": _Cpu(_V4 | {"avx512vnni"}, _caches(32, 1024, 16384)),
    "icelake-client": _Cpu(_ICE, _caches(48, 512, 8192, 12)),
    "icelake-server": _Cpu(_ICE, _caches(48, 1280, 32768, 12)),
    "tigerlake": _Cpu(_ICE, _caches(48, 1280, 12288, 12)),
    "sapphirerapids": _Cpu(_SAPPHIRE, _caches(48, 2048, 65536, 12)),
    "emeraldrapids": _Cpu(_SAPPHIRE, _caches(48, 2048, 65536, 12)),
    "graniterapids": _Cpu(_SAPPHIRE | {"amx-fp16"}, _caches(48, 2048, 65536, 12)),
    "alderlake": _Cpu(_V3 | {"avxvnni", "gfni", "vaes"}, _caches(48, 1280, 12288, 12)),
    "raptorlake": _Cpu(_V3 | {"avxvnni", "gfni", "vaes"}, _caches(48, 2048, 24576, 12)),
    "znver1": _Cpu(_V3 | {"sse4a"}, _caches(32, 512, 8192)),
    "znver2": _Cpu(_V3 | {"sse4a"}, _caches(32, 512, 16384)),
    "znver3": _Cpu(_V3 | {"sse4a", "vaes"}, _caches(32, 512, 32768)),
    "znver4": _Cpu(_ICE | {"avx512bf16", "sse4a"}, _caches(32, 1024, 32768)),
    "znver5": _Cpu(_ICE | {"avx512bf16", "avxvnni", "sse4a"}, _caches(48, 1024, 32768, 12)),
}
_ARM_CPUS: Final[dict[str, _Cpu]] = {
    ANY_CPU: _Cpu(frozenset(), llvm="generic"),
    "generic": _Cpu(_NEON),
    "cortex-a53": _Cpu(_NEON | {"crc"}, _caches(32, 512, 0, 4)),
    "cortex-a72": _Cpu(_NEON | {"crc"}, _caches(32, 1024, 0, 2)),
    "cortex-a76": _Cpu(_N1, _caches(64, 512, 2048, 4)),
    "neoverse-n1": _Cpu(_N1, _caches(64, 1024, 32768, 4)),
    "neoverse-n2": _Cpu(_N1 | {"sve", "sve2", "bf16", "i8mm"}, _caches(64, 1024, 32768, 4)),
    "neoverse-v1": _Cpu(_N1 | {"sve", "bf16", "i8mm"}, _caches(64, 1024, 32768, 4)),
    "neoverse-v2": _Cpu(_N1 | {"sve", "sve2", "bf16", "i8mm"}, _caches(64, 2048, 32768, 4)),
    "apple-m1": _Cpu(_N1, _caches(128, 4096, 8192)),
}
_RISCV_CPUS: Final[dict[str, _Cpu]] = {
    ANY_CPU: _Cpu(frozenset("imafdc"), llvm="generic-rv64"),
    "generic-rv64": _Cpu(frozenset("imafdc")),
    "generic-rv64v": _Cpu(frozenset("imafdcv"), llvm="generic-rv64"),
}
_CPUS: Final = {"x86_64": _X86_CPUS, "aarch64": _ARM_CPUS, "riscv64": _RISCV_CPUS}
_GENERIC: Final = {"x86_64": "x86-64-v2", "aarch64": "generic", "riscv64": "generic-rv64"}
_VECTORS: Final = {"x86_64": "sse2", "aarch64": "neon", "riscv64": "v"}
_FMA: Final = {"x86_64": "fma", "aarch64": "fp-armv8", "riscv64": "f"}
_ARCHITECTURES: Final = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}
_SYSTEMS: Final = {
    "linux": "linux", "gnu": "linux", "musl": "linux", "macos": "macos", "darwin": "macos",
    "windows": "windows", "win32": "windows",
}  # fmt: skip
_TRIPLE_NOISE: Final = frozenset({"unknown", "pc", "apple", "none", "elf", "eabi", "msvc"})


@final
@record(kw_only=True)
class Target:
    """One CPU to make code for.

    Attributes:
        backend: what makes the code: a word of `BACKENDS`.
        arch: `x86_64`, `aarch64` or `riscv64`.
        os: `linux`, `macos` or `windows`.
        cpu: LLVM's name of the CPU.
        features: LLVM's names, without sign.
        caches: sizes in bytes.
    """

    arch: str = "x86_64"
    os: str = "linux"
    cpu: str = "x86-64-v2"
    features: frozenset[str] = _V2
    caches: Caches = _DEFAULT_CACHES
    backend: str = "cpu"

    # --- making one ------------------------------------------------------------------------

    @staticmethod
    @functools.cache  # a dozen files of the system, and loading asks
    def host() -> Target:
        """The machine this process runs on."""
        seen = host.describe()
        rows = _rows(seen.arch)
        cpu = seen.cpu if seen.cpu in rows else _closest(seen.arch, seen.features)
        baseline = baseline_features(seen.arch)
        features = seen.features | baseline if seen.features else rows[cpu].features
        # A virtual machine may hide what others rest on: LLVM would take those away, too.
        whole = frozenset(
            name for name in features if not _lacking(seen.arch, name, features)
        )
        return Target(
            arch=seen.arch, os=seen.os, cpu=cpu, features=whole, caches=seen.caches
        )

    @staticmethod
    def level(name: str, *, os: str = "linux") -> Target:
        """An x86-64 level, `v1` … `v4`, or a CPU that has more than its level: `cascadelake`.

        Raises: TargetError for another name.
        """
        cpu = name if name not in LEVELS else "x86-64" if name == "v1" else f"x86-64-{name}"
        if cpu not in _X86_CPUS or cpu == ANY_CPU:
            raise TargetError(
                f"unknown level '{name}', expected {' '.join(LEVELS)} or an x86-64 CPU",
                hint=did_you_mean(name, _X86_CPUS),
            )
        row = _X86_CPUS[cpu]
        return Target(os=os, cpu=cpu, features=row.features, caches=row.caches)

    @staticmethod
    def parse(text: str) -> Target:
        """Read `host`, a level (`x86_64-v3`), or `ARCH[-OS] [-mcpu=NAME] [-mattr=+a,-b]`.

        Sizes of caches may follow: `-l1d=32K -l2=1M -l3=32M`.  The word of a back end may come first:
        `c x86_64-v3`, `c -mcpu=znver4`; alone it means any CPU of this machine's architecture (`c`), for `cpu` this machine.

        Raises: TargetError naming the word that is not understood.
        """
        words = text.split()
        if not words:
            raise TargetError("empty target", hint="try 'host' or 'x86_64 -mcpu=znver4'")
        backend = words.pop(0) if words[0] in BACKENDS else None
        if backend is not None and (not words or words[0].startswith("-")):
            target = _without_architecture(backend, words)
        else:
            target = _parse_head(words.pop(0))
        for word in words:
            target = _parse_option(target, word)
        return target if backend is None else replace(target, backend=backend)

    def checked(self) -> Target:
        """This target, of which LLVM knows every word; what it does not know ends its process.

        Raises: TargetError naming the architecture, CPU or feature that there is not.
        """
        if self.backend not in BACKENDS:
            known = did_you_mean(self.backend, BACKENDS) or f"known: {' '.join(BACKENDS)}"
            raise TargetError(f"unknown back end '{self.backend}'", hint=known)
        if self.os not in _SYSTEMS.values():
            known = " ".join(sorted(set(_SYSTEMS.values())))
            raise TargetError(f"unknown system '{self.os}'", hint=f"known: {known}")
        rows = _rows(self.arch)
        if self.cpu not in rows:
            hint = did_you_mean(self.cpu, rows) or f"known: {' '.join(sorted(rows))}"
            raise TargetError(f"unknown CPU '{self.cpu}' of {self.arch}", hint=hint)
        for name in sorted(self.features - rows[self.cpu].features):
            _check_feature(self.arch, name)
        for name in sorted(self.features):
            lacking = _lacking(self.arch, name, self.features)
            if lacking:
                raise TargetError(f"feature '{name}' needs '{min(lacking)}', too")
        for name in sorted(rows[self.cpu].features - self.features):
            _check_needed(self.arch, name)
        return self

    # --- questions -------------------------------------------------------------------------

    def has(self, feature: str) -> bool:
        """Whether code for this target may use `feature`."""
        return feature in self.features

    @property
    def vector_bits(self) -> int:
        """Width of the vectors that schedules use; one f32 when there are none."""
        if self.has("avx512f") and not self.has("prefer-256-bit"):
            return 512
        if self.has("avx"):
            return 256
        return 128 if self.has(_VECTORS[self.arch]) else 32

    @property
    def vector_registers(self) -> int:
        """Architectural vector registers."""
        return 16 if self.arch == "x86_64" and not self.has("avx512f") else 32

    @property
    def has_fma(self) -> bool:
        """Whether `a * b + c` with one rounding is one instruction."""
        return self.has(_FMA[self.arch])

    @property
    def has_masks(self) -> bool:
        """Whether masked loads and stores of any lane are one instruction."""
        return self.has("avx512vl") or self.has("avx512f")

    def vector_lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector, at least 1."""
        return max(1, self.vector_bits // max(8, dtype.bits))

    @property
    def l1d_bytes(self) -> int:
        """First level data cache of a core."""
        return self.caches.l1d_bytes

    @property
    def l2_bytes(self) -> int:
        """Second level cache of a core."""
        return self.caches.l2_bytes

    @property
    def l3_bytes(self) -> int:
        """Last level cache, shared; 0 = none."""
        return self.caches.l3_bytes

    @property
    def line_bytes(self) -> int:
        """Cache line."""
        return self.caches.line_bytes

    @property
    def llvm_cpu(self) -> str:
        """The name that LLVM knows the CPU by."""
        return _rows(self.arch)[self.cpu].llvm or self.cpu

    @property
    def llvm_features(self) -> str:
        """What this target adds to and takes from its CPU row, as LLVM's feature string."""
        known = _rows(self.arch)[self.cpu].features
        added = [f"+{name}" for name in sorted(self.features - known)]
        return ",".join(added + [f"-{name}" for name in sorted(known - self.features)])

    def runs_on(self, machine: Target) -> bool:
        """Whether code for this target runs on `machine` (its OS does not matter)."""
        return self.arch == machine.arch and self.features <= machine.features

    def __str__(self) -> str:
        row = _rows(self.arch)[self.cpu]
        words = [] if self.backend == "cpu" else [self.backend]
        words.append(self.arch if self.os == "linux" else f"{self.arch}-{self.os}")
        words.append(f"-mcpu={self.cpu}")
        if self.llvm_features:
            words.append(f"-mattr={self.llvm_features}")
        for name in ("l1d", "l2", "l3"):
            size = getattr(self.caches, f"{name}_bytes")
            if size != getattr(row.caches, f"{name}_bytes"):
                words.append(f"-{name}={size}")
        return " ".join(words)


def baseline_features(arch: str) -> frozenset[str]:
    """What every CPU of an architecture has."""
    return _V1 if arch == "x86_64" else frozenset()


def known_features(arch: str) -> frozenset[str]:
    """Every feature that some CPU of an architecture has here; none for an unknown one."""
    return frozenset[str]().union(*(row.features for row in _CPUS.get(arch, {}).values()))


def _rows(arch: str) -> dict[str, _Cpu]:
    rows = _CPUS.get(arch)
    if rows is None:
        raise _unknown_architecture(arch, arch)
    return rows


# What people ask for, by the names of other compilers: of some, modules are run here.
_RUN_HERE: Final = {
    **dict.fromkeys(("cuda", "nvptx", "nvptx64", "ptx"), "code for NVIDIA's GPUs"),
    "vmvx": "IREE's bytecode of kernels",
}
_MADE_ELSEWHERE: Final = {
    **dict.fromkeys(("wasm", "wasm32", "wasm64", "webassembly"), "WebAssembly"),
    **dict.fromkeys(("rocm", "hip", "amdgpu", "amdgcn"), "code for AMD's GPUs"),
    **dict.fromkeys(("vulkan", "spirv", "spirv64"), "code for GPUs (Vulkan)"),
    "opencl": "code for GPUs (OpenCL)", "metal": "code for GPUs (Metal)", "webgpu": "code for GPUs (WebGPU)",
    "gpu": "code for GPUs", "hexagon": "code for Hexagon",
}  # fmt: skip


def _unknown_architecture(name: str, word: str) -> TargetError:
    known = (
        f"architectures: {' '.join(sorted(_CPUS))}; levels of x86_64: {' '.join(LEVELS)}; "
        f"back ends: {' '.join(sorted(BACKENDS))}"
    )
    asked = name.lower()
    if asked in _RUN_HERE:
        hint = f"{_RUN_HERE[asked]} is not made here, that of other compilers can be loaded; {known}"
    elif asked in _MADE_ELSEWHERE:
        hint = f"{_MADE_ELSEWHERE[asked]} is not made here; {known}"
    else:
        hint = _closest_targets(word) or known
    return TargetError(f"unknown architecture '{name}'", hint=hint)


def _closest_targets(word: str) -> str | None:
    """Whole targets for what somebody may have meant by one word: `znver4`, `-mcpu=znver4`."""
    name = word.lower().removeprefix("-mcpu=")
    texts = {cpu: f"{arch} -mcpu={cpu}" for arch, rows in _CPUS.items() for cpu in rows}
    heads = (*BACKENDS, *_CPUS, *_ARCHITECTURES, *LEVELS, "host", "native")
    texts |= {name: name for name in heads}
    texts["llvm"] = "host"  # as TVM's users call it
    if name in texts:
        return f"did you mean '{texts[name]}'?"
    close = difflib.get_close_matches(name, sorted(texts), n=3, cutoff=0.6)
    found = dict.fromkeys(texts[match] for match in close)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else None


def _check_feature(arch: str, name: str) -> None:
    known = llvm_features(arch)
    if name not in known:
        raise TargetError(
            f"unknown feature '{name}' of {arch}",
            hint=did_you_mean(name, known) or "features have LLVM's names: -mattr=+avx2",
        )


def _check_needed(arch: str, name: str) -> None:
    if name in NEEDED[arch]:
        raise TargetError(f"code for {arch} cannot be without '{name}'")


def _closest(arch: str, features: frozenset[str]) -> str:
    """The strongest generic row of `arch` whose features are all there."""
    generic = (
        "x86-64-v4",
        "x86-64-v3",
        "x86-64-v2",
        "x86-64",
        "generic-rv64v",
        "generic-rv64",
    )
    for name in generic:
        row = _rows(arch).get(name)
        if row is not None and row.features - _V1 <= features:
            return name
    return _GENERIC[arch]


def _parse_head(word: str) -> Target:
    if word in ("host", "native"):
        return Target.host()
    if word in LEVELS:
        return Target.level(word)
    parts = word.replace("x86-64", "x86_64").split("-")
    if parts[0] in _SYSTEMS and len(parts) > 1:  # `linux-aarch64` is `aarch64-linux`
        parts[:2] = parts[1::-1]
    arch = _ARCHITECTURES.get(parts[0], parts[0])
    if arch not in _CPUS:
        raise _unknown_architecture(parts[0] or word, word)
    cpu, system = _GENERIC[arch], "linux"
    for part in parts[1:]:
        if arch == "x86_64" and part in LEVELS:
            cpu = "x86-64" if part == "v1" else f"x86-64-{part}"
        elif part in _SYSTEMS:
            system = _SYSTEMS[part]
        elif part not in _TRIPLE_NOISE:
            rest = word.partition("-")[2]
            is_cpu = rest in _CPUS[arch]
            levels = f"; levels: {' '.join(LEVELS)}" if arch == "x86_64" else ""
            known = f"systems: {' '.join(sorted(set(_SYSTEMS.values())))}{levels}"
            kind = (
                "level" if levels and part[0:1] == "v" and part[1:].isdigit() else "system"
            )
            raise TargetError(
                f"target '{word}': unknown {kind} '{part}'",
                hint=f"did you mean '{arch} -mcpu={rest}'?" if is_cpu else known,
            )
    return _with_cpu(Target(arch=arch, os=system), cpu)


def _without_architecture(backend: str, options: list[str]) -> Target:
    """What the word of a back end means, where an option alone may say which machine."""
    for word in options:
        key, _, name = word.partition("=")
        owners = [arch for arch, rows in _CPUS.items() if name in rows and name != ANY_CPU]
        if key in ("-mcpu", "-cpu") and owners:
            return Target(arch=owners[0], cpu=name)
    machine = Target.host()
    return machine if backend == "cpu" else _with_cpu(machine, ANY_CPU)


def _with_cpu(target: Target, name: str) -> Target:
    rows = _rows(target.arch)
    if name in ("host", "native"):
        machine = Target.host()
        if machine.arch != target.arch:
            raise TargetError(
                f"CPU '{name}' is this machine's, which is no {target.arch}",
                hint=f"name a CPU of {target.arch}: {' '.join(sorted(rows))}",
            )
        return replace(machine, os=target.os)
    if name not in rows:
        hint = did_you_mean(name, rows) or "known: " + " ".join(sorted(rows))
        raise TargetError(f"unknown CPU '{name}' of {target.arch}", hint=hint)
    return replace(target, cpu=name, features=rows[name].features, caches=rows[name].caches)


def _parse_option(target: Target, word: str) -> Target:
    key, separator, value = word.partition("=")
    if not separator or not value:
        raise TargetError(f"target option '{word}' has no value", hint="write -mcpu=NAME")
    key = key.lstrip("-")
    if key in ("mcpu", "cpu"):
        return _with_cpu(target, value)
    if key in ("mattr", "features"):
        return _with_features(target, value)
    if key in ("l1d", "l2", "l3"):
        return replace(
            target, caches=replace(target.caches, **{f"{key}_bytes": _size(word, value)})
        )
    raise TargetError(
        f"unknown target option '-{key}'", hint="known: -mcpu= -mattr= -l1d= -l2= -l3="
    )


def _with_features(target: Target, text: str) -> Target:
    features = set(target.features)
    for item in filter(None, text.split(",")):
        sign, name = item[0], item[1:]
        if sign not in "+-" or not name:
            raise TargetError(
                f"feature '{item}' needs a leading '+' or '-'", hint=f"write -mattr=+{item}"
            )
        _check_feature(target.arch, name)
        # As LLVM does: a feature comes with what it rests on, and goes with what rests on it.
        if sign == "+":
            features |= needed_by(name) - _implied(target.arch)
        else:
            _check_needed(target.arch, name)
            features = {other for other in features if name not in needed_by(other)}
    return replace(target, features=frozenset(features))


def _lacking(arch: str, name: str, features: frozenset[str]) -> frozenset[str]:
    """What a feature rests on and `features` do not have."""
    return needed_by(name) - _implied(arch) - features


@functools.cache
def _implied(arch: str) -> frozenset[str]:
    """What no row of an architecture lists, because every CPU has it."""
    return NEEDED[arch] - known_features(arch)


def _size(word: str, text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1].upper(), 1)
    digits = text[:-1] if scale > 1 else text
    size = whole_number(digits)
    if size is None:
        raise TargetError(f"target option '{word[:80]}': '{text[:40]}' is not a size")
    return size * scale
