"""Attention caches: what is kept, where it grows, and what is refused.  Against TVM: conformance/interop/test_tvm.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.relax_code import Program, Register
from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.relax_machine import caches
from tilewright.runtime.relax_machine.caches import AttentionCache

R0, R1 = Register(0), Register(1)


def _tensor(rows: int, dtype: Any = np.float32) -> tvm_ffi.Tensor:
    return tvm_ffi.from_dlpack(np.arange(rows * 2).reshape(rows, 2).astype(dtype))


def _made(rows: int = 1, slots: int = 2) -> AttentionCache:
    return caches.create(_tensor(rows), tvm_ffi.Shape((slots, 2)), -1)


def test_a_cache_grows_and_keeps_what_it_has() -> None:
    cache = _made()
    for _ in range(3):
        caches.append(cache, _tensor(3))
    seen = np.from_dlpack(caches.view(cache))
    one = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(seen, np.concatenate([one[:1], one, one, one]))
    assert seen.ctypes.data % 64 == 0


def test_a_cache_without_room_at_first_grows_as_well() -> None:
    cache = caches.create(_tensor(0), tvm_ffi.Shape((0, 2)), 0)
    caches.append(cache, _tensor(5))
    assert np.from_dlpack(caches.view(cache)).shape == (5, 2)


def test_what_was_seen_of_a_cache_stays_when_it_grows() -> None:
    cache = _made(2)
    seen = np.from_dlpack(caches.view(cache))
    caches.append(cache, _tensor(9))
    del cache
    np.testing.assert_array_equal(seen, [[0, 1], [2, 3]])


def test_a_window_turns_over_between_sinks_and_end() -> None:
    cache = caches.create(_tensor(0), tvm_ffi.Shape((1, 2)), 0)
    for start in (0, 10, 20):
        rows = (np.arange(3)[:, None] + start + np.zeros((1, 2))).astype(np.float32)
        caches.window_override_with_sinks(cache, tvm_ffi.from_dlpack(rows), 5, 1)
    assert np.from_dlpack(caches.view(cache))[:, 0].tolist() == [0, 12, 20, 21, 22]


@pytest.mark.parametrize(
    "call",
    [
        lambda: caches.append(_made(), _tensor(1, np.float64)),
        lambda: caches.append(_made(), tvm_ffi.from_dlpack(np.zeros((1, 3), np.float32))),
        lambda: caches.append(_made(), tvm_ffi.from_dlpack(np.zeros(2, np.float32))),
        lambda: caches.append(_made(), tvm_ffi.from_dlpack(np.zeros((2, 2), np.float32).T[:, ::2])),
        lambda: caches.append(_made(), 3),
        lambda: caches.append(3, _tensor(1)),  # pyright: ignore[reportArgumentType]
        lambda: caches.update(_made(), _tensor(2)),
        lambda: caches.view(_made(), (2, 2)),
        lambda: caches.view(_made(), (1, 3)),
        lambda: caches.array_popn([_made()], 2),
        lambda: caches.array_popn([_made()], -1),
        lambda: caches.window_override(_made(), _tensor(3), 2),
        lambda: caches.window_override(_made(2), _tensor(1), 1),
        lambda: caches.window_override_with_sinks(_made(), _tensor(1), 4, 5),
        lambda: caches.window_override_with_sinks(_made(), _tensor(1), 4, -1),
        lambda: caches.create(_tensor(1), tvm_ffi.Shape((1 << 50, 2)), 0),
        lambda: caches.create(_tensor(1), tvm_ffi.Shape((-1, 2)), 0),
        lambda: caches.create(_tensor(1), tvm_ffi.Shape((4, 2)), 3),
        lambda: caches.create(_tensor(1), tvm_ffi.Shape(()), 0),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises((InputError, MemoryError)):
        call()


def test_a_cache_goes_through_registers_and_out_of_the_machine() -> None:
    program = (
        Program(1)
        .call(".attention_kv_cache_create", R0, (4, 2), -1, to=1)
        .call(".attention_kv_cache_append", R1, R0, to=1)
        .give(1)
    )
    cache = program.machine().packed("main")(_tensor(3))
    assert isinstance(cache, AttentionCache)
    assert cache.fill_count == 6
    seen = Program(1).call(".attention_kv_cache_view", R0, to=1).give(1).machine()
    assert np.from_dlpack(seen.packed("main")(cache)).shape == (6, 2)
