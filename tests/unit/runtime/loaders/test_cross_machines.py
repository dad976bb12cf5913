"""Images for aarch64 and riscv64, ours and IREE's, mapped by the C core and run under qemu."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tilewright as tw
from fakes import small_models
from fakes.cross_machines import host_program, run
from fakes.small_networks import network, quantized
from tilewright.base import dtypes
from tilewright.base.errors import TargetError
from tilewright.base.host import describe
from tilewright.base.symbolic import Dim
from tilewright.formats.artifact import extract
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf

HERE = Path(__file__).resolve().parent
ARCHIVES = HERE.parents[2] / "golden" / "archives"
MACHINES = ("aarch64", pytest.param("riscv64", marks=pytest.mark.nightly))
pytestmark = pytest.mark.slow  # needs a cross compiler and an emulator


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
    ("cpu", "words"),
    [("neoverse-n1", [".sdot."]), ("neoverse-n2", [".usdot.", ".usmmla."]), ("", [])],
)
def test_products_of_bytes_are_exact_on_every_core(
    cpu: str, words: list[str], tmp_path: Path
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
    names = (".sdot.", ".usdot.", ".usmmla.")
    assert [name for name in names if any(name in text for text in sources)] == words


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(1, 16, 5), (2, 8, 1), (3, 13, 20), (8, 40, 12), (25, 9, 33)],
)
def test_tiles_of_bytes_are_exact(
    rows: int, depth: int, columns: int, tmp_path: Path
) -> None:
    """Products of 255 by -128 among them, around a zero point; the oracle is numpy."""
    random = np.random.default_rng(rows)
    x = random.integers(0, 256, (rows, depth), np.uint8)
    w = random.integers(-128, 128, (depth, columns), np.int8)
    x[0], w[:, 0] = 255, -128
    text = f"""net (uint8[{rows}, {depth}] x) => (int32[{rows}, {columns}] y) {{
        y = MatMulInteger (x, w, z)
    }}"""
    model = network(text, {}, dtypes.f32)
    for name, array in (("w", w), ("z", np.uint8(7))):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    target = "aarch64 -mcpu=neoverse-n2"
    (found,) = run_there(model, target, host_program("aarch64", tmp_path), tmp_path, x)
    expected = (x.astype(np.int32) - 7) @ w.astype(np.int32)
    np.testing.assert_array_equal(found.view(np.int32).reshape(rows, columns), expected)
    sources = "".join(kernel.source for kernel in tw.compile(model, target=target).kernels)
    assert (".usmmla." in sources) == (rows > 1 and depth > 8)  # else no sum over words


def test_images_of_bytes_are_exact_in_tiles(tmp_path: Path) -> None:
    body = """net (uint8[2, 8, 7, 6] x) => (uint8[2, 5, 4, 3] y) {
        y = QLinearConv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, sx, zx, w, sw, zw, sy, zx)
    }"""
    model = network(body, {}, dtypes.f32)
    random = np.random.default_rng(8)
    for name, array in {
        "sx": np.float32(0.02), "zx": np.uint8(120), "sy": np.float32(0.3), "sw": np.float32(0.01),
        "w": random.integers(-128, 128, (5, 8, 3, 3), np.int8), "zw": np.int8(0),
    }.items():  # fmt: skip
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    x = random.integers(0, 256, (2, 8, 7, 6), np.uint8)
    target, host = "aarch64 -mcpu=neoverse-n2", host_program("aarch64", tmp_path)
    (found,) = run_there(model, target, host, tmp_path, x)
    expected = tw.compile(model)(x)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    sources = "".join(kernel.source for kernel in tw.compile(model, target=target).kernels)
    assert ".usmmla." in sources


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
