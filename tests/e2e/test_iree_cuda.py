"""Modules of IREE's compilers for NVIDIA GPUs, on the stand-in: what they launch, and that they end.

The stand-in runs none of their kernels, it records them; so launches are compared with what the
compiler says, not results.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fakes.cuda_standin import StandIn
from tilewright.base import knobs
from tilewright.formats.cuda_executable import is_cuda_executable, read_cuda_executable
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.bytecode_machine import BytecodeMachine

ARCHIVES = Path(__file__).resolve().parents[1] / "golden" / "archives"

PROGRAM = """
func.func @matmul(%a: tensor<16x32xf32>, %b: tensor<32x8xf32>) -> tensor<16x8xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  %r = linalg.matmul ins(%a, %b : tensor<16x32xf32>, tensor<32x8xf32>)
      outs(%f : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %r : tensor<16x8xf32>
}
func.func @mlp(%x: tensor<64x256xf16>, %v: tensor<256x512xf16>, %w: tensor<512x128xf16>)
    -> tensor<64x128xf16> {
  %z = arith.constant 0.0 : f16
  %e0 = tensor.empty() : tensor<64x512xf16>
  %f0 = linalg.fill ins(%z : f16) outs(%e0 : tensor<64x512xf16>) -> tensor<64x512xf16>
  %h = linalg.matmul ins(%x, %v : tensor<64x256xf16>, tensor<256x512xf16>)
      outs(%f0 : tensor<64x512xf16>) -> tensor<64x512xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<64x512xf16>) outs(%e0 : tensor<64x512xf16>) {
  ^bb0(%p: f16, %q: f16):
    %m = arith.maximumf %p, %z : f16
    linalg.yield %m : f16
  } -> tensor<64x512xf16>
  %e1 = tensor.empty() : tensor<64x128xf16>
  %f1 = linalg.fill ins(%z : f16) outs(%e1 : tensor<64x128xf16>) -> tensor<64x128xf16>
  %o = linalg.matmul ins(%r, %w : tensor<64x512xf16>, tensor<512x128xf16>)
      outs(%f1 : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %o : tensor<64x128xf16>
}
func.func @add(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


@pytest.fixture
def standin(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    made = StandIn()
    with knobs.override(cuda_library=made.path):
        yield made
    request.node.funcargs.clear()
    assert made.wait_until_all_is_back() == {}
    assert made.complaints == []


def exports_of(data: bytes) -> dict[str, tuple[tuple[int, int, int], int, int]]:
    """Kernels of a module: block, shared memory, bytes of parameters."""
    found = {}
    for entry in read_archive(data).rodata:
        if not is_cuda_executable(entry.data):
            continue
        for export in read_cuda_executable(entry.data).exports:
            size = 8 * len(export.binding_flags) + 4 * export.constant_count
            found[export.kernel_name] = (export.block, export.shared_bytes, size)
    return found


@pytest.mark.thinned(3)
@pytest.mark.parametrize("graphs", ["0", "1"])
@pytest.mark.parametrize("release", ["3.0.0", "3.9.0", "3.13.0"])
def test_modules_of_several_releases_launch_their_kernel(
    standin: StandIn, release: str, graphs: str
) -> None:
    path = ARCHIVES / f"iree-{release}-add_cuda.vmfb"
    machine = BytecodeMachine.from_file(path, f"cuda://0?graphs={graphs}")
    for _ in range(2):
        (result,) = machine.invoke("add", *[np.ones(1024, np.float32)] * 2)
        assert np.shape(result) == (1024,)
    exports = exports_of(path.read_bytes())
    assert len(standin.launches) == 2
    for launch in standin.launches:
        assert (launch.block, launch.shared_bytes, len(launch.parameters)) == exports[
            launch.name
        ]
        assert launch.grid[0] * launch.block[0] <= 1024
        assert len(set(np.frombuffer(launch.parameters, np.uint64).tolist())) == 3


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The program as a module, and as the compiler shows it just before."""
    beside = Path(sys.executable).with_name("iree-compile")
    tool = str(beside) if beside.exists() else shutil.which("iree-compile")
    if tool is None:
        pytest.skip("iree-compile is not installed (extra 'interop')")
    folder = tmp_path_factory.mktemp("cuda")
    source = folder / "program.mlir"
    source.write_text(PROGRAM)
    flags = ["--iree-hal-target-device=cuda", "--iree-cuda-target=sm_80"]
    for extra, name in (([], "program.vmfb"), (["--compile-to=hal"], "program.txt")):
        command = [tool, str(source), *flags, *extra, "-o", str(folder / name)]
        subprocess.run(command, check=True, timeout=300, capture_output=True)
    return (folder / "program.vmfb").read_bytes(), (folder / "program.txt").read_text()


def static_grids(text: str) -> list[tuple[int, int, int]]:
    """The grids of all dispatches whose sizes the compiler knows, in order of the text."""
    found = re.findall(
        r"command_buffer\.dispatch<.*workgroups\(\[%c(\d+), %c(\d+), %c(\d+)\]\)", text
    )
    return [(int(x), int(y), int(z)) for x, y, z in found]


@pytest.mark.slow
@pytest.mark.parametrize("graphs", ["0", "1"])
def test_launches_are_those_that_the_compiler_wrote(
    standin: StandIn, compiled: tuple[bytes, str], graphs: str
) -> None:
    data, text = compiled
    machine = BytecodeMachine(f"cuda://0?graphs={graphs}")
    machine.load(data)
    f32, f16 = np.float32, np.float16
    shapes = {
        "matmul": [np.zeros((16, 32), f32), np.zeros((32, 8), f32)],
        "mlp": [np.zeros(s, f16) for s in ((64, 256), (256, 512), (512, 128))],
    }
    for name, inputs in shapes.items():
        (result,) = machine.invoke(name, *inputs)
        assert np.shape(result) == (len(inputs[0]), np.shape(inputs[-1])[1])
    assert sorted(launch.grid for launch in standin.launches) == sorted(static_grids(text))
    exports = exports_of(data)
    assert any(shared for _, shared, _ in exports.values())
    for launch in standin.launches:
        assert (launch.block, launch.shared_bytes, len(launch.parameters)) == exports[
            launch.name
        ]


@pytest.mark.slow
def test_sizes_known_at_run_time_reach_the_kernel(
    standin: StandIn, compiled: tuple[bytes, str]
) -> None:
    machine = BytecodeMachine("cuda")
    machine.load(compiled[0])
    for count in (1, 33, 1000):
        (result,) = machine.invoke("add", *[np.ones(count, np.float32)] * 2)
        assert np.shape(result) == (count,)
        constants = np.frombuffer(standin.launches[-1].parameters[24:], np.uint32)
        assert count in constants.tolist()
    assert len({launch.grid for launch in standin.launches}) > 1


@pytest.mark.slow
def test_many_threads_call_one_module(
    standin: StandIn, compiled: tuple[bytes, str]
) -> None:
    standin.configure(jitter_us=200)
    machine = BytecodeMachine("cuda")
    machine.load(compiled[0])
    inputs = [np.zeros((16, 32), np.float32), np.zeros((32, 8), np.float32)]
    wrong: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(20):
                machine.invoke("matmul", *inputs)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(standin.launches) == 80
