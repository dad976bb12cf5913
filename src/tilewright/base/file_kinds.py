"""What a file is by its suffix, and who takes it: what errors say where a file of another kind was expected.

Called by the readers of models, artifacts and libraries, once they have refused a file.  Contents decide before names do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from tilewright.base.record import record


@final
@record
class FileKind:
    """Files of one kind.

    Attributes:
        subject: what one is, as in "is an ONNX model".
        remedy: what to do with it, a hint.
    """

    subject: str
    remedy: str


ARTIFACT_SUFFIX: Final = ".vmfb"
COMPILE: Final = "compile it first: tilewright.compile or tilewright compile"
LOAD_MODULE: Final = (
    "it is a library: tilewright.runtime.load_module loads it, tilewright run calls it, "
    "tilewright inspect lists its functions"
)
RUN: Final = "it is a program: run it, or export a library: .so"
_LOAD: Final = "it is compiled already: tilewright.load or tilewright run"
_SPEAK: Final = "tilewright.LanguageModel or tilewright generate speaks with it"
_TORCH: Final = (
    "files of PyTorch can run code when they are read: load it yourself, then "
    "tilewright.compile(program) or tilewright.compile(module, (x,))"
)
_KERAS: Final = "export it from Keras: model.export('model.onnx', format='onnx')"
_PICKLED: Final = "if it is a model of scikit-learn, XGBoost or LightGBM, skl2onnx or onnxmltools make ONNX of it"
_TFLITE: Final = (
    "make ONNX of it: python -m tf2onnx.convert --tflite FILE --output model.onnx"
)
_WEIGHTS: Final = (
    "it has weights alone: export the model that they belong to; an artifact takes them as "
    "tilewright.load(path, parameters=[...])"
)
_KINDS: Final[Mapping[str, FileKind]] = {
    suffix: FileKind(subject, remedy)
    for suffixes, subject, remedy in (
        (".onnx", "an ONNX model", COMPILE),
        (".mlir .mlirbc .stablehlo", "a StableHLO module", COMPILE),
        (".gguf", "a language model (GGUF)", _SPEAK),
        (ARTIFACT_SUFFIX, "an artifact", _LOAD),
        (".so .dylib .dll", "a shared library", LOAD_MODULE),
        (".o .obj", "an object", LOAD_MODULE),
        (".a .lib", "a static library", LOAD_MODULE),
        (".tar", "an archive (tar)", LOAD_MODULE),
        (".c .ll .s", "the source of a library", LOAD_MODULE),
        (".pt .pth .pt2", "a file of PyTorch", _TORCH),
        (".keras .h5", "a model of Keras", _KERAS),
        (".tflite", "a model of TensorFlow Lite", _TFLITE),
        (".pkl .joblib", "a pickled object", _PICKLED),
        (".safetensors .irpa .params", "a file of weights", _WEIGHTS),
    )
    for suffix in suffixes.split()
}  # fmt: skip


def kind_of(path: str | Path) -> FileKind | None:
    """What a file is called as; None for a suffix that is not known."""
    return _KINDS.get(Path(path).suffix.lower())


def is_artifact_name(path: str | Path) -> bool:
    """Whether a file is called as an artifact is, in letters of any case."""
    return Path(path).suffix.lower() == ARTIFACT_SUFFIX
