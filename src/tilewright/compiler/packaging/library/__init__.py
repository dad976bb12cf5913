"""Libraries: a compiled model as C sources, to be linked with the objects of its kernels.

    levels + constants → make_host_sources → files of C, headers, weights → (a C compiler, a linker) → .so .a …

What comes out needs no Python and no Tilewright: the C core travels with it.  Not here: toolchains and
suffixes (`runtime.library`), kernels (`backends`).  Called by exports.
"""

from tilewright.compiler.packaging.library.level import (
    Level,
    level_of,
    refuse_host_steps,
)
from tilewright.compiler.packaging.library.names import library_name
from tilewright.compiler.packaging.library.sources import (
    HostSources,
    make_host_sources,
    make_kernel_sources,
)
from tilewright.compiler.packaging.library.weights import WeightsFile

__all__ = [
    "HostSources",
    "Level",
    "WeightsFile",
    "level_of",
    "library_name",
    "make_host_sources",
    "make_kernel_sources",
    "refuse_host_steps",
]
