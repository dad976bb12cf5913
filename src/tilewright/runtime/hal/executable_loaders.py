"""What prepares executables for a device: its loaders, asked in order.

Nothing is remembered: programs keep the executables they asked for.  Which loaders exist is the
driver's business.  In modules its type is called `hal.executable_cache`, as IREE calls it.

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
class ExecutableLoaders:
    """Prepares executables with the first loader that takes their format.

    Thread-safety: may be used from any thread.
    """

    __slots__ = ("loaders",)

    def __init__(self, loaders: Sequence[ExecutableLoader]) -> None:
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
