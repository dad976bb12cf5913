"""A module with collectives from IREE's compiler, its ranks the processes of `mpiexec`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from conformance.interop.toolchain import LLVM_CPU, compile_text, needs_iree
from fakes.mpi_ranks import needs_mpi, run_ranks

pytestmark = [pytest.mark.slow, needs_iree, needs_mpi]

SOURCE = Path(__file__).with_name("collectives.mlir")
WORKER = Path(__file__).parents[2] / "fakes" / "mpi_worker.py"
FLAGS = ("--iree-input-type=stablehlo", *LLVM_CPU)


@pytest.fixture(scope="module")
def module() -> Path:
    built = compile_text(SOURCE.read_text(encoding="utf-8"), FLAGS)
    assert built.error == ""
    return built.path


def command(module: Path, function: str, *words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tilewright",
        "run",
        f"--module={module}",
        f"--function={function}",
        *words,
    ]


def run(
    module: Path, function: str, inputs: Sequence[np.ndarray], folder: Path
) -> list[np.ndarray]:
    """What each of two ranks gets."""
    commands = []
    for rank, array in enumerate(inputs):
        np.save(folder / f"in{rank}.npy", array)
        words = [f"--input=@{folder}/in{rank}.npy", f"--output=@{folder}/out{rank}.npy"]
        commands.append(command(module, function, *words))
    text, status = run_ranks(commands)
    assert status == 0, text
    return [np.load(folder / f"out{rank}.npy") for rank in range(len(inputs))]


def halves(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    parts = [np.split(a, 2) for a in arrays]
    return [np.concatenate([p[rank] for p in parts]) for rank in range(2)]


RESULTS = {
    "sum": ((3, 5), np.float32, lambda a, b: [2 * a + 2 * b + a, 2 * a + 2 * b + b]),
    "gather": ((2, 3), np.int32, lambda a, b: [np.concatenate((a, b))] * 2),
    "scatter": ((4, 3), np.float32, lambda a, b: np.split(np.maximum(a, b), 2)),
    "transpose": ((4, 3), np.float32, lambda a, b: halves((a, b))),
    "swap": ((5,), np.float32, lambda a, b: [b, a]),
    "alone": ((5,), np.float32, lambda a, b: [a, b]),
}


@pytest.mark.parametrize("function", RESULTS)
def test_ranks_get_what_they_should(module: Path, function: str, tmp_path: Path) -> None:
    shape, dtype, combine = RESULTS[function]
    generator = np.random.default_rng(7)
    inputs = [generator.integers(-50, 50, shape).astype(dtype) for _ in range(2)]
    for got, want in zip(
        run(module, function, inputs, tmp_path), combine(*inputs), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_calls_may_be_many(module: Path) -> None:
    line = [sys.executable, str(WORKER), "module", str(module)]
    text, status = run_ranks([line] * 2)
    assert (status, text.count(": ok")) == (0, 2), text


def test_the_launcher_says_who_takes_part(module: Path) -> None:
    text, status = run_ranks([command(module, "rank")] * 2)
    assert (status, text.count("u32=0"), text.count("u32=1")) == (0, 1, 1), text
    text, status = run_ranks(
        [command(module, "rank")] * 2, TILEWRIGHT_COLLECTIVES="process"
    )
    assert (status, text.count("u32=0")) == (0, 2), text


def test_a_rank_with_a_wrong_input_does_not_hang_the_other(module: Path) -> None:
    device = "--device=local-task://?collectives=mpi"
    one = command(module, "sum", device, "--input=3x5xf32=1")
    text, status = run_ranks([one, [*one, "--input=f32=1"]])
    assert status != 0
    assert "module.sum: got 2 inputs, expected 1" in text
    assert "MPI group 'default' of 2: rank 1 has left (ABORTED)" in text
