"""Control flow in our bytecode: our virtual machine and IREE's give what onnxruntime gives."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import flow_models

onnxruntime = pytest.importorskip("onnxruntime")
MODELS = flow_models.models()


def expected(
    case: flow_models.FlowModel, inputs: tuple[np.ndarray, ...]
) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def check(actual: object, wanted: list[np.ndarray]) -> None:
    found = list(actual) if isinstance(actual, (tuple, list)) else [actual]
    for one, other in zip(found, wanted, strict=True):
        array = np.asarray(one)
        assert array.dtype == other.dtype
        if array.size or other.size:  # onnxruntime forgets sizes where there are no rows
            assert array.shape == other.shape
            np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flow")


def saved(folder: Path, name: str) -> Path:
    path = folder / f"{name}.vmfb"
    if not path.exists():
        tw.compile(MODELS[name].model).save(path)
    return path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ["plan", "vm"])
@pytest.mark.parametrize("name", MODELS)
def test_our_engines_give_what_onnxruntime_gives(
    folder: Path, name: str, engine: str
) -> None:
    session = tw.load(saved(folder, name), engine=engine)
    for inputs in MODELS[name].calls:
        check(session(*inputs), expected(MODELS[name], inputs))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS)
def test_the_runtime_of_iree_gives_what_onnxruntime_gives(folder: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        iree = pytest.importorskip("iree.runtime")
        instance, device = iree.VmInstance(), iree.get_device("local-task")
        hal = iree.create_hal_module(instance, device)
        data = saved(folder, name).read_bytes()
        module = iree.VmModule.copy_buffer(instance, data)
        config = iree.Config(device=device)
        context = iree.SystemContext(vm_modules=[hal, module], config=config)
    main = context.modules[module.name]["main"]
    for inputs in MODELS[name].calls:
        results = main(*inputs)
        found = results if isinstance(results, (tuple, list)) else [results]
        check([r.to_host() for r in found], expected(MODELS[name], inputs))
