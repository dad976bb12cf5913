"""The door to all front ends: one table, and which one a model is for.

A front end is chosen by the suffix of a file, else by how its contents begin, and loaded for its first model: together
they are a third of the compiler.  Called by the pipeline.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

from tilewright.base.errors import UserError
from tilewright.base.file_kinds import LOAD_MODULE, kind_of
from tilewright.base.input_file import read_beginning
from tilewright.base.record import record
from tilewright.compiler.frontends.kit import beginnings
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
class Entrance:
    """What a loaded front end does.

    Attributes:
        load: a model as a graph.
        coverage: how each operation of a model will run.
    """

    load: Callable[[Source, Shaping], ModelGraph]
    coverage: Callable[[Source, Shaping, Judge | None], CoverageReport]


@final
@record
class FrontEnd:
    """One format of models.

    Attributes:
        name: of the format, as people write it.
        suffixes: of its files.
        begins: what its contents begin with; None: it is taken where no other fits.
        enter: loads the front end.
        useless: fields of `Shaping` that models of the format have no use for, and what to do instead.
    """

    name: str
    suffixes: tuple[str, ...]
    begins: re.Pattern[bytes] | None
    enter: Callable[[], Entrance]
    useless: Mapping[str, str]

    def load(self, source: Source, shaping: Shaping) -> ModelGraph:
        """A model as a graph.  Raises: UserError for what it has no use for."""
        self._check(source, shaping)
        return self.enter().load(source, shaping)

    def coverage(
        self, source: Source, shaping: Shaping, judge: Judge | None
    ) -> CoverageReport:
        """How each operation of a model will run.  Raises: UserError for what it has no use for."""
        self._check(source, shaping)
        return self.enter().coverage(source, shaping, judge)

    def _check(self, source: Source, shaping: Shaping) -> None:
        for name, hint in self.useless.items():
            if getattr(shaping, name):
                file = Path(source).name if isinstance(source, str | PathLike) else None
                raise UserError(
                    f"{name} is for {_TAKEN_BY[name]}", location=file, hint=hint
                )


def _enter_onnx() -> Entrance:
    from tilewright.compiler.frontends import onnx  # noqa: PLC0415 - for its first model

    def load(source: Source, shaping: Shaping) -> ModelGraph:
        model = onnx.load_model(
            source, input_shapes=shaping.input_shapes, input_values=shaping.input_values
        )
        return ModelGraph(model.graph, model.files)

    def coverage(source: Source, shaping: Shaping, judge: Judge | None) -> CoverageReport:
        return onnx.coverage(
            source,
            input_shapes=shaping.input_shapes,
            input_values=shaping.input_values,
            judge=judge,
        )

    return Entrance(load, coverage)


def _enter_stablehlo() -> Entrance:
    from tilewright.compiler.frontends import stablehlo  # noqa: PLC0415 - for its first model

    return Entrance(
        lambda source, _: stablehlo.load(cast("Any", source)),
        lambda source, _, judge: stablehlo.coverage(cast("Any", source), judge=judge),
    )


def _enter_gguf() -> Entrance:
    from tilewright.compiler.frontends import gguf  # noqa: PLC0415 - for its first model

    return Entrance(
        lambda source, shaping: gguf.load(cast("Any", source), shaping.input_shapes),
        lambda source, shaping, judge: gguf.coverage(
            cast("Any", source), shaping.input_shapes, judge
        ),
    )


def _enter_torch() -> Entrance:
    from tilewright.compiler.frontends import torch  # noqa: PLC0415 - for its first model

    return Entrance(
        lambda source, _: torch.load(source),
        lambda source, _, judge: torch.coverage(source, judge=judge),
    )


_TAKEN_BY: Final = {"input_shapes": "ONNX and GGUF models", "input_values": "ONNX models"}
_SIZES_OF_MODULES: Final = dict.fromkeys(
    _TAKEN_BY, "the sizes of a module stand in it: export it with others, or with symbols"
)
_SIZES_OF_TORCH: Final = dict.fromkeys(
    _TAKEN_BY,
    "args=, and dynamic_shapes= for sizes that a call decides, say what it is exported for",
)
_VALUES_OF_LANGUAGE: Final = {
    "input_values": "every input of a language model is given by a call"
}

_ONNX: Final = FrontEnd("ONNX", (".onnx",), None, _enter_onnx, {})
_STABLEHLO: Final = FrontEnd(
    "StableHLO",
    (".mlir", ".mlirbc", ".stablehlo"),
    # Of text a comment or the name of an attribute or type is enough: what follows may be far behind.
    re.compile(
        beginnings.MLIR_BYTECODE + b"|" + beginnings.SAVED_EXPORT + b"|"
        rb'\s*(?://|[#!][\w.$-]+\s*=|"?(?:(?:builtin\.)?module|func\.func)\b)'
    ),
    _enter_stablehlo,
    _SIZES_OF_MODULES,
)
_GGUF: Final = FrontEnd(
    "GGUF", (".gguf",), re.compile(rb"GGUF"), _enter_gguf, _VALUES_OF_LANGUAGE
)
# Models of PyTorch are objects, no files.
_TORCH: Final = FrontEnd("PyTorch", (), None, _enter_torch, _SIZES_OF_TORCH)
FRONT_ENDS: Final = (_STABLEHLO, _GGUF, _TORCH, _ONNX)


def front_end_of(source: Source) -> FrontEnd:
    """The front end for a model: a path, bytes, or an object of its format."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        by_suffix = [f for f in FRONT_ENDS if path.suffix.lower() in f.suffixes]
        if by_suffix:
            return by_suffix[0]
        called = kind_of(path)
        is_code = (
            called is not None and called.remedy == LOAD_MODULE
        )  # may begin as StableHLO does
        return _ONNX if is_code else _by_contents(_beginning(path))
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
