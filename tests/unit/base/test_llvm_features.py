"""The lists of names are LLVM's: what a target may say is what LLVM knows."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tilewright.base import host, target
from tilewright.base.llvm_features import NEEDED, llvm_features

ARCHITECTURES = ("x86_64", "aarch64", "riscv64")
LIST_THEM = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu="help")
"""


def names_of(arch: str) -> tuple[set[str], set[str]]:
    """The CPUs and the features that LLVM lists."""
    done = subprocess.run(
        [sys.executable, "-c", LIST_THEM, f"{arch}-unknown-linux-gnu"],
        capture_output=True,
        text=True,
        check=True,
    )
    cpus, features = done.stderr.split("Available features")
    row = re.compile(r"^  (\S+) +- ", re.MULTILINE)
    return set(row.findall(cpus)), set(row.findall(features))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_llvm_knows_every_name(arch: str) -> None:
    cpus, features = names_of(arch)
    assert {row.llvm or cpu for cpu, row in target._CPUS[arch].items()} - cpus == set()
    assert llvm_features(arch) - features == set()
    for row in target._CPUS[arch].values():
        assert row.features - llvm_features(arch) == set()
    assert not NEEDED[arch] - llvm_features(arch)


def test_what_a_machine_is_seen_to_have_are_names_of_llvm() -> None:
    assert llvm_features("x86_64") >= host._LLVM_X86
    assert set(host._LINUX_ARM.values()) <= llvm_features("aarch64")
    known = frozenset[str]().union(*map(llvm_features, ARCHITECTURES))
    assert set(host._NUMPY_FLAGS.values()) <= known


def test_an_unknown_architecture_has_no_features() -> None:
    assert llvm_features("z80") == frozenset()
