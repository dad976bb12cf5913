"""An executable cache: prepares executables for a device and remembers what it can.

The formats are those of the loaders it was made with, tried in order; which loaders exist is the
driver's business.

Source: IREE `hal/executable_cache.h`, `hal/local/executable_loader.h`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

from tilewright.base.errors import TilewrightError
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.runtime.hal.executable import Executable, ExecutableParams


class ExecutableLoader(ABC):
    """Turns the bytes of one family of formats into executables."""

    __slots__ = ()

    @abstractmethod
    def query_support(self, format_name: str) -> bool:
        """Whether executables of that format can be loaded here."""

    @abstractmethod
    def infer_format(self, data: HostBytes) -> str | None:
        """The format of some bytes, if it is one of this loader's."""

    @abstractmethod
    def load(self, params: ExecutableParams) -> Executable:
        """Load.  Raises: ArchiveError, TargetError, DeviceError."""


@final
class ExecutableCache:
    """Prepares executables with a list of loaders.

    Thread-safety: may be used from any thread.
    """

    __slots__ = ("identifier", "loaders")

    def __init__(self, identifier: str, loaders: Sequence[ExecutableLoader]) -> None:
        self.identifier: str = identifier
        self.loaders: tuple[ExecutableLoader, ...] = tuple(loaders)

    def infer_format(self, data: HostBytes) -> str:
        """The format of some bytes.  Raises: DeviceError (INCOMPATIBLE)."""
        for loader in self.loaders:
            found = loader.infer_format(data)
            if found is not None:
                return found
        raise failure(StatusCode.INCOMPATIBLE, "no loader knows the executable's format")

    def can_prepare_format(self, format_name: str) -> bool:
        """Whether executables of that format can run on the device."""
        return any(loader.query_support(format_name) for loader in self.loaders)

    def prepare_executable(self, params: ExecutableParams) -> Executable:
        """Load an executable.

        Raises: DeviceError (INCOMPATIBLE) where no loader takes the format; what the loader
        raises for corrupt or foreign bytes.
        """
        for loader in self.loaders:
            if not loader.query_support(params.format):
                continue
            try:
                return loader.load(params)
            except TilewrightError as error:
                error.add_note(
                    f"  while preparing an executable of format '{params.format}'"
                )
                raise
        raise failure(
            StatusCode.INCOMPATIBLE,
            f"no loader on this device takes executables of format '{params.format}'",
        )
