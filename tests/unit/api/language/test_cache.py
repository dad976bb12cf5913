"""Keys and values of what was read: how much memory they take."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.api.language.cache import Cache
from tilewright.base import dtypes
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
