"""Tuning real kernels with a clock that says which points are fast: what is kept, dropped, and taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp, save
from tilewright.api.tune import parse_budget, tune
from tilewright.base.errors import InternalError, UserError
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.backends.tuning_store import Finding, TuningStore
from tilewright.compiler.schedule.rules import Decisions, KernelSpace, space_of
from tilewright.tuning import Comparison, Tuned, Tuner, keep_what_helps
from tilewright.tuning.tuner import make_tuned, mark_checked
from tilewright.tuning.workload import Workload

TARGET = Target.host()


class Bench:
    """A kernel whose points take what a function of their text says; a clock that they drive."""

    def __init__(self, takes) -> None:
        self.now = 0
        self.takes = takes
        self.runs: list[str] = []
        self.repeats = 1

    def clock(self) -> int:
        self.now += 1
        return self.now

    def build(self, points):
        return [Point(self, str(point)) for point in points]

    def settle(self, runnable, clock) -> float:
        return self.takes(runnable.code)


class Point:
    def __init__(self, bench: Bench, text: str) -> None:
        self.bench, self.code = bench, text

    def __call__(self) -> None:
        self.bench.runs.append(self.code)
        self.bench.now += self.bench.takes(self.code)


def first_request() -> tuple[KernelRequest, KernelSpace]:
    """A product of the small model."""
    options = pipeline.CompileOptions(targets=(TARGET,), threads=1)
    graph = pipeline.import_model(mlp(), options).graph
    (graph,) = pipeline.optimize(graph, options)
    request, *_ = pipeline.make_requests(pipeline.find_kernels(graph), TARGET, options)
    return request, space_of(request.naive, backend_of(TARGET).machine_model(TARGET))


@pytest.fixture
def store(tmp_path: Path) -> TuningStore:
    return TuningStore(tmp_path / "tuning.sqlite")


def tuned_with(bench: Bench, store: TuningStore) -> Tuned:
    request, space = first_request()
    return make_tuned(request, 1, space, lambda: bench, store)


def run(bench: Bench, store: TuningStore, seconds: float) -> tuple[Tuner, Tuned]:
    kernel = tuned_with(bench, store)
    tuner = Tuner([kernel], store, clock=bench.clock)
    tuner.run(seconds)
    return tuner, kernel


def fast_where_unrolled(text: str) -> int:
    return 50_000 if "unroll=8" in text else 100_000


def test_what_is_faster_is_found_and_kept(store: TuningStore) -> None:
    _, kernel = run(Bench(fast_where_unrolled), store, 0.08)
    assert "unroll=8" in str(kernel.search.best)
    assert kernel.finding is not None
    assert kernel.finding.after_ns == pytest.approx(kernel.finding.before_ns / 2, rel=1e-3)
    known = store.findings([kernel.request.key])[kernel.request.key]
    assert known.decisions == str(kernel.search.best)
    assert store.decisions([kernel.request.key]) == {}, "nothing checked it with the model"
    mark_checked([kernel], {kernel.request.key: kernel.search.best}, store)
    assert store.decisions([kernel.request.key]) == {kernel.request.key: kernel.search.best}


@pytest.mark.slow
def test_where_all_take_the_same_nothing_is_kept(store: TuningStore) -> None:
    _, kernel = run(Bench(lambda _: 100_000), store, 0.04)
    assert kernel.finding is None
    assert store.findings([kernel.request.key]) == {}


@pytest.mark.slow
def test_what_is_fast_only_where_its_tensors_lay_is_not_kept(store: TuningStore) -> None:
    request, space = first_request()
    places: list[Bench] = []

    def open_work() -> Bench:
        """Tensors elsewhere each time: only those of the search and of the start favour a point."""
        bench = Bench(fast_where_unrolled if len(places) < 2 else lambda _: 100_000)
        places.append(bench)
        return bench

    def clock() -> int:
        return sum(bench.now for bench in places)

    kernel = make_tuned(request, 1, space, open_work, store)
    Tuner([kernel], store, clock=clock).run(0.08)
    assert len(places) > 2
    assert any(ratio < 0.6 for ratio in kernel.search.tried.values()), "the search saw it"
    assert kernel.finding is None
    assert store.findings([request.key]) == {}


@pytest.mark.slow
def test_a_second_run_tries_nothing_again(store: TuningStore) -> None:
    first = Bench(fast_where_unrolled)
    _, before = run(first, store, 0.04)
    tried = set(before.search.tried)
    second = Bench(fast_where_unrolled)
    tuner, after = run(second, store, 0.04)
    new = set(after.search.tried) - tried
    assert tuner.tried_now == len(new) > 0
    again = set(second.runs) & tried
    assert again <= {
        str(before.search.start),
        str(before.search.best),
        str(after.search.best),
    }
    assert after.finding is not None


def test_what_a_store_says_was_tried_and_is_no_point_is_passed_over(
    store: TuningStore,
) -> None:
    request, space = first_request()
    start, near = str(space.best()), str(next(space.neighbours(space.best())))
    strange = ("nonsense", "", f"{start}; {start}", near.replace("unroll=", "unroll=9"))
    store.note_tried(request.key, {near: 0.5, **dict.fromkeys(strange, 0.1)})
    tuner, kernel = run(Bench(fast_where_unrolled), store, 0.02)
    assert kernel.search.tried[near] == 0.5
    assert not kernel.search.tried.keys() & set(strange)
    assert tuner.tried_now > 0


def test_an_interrupt_keeps_what_was_tried(store: TuningStore) -> None:
    count = 0

    def interrupted(text: str) -> int:
        nonlocal count
        count += 1
        if count > 60:
            raise KeyboardInterrupt
        return fast_where_unrolled(text)

    with pytest.raises(KeyboardInterrupt):
        run(Bench(interrupted), store, 1.0)
    request, _ = first_request()
    assert store.tried(request.key)


def test_what_a_store_says_that_is_no_point_is_not_taken(store: TuningStore) -> None:
    request, _ = first_request()
    store.note_best(request.key, Finding("k", "contraction columns=7777", 2.0, 1.0))
    kernel = tuned_with(Bench(fast_where_unrolled), store)
    assert kernel.finding is None
    assert kernel.search.best == kernel.search.start


def model_times(slow: set[str]):
    """A model that each key of `slow` makes slower by a tenth, and others faster by a hundredth."""

    def ns(chosen: Mapping[str, Decisions]) -> float:
        return 100.0 + sum(10.0 if key in slow else -1.0 for key in chosen)

    return lambda before, after: Comparison(ns(after) / ns(before), 0.0, ns(before))


@pytest.mark.parametrize("slow", [set[str](), {"a"}, {"c", "d"}, set("abcdefg")])
def test_what_makes_the_model_slower_is_dropped(slow: set[str]) -> None:
    point = Decisions(())
    kept = keep_what_helps(dict.fromkeys("abcdefg", point), model_times(slow))
    assert set(kept) == set("abcdefg") - slow


@pytest.mark.slow
def test_every_point_of_a_real_kernel_gives_the_result_of_the_first() -> None:
    request, space = first_request()
    work = Workload(request, (), dims={}, pool=None)
    (start,) = work.build([space.best()])
    assert work.settle(start) > 0
    near = list(space.neighbours(space.best()))[:3]
    assert [each.decisions for each in work.build(near)] == list(map(str, near))


@pytest.mark.slow
def test_a_point_with_another_result_is_a_bug_that_is_said() -> None:
    request, space = first_request()
    work = Workload(request, (), dims={}, pool=None)
    work.build([space.best()])
    assert work._expected is not None
    work._expected[0][...] += 1
    with pytest.raises(InternalError, match="decisions give another result: contraction"):
        work.build([next(space.neighbours(space.best()))])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60.0), ("1.5m", 90.0), ("2h", 7200.0), (7, 7.0), (" 3 s", 3.0)],
)
def test_budgets(text: str | float, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "nan", "1e3", True])
def test_a_budget_that_is_none_is_said(text: str) -> None:
    with pytest.raises(UserError, match="budget is"):
        parse_budget(text)


@pytest.mark.slow
def test_a_tuned_model_computes_the_same_and_the_store_is_used(tmp_path: Path) -> None:
    model = save(mlp(), tmp_path / "m.onnx")
    path = tmp_path / "s.sqlite"
    found = tune(str(model), budget="0.5s", threads=1, store=path)
    assert found.is_checked
    assert path.exists()
    assert found.after_ns <= found.before_ns
    x = np.random.default_rng(0).standard_normal(
        (5, *tw.compile(str(model)).inputs[0][2][1:])
    )
    plain = tw.compile(str(model), threads=1, tuned=False)
    used = tw.compile(str(model), threads=1, tuned=path)
    np.testing.assert_allclose(
        used(x.astype(np.float32)), plain(x.astype(np.float32)), rtol=1e-5, atol=1e-6
    )


def test_a_pattern_that_names_no_kernel_is_said(tmp_path: Path) -> None:
    model = save(mlp(), tmp_path / "m.onnx")
    with pytest.raises(UserError, match="no kernel is called 'nothing'"):
        tune(str(model), budget=1, kernels="nothing", store=tmp_path / "s")


@pytest.mark.slow
def test_the_last_word_has_sessions_of_its_own(
    store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, space = first_request()
    point = next(space.neighbours(space.best()))
    store.note_best(request.key, Finding(request.naive.name, str(point), 2.0, 1.0))
    models: list[set[object]] = []

    def as_wanted(first, second, **_: object) -> Comparison:
        models.append({first.args[0], second.args[0]})
        return Comparison(0.5 if len(models) == 1 else 1.5, 0.0, 100.0)

    monkeypatch.setattr("tilewright.api.tune.compare", as_wanted)
    found = tune(mlp(), budget="0s", threads=1, store=store.path)
    assert len(models) == 2
    assert not models[0] & models[1]
    assert found.dropped == 1
    assert store.decisions([request.key]) == {}
