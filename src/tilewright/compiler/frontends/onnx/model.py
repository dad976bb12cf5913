"""Reads an ONNX model from a path, bytes or proto, and says where its weights are.

Large tensors stay mapped in their file.  Not the importer: nothing here looks at nodes.  Called
by `load` and `coverage`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Final, final

from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto, OperatorSetIdProto, defs

from tilewright.base.diagnostics import warn
from tilewright.base.errors import ModelError
from tilewright.base.file_kinds import COMPILE, kind_of
from tilewright.base.input_file import why_no_file
from tilewright.base.record import record
from tilewright.compiler.frontends.kit.metadata import ModelMetadata
from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.scope import by_name
from tilewright.compiler.frontends.onnx.tensors import BytesOutside, map_file
from tilewright.compiler.frontends.onnx.wire import CutError, MalformedError, detach

Source = str | PathLike[str] | bytes | bytearray | memoryview | ModelProto

OLDEST_OPSET: Final = 6
"""The oldest that rows know; `oldest_forms` makes nodes of it out of older ones."""
NEWEST_OPSET: Final = int(defs.onnx_opset_version())
_FORMATS: Final = (
    "files of models are ONNX (.onnx), StableHLO (.mlir, .mlirbc) and GGUF (.gguf): "
    "export it to one of them"
)


@final
@record
class OpenModel:
    """A parsed model, the place of its weights, what to call it in messages, and its file."""

    proto: ModelProto
    storage: BytesOutside
    file: str
    path: Path | None = None


def open_model(source: Source) -> OpenModel:
    """Parse `source`.

    Raises: ModelError when there is no such file or it is not an ONNX model.
    """
    if isinstance(source, ModelProto):
        return _checked(OpenModel(source, BytesOutside(), "<proto>"))
    if isinstance(source, bytes | bytearray | memoryview):
        return _parse(memoryview(source).cast("B"), None, "<bytes>")
    if not isinstance(source, str | PathLike):
        raise ModelError(
            f"got {type(source).__name__}, expected a path, bytes, an onnx.ModelProto, a graph, or a module of PyTorch"
        )
    path = Path(source)
    problem = why_no_file(path)
    if problem is not None:
        raise ModelError(problem, location=path)
    try:
        data = map_file(path)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", location=path) from error
    # Absolute: the current folder may be another one when somebody writes.
    return replace(_parse(data, path.parent, path.name), path=path.absolute())


def _parse(data: memoryview, folder: Path | None, file: str) -> OpenModel:
    token = f"\0{secrets.token_hex(16)}"
    try:
        detached = detach(data, token)
        proto = ModelProto.FromString(detached.skeleton)
    except CutError as error:
        raise ModelError(
            f"the file is cut: it has {len(data)} of at least {error.expected} bytes",
            location=file,
            hint="get the file again, whole",
        ) from error
    except (MalformedError, DecodeError) as error:
        raise ModelError(
            "is not an ONNX model: its bytes are not a valid protobuf",
            location=file,
            hint=_remedy(file),
        ) from error
    storage = BytesOutside(folder, data if detached.count else None, token)
    return _checked(OpenModel(proto, storage, file))


def _checked(model: OpenModel) -> OpenModel:
    proto = model.proto
    if not proto.HasField("graph"):
        raise ModelError(
            "is not an ONNX model: it has no graph",
            location=model.file,
            hint=_remedy(model.file),
        )
    return model


def _remedy(file: str) -> str:
    """What to do about a file that is no ONNX model, by what it is called."""
    kind = kind_of(file)
    if kind is None or Path(file).suffix.lower() == ".onnx":
        return _FORMATS
    # Other models come here only where ONNX is all that is taken.
    is_model = kind.remedy == COMPILE
    return (
        f"{kind.subject} is not taken here, only ONNX; tilewright.compile takes it"
        if is_model
        else kind.remedy
    )


def imported(function: FunctionProto) -> dict[str, int]:
    """Version per domain of a function.  Raises: ModelError for a domain of two versions, which readers take differently."""
    return by_name(_versions(function.opset_import), "opset of domain")


def _versions(entries: Iterable[OperatorSetIdProto]) -> list[tuple[str, int]]:
    return [(normal_domain(text_of(e.domain)), int(e.version)) for e in entries]


def functions_of(proto: ModelProto) -> dict[tuple[str, str, str], FunctionProto]:
    """A model's own functions by domain, name and overload.  Raises: ModelError for two of one name that differ."""
    found: dict[tuple[str, str, str], FunctionProto] = {}
    for f in proto.functions:
        key = normal_domain(text_of(f.domain)), text_of(f.name), text_of(f.overload)
        if found.setdefault(key, f) != f:
            raise ModelError(f"function '{'::'.join(filter(None, key))}' is there twice")
    return found


def opset_versions(proto: ModelProto) -> dict[str, int]:
    """Version per domain, the last one that the model names, as in onnxruntime; ONNX itself is the empty domain."""
    found = dict(_versions(proto.opset_import))
    if not found and proto.ir_version < 3:
        return {"": 1}
    return found


def warn_of_versions(model: OpenModel) -> None:
    """Warn of domains that a model imports at several versions: other readers may take another one."""
    for domain, taken in opset_versions(model.proto).items():
        named = [v for d, v in _versions(model.proto.opset_import) if d == domain]
        others = dict.fromkeys(str(version) for version in named if version != taken)
        if others:
            warn(
                f"{model.file}: opset {taken} of domain '{domain or 'ai.onnx'}' is taken, the last that the model "
                f"imports; it imports {' and '.join(others)}, too\n"
                "hint: keep one entry of opset_import for each domain"
            )


def defaults_of(proto: ModelProto) -> frozenset[str]:
    """The initializers that a caller may replace: those that are inputs, too.

    Up to IR version 3 every initializer is listed as an input, and none may be.  A compiled model keeps what it has.
    """
    if proto.ir_version < 4:
        return frozenset()
    stored = [text_of(t.name) for t in proto.graph.initializer]
    stored += [text_of(t.values.name) for t in proto.graph.sparse_initializer]
    return frozenset(text_of(v.name) for v in proto.graph.input) & frozenset(stored)


def normal_domain(domain: str) -> str:
    """The empty string for both spellings of ONNX's own domain."""
    return "" if domain == "ai.onnx" else domain


def metadata_of(model: OpenModel) -> ModelMetadata:
    """What the model says about itself."""
    proto = model.proto
    opsets = opset_versions(proto)
    producer = f"{text_of(proto.producer_name)} {text_of(proto.producer_version)}".strip()
    return ModelMetadata(
        name=text_of(proto.graph.name) or model.file,
        opset=opsets.get("", 0),
        opsets=tuple(sorted(opsets.items())),
        ir_version=int(proto.ir_version),
        producer=producer,
        description=text_of(proto.doc_string),
        domain=text_of(proto.domain),
        version=int(proto.model_version),
        graph_description=text_of(proto.graph.doc_string),
        properties={text_of(p.key): text_of(p.value) for p in proto.metadata_props},
    )


def read_metadata(source: Source) -> ModelMetadata:
    """What a model says about itself; its weights are not read.

    Raises: ModelError when there is no such file or it is not an ONNX model.
    """
    return metadata_of(open_model(source))
