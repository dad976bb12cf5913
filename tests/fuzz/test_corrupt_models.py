"""Damaged ONNX models through the whole compiler: an error of ours, or a model that runs.

Never a crash, a hang or another exception.  Each case happens in a process that may die of it
(`fakes.case_worker`); a finding says its seed.  The default run takes a few, `slow` hundreds, and the
networks that ONNX ships.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from fakes import onnx_suite, small_models, small_networks
from fakes.case_worker import CaseWorker
from fakes.damage import changed_bytes, changed_model
from fuzz.flow.models import make_case
from tilewright.base import dtypes

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "attention": lambda: small_networks.attention(dtypes.f32),
    "convolutions": lambda: small_networks.convolutions(dtypes.f32),
    "recurrent": lambda: small_networks.recurrent(dtypes.f32),
    "decoder": lambda: small_networks.decoder(dtypes.f16),
    "integers": lambda: small_networks.integers(dtypes.u8),
    "quantized": small_networks.quantized,
    "control": small_networks.control,
    "mlp": lambda: small_models.mlp("n"),
}
SMALL = ("control", "integers", "mlp", "quantized")
FEW, MANY = 1, 40
LIGHT = ("light_squeezenet", "light_shufflenet", "light_inception_v2")


@pytest.fixture(scope="module")
def worker() -> Iterator[CaseWorker]:
    with CaseWorker() as found:
        yield found


def damaged(model: onnx.ModelProto, choose: random.Random) -> bytes:
    """Bytes changed anywhere, or a field changed in a file that still parses."""
    if choose.random() < 0.3:
        data = model.SerializeToString()
        return changed_bytes(data, choose, 0, len(data))
    return changed_model(model, choose).SerializeToString()


def check(worker: CaseWorker, model: onnx.ModelProto, folder: Path, seed: int) -> str:
    """What became of one damaged copy; fails on anything that is not clean."""
    choose = random.Random(seed)
    path = folder / "model.onnx"
    path.write_bytes(damaged(model, choose))
    outcome = worker.ask("compile", path, opt_level=choose.choice((2, 2, 1, 0)))
    assert outcome.is_clean, f"seed {seed}: {outcome.kind}: {outcome.text}"
    return outcome.kind


@pytest.mark.parametrize("name", SMALL)
def test_a_damaged_model_is_refused_or_runs(
    name: str, worker: CaseWorker, tmp_path: Path
) -> None:
    for seed in range(FEW):
        check(worker, MODELS[name](), tmp_path, seed)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_damaged_in_many_ways_is_refused_or_runs(
    name: str, worker: CaseWorker, tmp_path: Path
) -> None:
    model = MODELS[name]()
    kinds = {check(worker, model, tmp_path, seed) for seed in range(MANY)}
    assert kinds == {"refused", "ran"}


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 4),
        pytest.param(4, 12, marks=pytest.mark.slow),
        pytest.param(16, 48, marks=pytest.mark.nightly),
    ],
)
def test_a_damaged_model_with_control_flow_is_refused_or_runs(
    first: int, count: int, worker: CaseWorker, tmp_path: Path
) -> None:
    """Bodies, captures and sizes of data, damaged: each time another model."""
    for seed in range(first, first + count):
        check(worker, make_case(seed).model, tmp_path, seed)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LIGHT)
def test_a_damaged_network_is_refused_or_runs(
    name: str, worker: CaseWorker, tmp_path: Path
) -> None:
    (path,) = (p for p in onnx_suite.light_models() if p.stem == name)
    model = onnx.load(path)
    for seed in range(12):
        check(worker, model, tmp_path, seed)


@pytest.mark.slow
def test_a_model_with_damaged_weights_beside_it_is_refused_or_runs(
    worker: CaseWorker, tmp_path: Path
) -> None:
    """External data: the model's references change, and the file is cut, longer, or gone."""
    path = tmp_path / "model.onnx"
    onnx.save_model(
        small_models.mlp(), path, save_as_external_data=True, size_threshold=0,
        location="weights.bin",
    )  # fmt: skip
    model, weights = onnx.load(path, load_external_data=False), tmp_path / "weights.bin"
    data = weights.read_bytes()
    kinds = set()
    for seed in range(MANY):
        choose = random.Random(seed)
        length = choose.choice((len(data), len(data), 0, len(data) // 2, len(data) - 1))
        weights.write_bytes(data[:length] + bytes(choose.choice((0, 64))))
        path.write_bytes(damaged(model, choose))
        outcome = worker.ask("compile", path)
        assert outcome.is_clean, f"seed {seed}: {outcome.kind}: {outcome.text}"
        kinds.add(outcome.kind)
    weights.unlink()
    onnx.save(model, path)
    assert worker.ask("compile", path).kind == "refused"
    assert kinds == {"refused", "ran"}


@pytest.mark.slow
def test_the_worker_tells_a_crash_and_goes_on(worker: CaseWorker, tmp_path: Path) -> None:
    """The judge is judged: what dies is seen, and the next case has a process again."""
    path = tmp_path / "model.onnx"
    onnx.save(small_models.scale_and_shift(), path)
    assert worker.ask("crash", path).kind == "died"
    assert worker.ask("compile", path).kind == "ran"
    assert worker.ask("spin", path, seconds=1).kind == "hung"
    assert worker.ask("no such task", path).kind == "raw"
