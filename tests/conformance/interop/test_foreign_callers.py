"""Libraries of ours in environments that have tvm-ffi or TVM, and no Tilewright."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from fakes.tvm_libraries import ROOT

pytestmark = pytest.mark.slow

CALLER = Path(__file__).with_name("foreign_caller.py")
LOADERS = {"tvmffi": "tvm_ffi", "tvm": "tvm", "tvm-0.26": "tvm", "tvm-0.25": "tvm"}
RANDOM = np.random.default_rng(3)


def _floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, np.float32)


MODELS = {
    "static": (small_models.mlp, [_floats(5, 20)]),
    "dynamic": (small_models.scale_and_shift, [_floats(5, 3), _floats(3)]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "environment",
    [
        "tvmffi",
        "tvm",
        *(pytest.param(e, marks=pytest.mark.nightly) for e in ("tvm-0.26", "tvm-0.25")),
    ],
)
def test_a_library_of_ours_runs_where_tilewright_is_not(
    name: str, environment: str, tmp_path: Path
) -> None:
    python = ROOT / "build" / "envs" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no such environment: make build/envs/{environment}")
    source, inputs = MODELS[name]
    model = tw.compile(source(), threads=1)
    path = tmp_path / "net.so"
    tw.build(source()).export_library(path)
    wanted = model(*inputs)
    outputs = wanted if isinstance(wanted, tuple) else (wanted,)
    np.savez(
        tmp_path / "cases.npz",
        **{f"x{i}": one for i, one in enumerate(inputs)},
        **{f"y{i}": one for i, one in enumerate(outputs)},
    )
    words = [str(python), str(CALLER), LOADERS[environment], str(path)]
    done = subprocess.run(
        [*words, str(tmp_path / "cases.npz")],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kinds = done.stdout.split("\n")
    wanted_kinds = (
        {"numpy", "tvm_ffi", "jax"} if environment == "tvmffi" else {"numpy", "tvm_ffi"}
    )
    assert wanted_kinds <= set(kinds)
    assert "refused:" in done.stdout


@pytest.mark.needs_torch
def test_tensors_of_torch_go_in_and_come_out(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tilewright.runtime.packed.ffi import tvm_ffi

    source, inputs = MODELS["static"]
    path = tmp_path / "net.so"
    tw.build(source()).export_library(path)
    wanted = tw.compile(source(), threads=1)(*inputs)
    main = tvm_ffi.load_module(str(path))["main"]
    found = main(*(torch.from_numpy(one) for one in inputs))
    np.testing.assert_array_equal(torch.from_dlpack(found).numpy(), wanted)
