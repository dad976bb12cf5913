"""The cache: hits, corruption, limits, two writers."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.base import knobs
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.diagnostics import TilewrightWarning


@pytest.fixture
def cache(tmp_path: Path) -> CompilationCache:
    return CompilationCache(folder=tmp_path / "objects", limit_bytes=10_000)


def entries(cache: CompilationCache) -> list[Path]:
    return [p for p in cache.folder.glob("??/*") if p.is_file()]


def tally(cache: CompilationCache) -> Path:
    return cache.folder / "tally" / "bytes"


def test_what_was_put_is_found_again(cache):
    key = CompilationCache.key("text", "target")
    assert cache.get(key) is None
    cache.put(key, b"object")
    assert cache.get(key) == b"object"


def test_keys_depend_on_every_part_and_on_their_borders():
    keys = {
        CompilationCache.key(*parts)
        for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("c", "ab"))
    }
    assert len(keys) == 4


def test_every_corrupted_byte_is_a_miss_and_the_entry_goes(cache):
    key = CompilationCache.key("x")
    cache.put(key, b"some object code")
    (path,) = entries(cache)
    original = path.read_bytes()
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 0x40
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(damaged))
        assert cache.get(key) is None
        assert not path.exists()


def test_an_entry_under_the_name_of_another_is_a_miss(cache):
    ours, other = CompilationCache.key("ours"), CompilationCache.key("other")
    cache.put(ours, b"one kernel")
    cache.put(other, b"another kernel")
    paths = {path.name: path for path in entries(cache)}
    paths[ours].write_bytes(paths[other].read_bytes())
    assert cache.get(ours) is None
    assert cache.get(other) == b"another kernel"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize(
    "make", [getattr(os, "mkfifo", None), Path.mkdir], ids=["pipe", "folder"]
)
def test_what_is_no_file_is_a_miss_and_nobody_waits_for_it(cache, make):
    key = CompilationCache.key("x")
    cache.put(key, b"object")
    (path,) = entries(cache)
    path.unlink()
    make(path)
    code = (
        "from pathlib import Path; from tilewright.base.compilation_cache import CompilationCache as C;"
        f"print(C(folder=Path({str(cache.folder)!r}), limit_bytes=10000).get({key!r}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert found.stdout == "None\n"


def test_an_interrupted_writer_leaves_nothing(cache, monkeypatch):
    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.put(CompilationCache.key("x"), b"object")
    assert entries(cache) == []


def test_a_truncated_entry_is_a_miss(cache):
    key = CompilationCache.key("x")
    cache.put(key, b"some object code")
    (path,) = entries(cache)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert cache.get(key) is None


def test_the_objects_unused_for_longest_go_first(cache):
    keys = [CompilationCache.key(str(n)) for n in range(20)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        stamp = time.time() - 1000 + age
        os.utime(cache._path(key), (stamp, stamp))
    assert cache.get(keys[0]) is not None  # used now, so it stays
    assert cache.trim() > 0
    assert sum(p.stat().st_size for p in entries(cache)) <= cache.limit_bytes
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None
    assert cache.get(keys[-1]) is not None


def test_trimming_leaves_a_small_cache_alone(cache):
    cache.put(CompilationCache.key("x"), b"object")
    assert cache.trim() == 0
    assert len(entries(cache)) == 1


def test_what_an_interrupted_writer_left_is_removed_later(cache):
    cache.put(CompilationCache.key("x"), b"object")
    left = cache.folder / "ab" / ".new-left"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(bytes(10))
    assert cache.trim() == 0
    os.utime(left, (0, 0))
    tally(cache).unlink()  # an hour later
    assert cache.trim() == 10
    assert not left.exists()


def test_entries_are_not_looked_at_again_before_the_limit_is_near(cache, monkeypatch):
    """A cache of 20 000 entries cost each compilation 0.4 s."""
    looks = 0

    def look(cache: CompilationCache) -> Iterator[tuple[Path, os.stat_result]]:
        nonlocal looks
        looks += 1
        return every_entry(cache)

    every_entry = CompilationCache._entries
    monkeypatch.setattr(CompilationCache, "_entries", look)
    for n in range(9):
        cache.put(CompilationCache.key(str(n)), bytes(1000))
        assert cache.trim() == 0
    assert looks == 1
    cache.put(CompilationCache.key("one too many"), bytes(1000))
    assert cache.trim() > 0
    assert looks == 2
    assert sum(p.stat().st_size for p in entries(cache)) <= cache.limit_bytes
    assert cache.trim() == 0
    assert looks == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff\n"),
        lambda path: path.write_text(f"{int(time.time()) - 3601}\n0\n"),
        lambda path: path.write_text(f"{int(time.time()) + 100}\n0\n"),
        lambda path: path.write_text(f"{int(time.time())}\n{'9' * 5000}\n"),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    ],
)
def test_a_tally_that_is_old_or_none_is_not_believed(cache, spoil):
    cache.put(CompilationCache.key("first"), bytes(9_000))
    assert cache.trim() == 0
    spoil(tally(cache))
    cache.put(CompilationCache.key("second"), bytes(9_000))
    assert cache.trim() > 0
    assert len(entries(cache)) < 2


def test_a_cache_that_was_emptied_has_no_tally(cache):
    cache.put(CompilationCache.key("x"), bytes(9_000))
    cache.trim()
    assert cache.clear().entry_count == 1
    assert list(cache.folder.iterdir()) == []


def test_what_a_clock_that_was_set_back_left_goes_first(cache):
    """Entries dated to come would otherwise push out each new one until that time has come."""
    keys = [CompilationCache.key(str(n)) for n in range(20)]
    to_come = time.time() + 1e6
    for key in keys[:-1]:
        cache.put(key, bytes(1000))
        os.utime(cache._path(key), (to_come, to_come))
    cache.put(keys[-1], bytes(1000))
    assert cache.trim() > 0
    assert cache.get(keys[-1]) is not None


@pytest.mark.parametrize("age", [0, 1e6, -600, -1e6])
def test_half_written_entries_push_out_no_others(cache, age):
    """One that is dated a little ahead is being written now, where a file server has another clock."""
    key = CompilationCache.key("x")
    cache.put(key, b"object")
    left = cache.folder / "ab" / ".new-left"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(bytes(2 * cache.limit_bytes))
    os.utime(left, (time.time() - age, time.time() - age))
    cache.trim()
    assert cache.get(key) == b"object"
    assert left.exists() == (abs(age) < 3600)


def test_an_entry_larger_than_any_is_a_miss_that_takes_no_memory(cache):
    key = CompilationCache.key("x")
    cache.put(key, b"object")
    os.truncate(cache._path(key), 1 << 40)
    assert cache.get(key) is None
    cache.put(key, b"object")
    assert cache.get(key) == b"object"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = CompilationCache(folder=blocked / "objects", limit_bytes=100)
    key = CompilationCache.key("x")
    with pytest.warns(TilewrightWarning, match="the cache cannot be written"):
        cache.put(key, b"object")
    cache.put(key, b"object")  # and not a second time: warnings are errors here
    assert cache.get(key) is None
    assert cache.trim() == 0


@pytest.mark.parametrize("missing", ["parent_process", "_parent_process"])
def test_a_warning_does_not_wait_for_a_module_that_another_thread_loads(
    cache, monkeypatch, missing
):
    """Names of `multiprocessing.process` come one after the other, the one that is asked for before what it looks up."""
    monkeypatch.delattr(multiprocessing.process, missing)
    cache.folder.parent.mkdir(exist_ok=True)
    cache.folder.write_text("somebody's own")
    with pytest.warns(TilewrightWarning, match="is no folder"):
        assert cache.get(CompilationCache.key("x")) is None


def test_the_folder_is_for_its_owner_alone(cache):
    cache.put(CompilationCache.key("x"), b"object")
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    cache.folder.chmod(0o755)
    assert cache.get(CompilationCache.key("x")) == b"object"
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_not_used(cache):
    key = CompilationCache.key("x")
    cache.put(key, b"object")
    cache.folder.chmod(0o777)
    with pytest.warns(TilewrightWarning, match="can be written by other users"):
        assert cache.get(key) is None
    cache.put(CompilationCache.key("y"), b"object")
    assert [path.name for path in entries(cache)] == [key]
    assert cache.usage() == (0, 0)


def test_a_folder_of_another_user_is_not_used(cache, monkeypatch):
    key = CompilationCache.key("x")
    cache.put(key, b"object")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(TilewrightWarning, match="belongs to the user"):
        assert cache.get(key) is None


def test_entries_of_another_user_and_links_are_misses(cache, monkeypatch):
    key, other = CompilationCache.key("x"), CompilationCache.key("y")
    cache.put(key, b"object")
    link = cache._path(other)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(cache._path(key))
    assert cache.get(other) is None
    monkeypatch.setattr(CompilationCache, "is_ours", lambda self: True)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cache.get(key) is None


@pytest.mark.parametrize("key", ["", "..", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_what_is_no_digest_is_no_key(cache, key):
    cache.put(key, b"object")
    assert cache.get(key) is None
    assert not cache.folder.exists()


def test_a_key_that_is_a_path_deletes_no_file(cache, tmp_path):
    """An entry tells the key of another one; one that was made to harm told a path."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody's file")
    cache.put(CompilationCache.key("x"), b"object")
    assert cache.get(f"../{tmp_path.name}/victim") is None
    assert victim.read_bytes() == b"somebody's file"


