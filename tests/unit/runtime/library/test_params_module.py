"""Weights as a module: as what a factory imports, and as bytes."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from fakes.small_models import mlp
from tilewright.runtime.library.params_module import ParamsModule, load_params


def test_a_factory_imports_its_weights() -> None:
    factory = tw.build(mlp())
    kinds = {module.kind: module for module in factory.module.imports}
    assert set(kinds) == {"llvm", "params"}
    assert list(kinds["params"]["get_params"]()) == list(factory.params)
    again = load_params(kinds["params"].save_to_bytes())
    for name, array in factory.params.items():
        np.testing.assert_array_equal(again.arrays[name], array)


def test_arrays_are_made_when_they_are_first_asked_for() -> None:
    asked: list[int] = []

    def arrays() -> dict[str, np.ndarray]:
        asked.append(1)
        return {"w": np.ones(3, np.float32)}

    module = ParamsModule(arrays)
    assert not asked
    assert list(module.arrays) == list(module.arrays) == ["w"]
    assert len(asked) == 1
