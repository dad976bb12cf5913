"""What tuning found is read back, changes what is compiled, and is passed over wherever it is no good."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.command_line import tilewright
from tilewright.base import dtypes
from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends import tuning_store
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.backends.tuning_store import Finding, TuningStore
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.schedule.rules import Decisions, space_of

TARGET = Target.level("v3")


def product() -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (37, 24)))
    y = b.constant(np.ones((24, 40), np.float32), "y")
    b.output("z", b.matmul(x, y))
    return b.graph


def options(store: TuningStore | None) -> pipeline.CompileOptions:
    return pipeline.CompileOptions(targets=(TARGET,), threads=1, jobs=1, store=store)


def the_request(store: TuningStore | None = None) -> KernelRequest:
    """The only kernel of `product`, as the pipeline asks for it."""
    graph = product()
    (graph,) = pipeline.optimize(graph, options(None))
    groups = pipeline.find_kernels(graph)
    (request,) = pipeline.make_requests(groups, TARGET, options(store))
    return request


def another_point() -> str:
    machine = backend_of(TARGET).machine_model(TARGET)
    space = space_of(replace(the_request().naive, name="kernel"), machine)
    return next(space.neighbours(space.best())).to_text()


def finding(decisions: str, *, is_checked: bool = True) -> Finding:
    return Finding("z", decisions, 200.0, 100.0, is_checked)


@pytest.fixture
def store(tmp_path: Path) -> TuningStore:
    return TuningStore(tmp_path / "sub" / "tuning.sqlite")


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="tilewright")
    return caplog


def test_decisions_are_read_back_and_the_last_ones_count(store: TuningStore) -> None:
    first, then = another_point(), "rows"
    store.note_best("a", finding(then))
    store.note_best("a", finding(first))
    store.note_best("b", finding(first, is_checked=False))
    assert store.decisions(["a", "b", "c"]) == {"a": Decisions.parse(first)}
    assert set(store.findings(["a", "b", "c"])) == {"a", "b"}
    store.drop(["a"])
    assert store.decisions(["a"]) == {}


def test_points_that_were_tried_are_kept_by_kernel(store: TuningStore) -> None:
    store.note_tried("a", {"x": 1.5, "y": 0.5})
    store.note_tried("a", {"y": 0.75})
    assert store.tried("a") == {"x": 1.5, "y": 0.75}
    assert store.tried("b") == {}


@pytest.mark.slow
def test_a_compilation_takes_them_and_its_key_tells(store: TuningStore) -> None:
    plain, point = the_request(), another_point()
    store.note_best(plain.key, finding(point))
    tuned = the_request(store)
    assert tuned.decisions == Decisions.parse(point)
    assert tuned.key != plain.key
    (record,) = pipeline.compile_model(product(), options(store)).kernels[0]
    assert f"decided: {point}" in record.kernel_ir


def test_another_number_of_threads_finds_nothing(store: TuningStore) -> None:
    request = the_request()
    store.note_best(replace(request, threads=2).key, finding(another_point()))
    assert the_request(store).decisions is None


def test_a_store_that_is_not_there_is_not_made(store: TuningStore) -> None:
    assert store.decisions(["a"]) == {}
    assert not store.path.parent.exists()


def test_a_file_of_no_bytes_is_a_store_that_knows_nothing(
    store: TuningStore, complaints: pytest.LogCaptureFixture
) -> None:
    """As `mktemp` makes it for the first search."""
    store.path.parent.mkdir()
    store.path.write_bytes(b"")
    assert store.decisions(["a"]) == {}
    assert complaints.text == ""
    store.note_best("a", finding(another_point()))
    assert list(store.decisions(["a"])) == ["a"]


@pytest.mark.parametrize(
    "text",
    ["nonsense", "contraction columns=many", "contraction size=3", "\0", "x" * (1 << 15)],
)
def test_decisions_that_do_not_parse_are_passed_over(store: TuningStore, text: str) -> None:
    store.note_best("a", finding(text))
    assert store.decisions(["a"]) == {}


def test_decisions_that_do_not_fit_the_kernel_are_passed_over(
    store: TuningStore, complaints: pytest.LogCaptureFixture
) -> None:
    plain = the_request()
    store.note_best(plain.key, finding("contraction columns=12345"))
    (record,) = pipeline.compile_model(product(), options(store)).kernels[0]
    (expected,) = pipeline.compile_model(product(), options(None)).kernels[0]
    assert record.kernel_ir == expected.kernel_ir
    assert record.request.decisions is None
    assert "columns=12345" in complaints.text


@pytest.mark.parametrize("damage", ["text", "cut", "name", "layout", "table", "folder"])
def test_a_damaged_store_is_passed_over_with_a_line_in_the_log(
    store: TuningStore, damage: str, complaints: pytest.LogCaptureFixture
) -> None:
    store.note_best("a", finding(another_point()))
    if damage == "text":
        store.path.write_bytes(b"no data base at all" * 99)
    elif damage == "cut":
        store.path.write_bytes(store.path.read_bytes()[:50])
    elif damage == "name":  # which SQLite repeats, and Python decodes
        data = store.path.read_bytes()
        assert b"tablebestbest" in data
        store.path.write_bytes(data.replace(b"tablebestbest", b"tableb\xccstbest"))
    elif damage == "folder":
        store.path.unlink()
        store.path.mkdir()
    else:
        change = "drop table best" if damage == "table" else "pragma user_version = 99"
        with sqlite3.connect(store.path) as base:
            base.execute(change)
        base.close()
    assert store.decisions(["a"]) == {}
    assert "not used" in complaints.text
    with pytest.raises(UserError, match="store"):
        store.note_best("a", finding("x"))


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a pipe"])
def test_a_store_that_is_no_file_is_not_waited_for(
    tmp_path: Path, kind: str, complaints: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tuning.sqlite"
    os.mkfifo(tmp_path / "pipe")
    if kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path = tmp_path / "pipe"
    if kind == "link to a pipe":
        path = tmp_path / "link"
        path.symlink_to("pipe")
    store = TuningStore(path)
    assert store.decisions(["a"]) == {}
    assert "is a device or a pipe" in complaints.text
    with pytest.raises(UserError, match="is a device or a pipe"):
        store.note_best("a", finding("x"))


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "change",
    [
        "create index slow on best (abs(before_ns))",
        "create table more (x)",
        "create virtual table more using fts5(x)",
        "alter table best add column more text as (hex(zeroblob(1000000000)))",
    ],
)
def test_tables_that_were_not_made_here_are_not_asked(
    store: TuningStore, change: str, complaints: pytest.LogCaptureFixture
) -> None:
    store.note_best("a", finding(another_point()))
    with sqlite3.connect(store.path) as base:
        try:
            base.execute(change)
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no such tables")
    base.close()
    assert store.decisions(["a"]) == {}
    assert "is no store" in complaints.text
    with pytest.raises(UserError, match="is no store"):
        store.tried("a")


@pytest.mark.parametrize("column", ["kernel", "decisions"])
def test_a_value_without_measure_is_not_read(
    store: TuningStore, column: str, complaints: pytest.LogCaptureFixture
) -> None:
    store.note_best("a", finding(another_point()))
    with sqlite3.connect(store.path) as base:
        base.execute(f"update best set {column} = hex(zeroblob(2000000))")
    base.close()
    assert store.decisions(["a"]) == {}
    assert "too big" in complaints.text


@pytest.mark.thinned(3)
@pytest.mark.parametrize("number", [float("inf"), 0.0, -1.0, "soon", b"soon"])
def test_times_that_are_none_are_passed_over(store: TuningStore, number: object) -> None:
    store.note_best("a", finding(another_point()))
    store.note_tried("a", {"x": 1.0, "y": 1.0})
    with sqlite3.connect(store.path) as base:
        base.execute("update best set after_ns = ?", (number,))
        base.execute("update tried set ratio = ? where decisions = 'y'", (number,))
    base.close()
    assert store.findings(["a"]) == {}
    assert store.tried("a") == {"x": 1.0}


def test_a_store_that_cannot_be_written_is_said_by_the_first_question_of_a_tuner(
    store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.note_best("a", finding(another_point()))
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("begin immediate")
    monkeypatch.setattr(tuning_store, "_WRITE_WAIT_S", 0.1)
    with pytest.raises(UserError, match="another process uses it"):
        store.tried("a")
    assert set(store.decisions(["a"])) == {"a"}, "who reads does not wait"
    holder.close()


def test_a_view_that_computes_for_ever_is_not_asked(
    store: TuningStore, complaints: pytest.LogCaptureFixture
) -> None:
    store.note_best("a", finding(another_point()))
    with sqlite3.connect(store.path) as base:
        base.execute("drop table best")
        base.execute(
            "create view best as with recursive n(i) as (select 1 union all select i from n) "
            "select 'b' as key, i as kernel, 'rows' as decisions, 1.0 as before_ns, "
            "1.0 as after_ns, 1 as checked from n"
        )
    base.close()
    assert store.decisions(["a"]) == {}
    assert "is no store" in complaints.text


def test_a_new_store_is_there_with_its_layout_or_not_at_all() -> None:
    made = sqlite3.connect(":memory:", isolation_level=None)
    inside: list[bool] = []

    def look(statement: str) -> None:
        del statement
        inside.append(made.in_transaction)

    made.set_trace_callback(look)
    made.executescript(tuning_store._TABLES)
    made.set_trace_callback(None)
    # Every statement after the first runs inside of one transaction.
    assert len(inside) > 3
    assert all(inside[1:])
    assert not made.in_transaction
    made.close()


@pytest.mark.slow
def test_an_artifact_says_what_was_decided(store: TuningStore, tmp_path: Path) -> None:
    point = another_point()
    plain = pipeline.compile_model(product(), options(None))
    assert "tuned" not in plain.origin.options
    store.note_best(the_request().key, finding(point))
    model = tw.Model(pipeline.compile_model(product(), options(store)))
    name = model.kernels[0].name
    assert model.compiled.origin.options["tuned"] == [{name: point}]
    assert [kernel.is_tuned for kernel in model.kernels] == [True]
    assert not tw.Model(plain).kernels[0].is_tuned
    model.save(tmp_path / "m.vmfb")
    shown = tilewright("inspect", tmp_path / "m.vmfb", "--output=provenance").out
    given = json.loads(shown)["predicate"]["buildDefinition"]["externalParameters"]
    assert given["tuned"] == [{name: point}]
    assert tilewright("inspect", tmp_path / "m.vmfb").row("tuned").startswith("1 kernel")


def test_values_of_other_types_are_passed_over(store: TuningStore) -> None:
    store.note_best("a", finding(another_point()))
    with sqlite3.connect(store.path) as base:
        base.execute("update best set decisions = x'00ff', before_ns = 'soon'")
    base.close()
    assert store.decisions(["a"]) == {}


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = TuningStore(tmp_path / "file" / "tuning.sqlite")
    with pytest.raises(UserError, match="cannot be used as a store"):
        store.note_tried("a", {"x": 1.0})


def write_many(path: Path, first: int) -> None:
    store = TuningStore(path)
    for i in range(first, first + 20):
        store.note_tried("shared", {f"point {i}": float(i + 1)})


def test_a_name_with_a_zero_byte_makes_no_other_file(tmp_path: Path) -> None:
    store = TuningStore(tmp_path / "store\0.sqlite")
    with pytest.raises(UserError, match="is no name of a file"):
        store.note_best("a", finding("x"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_several_processes_write_at_a_time(store: TuningStore) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=write_many, args=(store.path, first)) for first in (0, 100)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(store.tried("shared")) == 40


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("cut", "malformed|damaged"),
        ("layout", "is a store of layout 99"),
        ("folder", "cannot be used as a store"),
        ("text", "not a database"),
        ("table", "is no store of tuned decisions"),
    ],
)
def test_a_store_that_the_user_names_and_that_cannot_be_read_is_refused(
    damage: str, words: str, tmp_path: Path
) -> None:
    """It was passed over, with a line in a log that nobody reads: kernels were as if never tuned."""
    path = tmp_path / "named.sqlite"
    TuningStore(path).note_tried("key", {"d": 1.0})
    tw.compile(product(), tuned=path, jobs=1)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-4096])
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "text":
        path.write_text("no data base" * 100)
    else:
        with contextlib.closing(sqlite3.connect(path)) as base, base:
            change = (
                "create table t(x)" if damage == "table" else "pragma user_version = 99"
            )
            base.execute(change)
    with pytest.raises(UserError, match=words) as caught:
        tw.compile(product(), tuned=path, jobs=1)
    assert caught.value.location == path


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR_WRITE]
)
def test_a_disk_without_room_is_not_told_as_a_damaged_file(
    code: int, store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(UserError, match="disk is full") as caught:
        store.note_tried("key", {"d": 1.0})
    assert caught.value.hint is not None
    assert "make room" in caught.value.hint
    assert "let it be written" in caught.value.hint, "it may be read-only"
    assert "damaged" not in caught.value.hint


def _as_a_killed_tuner_leaves_it(path: Path, mode: str) -> None:
    """A copy of a store whose last change was not finished ("delete"), or not yet moved into the file ("wal")."""
    left = TuningStore(path.with_name("left.sqlite"))
    left.note_tried("key", {"d": 1.0})
    with contextlib.closing(sqlite3.connect(left.path)) as base:
        base.execute(f"pragma journal_mode = {mode}")
        base.execute("pragma cache_size = 1")
        base.executemany(
            "insert into tried values (?, ?, ?)",
            [("other", f"{i:0500}", 1.0) for i in range(500)],
        )
        if mode == "wal":
            base.commit()
        beside = "-journal" if mode == "delete" else "-wal"
        for suffix in ("", beside):
            data = Path(f"{left.path}{suffix}").read_bytes()
            assert data
            Path(f"{path}{suffix}").write_bytes(data)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_store_that_a_killed_tuner_left_is_read(mode: str, tmp_path: Path) -> None:
    """Reading alone, SQLite cannot take back what was not finished: "attempt to write a readonly database"."""
    path = tmp_path / "named.sqlite"
    _as_a_killed_tuner_leaves_it(path, mode)
    assert TuningStore.named(path).tried("key") == {"d": 1.0}
    assert len(TuningStore(path).tried("other")) == (500 if mode == "wal" else 0)


def test_a_store_that_nobody_may_write_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "named.sqlite"
    _as_a_killed_tuner_leaves_it(path, "delete")
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with contextlib.suppress(UserError):  # what is half written may be damaged
        assert TuningStore.named(path).path == path
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_store_in_use_is_to_be_tried_again_and_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "named.sqlite"
    TuningStore(path).note_tried("key", {"d": 1.0})
    monkeypatch.setattr(tuning_store, "_READ_WAIT_S", 0.01)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("begin exclusive")
        with pytest.raises(
            UserError, match="another process uses it\nhint: try again"
        ) as caught:
            TuningStore.named(path)
        assert "delete" not in str(caught.value)
    assert TuningStore.named(path).path == path


def test_a_name_that_the_system_refuses_is_told_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    with pytest.raises(UserError, match="cannot be used as a store") as caught:
        TuningStore.named(path)
    assert caught.value.location == path
