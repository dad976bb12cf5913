"""Make a `.vmfb`: bytecode for virtual machines, code for several CPUs, constants and the plans.

Called by the API (`Model.save`) and the CLI.  The bytes depend only on what was compiled.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, final

import numpy as np

from tilewright.base.errors import UserError
from tilewright.base.file_kinds import ARTIFACT_SUFFIX
from tilewright.base.output_file import check_output, is_regular_output
from tilewright.base.record import record
from tilewright.base.target import Target, baseline_features
from tilewright.base.text import unique
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.packaging.provenance import Origin, describe_artifact
from tilewright.compiler.packaging.weights_file import StoredWeights
from tilewright.compiler.program.emit_bytecode import VariantCode, emit_module
from tilewright.compiler.program.ir import Program
from tilewright.compiler.transforms.external_codegen import ExternalModule
from tilewright.formats.artifact import (
    Artifact,
    CarriedModule,
    OutsideWeights,
    Variant,
    embed,
    leading_rodata,
)
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.output_checks import Check
from tilewright.formats.plan import Plan
from tilewright.formats.plan.weights import weights_of
from tilewright.formats.vmfb import write_archive


@final
@record
class Part:
    """One target's share: its program, the plan of it, and the linked kernels."""

    target: Target
    program: Program
    plan: Plan
    image: Buffer

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Its constants, in the order of the plan's constant storages."""
        return tuple(s.array for s in self.program.storages if s.array is not None)


def make_artifact(
    parts: Sequence[Part],
    sources: Mapping[str, str] | None = None,
    weights: StoredWeights | None = None,
    modules: Sequence[ExternalModule] = (),
    checks: Sequence[Check] = (),
) -> Artifact:
    """The artifact of a model; constants are the programs' arrays, copied only if not in order.

    An array that several parts read is there once.  With `weights` all stay in that file.

    Raises: what a module of `modules` raises that has no bytes.
    """
    arrays = constant_arrays(parts)
    places = {id(array): place for place, array in enumerate(arrays)}
    variants = tuple(
        Variant(
            target=str(part.target),
            arch=part.target.arch,
            features=part.target.features,
            format=backend_of(part.target).image_format(part.target),
            image=part.image,
            plan=part.plan,
            constants=tuple(places[id(array)] for array in part.arrays),
        )
        for part in parts
    )
    constants = tuple(view_bytes(_dense_bytes(array)) for array in arrays)
    outside = None
    if weights is not None:
        outside = OutsideWeights(
            file=weights.path.name,
            names=weights.names,
            sizes=tuple(view_bytes(data).nbytes for data in constants),
            checksums=tuple(zlib.crc32(view_bytes(data)) for data in constants),
        )
    return Artifact(
        variants=variants,
        constants=constants if outside is None else (),
        modules=carried_modules(modules),
        sources=dict(sources or {}),
        weights=outside,
        checks=tuple(checks),
    )


def constant_arrays(parts: Sequence[Part]) -> tuple[Array, ...]:
    """The constants of all parts, each once: those of the first in order, then what others have beside."""
    return tuple({id(array): array for part in parts for array in part.arrays}.values())


def named_weights(parts: Sequence[Part]) -> Mapping[str, Array]:
    """The same by the names that the parts' plans have for them; of several under one name, the later get a number."""
    found: dict[str, Array] = {}
    taken: set[str] = set()
    seen: set[int] = set()
    for part in parts:
        own = [view_bytes(_dense_bytes(array)) for array in part.arrays]
        for array, (name, seen_as) in zip(
            part.arrays, weights_of(part.plan, own).items(), strict=True
        ):
            if id(array) in seen:
                continue
            seen.add(id(array))
            chosen = unique(name, taken)
            taken.add(chosen)
            found[chosen] = seen_as
    return found


def _dense_bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view("u1")


def carried_modules(modules: Sequence[ExternalModule]) -> tuple[CarriedModule, ...]:
    """The modules as they are saved.  Raises: what a module raises that has no bytes."""
    return tuple(CarriedModule(m.kind, bytes(m.save_to_bytes())) for m in modules)


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
