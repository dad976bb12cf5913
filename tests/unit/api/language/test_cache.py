"""Keys and values of what was read: how much memory they take."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.api.language.cache import Cache
from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, UserError
from tilewright.formats.parameters import write_safetensors
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


def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    place = tmp_path / "prompt.safetensors"
    place.touch()
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UserError, match=r"prompt.safetensors: cannot be read: Permission"):
        Cache(SPECS, 8, b"model").load(place)
