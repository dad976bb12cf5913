"""What was compiled for each target, and all of it as one artifact.

Not here: files of it (`archive`), which what only runs does not need.  Called by the pipeline and by models.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import unique
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.program.ir import Program
from tilewright.compiler.transforms.external_codegen import ExternalModule
from tilewright.formats.artifact import Artifact, CarriedModule, OutsideWeights, Variant
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.output_checks import Check
from tilewright.formats.plan import Plan
from tilewright.formats.plan.weights import weights_of

if TYPE_CHECKING:
    from tilewright.compiler.packaging.weights_file import StoredWeights


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
