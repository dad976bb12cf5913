import os
from pathlib import Path

import pytest

from tilewright.base import knobs
from tilewright.base.errors import UserError
from tilewright.base.knobs import THREAD_LIMIT


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch):
    for knob in knobs.TABLE.values():
        monkeypatch.delenv(knob.variable, raising=False)


def test_the_default_holds_when_nothing_is_set():
    assert knobs.JOBS.get() == 0
    assert knobs.CACHE.get() is True
    assert knobs.DUMP_DIR.get() is None
    assert not knobs.JOBS.is_set


def test_the_variable_is_read_at_every_get(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TILEWRIGHT_JOBS", "3")
    assert knobs.JOBS.get() == 3
    monkeypatch.setenv("TILEWRIGHT_JOBS", "4")
    assert knobs.JOBS.get() == 4


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("2G", 2 << 30), ("512 MiB", 512 << 20)]
)
def test_sizes_take_units(monkeypatch: pytest.MonkeyPatch, text: str, size: int):
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", text)
    assert knobs.CACHE_LIMIT.get() == size


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("TILEWRIGHT_JOBS", "-1", "a number that is not negative"),
        ("TILEWRIGHT_CACHE", "maybe", "one of 1 true yes 0 false no off"),
        ("TILEWRIGHT_CACHE_LIMIT", "2X", "a size like"),
        ("TILEWRIGHT_CACHE_LIMIT", "2\N{KELVIN SIGN}", "a size like"),
        ("TILEWRIGHT_CACHE_LIMIT", "\x1c2", "a size like"),
        ("TILEWRIGHT_JOBS", "\x1c2", "a number that is not negative"),
        ("TILEWRIGHT_SOURCE_DATE_EPOCH", "\x1c2", "seconds since 1970"),
    ],
)
def test_a_bad_value_names_the_variable_and_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, expected: str
):
    monkeypatch.setenv(variable, text)
    knob = knobs.TABLE[variable.removeprefix("TILEWRIGHT_").lower()]
    with pytest.raises(UserError, match=f"{variable}: got '{text}', expected {expected}"):
        knob.get()


def test_more_threads_than_a_pool_may_have_are_refused_by_the_variable(
    monkeypatch: pytest.MonkeyPatch,
):
    """Whoever makes a pool of them: sessions, compilations, libraries of TVM."""
    monkeypatch.setenv("TILEWRIGHT_THREADS", str(THREAD_LIMIT))
    assert knobs.THREADS.get() == THREAD_LIMIT
    for text in (str(THREAD_LIMIT + 1), "999999999999"):
        monkeypatch.setenv("TILEWRIGHT_THREADS", text)
        with pytest.raises(UserError, match=f"TILEWRIGHT_THREADS: got '{text}', .* 4096"):
            knobs.THREADS.get()


def test_the_cache_folder_follows_the_xdg_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert knobs.CACHE_DIR.get() == tmp_path / "tilewright"
    # A relative one is to be ignored, says the specification: each folder one works in would get a cache.
    for relative in ("cache", "./x", "~/cache", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert knobs.CACHE_DIR.get() == Path("~/.cache/tilewright").expanduser()


def test_override_wins_over_the_variable_and_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TILEWRIGHT_DUMP_DIR", "/a")
    with knobs.override(dump_dir="/b", verify=True):
        assert knobs.DUMP_DIR.get() == Path("/b")
        assert knobs.VERIFY.get() is True
    assert knobs.DUMP_DIR.get() == Path("/a")
    assert knobs.VERIFY.get() is False


def test_override_refuses_unknown_names():
    with pytest.raises(UserError, match="unknown knob 'job'"), knobs.override(job=1):
        pass


def test_a_misspelt_variable_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TILEWRIGHT_CACHEDIR", "x")
    (found,) = knobs.unknown_variables()
    assert found.startswith("TILEWRIGHT_CACHEDIR (did you mean 'TILEWRIGHT_CACHE_DIR'")


def test_every_knob_is_in_the_table_under_its_name():
    declared = {k for k in vars(knobs).values() if isinstance(k, knobs.Knob)}
    assert set(knobs.TABLE.values()) == declared
    assert all(name == knob.name and knob.summary for name, knob in knobs.TABLE.items())


def test_an_empty_cache_folder_is_the_default_and_not_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
):
    usual = knobs.CACHE_DIR.get()
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "")
    assert knobs.CACHE_DIR.get() == usual


def test_a_time_of_the_system_that_is_none_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(
        UserError, match="SOURCE_DATE_EPOCH: got 'yesterday', expected seconds"
    ):
        knobs.SOURCE_DATE_EPOCH.get()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="another system")
def test_a_user_without_a_home_has_a_cache_in_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", knobs.CACHE_DIR.variable):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        os.path, "expanduser", lambda path: path
    )  # what it does for such a user
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert knobs.CACHE_DIR.get() == tmp_path / f"tilewright-{os.getuid()}"
    with (
        knobs.override(cache_dir="~nobody_of_this_name/cache"),
        pytest.raises(UserError, match="TILEWRIGHT_CACHE_DIR: got '~nobody"),
    ):
        knobs.CACHE_DIR.get()
