"""Images for aarch64 and riscv64, ours and IREE's, mapped by the C core and run under qemu."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from tilewright.base.errors import TargetError
from tilewright.base.host import describe
from tilewright.base.symbolic import Dim
from tilewright.formats import executable as abi
from tilewright.formats.artifact import extract
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.elf import parse_image
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.loaders.embedded_elf import image_layout, load_embedded_elf

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[3] / "native"
ARCHIVES = HERE.parents[2] / "golden" / "archives"
MACHINES = ("aarch64", "riscv64")
pytestmark = pytest.mark.slow  # the first use of the cross compiler takes half a minute


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def host(machine: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the host program on that machine."""
    if machine == describe().arch:
        emulator: list[str] = []
    elif found := shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static"):
        emulator = [found]
    else:
        pytest.skip(f"qemu-{machine} is not installed (Debian: qemu-user)")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed (extra 'cross')")
    program = tmp_path_factory.mktemp(machine) / "host"
    command = [
        sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl", "-static",
        "-std=gnu11", "-O1", f"-I{NATIVE / 'include'}", str(HERE / "cross_host.c"),
        str(NATIVE / "src" / "image.c"), "-o", str(program),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [*emulator, str(program)]


def run(
    host: Sequence[str], image: bytes, kernel: str, grid: int,
    constants: Sequence[int], bindings: Sequence[np.ndarray],
) -> list[np.ndarray]:  # fmt: skip
    """Run a kernel; the bindings as it leaves them."""
    parsed = parse_image(image)
    layout = image_layout(parsed)
    start, _ = parsed.span
    text = struct.pack("<QQ", layout.size_bytes, len(layout.segments))
    for offset, data in layout.segments:
        text += struct.pack("<QQ", offset, len(data)) + bytes(data)
    for rows in (layout.relocations, layout.protections):
        text += struct.pack("<Q", len(rows))
        text += b"".join(struct.pack("<3Q", *row) for row in rows)
    query = parsed.symbols[abi.QUERY_FUNCTION] - start
    text += struct.pack("<QQ", query, len(kernel)) + kernel.encode()
    text += struct.pack("<QQ", grid, len(constants))
    text += struct.pack(f"<{len(constants)}IQ", *constants, len(bindings))
    for binding in bindings:
        text += struct.pack("<Q", binding.nbytes) + binding.tobytes()
    done = subprocess.run(host, input=text, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    results, at = [], 0
    for binding in bindings:
        piece = done.stdout[at : at + binding.nbytes]
        results.append(np.frombuffer(piece, binding.dtype).reshape(binding.shape))
        at += binding.nbytes
    assert at == len(done.stdout)
    return results


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
    expected_model = tw.compile(onnx_model)
    tw.compile(onnx_model, target=machine).save(tmp_path / "there.vmfb")
    artifact = extract(read_archive((tmp_path / "there.vmfb").read_bytes()))
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

    x = np.random.default_rng(2).standard_normal((5, 20)).astype(np.float32)
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
    result = view(plan.outputs[0][1]).view(np.float32).reshape(5, 7)
    np.testing.assert_allclose(result, expected_model(x), rtol=1e-5, atol=1e-5)


def _number(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


def test_images_of_other_machines_are_not_run_here(machine: str) -> None:
    image = (ARCHIVES / f"iree-3.13.0-scale_{machine}.so").read_bytes()
    if machine != describe().arch:
        with pytest.raises(TargetError, match=f"code for '{machine}', this machine is"):
            load_embedded_elf(image)
