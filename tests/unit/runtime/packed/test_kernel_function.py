"""Kernels are recorded with the grid and the constants that the shapes of their tensors give."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.base.symbolic import symbol
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.kernel_function import KernelFunction, TensorArgument
from tilewright.runtime.packed.module import Module
from tilewright.runtime.recorder import Recorder

N = symbol("N")
KERNEL = KernelFunction(
    "scale",
    4096,
    ((dtypes.f32, (2 * N, 4)), (dtypes.f32, (N,)), (dtypes.f32, (8 * N,))),
    (N, 1, 1),
    (4 * N,),
)


def tensors(*shapes: tuple[int, ...]) -> list[TensorArgument]:
    return [TensorArgument(dtypes.f32, shape, (0, 0, 0)) for shape in shapes]


class Recording(Recorder):
    """Remembers the last dispatch."""

    def dispatch(self, *given: Any, **rest: Any) -> int:
        self.seen = (given[0], given[2], rest["constants"], rest["name"])
        return 0


def test_sizes_come_from_the_shapes() -> None:
    recorder = Recording()
    KERNEL.record(recorder, tensors((6, 4), (3,), (24,)))
    assert recorder.seen == (4096, (3, 1, 1), (12,), "scale")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((6, 4), (3,)), "kernel 'scale': got 2 tensors, expected 3"),
        (((6, 4), (3,), (25,)), r"tensor 2 is f32\[25\], expected f32\[8\*N\]"),
        (((6,), (3,), (24,)), r"tensor 0 is f32\[6\], expected f32\[2\*N, 4\]"),
        (((1 << 34, 4), (1 << 33,), (1 << 36,)), "sizes are too large"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        KERNEL.record(Recording(), tensors(*shapes))


def test_a_constant_that_32_bits_do_not_hold_is_refused() -> None:
    n = 1 << 30
    with pytest.raises(InputError, match="sizes are too large: 4294967296, expected less"):
        KERNEL.record(Recording(), tensors((2 * n, 4), (n,), (8 * n,)))
    n -= 1
    KERNEL.record(Recording(), tensors((2 * n, 4), (n,), (8 * n,)))


def test_who_records_a_kernel_keeps_its_owner() -> None:
    class Owner:
        """What the code lies in."""

    owner = Owner()
    alive = weakref.ref(owner)
    recorder = Recording()
    replace(KERNEL, owner=owner).record(recorder, tensors((6, 4), (3,), (24,)))
    del owner
    gc.collect()
    assert alive() is not None
    del recorder
    gc.collect()
    assert alive() is None


def test_another_type_is_refused() -> None:
    given = tensors((6, 4), (3,), (24,))
    given[1] = TensorArgument(dtypes.i32, (3,), (0, 0, 0))
    with pytest.raises(InputError, match=r"tensor 1 is i32\[3\]"):
        KERNEL.record(Recording(), given)


def test_modules_give_the_first_of_a_name_in_their_tree() -> None:
    class Kernels(Module):
        def find_kernel(self, name: str) -> KernelFunction | None:
            return KERNEL if name == "scale" else None

    root = FunctionTable({})
    assert root.get_kernel("scale") is None
    root.import_module(Kernels())
    assert root.get_kernel("scale") is KERNEL
    hiding = FunctionTable({"scale": print})
    hiding.import_module(root)
    assert hiding.get_kernel("scale") is None
