"""Make a `.vmfb`: bytecode for virtual machines, code for several CPUs, constants and the plans.

Called by the API (`Model.save`) and the CLI.  The bytes depend only on what was compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tilewright.base.errors import UserError
from tilewright.base.file_kinds import ARTIFACT_SUFFIX
from tilewright.base.output_file import check_output, is_regular_output
from tilewright.base.target import baseline_features
from tilewright.compiler.packaging.parts import Part
from tilewright.compiler.packaging.provenance import Origin, describe_artifact
from tilewright.compiler.program.emit_bytecode import VariantCode, emit_module
from tilewright.formats.artifact import (
    Artifact,
    embed,
    leading_rodata,
)
from tilewright.formats.vmfb import write_archive

FORMATS: Final = {ARTIFACT_SUFFIX: "an archive for Tilewright's and IREE's runtime"}
"""What a compiled model can be written as: the suffix of the file decides."""


def check_artifact_path(path: str | Path, *, inputs: Iterable[str | Path] = ()) -> None:
    """Say before the work what would go wrong after it.

    What is no regular file (a FIFO, standard output) has no suffix to go by and gets a `.vmfb`.

    Raises: UserError for a suffix that no format has, and as `base.output_file.check_output`.
    """
    suffix = Path(path).suffix
    if is_regular_output(path) and suffix.lower() not in FORMATS:
        known = ", ".join(f"{name} ({problem})" for name, problem in FORMATS.items())
        problem = f"there is no format '{suffix}'" if suffix else "the name has no suffix"
        raise UserError(
            f"{problem}, expected one that says what to write",
            location=path,
            hint=f"formats: {known}",
        )
    check_output(path, inputs=inputs)


def save_archive(
    parts: Sequence[Part],
    artifact: Artifact,
    path: str | Path,
    origin: Origin | None = None,
) -> int:
    """Write the `.vmfb`; returns its size in bytes.

    The file appears under its name only when it is complete.  Sessions and the module's own bytecode
    choose the best code for the CPU among all of it.

    Raises: UserError when the file cannot be written; an old one stays as it was.
    """
    codes = [
        VariantCode(
            program=part.program,
            target=str(part.target),
            features=part.target.features - baseline_features(part.target.arch),
            executable=index,
            format=artifact.variants[index].format,
            constants=artifact.variants[index].constants,
        )
        for index, part in enumerate(parts)
    ]
    module = emit_module(
        codes,
        leading_rodata(artifact),
        first_constant=len(parts),
        weights=() if artifact.weights is None else artifact.weights.names,
    )
    module = embed(artifact, module)
    described = describe_artifact(module.name, artifact, origin or Origin())
    attributes = {**module.attributes, **described}
    return write_archive(replace(module, attributes=attributes), path)
