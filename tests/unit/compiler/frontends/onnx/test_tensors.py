import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.tensors import (
    BytesOutside,
    map_file,
    sparse_to_array,
    to_array,
)

HERE = BytesOutside()


def external(path: str, shape: list[int], **entries: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": path, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int16, np.uint16, np.int32,
     np.uint32, np.int64, np.uint64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
     ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3)])
@pytest.mark.parametrize("raw", [True, False])
def test_every_storage_of_every_type_reads_back(
    dtype: type, shape: tuple[int, ...], raw: bool
) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 7).astype(dtype).reshape(shape)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    if raw:
        tensor = numpy_helper.from_array(array)
    else:
        flat = array.astype(np.float32).reshape(-1)
        values = flat if code in (1, 10, 11, 16, 17, 19) else flat.astype(np.int64)
        tensor = helper.make_tensor("t", code, shape, values.tolist())
    result = to_array(tensor, HERE)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.dtype(dtype)
    assert result.shape == shape
    np.testing.assert_array_equal(result.astype(np.float32), array.astype(np.float32))


@pytest.mark.parametrize("code", [TensorProto.STRING, TensorProto.COMPLEX64, 0, 99])
def test_types_without_a_row_are_unsupported(code: int) -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        to_array(TensorProto(data_type=code, dims=[1]), HERE)


@pytest.mark.parametrize(
    ("dims", "size"), [([4], 12), ([2, 2], 20), ([-1], 4), ([1 << 40, 1 << 40], 4)]
)
def test_data_that_does_not_fit_the_shape_is_refused(dims: list[int], size: int) -> None:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=dims, raw_data=bytes(size))
    with pytest.raises(ModelError):
        to_array(tensor, HERE)


def test_external_data_is_a_view_of_the_mapped_file(tmp_path: Path) -> None:
    values = np.arange(10, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(b"pad!" + values.tobytes())
    storage = BytesOutside(tmp_path)
    tensor = external("w.bin", [2, 5], offset="4", length="40")
    result = to_array(tensor, storage)
    np.testing.assert_array_equal(result, values.reshape(2, 5))
    assert not result.flags.owndata
    assert np.shares_memory(result, to_array(tensor, storage))


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside.bin", "a/../../outside.bin", "C:\\w.bin", "..\\outside.bin",
     "", "link.bin", "folder/outside.bin", "missing.bin", "folder", "w\0.bin",
     "circle.bin", "w" * 10_000, "w/" * 5000, "w/" * 200_000,
     "/w" * 2000, "../" * 1300, "pipe"],
)  # fmt: skip
def test_external_data_stays_inside_the_models_folder(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(40))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "circle.bin").symlink_to("circle.bin")
    os.mkfifo(folder / "pipe")
    with pytest.raises(ModelError, match="external data") as caught:
        to_array(external(path, [10]), BytesOutside(folder))
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "entries", [{"offset": "8"}, {"length": "44"}, {"offset": "-4"}, {"length": "x"},
                {"offset": "9" * 30}]
)  # fmt: skip
def test_external_ranges_outside_the_file_are_refused(
    tmp_path: Path, entries: dict[str, str]
) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(40))
    with pytest.raises(ModelError):
        to_array(external("w.bin", [10], **entries), BytesOutside(tmp_path))


def test_an_offset_behind_the_end_is_a_file_that_is_cut(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(40))
    tensor = external("w.bin", [10], offset="1000")
    with pytest.raises(ModelError, match="is cut: it has 40 of at least 1000 bytes"):
        to_array(tensor, BytesOutside(tmp_path))


def test_external_data_of_a_model_without_a_folder_asks_for_the_path() -> None:
    with pytest.raises(ModelError) as caught:
        to_array(external("w.bin", [10]), HERE)
    assert "pass the path of the model" in str(caught.value)


def test_an_empty_file_maps_to_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert len(map_file(tmp_path / "empty")) == 0


@pytest.mark.parametrize("indices", [[[0, 1], [2, 0]], [1, 6]], ids=["per axis", "flat"])
def test_sparse_tensors_are_written_out(indices: list[object]) -> None:
    values = numpy_helper.from_array(np.array([5.0, 7.0], np.float32))
    places = numpy_helper.from_array(np.array(indices, np.int64))
    sparse = SparseTensorProto(values=values, indices=places, dims=[3, 3])
    expected = np.zeros((3, 3), np.float32)
    expected[0, 1], expected[2, 0] = 5, 7
    np.testing.assert_array_equal(sparse_to_array(sparse, HERE), expected)


@pytest.mark.parametrize("indices", [[[0, 3], [0, 0]], [9, 0], [[0], [1]], [-1, 0]])
def test_sparse_indices_outside_the_shape_are_refused(indices: list[object]) -> None:
    values = numpy_helper.from_array(np.array([5.0, 7.0], np.float32))
    places = numpy_helper.from_array(np.array(indices, np.int64))
    with pytest.raises(ModelError, match="sparse"):
        sparse_to_array(SparseTensorProto(values=values, indices=places, dims=[3, 3]), HERE)
