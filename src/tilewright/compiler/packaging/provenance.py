"""Where an artifact comes from and what is in it: provenance (SLSA) and a bill of materials (CycloneDX).

Both are JSON and depend on nothing but what was compiled and how: no path, no name of a machine, no
number of processes, and a time only where SOURCE_DATE_EPOCH gives one.  So the same model still becomes
the same bytes.  Written into archives as module attributes, shown by `tilewright inspect`.  Says nothing
about who vouches for it: that is what signatures are for (`formats.signature`).

Source: SLSA provenance v1, CycloneDX 1.6.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

import numpy as np

from tilewright.base import knobs
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.record import field, record
from tilewright.base.version import VERSION
from tilewright.compiler.graph.ir import Graph
from tilewright.formats.artifact import (
    BILL_ATTRIBUTE,
    BILL_SYMBOL,
    PROVENANCE_ATTRIBUTE,
    PROVENANCE_SYMBOL,
    Artifact,
    CarriedModule,
)
from tilewright.formats.byte_view import Buffer, view_bytes

Json = dict[str, object]

_BUILD_TYPE: Final = "urn:tilewright:compile:1"
_BUILDER: Final = "urn:tilewright"
_CHUNK_BYTES: Final = 1 << 24
_CORE: Final = "tilewright core"


@final
@record
class FileStamp:
    """A file as it was when the model was read; `name` is how the model calls it."""

    name: str
    path: Path
    size_bytes: int
    changed_ns: int

    @staticmethod
    def of(name: str, path: Path) -> FileStamp:
        """The stamp of a file that is there."""
        status = path.stat()
        return FileStamp(name, path, status.st_size, status.st_mtime_ns)

    def digest(self) -> str:
        """SHA-256 of the file; empty if it is not the one that was read any more."""
        try:
            if FileStamp.of(self.name, self.path) != self:
                return ""
            found = hashlib.sha256()
            with self.path.open("rb") as file:
                while piece := file.read(_CHUNK_BYTES):
                    found.update(piece)
        except OSError:
            return ""
        return found.hexdigest()


@final
@record(kw_only=True)
class Origin:
    """What was compiled, and how.

    Attributes:
        kind: of the source: `onnx file`, `onnx bytes`, `onnx.ModelProto`, `graph`.
        files: those it was read from, the model's own first.
        digest: SHA-256 of a source that came as bytes.
        options: what the bytes of the artifact depend on, beside the source.
    """

    kind: str = "graph"
    files: tuple[FileStamp, ...] = ()
    digest: str = ""
    options: Mapping[str, object] = field(default_factory=dict[str, object])

    @staticmethod
    def of(source: object, files: Sequence[Path], options: Mapping[str, object]) -> Origin:
        """The origin of a model that was read just now."""
        if isinstance(source, bytes | bytearray | memoryview):
            digest = hashlib.sha256(source).hexdigest()
            return Origin(kind="onnx bytes", digest=digest, options=options)
        if not files:
            kind = "graph" if isinstance(source, Graph) else "onnx.ModelProto"
            return Origin(kind=kind, options=options)
        folder = files[0].parent
        stamps = [FileStamp.of("model", files[0])]
        stamps += [FileStamp.of(_relative(path, folder), path) for path in files[1:]]
        kind = "onnx file" if isinstance(source, str | Path) else "onnx.ModelProto"
        return Origin(kind=kind, files=tuple(stamps), options=options)

    def with_options(self, **found: object) -> Origin:
        """This origin with what was only found while compiling; nothing of what is empty."""
        more = {name: value for name, value in found.items() if value}
        return replace(self, options={**self.options, **more})


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def digest_of_array(array: np.ndarray) -> str:
    """SHA-256 of an array's type, shape and elements."""
    found = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def describe_artifact(name: str, artifact: Artifact, origin: Origin) -> dict[str, str]:
    """The module attributes that say where an artifact comes from and what is in it."""
    code = [(v.target, v.format, [v.image]) for v in artifact.variants]
    bill = bill_of_materials(name, code, artifact.constants, artifact.modules)
    return {
        PROVENANCE_ATTRIBUTE: _text(provenance(origin)),
        BILL_ATTRIBUTE: _text(bill),
    }


