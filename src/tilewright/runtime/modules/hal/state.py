"""What the `hal` module has per context: its devices and the policy about executables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final
from weakref import WeakKeyDictionary

from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.command_buffer import CommandBuffer
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.pipeline_layout import PipelineLayout, PushedOperands
from tilewright.runtime.modules.executable_policy import TRUSTED, ExecutablePolicy

ViewTracer = Callable[[str, Sequence[BufferView]], object]


@final
class HalState:
    """Devices in the order that programs number them.

    `layouts` and `pushed` serve programs of `hal` versions before 5: the layout of each kernel of an
    executable, and what was pushed into a command buffer.
    """

    __slots__ = ("devices", "layouts", "policy", "pushed", "tracer")

    def __init__(
        self,
        devices: Sequence[Device],
        tracer: ViewTracer | None,
        policy: ExecutablePolicy = TRUSTED,
    ) -> None:
        self.devices: tuple[Device, ...] = tuple(devices)
        self.tracer: ViewTracer | None = tracer
        self.policy: ExecutablePolicy = policy
        self.layouts: WeakKeyDictionary[Executable, tuple[PipelineLayout, ...]] = (
            WeakKeyDictionary()
        )
        self.pushed: WeakKeyDictionary[CommandBuffer, PushedOperands] = WeakKeyDictionary()
