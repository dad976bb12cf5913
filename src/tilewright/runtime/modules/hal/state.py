"""What the `hal` module has per context: its devices and their executable caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable_cache import ExecutableCache
from tilewright.runtime.modules.executable_policy import TRUSTED, ExecutablePolicy

ViewTracer = Callable[[str, Sequence[BufferView]], object]


@final
class HalState:
    """Devices in the order that programs number them."""

    __slots__ = ("_caches", "devices", "policy", "tracer")

    def __init__(
        self,
        devices: Sequence[Device],
        tracer: ViewTracer | None,
        policy: ExecutablePolicy = TRUSTED,
    ) -> None:
        self.devices: tuple[Device, ...] = tuple(devices)
        self.tracer: ViewTracer | None = tracer
        self.policy: ExecutablePolicy = policy
        self._caches: dict[int, ExecutableCache] = {}

    def executable_cache(self, device: Device) -> ExecutableCache:
        """The cache of a device, made when first asked for."""
        found = self._caches.get(id(device))
        if found is None:
            found = self._caches[id(device)] = device.create_executable_cache("hal")
        return found
