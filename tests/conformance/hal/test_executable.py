"""Executable caches take the formats they say, and executables name their kernels."""

from __future__ import annotations

import dataclasses

import pytest

from tilewright.base.errors import ArchiveError, DeviceError
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable, ExecutableParams


def test_the_format_of_this_machine_can_be_prepared(
    device: Device, kernel_file: ExecutableParams
) -> None:
    loaders = device.executable_loaders
    assert loaders.can_prepare_format(kernel_file.format)
    assert device.query_i64("hal.executable.format", kernel_file.format) == 1


def test_unknown_formats_are_refused(device: Device) -> None:
    loaders = device.executable_loaders
    assert not loaders.can_prepare_format("no-such-format")
    assert device.query_i64("hal.executable.format", "no-such-format") == 0
    with pytest.raises(DeviceError, match="INCOMPATIBLE"):
        loaders.prepare_executable(ExecutableParams(format="no-such-format", data=b""))
    with pytest.raises(DeviceError, match="INCOMPATIBLE"):
        loaders.infer_format(b"no such format")


def test_the_format_of_an_image_is_inferred(
    device: Device, kernel_file: ExecutableParams
) -> None:
    loaders = device.executable_loaders
    assert loaders.infer_format(kernel_file.data) == kernel_file.format


def test_kernels_are_found_by_name(executable: Executable) -> None:
    names = [info.name for info in executable.functions]
    assert names[:4] == ["scale", "total", "grid", "fail"]
    assert executable.lookup_function_by_name("total") == 1
    with pytest.raises(DeviceError, match="no function 'totals'"):
        executable.lookup_function_by_name("totals")


def test_kernels_say_what_they_take(executable: Executable) -> None:
    info = executable.functions[0]
    assert (info.constant_count, info.binding_count) == (1, 2)


def test_a_corrupt_image_gives_an_error_that_names_the_format(
    device: Device, kernel_file: ExecutableParams
) -> None:
    loaders = device.executable_loaders
    params = dataclasses.replace(kernel_file, data=bytes(kernel_file.data)[:200])
    with pytest.raises(ArchiveError) as caught:
        loaders.prepare_executable(params)
    assert kernel_file.format in "".join(caught.value.__notes__)


def test_constants_that_the_image_does_not_want_are_refused(
    device: Device, kernel_file: ExecutableParams
) -> None:
    loaders = device.executable_loaders
    params = dataclasses.replace(kernel_file, constants=(1, 2))
    with pytest.raises(ArchiveError, match="got 2 specialisation constants, expected 0"):
        loaders.prepare_executable(params)
