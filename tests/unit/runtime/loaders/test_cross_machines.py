"""Images for aarch64 and riscv64, ours and IREE's, mapped by the C core and run under qemu."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import small_models
from fakes.cross_machines import host_program, run
from fakes.small_networks import quantized
from tilewright.base.errors import TargetError
from tilewright.base.host import describe
from tilewright.base.symbolic import Dim
from tilewright.formats.artifact import extract
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf

HERE = Path(__file__).resolve().parent
ARCHIVES = HERE.parents[2] / "golden" / "archives"
MACHINES = ("aarch64", "riscv64")
pytestmark = pytest.mark.slow  # the first use of the cross compiler takes half a minute


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def host(machine: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the host program on that machine."""
    return host_program(machine, tmp_path_factory.mktemp(machine))


def test_a_kernel_of_iree_runs(machine: str, host: list[str]) -> None:
    image = (ARCHIVES / f"iree-3.13.0-scale_{machine}.so").read_bytes()
    random = np.random.default_rng(1)
    x, y = random.standard_normal((2, 37)).astype(np.float32)
    *_, z = run(
        host,
        image,
        "main_dispatch_0_elementwise_37_f32",
        1,
        (),
        [x, y, np.zeros(37, np.float32)],
    )
    np.testing.assert_allclose(z, np.tanh(x * y), rtol=1e-5, atol=1e-6)


def test_kernels_of_ours_run(machine: str, host: list[str], tmp_path: Path) -> None:
    """Each dispatch of a compiled model, one after the other, against the model here."""
    onnx_model = small_models.mlp()
    x = np.random.default_rng(2).standard_normal((5, 20)).astype(np.float32)
    (result,) = run_there(onnx_model, machine, host, tmp_path, x)
    expected = tw.compile(onnx_model)(x)
    np.testing.assert_allclose(
        result.view(np.float32).reshape(5, 7), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("cpu", "word"), [("neoverse-n1", ".sdot."), ("neoverse-n2", ".usdot."), ("", "")]
)
def test_products_of_bytes_are_exact_on_every_core(
    cpu: str, word: str, tmp_path: Path
) -> None:
    onnx_model = quantized()
    for value in (*onnx_model.graph.input, *onnx_model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    x = np.random.default_rng(4).standard_normal((2, 4, 9, 9)).astype(np.float32)
    target = f"aarch64 -mcpu={cpu}" if cpu else "aarch64"
    results = run_there(onnx_model, target, host_program("aarch64", tmp_path), tmp_path, x)
    for result, expected in zip(results, tw.compile(onnx_model)(x), strict=True):
        there = result.view(expected.dtype).reshape(expected.shape)
        np.testing.assert_array_equal(there, expected)
    sources = [kernel.source for kernel in tw.compile(onnx_model, target=target).kernels]
    dots = [text for text in sources if ".sdot." in text or ".usdot." in text]
    assert bool(dots) is bool(word)
    assert all(word in text for text in dots)


def run_there(
    model: onnx.ModelProto, target: str, host: list[str], folder: Path, x: np.ndarray
) -> list[np.ndarray]:
    """The bytes of the results of a model whose steps are kernels, run one by one on another machine."""
    tw.compile(model, target=target).save(folder / "there.vmfb")
    artifact = extract(read_archive((folder / "there.vmfb").read_bytes()))
    (variant,) = artifact.variants
    plan = variant.plan
    storages = [np.zeros(_number(s.size_bytes), np.uint8) for s in plan.storages]
    places = [i for i, s in enumerate(plan.storages) if s.kind == "constant"]
    for place, data in zip(places, artifact.constants, strict=True):
        storages[place][:] = np.frombuffer(view_bytes(data), np.uint8)

    def view(entry: int) -> np.ndarray:
        row = plan.entries[entry]
        begin = _number(row.offset_bytes)
        return storages[row.storage][begin : begin + _number(row.size_bytes)]

    view(plan.inputs[0][1])[:] = x.reshape(-1).view(np.uint8)
    for step in plan.steps:
        assert step.kind == "dispatch"
        assert step.grid[1:] == (1, 1)
        constants = [_number(value) for value in step.dims]
        arrays = [view(entry) for entry in step.arguments]
        grid = _number(step.grid[0])
        results = run(host, bytes(variant.image), step.target, grid, constants, arrays)
        for array, result in zip(arrays, results, strict=True):
            array[:] = result
    return [view(place) for _, place in plan.outputs]


def _number(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


def test_images_of_other_machines_are_not_run_here(machine: str) -> None:
    image = (ARCHIVES / f"iree-3.13.0-scale_{machine}.so").read_bytes()
    if machine == describe().arch:
        pytest.skip("this machine is one")
    with pytest.raises(TargetError, match=f"code for '{machine}', this machine is"):
        load_embedded_elf(image)
