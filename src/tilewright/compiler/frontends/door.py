"""The door to all front ends: one table, and which one a model is for.

A front end is chosen by the suffix of a file, else by how its contents begin, and loaded for its first model: together
they are a third of the compiler.  Called by the pipeline.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

from tilewright.base.errors import UserError
from tilewright.base.input_file import read_beginning
from tilewright.base.record import record
from tilewright.compiler.frontends.kit.coverage import CoverageReport, Judge
from tilewright.compiler.frontends.kit.model_graph import ModelGraph

if TYPE_CHECKING:
    from tilewright.compiler.frontends.onnx import Source
    from tilewright.compiler.frontends.onnx.signature import InputShapes, InputValues

_BEGINNING_BYTES: Final = 256


@final
@record(kw_only=True)
class Shaping:
    """What a caller says about the inputs of a model.

    Attributes:
        input_shapes: sizes or names of dimensions, by input.
        input_values: inputs that become constants.
    """

    input_shapes: InputShapes | None = None
    input_values: InputValues | None = None


@final
@record
class FrontEnd:
    """One format of models.

    Attributes:
        name: of the format, as people write it.
        suffixes: of its files.
        begins: what its contents begin with; None: it is taken where no other fits.
        load: a model as a graph.
        coverage: how each operation of a model will run.
    """

    name: str
    suffixes: tuple[str, ...]
    begins: re.Pattern[bytes] | None
    load: Callable[[Source, Shaping], ModelGraph]
    coverage: Callable[[Source, Shaping, Judge | None], CoverageReport]


def _load_onnx(source: Source, shaping: Shaping) -> ModelGraph:
    from tilewright.compiler.frontends import onnx  # noqa: PLC0415 - for its first model

    model = onnx.load_model(
        source, input_shapes=shaping.input_shapes, input_values=shaping.input_values
    )
    return ModelGraph(model.graph, model.files)


def _cover_onnx(source: Source, shaping: Shaping, judge: Judge | None) -> CoverageReport:
    from tilewright.compiler.frontends import onnx  # noqa: PLC0415 - for its first model

    return onnx.coverage(
        source,
        input_shapes=shaping.input_shapes,
        input_values=shaping.input_values,
        judge=judge,
    )


_TAKEN_BY: Final = {"input_shapes": "ONNX and GGUF models", "input_values": "ONNX models"}
_SIZES_OF_MODULES: Final = (
    "the sizes of a module stand in it: export it with others, or with symbols"
)
_SIZES_OF_TORCH: Final = (
    "args=, and dynamic_shapes= for sizes that a call decides, say what it is exported for"
)
_VALUES_OF_LANGUAGE: Final = "every input of a language model is given by a call"


def _load_stablehlo(source: Source, shaping: Shaping) -> ModelGraph:
    from tilewright.compiler.frontends import stablehlo  # noqa: PLC0415 - for its first model

    _refuse(source, shaping, _SIZES_OF_MODULES)
    return stablehlo.load(cast("Any", source))


def _cover_stablehlo(
    source: Source, shaping: Shaping, judge: Judge | None
) -> CoverageReport:
    from tilewright.compiler.frontends import stablehlo  # noqa: PLC0415 - for its first model

    _refuse(source, shaping, _SIZES_OF_MODULES)
    return stablehlo.coverage(cast("Any", source), judge=judge)


def _load_gguf(source: Source, shaping: Shaping) -> ModelGraph:
    from tilewright.compiler.frontends import gguf  # noqa: PLC0415 - for its first model

    _refuse_values(source, shaping)
    return gguf.load(cast("Any", source), shaping.input_shapes)


def _cover_gguf(source: Source, shaping: Shaping, judge: Judge | None) -> CoverageReport:
    from tilewright.compiler.frontends import gguf  # noqa: PLC0415 - for its first model

    _refuse_values(source, shaping)
    return gguf.coverage(cast("Any", source), shaping.input_shapes, judge)


def _refuse_values(source: Source, shaping: Shaping) -> None:
    """Raise UserError for inputs as constants, which no language model has a use for."""
    _refuse(source, Shaping(input_values=shaping.input_values), _VALUES_OF_LANGUAGE)


def _refuse(source: Source, shaping: Shaping, hint: str) -> None:
    """Raise UserError for what models of a format have no use for."""
    for name, formats in _TAKEN_BY.items():
        if getattr(shaping, name):
            file = Path(source).name if isinstance(source, str | PathLike) else None
            raise UserError(f"{name} is for {formats}", location=file, hint=hint)


def _load_torch(source: Source, shaping: Shaping) -> ModelGraph:
    from tilewright.compiler.frontends import torch  # noqa: PLC0415 - for its first model

    _refuse(source, shaping, _SIZES_OF_TORCH)
    return torch.load(source)


def _cover_torch(source: Source, shaping: Shaping, judge: Judge | None) -> CoverageReport:
    from tilewright.compiler.frontends import torch  # noqa: PLC0415 - for its first model

    _refuse(source, shaping, _SIZES_OF_TORCH)
    return torch.coverage(source, judge=judge)


_ONNX: Final = FrontEnd("ONNX", (".onnx",), None, _load_onnx, _cover_onnx)
_STABLEHLO: Final = FrontEnd(
    "StableHLO",
    (".mlir", ".mlirbc", ".stablehlo"),
    # Of text a comment or the name of an attribute or type is enough: what follows may be far behind.
    re.compile(
        rb'ML\xefR|\s*(?://|[#!][\w.$-]+\s*=|"?(?:(?:builtin\.)?module|func\.func)\b)'
    ),
    _load_stablehlo,
    _cover_stablehlo,
)
_GGUF: Final = FrontEnd("GGUF", (".gguf",), re.compile(rb"GGUF"), _load_gguf, _cover_gguf)
# Models of PyTorch are objects, no files.
_TORCH: Final = FrontEnd("PyTorch", (), None, _load_torch, _cover_torch)
FRONT_ENDS: Final = (_STABLEHLO, _GGUF, _TORCH, _ONNX)


def front_end_of(source: Source) -> FrontEnd:
    """The front end for a model: a path, bytes, or an object of its format."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        by_suffix = [f for f in FRONT_ENDS if path.suffix.lower() in f.suffixes]
        return by_suffix[0] if by_suffix else _by_contents(_beginning(path))
    if isinstance(source, bytes | bytearray | memoryview):
        return _by_contents(bytes(memoryview(source).cast("B")[:_BEGINNING_BYTES]))
    if _is_onnx(source):
        return _ONNX
    if _is_exported(source):
        return _STABLEHLO
    return _TORCH if is_torch(source) else _ONNX


def _is_onnx(source: object) -> bool:
    """Whether it is an `onnx.ModelProto`."""
    package = sys.modules.get("onnx")
    return package is not None and isinstance(source, package.ModelProto)


def _is_exported(source: object) -> bool:
    from tilewright.compiler.frontends.stablehlo import is_exported  # noqa: PLC0415 - few are objects

    return is_exported(source)


def is_torch(source: object) -> bool:
    """Whether it is a model of PyTorch, with or without arguments; there is none before torch is loaded."""
    if "torch" not in sys.modules:
        return False
    from tilewright.compiler.frontends import torch  # noqa: PLC0415 - few are objects

    return torch.is_model(source)


def _beginning(path: Path) -> bytes:
    """How a file begins; nothing if it cannot be read, which the front end will say better."""
    try:
        return read_beginning(path, _BEGINNING_BYTES)
    except (OSError, ValueError):
        return b""


def _by_contents(beginning: bytes) -> FrontEnd:
    for found in FRONT_ENDS:
        if found.begins is not None and found.begins.match(beginning):
            return found
    return _ONNX
