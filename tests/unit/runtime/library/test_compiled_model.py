"""Exported models that are loaded again: executors and functions, whatever form the library has."""

from __future__ import annotations

import gc
import subprocess
import tarfile
import weakref
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.ffi_library import compiler, link, make_library
from fakes.small_models import mlp
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.runtime import Module, load_module


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One export in its forms: objects in a tar, and the same linked, archived without the entry."""
    compiler()
    folder = tmp_path_factory.mktemp("exported")
    tw.build(mlp(), target="x86_64").export_library(folder / "net.tar")
    with tarfile.open(folder / "net.tar") as archive:
        archive.extractall(folder, filter="data")
        objects = [folder / name for name in archive.getnames()]
    subprocess.run(["ar", "rcs", folder / "net.a", *objects], check=True)
    plain = [one for one in objects if "entry" not in one.name]
    assert len(plain) < len(objects)
    subprocess.run(["ar", "rcs", folder / "plain.a", *plain], check=True)
    return {
        "so": link(folder, objects),
        "tar": folder / "net.tar",
        "a": folder / "net.a",
        "without entry": folder / "plain.a",
    }


FORMS = ("so", "tar", "a", "without entry")


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).random((5, 20), np.float32)


@pytest.fixture(scope="module")
def y(x: np.ndarray) -> np.ndarray:
    return np.asarray(tw.compile(mlp(), jobs=1)(x))


@pytest.mark.slow
def test_a_loaded_library_gives_the_weights_that_the_factory_gives(
    forms: dict[str, Path],
) -> None:
    factory = tw.build(mlp(), target="x86_64")
    wanted = factory["get_graph_params"]()
    assert wanted
    for form in ("so", "without entry"):
        lib = load_module(forms[form])
        assert lib["get_graph_json"]() == factory.graph_json
        params = lib["get_graph_params"]()
        assert list(params) == list(wanted)
        for name, tensor in params.items():
            np.testing.assert_array_equal(
                np.from_dlpack(tensor), np.from_dlpack(wanted[name])
            )


@pytest.mark.parametrize("form", FORMS)
def test_a_library_makes_executors(
    forms: dict[str, Path], form: str, x: np.ndarray, y: np.ndarray
) -> None:
    module = load_module(forms[form])
    net = tw.graph_executor.GraphModule(module["default"](tw.cpu(0)))
    net.set_input("x", x)
    for _ in range(2):
        net.run()
        np.testing.assert_allclose(np.from_dlpack(net.get_output(0)), y, rtol=1e-5)
    net.set_input("x", -x)
    net.run()
    assert np.abs(np.from_dlpack(net.get_output(0)) - y).max() > 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_a_library_is_called_by_its_main_function(
    forms: dict[str, Path], form: str, x: np.ndarray, y: np.ndarray
) -> None:
    module = load_module(forms[form])
    np.testing.assert_allclose(np.from_dlpack(module["main"](x)), y, rtol=1e-5)
    out = np.zeros_like(y)
    module["main"](x, out)
    np.testing.assert_allclose(out, y, rtol=1e-5)
    assert module["get_graph_json"]().startswith('{"nodes"')
    assert {"default", "main"} <= set(module.function_names())


def test_executors_of_one_library_are_independent(
    forms: dict[str, Path], x: np.ndarray, y: np.ndarray
) -> None:
    module = load_module(forms["so"])
    nets = [tw.graph_executor.GraphModule(module["default"](tw.cpu(0))) for _ in range(2)]
    for sign, net in zip((1, -1), nets, strict=True):
        net.set_input("x", sign * x)
    for net in nets:
        net.run()
    np.testing.assert_allclose(np.from_dlpack(nets[0].get_output(0)), y, rtol=1e-5)
    assert np.abs(np.from_dlpack(nets[1].get_output(0)) - y).max() > 1e-3


def test_an_executor_keeps_the_library_and_goes_with_its_last_holder(
    forms: dict[str, Path], x: np.ndarray, y: np.ndarray
) -> None:
    executor: Module = load_module(forms["so"], keep_module_alive=False)["default"](
        tw.cpu(0)
    )
    gc.collect()
    net = tw.graph_executor.GraphModule(executor)
    net.set_input("x", x)
    net.run()
    np.testing.assert_allclose(np.from_dlpack(net.get_output(0)), y, rtol=1e-5)
    end = weakref.ref(executor)
    del executor, net
    gc.collect()
    assert end() is None


def test_arguments_that_do_not_fit_are_refused(
    forms: dict[str, Path], x: np.ndarray
) -> None:
    module = load_module(forms["without entry"])
    with pytest.raises(InputError, match="x"):
        module["main"](x[:, :3])
    with pytest.raises(InputError):
        module["main"](x.astype(np.float64))
    with pytest.raises(InputError, match="got 0 inputs, expected 1"):
        module["main"]()
    with pytest.raises(UserError, match="runs on the host, not on 'cuda:0'"):
        module["default"](tw.device("cuda", 0))


@pytest.mark.parametrize("form", FORMS)
def test_inputs_are_set_by_name_in_a_virtual_machine(
    forms: dict[str, Path], form: str, x: np.ndarray, y: np.ndarray
) -> None:
    machine = tw.VirtualMachine(load_module(forms[form]), tw.cpu(0))
    machine.set_input("main", x=x)
    machine.invoke_stateful("main")
    np.testing.assert_allclose(np.from_dlpack(machine.get_outputs("main")), y, rtol=1e-5)
    with pytest.raises(InputError, match="'main' has no parameter 'z'"):
        machine.set_input("main", z=x)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_its_tensors(forms: dict[str, Path], form: str) -> None:
    module = load_module(forms[form])
    assert (module["get_num_inputs"](), module["get_num_outputs"]()) == (1, 1)
    assert (module["get_input_name"](0), module["get_output_name"](0)) == ("x", "y")


def test_an_executor_is_of_the_one_host_with_the_threads_of_a_local_device(
    forms: dict[str, Path], x: np.ndarray, y: np.ndarray
) -> None:
    module = load_module(forms["so"])
    with pytest.raises(UserError, match="there is one host, not 'cpu:5'"):
        module["default"](tw.cpu(5))
    net = tw.graph_executor.GraphModule(module["default"]("local-task://?threads=1"))
    net.set_input("x", x)
    net.run()
    np.testing.assert_allclose(np.from_dlpack(net.get_output(0)), y, rtol=1e-5)


def test_a_graph_is_run_by_its_kernels_not_by_a_whole_model(forms: dict[str, Path]) -> None:
    module = load_module(forms["so"])
    with pytest.raises(
        ArchiveError, match="no module has the kernels of the graph"
    ) as caught:
        tw.graph_executor.create(module["get_graph_json"](), module, tw.cpu(0))
    assert "lib['default'](device)" in str(caught.value)


def test_an_interface_of_another_version_is_refused(tmp_path: Path) -> None:
    source = "static unsigned table[80] = {4, 9}; void* tilewright_model(void) { return table; }\n"
    with pytest.raises(ArchiveError, match="its interface has version 9 and 4 bytes"):
        load_module(make_library(tmp_path, source=source))


def test_options_of_artifacts_are_not_taken_for_libraries(forms: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="option 'untrusted' is for artifacts"):
        load_module(forms["so"], untrusted=True)
