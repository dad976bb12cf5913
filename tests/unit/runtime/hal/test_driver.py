"""Device URIs, the registry of drivers, and what a URI may carry."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.base.errors import DeviceError, InternalError, UserError
from tilewright.runtime.collectives.options import create_provider
from tilewright.runtime.drivers import registry
from tilewright.runtime.drivers.null.driver import NullDriver
from tilewright.runtime.hal.driver import parse_device_uri
from tilewright.runtime.hal.driver_registry import DriverRegistry
from tilewright.runtime.hal.local.local_device import LocalDevice


@pytest.mark.parametrize(
    ("text", "driver", "path", "options"),
    [
        ("local-task", "local-task", "", {}),
        ("local-sync://", "local-sync", "", {}),
        ("cuda://0", "cuda", "0", {}),
        ("cuda://GPU-ab/cd", "cuda", "GPU-ab/cd", {}),
        (
            "local-task://?threads=4&cpus=0,1",
            "local-task",
            "",
            {"threads": "4", "cpus": "0,1"},
        ),
        ("local-task://default?threads=", "local-task", "default", {"threads": ""}),
    ],
)
def test_uris_are_taken_apart(
    text: str, driver: str, path: str, options: dict[str, str]
) -> None:
    uri = parse_device_uri(text)
    assert (uri.driver, uri.path, dict(uri.options)) == (driver, path, options)


@pytest.mark.parametrize("text", ["", "://0", "local-task?threads=1"])
def test_what_is_no_uri_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="hint: write local-task"):
        parse_device_uri(text)


def test_drivers_are_made_when_first_asked_for() -> None:
    made: list[int] = []

    def factory() -> NullDriver:
        made.append(1)
        return NullDriver()

    drivers = DriverRegistry(create_provider)
    drivers.register("null", factory, owner="test")
    assert made == []
    assert drivers.driver("null") is drivers.driver("null")
    assert made == [1]
    with pytest.raises(InternalError, match="registered twice"):
        drivers.register("null", factory, owner="another")


def test_an_unknown_driver_brings_the_closest() -> None:
    with pytest.raises(UserError, match="did you mean 'local-sync'"):
        registry.create_device("local-syn")


def test_threads_come_from_the_uri_then_the_call() -> None:
    for uri, argument, threads in (
        ("local-task://?threads=3", None, 3),
        ("local-task", 2, 2),
        ("local-task://?threads=3", 2, 3),
        ("local-task", 1, 1),
        ("local-sync", 5, 1),
    ):
        device = registry.create_device(uri, threads=argument)
        assert isinstance(device, LocalDevice)
        assert device.thread_count == threads


@pytest.mark.parametrize("option", ["threads=many", "threads=-1", "cpus=a,b"])
def test_options_that_are_no_numbers_are_refused(option: str) -> None:
    with pytest.raises(UserError, match="expected a number"):
        registry.create_device(f"local-task://?{option}")


@pytest.mark.slow
def test_a_drivers_module_is_imported_when_the_driver_is_asked_for() -> None:
    script = (
        "import sys\n"
        "from tilewright.runtime.drivers import registry\n"
        "folders = {n.split('.')[3] for n in sys.modules\n"
        "           if n.startswith('tilewright.runtime.drivers.') and n.endswith('.driver')}\n"
        "assert folders == set(), folders\n"
        "registry.create_device('local-sync')\n"
        "assert 'tilewright.runtime.drivers.local_task.driver' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_uris_bound_memory_and_make_queues() -> None:
    device = registry.create_device("local-task://?threads=1&queues=3&memory=4K&pool=0")
    assert device.query_capabilities()["hal.device::concurrency"] == 3
    with pytest.raises(DeviceError, match="no room for 8192 bytes: 0 of 4096 are in use"):
        device.allocator.allocate(0, 0, 8192)
    assert (
        registry.create_device("local-sync://?memory=1G").allocator is not device.allocator
    )
    for uri, message in (
        ("local-task://?queues=0", "got 0, expected 1 to 64"),
        ("local-task://?queues=²", "got '²', expected a number"),
        (f"local-task://?queues={'1' * 5000}", "got '11*', expected a number"),
        (
            "local-task://?threads=2&cpus=0",
            "'cpus': got 1, expected one for each of 2 threads",
        ),
        ("local-task://?threads=1&cpus=0,1", "'cpus': got 2, expected one for each of 1"),
        (
            "local-task://?threads=1&cpus=1023",
            "'cpus': processor 1023 cannot be used: .*\nhint: this thread may use ",
        ),
        (
            f"local-task://?threads=1&cpus={1 << 40}",
            f"'cpus': processor {1 << 40} cannot be used",
        ),
        ("local-sync://?memory=lots", "got 'lots', expected a size like 4096"),
        (f"local-sync://?memory={'1' * 5000}", "got '11*', expected a size like 4096"),
        ("local-sync://?memory=0", "'memory': got '0', expected 1 to"),
        ("local-sync://?pool=9999999999999999G", "got '9+G', expected 0 to .* bytes"),
    ):
        with pytest.raises(UserError, match=message):
            registry.create_device(uri)
