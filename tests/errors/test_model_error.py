"""What a model that cannot be compiled says: everything at once, in the model's terms."""

from pathlib import Path

import onnx
import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.base.errors import ModelError


def model(body: str) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    return onnx.parser.parse_model(head + body)


def test_all_unsupported_ops_are_reported_together() -> None:
    made = model("""
        g (float[2,3] x) => (y) {
            [first] a = Softmacks (x)
            [second] b = Reluu (a)
            y = Add (a, b)
        }
    """)
    with pytest.raises(ModelError) as caught:
        tw.compile(made)
    assert str(caught.value).splitlines()[:3] == [
        "<proto>: 2 problems in the model",
        "  Softmacks 'first': op 'Softmacks' is not supported",
        "  Reluu 'second': op 'Reluu' is not supported",
    ]
    assert "'Softmax'" in (caught.value.hint or "")


def test_shapes_that_do_not_fit_name_the_node() -> None:
    made = model("g (float[2,3] x, float[4] w) => (y) { [sum] y = Add (x, w) }")
    with pytest.raises(ModelError) as caught:
        tw.compile(made)
    assert str(caught.value).splitlines()[0] == (
        "<proto>: node 'sum' (Add): shapes [2, 3] and [4] do not broadcast"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    with pytest.raises(ModelError) as caught:
        tw.compile(path)
    assert str(caught.value) == f"{path}: no such file"


def test_bytes_that_are_no_model_are_refused() -> None:
    with pytest.raises(ModelError) as caught:
        tw.compile(b"garbage")
    assert str(caught.value) == (
        "<bytes>: is not an ONNX model: its bytes are not a valid protobuf\n"
        "hint: files of models are ONNX (.onnx), StableHLO (.mlir, .mlirbc) and GGUF (.gguf): export it to one of them"
    )


def test_a_folder_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        tw.compile(tmp_path)
    assert str(caught.value) == f"{tmp_path}: is a folder, expected a file"


def test_an_artifact_says_how_it_is_run(tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(ModelError) as caught:
        tw.compile(path)
    assert str(caught.value) == (
        "m.vmfb: is not an ONNX model: its bytes are not a valid protobuf\n"
        "hint: it is compiled already: tilewright.load or tilewright run"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("m.pt2", "files of PyTorch can run code when they are read: load it yourself"),
        ("m.PT", "then tilewright.compile(program)"),
        ("net.so", "it is a library: tilewright.runtime.load_module loads it"),
        ("w.safetensors", "it has weights alone"),
        ("m.h5", "export it from Keras"),
        ("m.tflite", "python -m tf2onnx.convert"),
        ("m.pkl", "skl2onnx or onnxmltools"),
        ("m.xyz", "files of models are ONNX (.onnx), StableHLO"),
    ],
)
def test_what_is_no_model_says_what_to_do_with_it(
    tmp_path: Path, name: str, hint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"PK\x03\x04\xff\xff")
    with pytest.raises(ModelError) as caught:
        tw.compile(path)
    assert str(caught.value).startswith(f"{name}: is not an ONNX model")
    assert hint in str(caught.value)


def test_a_file_of_another_format_that_parses_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"it has no graph\nhint: files of models are"):
        tw.compile(path)


def test_a_model_that_was_not_copied_whole_is_called_cut(tmp_path: Path) -> None:
    proto = mlp()
    data = proto.SerializeToString()
    with pytest.raises(ModelError) as caught:
        tw.compile(data[: len(data) // 2])
    text = f"<bytes>: the file is cut: it has {len(data) // 2} of at least "
    assert str(caught.value).startswith(text)
    assert caught.value.hint == "get the file again, whole"
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    weights = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(weights[:-8])
    with pytest.raises(
        ModelError, match=r"external data 'w\.bin' is cut: it has \d+ of at"
    ):
        tw.compile(path)


def test_a_model_of_keras_says_how_it_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(b"PK\x03\x04" + bytes(range(256)))
    with pytest.raises(tw.ModelError) as caught:
        tw.compile(path)
    assert caught.value.hint == (
        "export it from Keras: model.export('model.onnx', format='onnx')"
    )
