"""An artifact: a `.vmfb` archive that also carries a plan, code for several CPUs and sources.

IREE sees a module with bytecode, executables and constants.  The module attribute
`tilewright.manifest` (JSON) says which rodata segments hold the plan, the executables with the
features they need, the constants in the order of the plan's constant storages, and the printed
sources.  Written by `compiler.packaging`, read by `runtime.session` and the CLI.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import Final, cast, final

from tilewright.base.errors import OF_DAMAGE, ArchiveError, version_hint
from tilewright.base.json_text import read_json, what_is_wrong
from tilewright.base.lazy import lazy
from tilewright.base.record import field, record
from tilewright.base.version import VERSION as PRODUCER_VERSION
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.output_checks import Check, from_rows, to_rows
from tilewright.formats.plan import Plan, from_json, to_json
from tilewright.formats.vmfb import ModuleDef, Rodata
from tilewright.formats.vmfb.seal import SEAL_ATTRIBUTE, SEAL_KIND

MANIFEST_ATTRIBUTE: Final = "tilewright.manifest"
MANIFEST_VERSION: Final = (1, 2)
_WITHOUT_OWN_CONSTANTS: Final = (1, 1)
"""Of archives whose variants have all constants in common."""
_PLAIN_VERSION: Final = (1, 0)
"""Of those that also have no modules, and the weights inside: those who know no later one read them, too."""
PROVENANCE_ATTRIBUTE: Final = "tilewright.provenance"
"""JSON: what was compiled, how, by which compiler (SLSA)."""
BILL_ATTRIBUTE: Final = "tilewright.sbom"
"""JSON: the parts of the artifact and the tools that made them (CycloneDX)."""
PROVENANCE_SYMBOL: Final = "tilewright_provenance"
BILL_SYMBOL: Final = "tilewright_sbom"
"""The same of an exported library: symbols with a text that ends with a zero."""
SOURCES_LIMIT_BYTES: Final = 1 << 28


@final
@record(kw_only=True)
class Variant:
    """Code of every kernel for one target, and the plan whose grids fit that code.

    Runs where the machine has all `features`; `image` is empty if nothing became machine code.
    `constants` are the places of its weights among the artifact's, in the order of the plan's constant storages.
    """

    target: str
    arch: str
    features: frozenset[str]
    format: str
    image: Buffer
    plan: Plan
    constants: tuple[int, ...]


@final
@record
class Needs:
    """What a variant needs, as the manifest says it."""

    target: str
    arch: str
    features: frozenset[str]


@final
@record
class CarriedModule:
    """A module of functions that the plan calls: its bytes, and the kind whose loader reads them."""

    kind: str
    data: Buffer


@final
@record(kw_only=True)
class OutsideWeights:
    """The weights that lie in another file.

    Attributes:
        file: its name, without folder: where it is looked for, beside the archive.
        names: of each constant in the file, in the order that variants count them in.
        sizes: their bytes.
        checksums: their CRC-32; None in archives that were made before there were any.
    """

    file: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    checksums: tuple[int, ...] | None = None


@final
@record(kw_only=True)
class Artifact:
    """What a runtime needs to run a model without a virtual machine.

    Ownership: buffers may be views of a mapped file, which they keep alive.
    `constants` are those of all variants, each once, of which a variant takes its own (`constants_of`); none
    where `weights` says that they lie outside.
    `modules` are those whose functions the plan calls.
    `checks` say what outputs must be to each other, where the model checks itself.
    `sources` maps `graph`, `kernel/<name>`, `llvm/<name>` … to texts; empty when left out.
    """

    variants: tuple[Variant, ...]
    constants: tuple[Buffer, ...]
    modules: tuple[CarriedModule, ...] = ()
    producer: str = f"tilewright {PRODUCER_VERSION}"
    sources: Mapping[str, str] = field(default_factory=dict)
    weights: OutsideWeights | None = None
    checks: tuple[Check, ...] = ()

    def constants_of(self, variant: Variant) -> tuple[Buffer, ...]:
        """The weights of a variant, in the order of its plan's constant storages."""
        return tuple(self.constants[place] for place in variant.constants)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each constant, inside or outside."""
        if self.weights is not None:
            return self.weights.sizes
        return tuple(view_bytes(data).nbytes for data in self.constants)

    def own_bytes(self, variant: Variant) -> int:
        """The bytes of weights that no other variant reads."""
        others = {
            p for other in self.variants if other is not variant for p in other.constants
        }
        return sum(self.sizes[place] for place in {*variant.constants} - others)


def embed(artifact: Artifact, module: ModuleDef) -> ModuleDef:
    """`module` with the artifact in rodata and attributes.

    Requires: rodata of `module` begins with the variants' images, then the constants, as
    `leading_rodata` lists them, so that its bytecode can refer to them.
    """
    lead = leading_rodata(artifact)
    if len(module.rodata) < len(lead):
        raise ArchiveError("module lacks the artifact's rodata", location=module.name)
    rodata = [*module.rodata]
    plan_index = len(rodata)
    plans = [to_json(v.plan) for v in artifact.variants]
    rodata.extend(Rodata(data=plan) for plan in plans)
    sources_index = -1
    if artifact.sources:
        sources_index = len(rodata)
        text = json.dumps(dict(artifact.sources), separators=(",", ":"), sort_keys=True)
        rodata.append(Rodata(data=zlib.compress(text.encode(), 6)))
    modules = [
        {"kind": m.kind, "rodata": index, "crc32": zlib.crc32(view_bytes(m.data))}
        for index, m in enumerate(artifact.modules, len(rodata))
    ]
    rodata.extend(Rodata(data=m.data) for m in artifact.modules)
    count = len(artifact.variants)
    every = tuple(range(len(artifact.sizes)))
    is_shared = all(v.constants == every for v in artifact.variants)
    manifest: dict[str, object] = {
        "version": list(_version(artifact, is_shared=is_shared)),
        "producer": artifact.producer,
        "sources": sources_index,
        "constants": list(range(count, count + len(artifact.constants))),
        "variants": [
            {
                **_variant_row(v, plan),
                "rodata": index,
                "plan": plan_index + index,
                **({} if is_shared else {"constants": list(v.constants)}),
            }
            for index, (v, plan) in enumerate(zip(artifact.variants, plans, strict=True))
        ],
    }
    if modules:
        manifest["modules"] = modules
    if artifact.checks:
        # A reader that is older does not compare.
        manifest["checks"] = to_rows(artifact.checks)
    if artifact.weights is not None:
        manifest["weights"] = _weights_row(artifact.weights)
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True)
    attributes = {
        **module.attributes,
        MANIFEST_ATTRIBUTE: text,
        SEAL_ATTRIBUTE: SEAL_KIND,
    }
    return replace(module, rodata=tuple(rodata), attributes=attributes)


def _weights_row(weights: OutsideWeights) -> dict[str, object]:
    """What the manifest says of weights in another file; readers that are older do not compare."""
    row: dict[str, object] = {
        "file": weights.file,
        "names": list(weights.names),
        "sizes": list(weights.sizes),
    }
    if weights.checksums is not None:
        row["crc32"] = list(weights.checksums)
    return row


def _variant_row(variant: Variant, plan: Buffer) -> dict[str, object]:
    """What the manifest says of a variant, but for where it is."""
    return {
        "target": variant.target,
        "arch": variant.arch,
        "features": sorted(variant.features),
        "format": variant.format,
        "crc32": zlib.crc32(view_bytes(variant.image)),
        "plan_crc32": zlib.crc32(view_bytes(plan)),
    }


def _version(artifact: Artifact, *, is_shared: bool) -> tuple[int, int]:
    """The lowest version that says all of it."""
    if not is_shared:
        return MANIFEST_VERSION
    is_plain = artifact.weights is None and not artifact.modules
    return _PLAIN_VERSION if is_plain else _WITHOUT_OWN_CONSTANTS


def leading_rodata(artifact: Artifact) -> tuple[Rodata, ...]:
    """The segments that bytecode refers to: images, then constants, in order."""
    images = (Rodata(data=v.image) for v in artifact.variants)
    return (*images, *(Rodata(data=c) for c in artifact.constants))


def is_artifact(module: ModuleDef) -> bool:
    """Whether the module was made by Tilewright and can run from its plan."""
    return MANIFEST_ATTRIBUTE in module.attributes


def extract(module: ModuleDef, location: str = "module") -> Artifact:
    """The artifact in a module; buffers are views of the module's rodata.

    Raises: ArchiveError if there is none, or it is malformed or of a newer version.
    """
    with _no_surprise(location):
        return _extract(_manifest(module, location), module, location)


def read_needs(module: ModuleDef, location: str = "module") -> tuple[Needs, ...]:
    """What each variant in a module needs; reads no plan.

    Raises: ArchiveError as `extract`.
    """
    with _no_surprise(location):
        rows = cast("Sequence[dict[str, object]]", _manifest(module, location)["variants"])
        for row in rows:
            _check_code(row, _segment(module, row["rodata"], location), location)
        return tuple(map(_needs, rows))


def _check_code(row: dict[str, object], image: Buffer, location: str) -> None:
    """Refuse code that a disk or a transfer has damaged, before it could run.

    Says nothing about who wrote it.  Archives made before there was a checksum have none.
    """
    _check_sum(row, "crc32", image, "code", location)


def _check_sum(
    row: dict[str, object], key: str, data: Buffer, subject: str, location: str
) -> None:
    wanted = row.get(key)
    if wanted is not None and zlib.crc32(view_bytes(data)) != wanted:
        raise ArchiveError(
            f"the {subject} for '{row['target']}' is damaged",
            location=location,
            hint=OF_DAMAGE,
        )


def _read_plan(row: dict[str, object], data: Buffer, location: str) -> Plan:
    _check_sum(row, "plan_crc32", data, "plan", location)
    return from_json(view_bytes(data))


def _segment(module: ModuleDef, index: object, location: str) -> Buffer:
    if type(index) is not int or not 0 <= index < len(module.rodata):
        raise ArchiveError(f"manifest names rodata segment {index!r}", location=location)
    return module.rodata[index].data


def _needs(row: dict[str, object]) -> Needs:
    features = map(str, cast("Sequence[object]", row["features"]))
    return Needs(str(row["target"]), str(row["arch"]), frozenset(features))


@contextmanager
def _no_surprise(location: str) -> Generator[None]:
    """Whatever a manifest of another form leads to is an error about the archive."""
    try:
        yield
    except ArchiveError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArchiveError(
            f"malformed manifest: {what_is_wrong(error)}", location=location, hint=OF_DAMAGE
        ) from error


def _manifest(module: ModuleDef, location: str) -> dict[str, object]:
    """The manifest of a version that we read."""
    text = module.attributes.get(MANIFEST_ATTRIBUTE)
    if text is None:
        raise ArchiveError(
            "no Tilewright manifest in this module",
            location=location,
            hint="modules of other compilers run through the virtual machine (engine='vm')",
        )
    manifest = cast("dict[str, object]", read_json(text))
    major, minor = cast("list[int]", manifest["version"])
    producer = str(manifest["producer"])
    if major != MANIFEST_VERSION[0] or minor > MANIFEST_VERSION[1]:
        raise ArchiveError(
            f"made by {producer} with manifest version {major}.{minor}, this is "
            f"tilewright {PRODUCER_VERSION} which reads up to "
            f"{MANIFEST_VERSION[0]}.{MANIFEST_VERSION[1]}",
            location=location,
            hint=version_hint(
                "compile the model again", is_newer=major >= MANIFEST_VERSION[0]
            ),
        )
    return manifest


def _extract(manifest: dict[str, object], module: ModuleDef, location: str) -> Artifact:
    def segment(index: object) -> Buffer:
        return _segment(module, index, location)

    sources = manifest["sources"]
    constants = tuple(segment(i) for i in cast("Sequence[object]", manifest["constants"]))
    weights = _read_weights(manifest)
    sizes = tuple(view_bytes(data).nbytes for data in constants)
    if weights is not None:
        sizes = weights.sizes
    rows = cast("Sequence[dict[str, object]]", manifest["variants"])
    variants = tuple(
        Variant(
            target=needs.target,
            arch=needs.arch,
            features=needs.features,
            format=str(row["format"]),
            image=segment(row["rodata"]),
            plan=_read_plan(row, segment(row["plan"]), location),
            constants=_places(row, len(sizes)),
        )
        for row, needs in zip(rows, map(_needs, rows), strict=True)
    )
    if not variants:
        raise ArchiveError("manifest lists no variant", location=location)
    for row, variant in zip(rows, variants, strict=True):
        _check_code(row, variant.image, location)
        own = [sizes[place] for place in variant.constants]
        _check_constants(variant.plan, own, location)
    return Artifact(
        weights=weights,
        variants=variants,
        constants=constants,
        modules=_modules(manifest, module, location),
        producer=str(manifest["producer"]),
        checks=from_rows(manifest.get("checks", ())),
        sources={} if sources == -1 else _CompressedSources(segment(sources), location),
    )


def _places(row: Mapping[str, object], count: int) -> tuple[int, ...]:
    """Which of `count` constants a variant reads (since 1.2; before, all).  Raises: ValueError for no place of one."""
    if "constants" not in row:
        return tuple(range(count))
    places = tuple(cast("Sequence[int]", row["constants"]))
    odd = [place for place in places if type(place) is not int or not 0 <= place < count]
    if odd:
        raise ValueError(f"{odd[0]!r:.80} is no place of one of {count} constants")
    return places


def _read_weights(manifest: Mapping[str, object]) -> OutsideWeights | None:
    """What the manifest says of weights in another file.

    Raises: ValueError for what is no name of one, and sizes or checksums that can be none.
    """
    if "weights" not in manifest:
        return None
    row = cast("dict[str, object]", manifest["weights"])
    file = str(row["file"])
    is_name = file not in ("", "..") and PurePath(file).name == file and "\\" not in file
    if not is_name or not file.isprintable():
        raise ValueError(f"'{file:.80}' is no name of a file of weights")
    names = tuple(map(str, cast("Sequence[object]", row["names"])))
    sizes = tuple(cast("Sequence[int]", row["sizes"]))
    if any(type(size) is not int or size < 0 for size in sizes) or len(names) != len(sizes):
        raise ValueError("sizes of weights do not fit their names")
    checksums = tuple(cast("Sequence[int]", row["crc32"])) if "crc32" in row else None
    if checksums is not None:
        is_odd = any(type(one) is not int or not 0 <= one < 1 << 32 for one in checksums)
        if is_odd or len(checksums) != len(names):
            raise ValueError("checksums of weights do not fit their names")
    return OutsideWeights(file=file, names=names, sizes=sizes, checksums=checksums)


def _modules(
    manifest: dict[str, object], module: ModuleDef, location: str
) -> tuple[CarriedModule, ...]:
    """The modules (since 1.1), whose bytes are those that were written."""
    found: list[CarriedModule] = []
    for row in cast("Sequence[dict[str, object]]", manifest.get("modules", ())):
        kind, data = row["kind"], _segment(module, row["rodata"], location)
        if not isinstance(kind, str) or not kind:
            raise ArchiveError(f"{kind!r:.80} is no kind of modules", location=location)
        if zlib.crc32(view_bytes(data)) != row["crc32"]:
            raise ArchiveError(
                f"the module of kind '{kind}' is damaged",
                location=location,
                hint=OF_DAMAGE,
            )
        found.append(CarriedModule(kind, data))
    return tuple(found)


def _check_constants(plan: Plan, sizes: Sequence[int], location: str) -> None:
    wanted = [s for s in plan.storages if s.kind == "constant"]
    if len(wanted) != len(sizes):
        raise ArchiveError(
            f"{len(sizes)} constants, the plan needs {len(wanted)}", location=location
        )
    for storage, size in zip(wanted, sizes, strict=True):
        if not isinstance(storage.size_bytes, int) or size < storage.size_bytes:
            raise ArchiveError(
                f"constant '{storage.name}' has {size} bytes, expected {storage.size_bytes}",
                location=location,
            )


@final
class _CompressedSources(Mapping[str, str]):
    """Printed levels that are inflated when somebody looks at them: running needs none."""

    def __init__(self, data: Buffer, location: str) -> None:
        self._data: Buffer = data
        self._location: str = location

    @lazy
    def _texts(self) -> Mapping[str, str]:
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(bytes(view_bytes(self._data)), SOURCES_LIMIT_BYTES)
            rows = cast("dict[str, object]", read_json(data))
            return {str(name): str(text) for name, text in rows.items()}
        except (zlib.error, ValueError, AttributeError, RecursionError) as error:
            raise ArchiveError(
                f"sources are corrupt: {what_is_wrong(error)}", location=self._location
            ) from error

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
