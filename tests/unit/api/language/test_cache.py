"""Keys and values of what was read: how much memory they take."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.api.language import cache as cache_module
from tilewright.api.language.cache import Cache
from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, UserError
from tilewright.formats.parameters import read_arrays, write_safetensors
from tilewright.formats.tensor_spec import TensorSpec

MIB = 1 << 20


def resident_bytes() -> int:
    """Memory of this process that is no file's."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_one_token_takes_the_memory_of_one_token() -> None:
    """Each head of a layer has 2 MiB of places: the size of the pages that numpy asks for."""
    specs = [TensorSpec(f"key_{i}", dtypes.f32, (1, 8, "room", 64)) for i in range(8)]
    before = resident_bytes()
    cache = Cache(specs, 8192, b"model")
    for array in cache.arrays.values():
        assert array.shape == (1, 8, 8192, 64)
        array[:, :, 0] = 1
    assert resident_bytes() - before < 16 * MIB
    assert all(float(array.sum()) == 8 * 64 for array in cache.arrays.values())
    assert all(array.flags.writeable for array in cache.arrays.values())


def test_a_cache_of_nothing_is_one() -> None:
    cache = Cache([TensorSpec("key_0", dtypes.f32, (1, 0, "room", 4))], 8, b"model")
    assert cache.arrays["key_0"].shape == (1, 0, 8, 4)
    assert cache.arrays["key_0"].dtype == np.float32


SPECS = [TensorSpec(f"{n}_0", dtypes.f32, (1, 2, "room", 4)) for n in ("key", "value")]


def test_a_file_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    """Its keys do, its values do not: neither may stand under the tokens that were read before."""
    cache = Cache(SPECS, 8, b"model")
    cache.tokens = [7, 8, 9]
    for array in cache.arrays.values():
        array[...] = 1
    place = tmp_path / "prompt.safetensors"
    with place.open("wb") as file:
        write_safetensors(
            file,
            {
                "tokens": np.array([7, 8], np.int64),
                "model": np.frombuffer(b"model", np.uint8),
                "key_0": np.full((1, 2, 2, 4), 5, np.float32),
                "value_0": np.full((1, 2, 3, 4), 5, np.float32),
            },
        )
    with pytest.raises(ArchiveError, match="has no 'value_0' that fits"):
        cache.load(place)
    assert cache.tokens == [7, 8, 9]
    assert all((array == 1).all() for array in cache.arrays.values())


def test_a_bit_that_a_disk_has_lost_is_noticed(tmp_path: Path) -> None:
    cache = Cache(SPECS, 8, b"model")
    cache.tokens = [7, 8, 9]
    for array in cache.arrays.values():
        array[...] = np.arange(array.size).reshape(array.shape)
    place = tmp_path / "prompt.safetensors"
    cache.save(place)
    whole = place.read_bytes()
    check_same(place, cache)
    name = whole.index(b"checksum")
    for at in range(0, len(whole), 3):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        if name <= at < name + len(b"checksum"):  # then there is none
            check_same(place, cache)
            continue
        before = Cache(SPECS, 8, b"model")
        with pytest.raises((ArchiveError, UserError)):
            before.load(place)
        assert before.tokens == []


def check_same(place: Path, wanted: Cache) -> None:
    """Load what was saved, into a cache of its own."""
    found = Cache(SPECS, 8, b"model")
    found.load(place)
    assert found.tokens == wanted.tokens
    count = len(wanted.tokens)
    for name, array in wanted.arrays.items():
        np.testing.assert_array_equal(found.arrays[name][:, :, :count], array[:, :, :count])


def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    place = tmp_path / "prompt.safetensors"
    place.touch()
    monkeypatch.setattr(cache_module, "read_beginning", refuse)
    with pytest.raises(UserError, match=r"prompt.safetensors: cannot be read: Permission"):
        Cache(SPECS, 8, b"model").load(place)


def test_a_file_larger_than_any_prompt_is_not_read(tmp_path: Path) -> None:
    place = tmp_path / "prompt.safetensors"
    with place.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match=r"prompt.safetensors: is larger than any prompt"):
        Cache(SPECS, 8, b"model").load(place)


# --- states

STATES = [
    *SPECS,
    TensorSpec("state_1", dtypes.f32, (1, 2, 3)),
    TensorSpec("window_1", dtypes.f32, (1, 3, 5)),
]


class Reader:
    """Reads tokens as a model does: a state is the text itself, as a number."""

    def __init__(self) -> None:
        self.cache = Cache(STATES, 64, b"model")
        self.steps: list[int] = []

    def read(self, tokens: list[int], piece: int = 4) -> None:
        """Read a text, and check each step."""
        self.cache.keep(tokens)
        while len(self.cache.tokens) < len(tokens):
            done = len(self.cache.tokens)
            new = tokens[done : min(done + piece, self.cache.end_of_step(len(tokens)))]
            assert new, "every step reads something"
            before = dict(zip((s.name for s in STATES), self.cache.inputs(), strict=True))
            after = dict(zip((s.name for s in STATES), self.cache.outputs(), strict=True))
            assert (before["state_1"] == number_of(tokens[:done])).all()
            assert not np.shares_memory(before["state_1"], after["state_1"])
            assert before["key_0"] is after["key_0"]
            for name in ("state_1", "window_1"):
                after[name][...] = number_of(tokens[: done + len(new)])
            self.cache.advance(new, len(tokens))
            self.steps.append(len(new))
        assert self.cache.tokens == tokens
        assert all((a == number_of(tokens)).all() for a in self.cache.states.values())


