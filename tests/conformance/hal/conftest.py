"""Runs every case on every driver, less what the driver's opt-out file names with a reason.

An opt-out is a strict expectation: once the case passes, the suite fails until the line is gone.
"""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fakes import cuda_kernels, kernel_image
from fakes.cuda_standin import StandIn
from fakes.nccl_standin import NcclStandIn
from tilewright.base import knobs
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import Driver
from tilewright.runtime.hal.executable import Executable, ExecutableParams

FOLDER = Path(__file__).parent


class Case(NamedTuple):
    """A device of the suite: its driver, its URI, the file of its opt-outs."""

    driver: str
    uri: str
    opt_outs: str


DEVICES = {
    "local-sync": Case("local-sync", "local-sync://", "local_sync"),
    "local-task": Case("local-task", "local-task://?threads=3", "local_task"),
    "local-task-1": Case("local-task", "local-task://?threads=1", "local_task"),
    "null": Case("null", "null", "null"),
    "cuda": Case("cuda", "cuda://0", "cuda"),
    "cuda-stream": Case("cuda", "cuda://1?graphs=0&pool=0", "cuda"),
    "cuda-gpu": Case("cuda", "cuda://0", "cuda"),
}
GPUS = ("cuda-gpu",)


def reasons(file: str) -> dict[str, str]:
    path = FOLDER / "opt_outs" / f"{file}.py"
    spec = importlib.util.spec_from_file_location(f"opt_outs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.REASONS


REASONS = {name: reasons(case.opt_outs) for name, case in DEVICES.items()}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that a driver opts out of."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        name = parameters.get("device_name")
        if name is None or FOLDER not in item.path.parents:
            continue
        case = getattr(item, "originalname", "")
        others = [str(value) for key, value in parameters.items() if key != "device_name"]
        reason = REASONS[name].get(case) or REASONS[name].get(f"{case}[{'-'.join(others)}]")
        if reason is not None:
            raises = (DeviceError, AssertionError)
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=raises))


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.needs_cuda] if name in GPUS else [])
        for name in DEVICES
    ]
)
def device_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device; those of `cuda` on the stand-in, used rightly and with nothing left behind."""
    name = request.param
    if DEVICES[name].driver != "cuda":
        yield name
        return
    if name in GPUS:
        try:
            registry.REGISTRY.driver("cuda").query_available_devices()
        except DeviceError as error:
            pytest.skip(str(error).splitlines()[0])
        yield name
        request.node.funcargs.clear()  # a kernel that failed spoils the context until it ends
        gc.collect()
        return
    standin, nccl = StandIn(), NcclStandIn()
    with knobs.override(cuda_library=standin.path, nccl_library=nccl.path):
        yield name
    if request.node.get_closest_marker("xfail") is None:  # its exception holds everything
        request.node.funcargs.clear()  # they hold the device until after this
        assert standin.wait_until_all_is_back() == {}
        assert nccl.wait_until_all_is_back() == 0
    assert standin.complaints == []


@pytest.fixture
def device_uri(device_name: str) -> str:
    return DEVICES[device_name].uri


@pytest.fixture
def device(device_uri: str) -> Device:
    return registry.create_device(device_uri)


@pytest.fixture
def driver(device_name: str) -> Driver:
    return registry.REGISTRY.driver(DEVICES[device_name].driver)


@pytest.fixture
def kernel_file(device_name: str) -> ExecutableParams:
    """The test kernels in the format of the device."""
    if DEVICES[device_name].driver == "cuda":
        return ExecutableParams(format=cuda_kernels.FORMAT, data=cuda_kernels.cuda_image())
    return ExecutableParams(format=kernel_image.FORMAT, data=kernel_image.kernel_image())


@pytest.fixture
def executable(device: Device, kernel_file: ExecutableParams) -> Executable:
    return device.executable_loaders.prepare_executable(kernel_file)
