"""Kernels of the stored Relax executables in numpy, so that they run where no machine code of TVM's is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fakes.relax_executables import stored_executables
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.machine_module import MachineModule
from tilewright.runtime.relax_machine import RelaxExecutableModule


def _into(compute: Callable[..., Any]) -> Callable[..., None]:
    """A kernel that writes what `compute` gives into its last argument."""

    def kernel(*tensors: Any) -> None:
        *operands, result = (np.from_dlpack(one) for one in tensors)
        result[...] = compute(*operands)

    return kernel


def _bytes_of(place: int, *factors: int, scale: int = 4) -> Callable[[Any], None]:
    """A shape function: the bytes of a tensor whose sizes lie in the heap."""

    def shape_function(heap: Any) -> None:
        words = np.from_dlpack(heap)
        words[place] = scale * np.prod(words[list(factors)])

    return shape_function


def _sizes_of_product(heap: Any) -> None:
    words = np.from_dlpack(heap)
    words[2], words[3] = words[0] * words[1], words[0] + 1


def _sizes_of_main(heap: Any) -> None:
    words = np.from_dlpack(heap)
    words[2], words[3] = 4 * words[0] * words[1], words[0] * words[1]


KERNELS: dict[str, dict[str, Callable[..., Any]]] = {
    "branch": {
        "shape_func": _bytes_of(1, 0),
        "add": _into(np.add),
        "multiply": _into(np.multiply),
        "tir_negative": _into(np.negative),
        "add1": _into(lambda x: x + 1),
    },
    "calls": {"shape_func": _bytes_of(1, 0), "add": _into(np.add)},
    "closures": {"subtract": _into(np.subtract), "multiply": _into(np.multiply)},
    "loop": {
        "shape_func": _bytes_of(1, 0),
        "less": _into(lambda i: i < 10),
        "add": _into(lambda i: i + 1),
        "multiply": _into(lambda x: x * np.float32(0.5)),
        "add1": _into(np.add),
    },
    "shapes": {
        "shape_func": _bytes_of(1, 0, scale=12),
        "tir_exp": _into(np.exp),
        "shape_func1": _sizes_of_main,
        "reshape": _into(lambda x: x.reshape(x.shape[::-1])),
        "add": _into(np.add),
        "reshape1": _into(lambda x: x.reshape(-1)),
        "shape_func2": _sizes_of_product,
    },
    "strings": {
        "compute_symbolic_expr": lambda *_: 0.25,
        "tilewright.test.describe": lambda x, greeting, text: (
            f"{greeting} {text} {x.shape}"
        ),
        "tilewright.test.join": lambda *values: " ".join(str(one) for one in values),
    },
    "tuples": {"shape_func": _bytes_of(1, 0), "add": _into(np.add)},
}


class MachineCode(FunctionTable):
    """Functions that keep no argument, as those of a library do."""

    kind: ClassVar[str] = "library"


def executable_module(
    name: str, *, release: str = "0.27", keeps: bool = False
) -> RelaxExecutableModule:
    """A stored executable with its kernels as import.

    Args:
        name: of the model.
        release: of TVM.
        keeps: pass the kernels off as functions that may keep their arguments.
    """
    module = RelaxExecutableModule(
        stored_executables(release)[f"{name}.bytecode"].data, "net.so"
    )
    module.import_module((FunctionTable if keeps else MachineCode)(KERNELS[name]))
    return module


def machine(
    name: str, *, manager: int = 2, release: str = "0.27", keeps: bool = False
) -> MachineModule:
    """A virtual machine of a stored executable, on the CPU."""
    module = executable_module(name, release=release, keeps=keeps).load_machine()
    module["vm_initialization"](1, 0, manager)
    return module


def tensor(value: Any) -> tvm_ffi.Tensor:
    """An array as functions take it."""
    return tvm_ffi.from_dlpack(np.array(value))
