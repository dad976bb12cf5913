"""The kinds that libraries carry as bytes: each is saved and made again."""

from __future__ import annotations

import lzma
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from fakes.ffi_library import compile_object, make_library
from fakes.small_models import mlp
from tilewright.base.errors import ArchiveError, InputError
from tilewright.formats.library_blob import LibraryBlob, SavedModule
from tilewright.runtime import Module, load_module, load_static_library
from tilewright.runtime.library.kinds import BUILT_IN, find_loader
from tilewright.runtime.library.params_module import ParamsModule
from tilewright.runtime.library.static_library import StaticLibrary
from tilewright.runtime.library.vm_module import VmModule


def again(module: Module) -> Module:
    loader = find_loader(module.kind)
    assert loader is not None
    return loader(module.save_to_bytes())


def test_a_kind_that_nobody_knows_has_no_loader() -> None:
    assert find_loader("no.such.kind") is None
    assert set(BUILT_IN) >= {"params", "static_library", "vm"}


# --- params -------------------------------------------------------------------------------------


def test_weights_come_back_from_bytes() -> None:
    arrays = {"w": np.arange(6.0).reshape(2, 3), "i": np.arange(3)}
    module = again(ParamsModule(arrays))
    assert isinstance(module, ParamsModule)
    for name, tensor in module["get_params"]().items():
        np.testing.assert_array_equal(np.from_dlpack(tensor), arrays[name])
    assert module.is_binary_serializable()


def test_weights_are_written_as_tvm_reads_them(tmp_path: Path) -> None:
    module = ParamsModule({"b": np.ones(3, ml_dtypes.bfloat16)})
    module.write_to_file(tmp_path / "net.params")
    assert (tmp_path / "net.params").read_bytes() == module.save_to_bytes()
    with pytest.raises(InputError, match="not written as 'zip'"):
        module.write_to_file(tmp_path / "x", "zip")


def test_damaged_weights_are_refused() -> None:
    data = ParamsModule({"w": np.ones(3)}).save_to_bytes()
    with pytest.raises(ArchiveError, match="module of kind 'params'"):
        BUILT_IN["params"](data[:-1])


# --- static_library -----------------------------------------------------------------------------


def test_objects_come_back_from_bytes(tmp_path: Path) -> None:
    path = compile_object(tmp_path)
    module = again(load_static_library(path, ["add"]))
    assert isinstance(module, StaticLibrary)
    assert module.implements_function("add")
    assert not module.implements_function("sub")
    assert module.get_function("add") is None
    assert (module.is_runnable(), module.is_compilation_exportable()) == (False, True)
    assert module.is_dso_exportable is True
    module.write_to_file(tmp_path / "again.o")
    assert (tmp_path / "again.o").read_bytes() == path.read_bytes()
    with pytest.raises(InputError, match="written as 'o', not as 'a'"):
        module.write_to_file(tmp_path / "x.a", "a")


def test_what_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_bytes(b"text")
    with pytest.raises(ArchiveError, match="is text, expected an object"):
        load_static_library(tmp_path / "x.o")


# --- vm -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vm") / "mlp.vmfb"
    tw.compile(mlp(), jobs=1).save(path)
    return path


def inputs_of(path: Path) -> np.ndarray:
    ((_, dtype, shape),) = tw.load(path).inputs
    return np.ones([d if isinstance(d, int) else 3 for d in shape], dtype.numpy)


def test_an_artifact_comes_back_from_bytes(artifact: Path, tmp_path: Path) -> None:
    module = again(load_module(artifact))
    assert isinstance(module, VmModule)
    x = inputs_of(artifact)
    np.testing.assert_array_equal(np.from_dlpack(module["main"](x)), tw.load(artifact)(x))
    assert module["main"].same_as(module["main"])
    module.write_to_file(tmp_path / "again.vmfb")
    assert (tmp_path / "again.vmfb").read_bytes() == artifact.read_bytes()


def test_an_artifact_shows_its_texts(artifact: Path) -> None:
    module = load_module(artifact)
    assert "matmul" in module.inspect_source() or module.inspect_source() == ""
    with pytest.raises(InputError, match="no text 'poem'"):
        module.inspect_source("poem")


def test_an_artifact_inside_a_library_runs(artifact: Path, tmp_path: Path) -> None:
    saved = SavedModule("vm", artifact.read_bytes())
    blob = LibraryBlob((SavedModule("_lib"), saved), ((1,), ()))
    library = load_module(make_library(tmp_path, blob))
    found = library.get_function("main", query_imports=True)
    assert found is not None
    x = inputs_of(artifact)
    np.testing.assert_array_equal(np.from_dlpack(found(x)), tw.load(artifact)(x))


def test_an_artifact_makes_executors_and_virtual_machines(artifact: Path) -> None:
    module = load_module(artifact)
    x = inputs_of(artifact)
    expected = tw.load(artifact)(x)
    net = tw.graph_executor.GraphModule(module["default"](tw.cpu(0)))
    net.set_input(0, x)
    net.run()
    np.testing.assert_array_equal(np.from_dlpack(net.get_output(0)), expected)
    machine = tw.VirtualMachine(module, tw.cpu(0))
    np.testing.assert_array_equal(np.from_dlpack(machine["main"](x)), expected)
    assert module["get_graph_json"]().startswith("{")


# --- relax.VMExecutable -------------------------------------------------------------------------


def test_a_library_of_tvm_runs_here(tmp_path: Path) -> None:
    path = tmp_path / "mlp.so"
    golden = Path(__file__).parents[3] / "golden" / "libraries" / "tvm_0_27_mlp.so.xz"
    path.write_bytes(lzma.decompress(golden.read_bytes()))
    module = load_module(path)
    assert module.kind == "relax.VMExecutable"
    assert [one.kind for one in module.imports] == ["library"]
    rng = np.random.default_rng(3)
    x, w = rng.random((2, 8), np.float32) - 0.5, rng.random((8, 4), np.float32)
    machine = tw.VirtualMachine(module, tw.cpu(0))
    found = np.from_dlpack(machine["main"](x, w))
    np.testing.assert_allclose(found, np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_a_static_library_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.a", Path("/dev/null")):
        with pytest.raises(ArchiveError, match=f"^{path}: cannot read the file: "):
            load_static_library(path)
