"""The stand-in, and a device on it that must leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fakes.cuda_kernels import FORMAT, cuda_image
from fakes.cuda_standin import StandIn
from tilewright.base import knobs
from tilewright.runtime.collectives.process_channels import PROCESS_CHANNELS
from tilewright.runtime.drivers.cuda.device import CudaDevice
from tilewright.runtime.drivers.cuda.driver import CudaDriver
from tilewright.runtime.hal.executable import Executable, ExecutableParams

MakeDevice = Callable[..., CudaDevice]


@pytest.fixture
def standin(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    made = StandIn()
    with knobs.override(cuda_library=made.path):
        yield made
    request.node.funcargs.clear()
    assert made.wait_until_all_is_back() == {}
    assert made.complaints == []


@pytest.fixture
def make_device(standin: StandIn) -> MakeDevice:
    def make(ordinal: int = 0, **options: str) -> CudaDevice:
        made = CudaDriver().create_device_by_id(ordinal, options)
        assert isinstance(made, CudaDevice)
        made.replace_channel_provider(PROCESS_CHANNELS)
        return made

    return make


@pytest.fixture
def device(make_device: MakeDevice) -> CudaDevice:
    return make_device()


def load_kernels(device: CudaDevice) -> Executable:
    loaders = device.executable_loaders
    return loaders.prepare_executable(ExecutableParams(format=FORMAT, data=cuda_image()))
