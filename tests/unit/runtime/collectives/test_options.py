"""`?collectives=` and its knob: where the devices of a URI meet others."""

from __future__ import annotations

import sys

import pytest

from tilewright.base import knobs
from tilewright.base.errors import DeviceError, UserError
from tilewright.runtime.collectives.mpi_channels import MpiChannels
from tilewright.runtime.collectives.process_channels import PROCESS_CHANNELS
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.local.local_device import LocalDevice

LAUNCHER = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("driver", ["local-sync", "local-task", "null"])
def test_devices_meet_others_of_their_process(driver: str) -> None:
    for uri in (driver, f"{driver}://?collectives=process"):
        device = registry.create_device(uri)
        assert device.channel_provider is PROCESS_CHANNELS
        channel = device.create_channel()
        assert (channel.rank, channel.count) == (0, 1)


@pytest.mark.parametrize("name", LAUNCHER)
def test_a_launcher_of_several_processes_means_mpi(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nothing of MPI is touched before somebody wants a channel."""
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setenv(name, "1")
    assert registry.create_device("local-sync").channel_provider is PROCESS_CHANNELS
    monkeypatch.setenv(name, "2")
    device = registry.create_device("local-sync")
    assert isinstance(device.channel_provider, MpiChannels)
    with knobs.override(collectives="process"):
        assert registry.create_device("local-sync").channel_provider is PROCESS_CHANNELS
    with pytest.raises(DeviceError, match="need MPI"):
        device.create_channel()


def test_without_mpi4py_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(DeviceError, match=r"pip install 'tilewright\[mpi\]'"):
        registry.create_device("local-sync://?collectives=mpi")


def test_other_words_are_refused() -> None:
    with pytest.raises(UserError, match="'tcp', expected process or mpi"):
        registry.create_device("local-sync://?collectives=tcp")
    with (
        knobs.override(collectives="tcp"),
        pytest.raises(UserError, match="expected process or mpi"),
    ):
        registry.create_device("local-sync")


def test_a_rank_outside_of_its_group_is_refused() -> None:
    device = registry.create_device("local-sync")
    for rank, count in ((2, 2), (1, -1), (0, 0)):
        with pytest.raises(DeviceError, match=f"rank {rank} of a channel"):
            device.create_channel(rank, count)


def test_a_device_without_a_provider_says_so() -> None:
    device = LocalDevice("bare", None, (), has_thread=False)
    with pytest.raises(
        DeviceError, match="the device has no provider of channels"
    ) as caught:
        device.create_channel(0, 1)
    assert "replace_channel_provider" in str(caught.value)
