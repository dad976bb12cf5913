"""Files that `jax.export.Exported.serialize` writes: a flatbuffer around a portable artifact.

Only the artifact is read; the structure of arguments and results is JAX's own.  Called by `load`.

Source: JAX, `jax/_src/export/serialization.fbs`, table `Exported`.
"""

from __future__ import annotations

import re
from typing import Final

from tilewright.base.errors import ArchiveError, ModelError
from tilewright.compiler.frontends.kit.beginnings import SAVED_EXPORT
from tilewright.compiler.frontends.stablehlo.artifact import is_artifact
from tilewright.formats.vmfb.flatbuffer import TableView

_BEGINNING: Final = re.compile(SAVED_EXPORT)
_NAME_SLOT: Final = 1
_ARTIFACT_SLOT: Final = 13


def is_saved_export(data: bytes) -> bool:
    """Whether bytes begin as what JAX saved."""
    return _BEGINNING.match(data) is not None


def artifact_of_saved(data: bytes, file: str) -> bytes:
    """The portable artifact inside.  Raises: ModelError where there is none."""
    try:
        table = TableView.root(data, b"", file)
        # Written first, and so the last of the file: without it the file is cut.
        table.vector(_NAME_SLOT, 1, "function_name")
        found = table.vector(_ARTIFACT_SLOT, 1, "module")
    except ArchiveError as error:
        raise ModelError(
            "is no function that jax.export saved, or is damaged", location=file
        ) from error
    artifact = b"" if found is None else bytes(found)
    if not is_artifact(artifact):
        raise ModelError(
            "is no function that jax.export saved: it holds no portable artifact",
            location=file,
        )
    return artifact
