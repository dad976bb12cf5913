"""What local devices say about their CPU: answers to `hal.device.query.i64` with category `hal.cpu`.

Programs that carry code for several CPUs choose by it.  IREE's devices know the features of its bit
table; ours know those and everything else that targets are made of, so that a level of x86-64 can be
asked for whole.  Not here: how the machine is observed (`base.host`, the C core).

Source: IREE `schemas/cpu_feature_bits.inl`, `base/internal/cpu.c`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.lazy import lazy
from tilewright.base.target import Target, known_features
from tilewright.runtime import native

CPU_CATEGORY: Final = "hal.cpu"
MACHINE_OPTION: Final = "machine"

# LLVM's names of the features that IREE's devices answer for, and the bits of word 0 that tell
# kernels about them.
_X86_64: Final = {
    "sse3": 0, "ssse3": 1, "sse4.1": 2, "sse4.2": 3, "sse4a": 4, "avx": 10, "fma": 11, "fma4": 12,
    "xop": 13, "f16c": 14, "avx2": 15, "avx512f": 20, "avx512cd": 21, "avx512vl": 22,
    "avx512dq": 23, "avx512bw": 24, "avx512ifma": 25, "avx512vbmi": 26, "avx512vpopcntdq": 27,
    "avx512vnni": 28, "avx512vbmi2": 29, "avx512bitalg": 30, "avx512bf16": 31, "avx512fp16": 32,
    "amx-tile": 50, "amx-int8": 51, "amx-bf16": 52,
}  # fmt: skip
_AARCH64: Final = {
    "fp-armv8": 0, "lse": 1, "lse128": 2, "fullfp16": 10, "fp16fml": 11, "dotprod": 12, "i8mm": 13,
    "bf16": 14, "sve": 20, "sve2": 21, "sve2p1": 22, "sve2-bitperm": 23, "f32mm": 24, "f64mm": 25,
    "sme": 30, "sme2": 31, "sme2p1": 32, "sme-f16f16": 33, "sme-f64f64": 34, "sme-i16i64": 35,
}  # fmt: skip
_RISCV64: Final = {
    "v": 0, "zvfhmin": 1, "zvfh": 2, "zvfbfwma": 3, "xsmtvdot": 4, "zvl256b": 5, "zvl1024b": 6,
    "zvl4096b": 7,
}  # fmt: skip
FEATURE_BITS: Final[Mapping[str, Mapping[str, int]]] = {
    "x86_64": _X86_64,
    "aarch64": _AARCH64,
    "riscv64": _RISCV64,
}


@final
class CpuFeatures:
    """The features of one CPU.

    Args:
        machine: the CPU to speak for; None = the one this process runs on.

    Thread-safety: may be used from any thread.
    """

    def __init__(self, machine: Target | None = None) -> None:
        self._given: Target | None = machine

    @lazy
    def machine(self) -> Target:
        """The CPU as a target."""
        return self._given or Target.host()

    @lazy
    def _present(self) -> frozenset[str]:
        if self._given is not None:
            return self._given.features
        word = native.processor_data()[0]
        bits = FEATURE_BITS.get(self.machine.arch, {})
        told = {name for name, bit in bits.items() if word >> bit & 1}
        return self.machine.features | told

    def query(self, feature: str) -> int | None:
        """1 where the CPU has a feature, 0 where it has not, None for one nobody knows."""
        if feature in self._present:
            return 1
        arch = self.machine.arch
        known = feature in FEATURE_BITS.get(arch, ()) or feature in known_features(arch)
        return 0 if known else None


def parse_machine(options: Mapping[str, str]) -> Target | None:
    """The CPU that the options of a device URI name.  Raises: TargetError."""
    text = options.get(MACHINE_OPTION, "")
    return Target.parse(text) if text else None
