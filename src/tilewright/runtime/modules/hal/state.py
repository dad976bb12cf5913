"""What the `hal` module has per context: its devices and the policy about executables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.device import Device
from tilewright.runtime.modules.executable_policy import TRUSTED, ExecutablePolicy

ViewTracer = Callable[[str, Sequence[BufferView]], object]


@final
class HalState:
    """Devices in the order that programs number them."""

    __slots__ = ("devices", "policy", "tracer")

    def __init__(
        self,
        devices: Sequence[Device],
        tracer: ViewTracer | None,
        policy: ExecutablePolicy = TRUSTED,
    ) -> None:
        self.devices: tuple[Device, ...] = tuple(devices)
        self.tracer: ViewTracer | None = tracer
        self.policy: ExecutablePolicy = policy