def number_of(tokens: list[int]) -> float:
    """A number that no other short text has."""
    found = 0.0
    for token in tokens:
        found = (found * 31 + token) % 65521
    return found


def test_a_prompt_that_is_read_again_costs_one_token() -> None:
    reader, prompt = Reader(), [5, 9, 2, 7, 7, 1]
    reader.read(prompt)
    assert reader.steps == [4, 1, 1]
    for token in (3, 4, 8):
        reader.read([*reader.cache.tokens, token])
    assert reader.cache.keep(prompt) == 5
    reader.steps = []
    reader.read(prompt)
    reader.read([*prompt, 6, 6, 2])  # another answer, and what was said to it
    assert reader.steps == [1, 2, 1]


def test_texts_in_turn_have_what_they_share_read_once_more() -> None:
    shared = list(range(1, 13))
    texts = [[*shared, *([word] * 9)] for word in (20, 30, 40)]
    reader = Reader()
    reader.read(texts[0])
    reader.steps = []
    reader.read(texts[1])
    assert sum(reader.steps) == 21
    for text in (texts[2], texts[0], texts[1]):
        reader.steps = []
        reader.read(text)
        assert sum(reader.steps) == 9


def test_a_text_that_begins_otherwise_is_read_from_the_beginning() -> None:
    reader = Reader()
    reader.read([1, 2, 3, 4, 5])
    reader.read([2, 2, 3])
    reader.read([2])
    reader.read([2, 2, 3, 4])


def test_any_texts_one_after_the_other_have_their_own_states() -> None:
    random, reader = np.random.default_rng(0), Reader()
    text: list[int] = []
    for _ in range(400):
        kept = int(random.integers(0, len(text) + 1))
        if random.integers(3):
            kept = len(text)
        more = random.integers(0, 3, int(random.integers(1, 9))).tolist()
        text = [*text[:kept], *more][:63]
        reader.read(text, piece=int(random.integers(1, 6)))
        assert len(reader.cache._copies) <= 4
        counts = [copy.count for copy in reader.cache._copies]
        assert counts == sorted(set(counts))
        for copy in reader.cache._copies:
            expected = number_of(text[: copy.count])
            assert all((a == expected).all() for a in copy.states.values())


def test_a_step_that_fails_leaves_the_states_as_they_were() -> None:
    reader = Reader()
    reader.read([4, 4, 2])
    for name, array in zip((s.name for s in STATES), reader.cache.outputs(), strict=True):
        if name in reader.cache.states:
            array[...] = -1
    reader.read([4, 4, 2, 9])


class Interrupted:
    """An array in whose place nothing is written."""

    def __setitem__(self, place: object, value: object) -> None:
        raise KeyboardInterrupt


def interrupt_states(cache: Cache, name: str) -> None:
    """Let an interrupt come when the second of the states that stand beside is written."""
    beside = dict(cache._states[1 - cache.turn])
    beside[name] = Interrupted()  # pyright: ignore[reportArgumentType]
    held = list(cache._states)
    held[1 - cache.turn] = beside
    cache._states = (held[0], held[1])


def test_an_interrupt_on_the_way_back_leaves_no_mixture() -> None:
    reader, whole = Reader(), [4, 4, 2, 9, 9]
    reader.read(whole)
    own = reader.cache._states
    interrupt_states(reader.cache, "window_1")
    with pytest.raises(KeyboardInterrupt):
        reader.cache.keep([4, 4, 3])
    reader.cache._states = own
    assert reader.cache.tokens == whole
    reader.read([*whole, 1])
    reader.read([4, 4, 3])


def test_an_interrupt_while_a_prompt_is_loaded_leaves_no_text(tmp_path: Path) -> None:
    reader, saved, place = Reader(), Reader(), tmp_path / "prompt"
    saved.read([6, 1, 8])
    saved.cache.save(place)
    reader.read([5, 5, 5, 5])
    own = reader.cache.arrays["value_0"]
    reader.cache.arrays["value_0"] = Interrupted()  # pyright: ignore[reportIndexIssue, reportArgumentType]
    reader.cache._held = lambda count: {}  # which the check looks at
    with pytest.raises(KeyboardInterrupt):
        reader.cache.load(place)
    del reader.cache._held
    reader.cache.arrays["value_0"] = own  # pyright: ignore[reportIndexIssue]
    assert reader.cache.tokens == []
    reader.read([5, 5, 5, 5])
    reader.cache.load(place)
    reader.read([6, 1, 8, 2])


def test_states_and_their_copies_are_saved(tmp_path: Path) -> None:
    reader, other, place = Reader(), Reader(), tmp_path / "prompt"
    prompt = [6, 1, 8, 8, 3, 2, 9]
    reader.read(prompt)
    reader.read([*prompt, 5])
    reader.cache.save(place)
    other.cache.load(place)
    assert other.cache.tokens == [*prompt, 5]
    other.read(prompt)
    assert other.steps == [1]
    for damaged in (
        {"copies": np.array([8, 7])},
        {"copies": np.array([9])},
        {"copies": np.array([0])},
        {},
    ):
        arrays = read_arrays(place.read_bytes(), "prompt")
        lost = ("checksum",) if damaged else ("checksum", "state_1@6")
        arrays = {n: a for n, a in arrays.items() if n not in lost} | damaged
        with place.with_name("damaged").open("wb") as file:
            write_safetensors(file, arrays)
        with pytest.raises(ArchiveError, match=r"copies of states|has no"):
            other.cache.load(place.with_name("damaged"))
        assert other.cache.tokens == prompt
        other.read([*prompt, 4])
        other.read(prompt)
