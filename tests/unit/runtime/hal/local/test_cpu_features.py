"""What local devices say about their CPU: IREE's answers, and those of the targets we make code for."""

from __future__ import annotations

import subprocess

import pytest

from conformance.interop.toolchain import needs_iree, program
from tilewright.base.errors import TargetError
from tilewright.base.target import LEVELS, Target
from tilewright.runtime import native
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.local.cpu_features import FEATURE_BITS, CpuFeatures

DEVICES = ("local-sync", "local-task")


@needs_iree
def test_every_key_of_iree_has_its_answer() -> None:
    printed = subprocess.run(
        [program("iree-cpuinfo")], capture_output=True, text=True, check=True
    ).stdout
    rows = dict(line.split() for line in printed.splitlines())
    host = CpuFeatures()
    assert set(rows) == set(FEATURE_BITS[host.machine.arch])
    assert {key: str(host.query(key)) for key in rows} == rows


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_speaks_for_the_host(device: str) -> None:
    local = registry.create_device(device)
    assert local.machine == Target.host()
    for feature in Target.host().features:
        assert local.query_i64("hal.cpu", feature) == 1
    assert local.query_i64("hal.cpu", "no-such-feature") is None
    assert local.query_i64("hal.cpu", "") is None


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_speaks_for_the_machine_it_was_made_for(device: str) -> None:
    local = registry.create_device(f"{device}://?machine=v3")
    answers = {f: local.query_i64("hal.cpu", f) for f in LEVELS["v4"] | {"xop", "gfni"}}
    wanted = {f: int(f in LEVELS["v3"]) for f in answers}
    assert answers == wanted
    assert local.query_i64("hal.cpu", "neon") is None


def test_an_option_names_a_whole_target() -> None:
    target = Target.parse("aarch64 -mcpu=neoverse-n2 -mattr=-sve2")
    local = registry.create_device("local-sync", machine=target)
    assert local.machine == target
    assert local.query_i64("hal.cpu", "sve") == 1
    assert local.query_i64("hal.cpu", "sve2") == 0
    assert local.query_i64("hal.cpu", "sme") == 0
    assert local.query_i64("hal.cpu", "avx") is None
    with pytest.raises(TargetError, match="unknown architecture 'z80'"):
        registry.create_device("local-task://?machine=z80")


def test_kernels_are_told_the_same_as_programs() -> None:
    bits = FEATURE_BITS["x86_64"]
    host = CpuFeatures()
    if host.machine.arch != "x86_64":
        pytest.skip("not an x86-64 machine")
    word = native.processor_data()[0]
    if not word:
        pytest.skip("the processor is asked by the C core")
    assert {f: host.query(f) for f in bits} == {f: word >> b & 1 for f, b in bits.items()}


def test_devices_that_run_no_code_of_the_host_have_no_cpu() -> None:
    null = registry.create_device("null")
    assert null.machine is None
    assert null.query_i64("hal.cpu", "avx2") is None
