"""Which LLVM would make the code, known without loading it.

Keys of the cache need it, and a compilation that finds every kernel there loads no LLVM.  Called by
`compile` and, through this room's front door, by `compiler.backends.kernel_cache`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tilewright.base.compilation_cache import CompilationCache

_PACKAGE = "llvmlite"
_LIBRARIES = "binding/*llvmlite.*"


@functools.cache
def llvm_identity() -> str:
    """A digest that changes with the version of the binding and with its library's build."""
    spec = find_spec(_PACKAGE)  # of a top-level package: runs nothing of it
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent
    digest = hashlib.sha256()
    for path in sorted(folder.glob("_version.py")):
        digest.update(path.read_bytes())
    for path in sorted(folder.glob(_LIBRARIES)):
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def object_key(text: str, settings: Mapping[str, str | int]) -> str:
    """Where the cache keeps the object of a module."""
    return CompilationCache.key(text, llvm_identity(), *map(str, settings.values()))
