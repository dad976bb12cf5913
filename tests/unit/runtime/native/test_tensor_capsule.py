"""Memory of ours as DLPack tensors: in C, and its twin in Python."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.runtime import native
from tilewright.runtime.native import fallback_tensor
from tilewright.runtime.packed.ffi import tvm_ffi

MAKERS = [native.tensor_capsule, fallback_tensor.tensor_capsule]


class Owner:
    """Memory of the C core that can be watched."""

    def __init__(self, size_bytes: int) -> None:
        self.memory = native.Memory(size_bytes)


@pytest.mark.parametrize("make", MAKERS)
def test_a_tensor_keeps_its_owner_alive(make: Callable[..., Any]) -> None:
    owner = Owner(256)
    gone = weakref.ref(owner)
    tensor = tvm_ffi.from_dlpack(make(owner, owner.memory.address, (2, 3), 2, 32, 1))
    del owner
    assert (tensor.shape, tensor.strides, str(tensor.dtype)) == ((2, 3), (3, 1), "float32")
    array = np.from_dlpack(tensor)
    array[...] = 7
    del tensor
    gc.collect()
    assert gone() is not None
    assert array.sum() == 42
    del array
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("make", MAKERS)
def test_a_capsule_that_nobody_takes_lets_go(make: Callable[..., Any]) -> None:
    owner = Owner(64)
    gone = weakref.ref(owner)
    capsule = make(owner, owner.memory.address, (4,), 0, 64, 1)
    del owner, capsule
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("make", MAKERS)
def test_a_tensor_may_go_on_another_thread(make: Callable[..., Any]) -> None:
    owner = Owner(64)
    gone = weakref.ref(owner)
    held = [tvm_ffi.from_dlpack(make(owner, owner.memory.address, (), 4, 16, 1))]
    del owner
    assert str(held[0].dtype) == "bfloat16"
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("make", MAKERS)
def test_shapes_that_cannot_be_are_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="rank 65, at most 64"):
        make(None, 0, (1,) * 65, 2, 32, 1)
    with pytest.raises(ValueError, match="a size is below 0"):
        make(None, 0, (-1,), 2, 32, 1)
    assert tvm_ffi.from_dlpack(make(None, 0, (2**62, 2**62, 0), 2, 32, 1)).numel() == 0