def test_usage_and_clear_see_entries_and_nothing_else(cache):
    keys = [CompilationCache.key(str(n)) for n in range(3)]
    for key in keys:
        cache.put(key, b"object")
    note = cache.folder / "aa" / "note.txt"
    note.parent.mkdir(exist_ok=True)
    note.write_text("mine")
    count, size = cache.usage()
    assert count == 3
    assert size == sum(cache._path(key).stat().st_size for key in keys)
    assert cache.clear() == (3, size)
    assert cache.usage() == (0, 0)
    assert note.read_text() == "mine"


@pytest.mark.slow
def test_two_processes_may_write_the_same_entry(cache):
    code = (
        "import sys; from pathlib import Path\n"
        "from tilewright.base.compilation_cache import CompilationCache\n"
        f"cache = CompilationCache(folder=Path({str(cache.folder)!r}), limit_bytes=1 << 20)\n"
        "key = CompilationCache.key('shared')\n"
        "for n in range(200):\n"
        "    cache.put(key, b'z' * 5000)\n"
        "    assert cache.get(key) in (b'z' * 5000, None)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)
    ]
    assert [process.wait(60) for process in running] == [0, 0]
    assert cache.get(CompilationCache.key("shared")) == b"z" * 5000
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("taken", ["mkstemp", "replace"])
def test_an_entry_is_kept_that_is_written_while_others_empty_the_cache(
    cache, monkeypatch, taken
):
    """Between any two steps of the writer; warnings are errors here."""
    owner = tempfile if taken == "mkstemp" else Path
    step, emptied = getattr(owner, taken), []

    def empty_first(*arguments, **options):
        if len(emptied) < 2:
            emptied.append(cache.clear())
        return step(*arguments, **options)

    monkeypatch.setattr(owner, taken, empty_first)
    key = CompilationCache.key("x")
    cache.put(key, b"object")
    assert len(emptied) == 2
    assert cache.get(key) == b"object"
    assert len(entries(cache)) == 1


def test_the_knobs_place_and_switch_the_default_cache(tmp_path):
    with knobs.override(cache_dir=tmp_path, cache_limit="7K"):
        cache = CompilationCache.default()
        assert cache is not None
        assert cache.folder == tmp_path / f"objects-{os.geteuid()}"
        assert cache.limit_bytes == 7 << 10
    with knobs.override(cache="off"):
        assert CompilationCache.default() is None
