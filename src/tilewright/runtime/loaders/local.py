"""What a device of the host CPU can load, in the order in which formats are guessed."""

from __future__ import annotations

from tilewright.runtime.hal.executable_loaders import ExecutableLoader
from tilewright.runtime.loaders.embedded_elf_loader import EmbeddedElfLoader
from tilewright.runtime.loaders.static_library_loader import StaticLibraryLoader
from tilewright.runtime.loaders.system_library_loader import SystemLibraryLoader
from tilewright.runtime.loaders.vmvx_loader import VmvxLoader


def create_local_loaders() -> tuple[ExecutableLoader, ...]:
    """Images of ours and IREE's, shared libraries, registered libraries, bytecode."""
    return EmbeddedElfLoader(), SystemLibraryLoader(), StaticLibraryLoader(), VmvxLoader()