def describe_library(
    name: str,
    objects: Mapping[str, bytes],
    targets: Sequence[str],
    constants: Sequence[Buffer],
    modules: Sequence[CarriedModule],
    origin: Origin,
) -> dict[str, str]:
    """The same for an exported library, by the symbols that it has them under."""
    code = [(" and ".join(targets), "objects", [objects[key] for key in sorted(objects)])]
    bill = bill_of_materials(name, code, constants, modules, with_core=True)
    return {
        PROVENANCE_SYMBOL: _text(provenance(origin)),
        BILL_SYMBOL: _text(bill),
    }


def provenance(origin: Origin) -> Json:
    """An SLSA provenance predicate: what was compiled, how, by which compiler."""
    inputs: list[Json] = [_input(f.name, f.digest()) for f in origin.files]
    if not origin.files:
        inputs.append(_input("model", origin.digest))
    details: Json = {"builder": {"id": _BUILDER, "version": tools()}}
    when = _time()
    if when:
        details["metadata"] = {"finishedOn": when}
    return {
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"source": origin.kind, **origin.options},
                "resolvedDependencies": inputs,
            },
            "runDetails": details,
        },
    }


def _input(name: str, digest: str) -> Json:
    known: Json = {"digest": {"sha256": digest}} if digest else {}
    return {"name": name, **known}


@functools.cache
def tools() -> Mapping[str, str]:
    """The compilers at work, with their versions."""
    with LATE_IMPORTS:
        from importlib import metadata  # noqa: PLC0415 - 10 ms that only what is saved should pay

        # LLVM is the one that llvmlite brings; asking it would load it into this process, which nobody does.
        return {"tilewright": VERSION, "llvmlite": metadata.version("llvmlite")}


def bill_of_materials(
    name: str,
    code: Iterable[tuple[str, str, Iterable[Buffer]]],
    constants: Sequence[Buffer],
    modules: Sequence[CarriedModule] = (),
    *,
    with_core: bool = False,
) -> Json:
    """A CycloneDX document: the parts of an artifact and the tools that made them.

    Args:
        name: of the model.
        code: target, format and content of each.
        constants: the weights.
        modules: what code generators of users made.
        with_core: the C core is a part, too.
    """
    versions = tools()
    parts = [
        _part(f"code for {target}", "application", data, form)
        for target, form, data in code
    ]
    if constants:
        parts.append(_part("weights", "data", constants, "tensors"))
    parts += [
        _part(
            f"module {index} of kind '{module.kind}'", "library", [module.data], module.kind
        )
        for index, module in enumerate(modules)
    ]
    if with_core:
        core: Json = {
            "type": "library",
            "bom-ref": _CORE,
            "name": _CORE,
            "version": VERSION,
        }
        parts.append(core)
    metadata: Json = {
        "tools": {
            "components": [
                {"type": "application", "name": tool, "version": version}
                for tool, version in versions.items()
            ]
        },
        "component": {"type": "machine-learning-model", "bom-ref": "model", "name": name},
    }
    when = _time()
    if when:
        metadata["timestamp"] = when
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": parts,
        "dependencies": [{"ref": "model", "dependsOn": [p["bom-ref"] for p in parts]}],
    }


def _part(name: str, kind: str, data: Iterable[Buffer], form: str) -> Json:
    found, size = hashlib.sha256(), 0
    for piece in map(view_bytes, data):
        found.update(piece)
        size += len(piece)
    return {
        "type": kind,
        "bom-ref": name,
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": found.hexdigest()}],
        "properties": [
            {"name": "tilewright:format", "value": form},
            {"name": "tilewright:bytes", "value": str(size)},
        ],
    }


def _time() -> str:
    """What SOURCE_DATE_EPOCH says, as ISO 8601; empty without it."""
    seconds = knobs.SOURCE_DATE_EPOCH.get()
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _text(document: Json) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))
