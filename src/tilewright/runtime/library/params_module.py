"""Weights as a module: kind `params`, saved as TVM's params blob.

    params["get_params"]()      a map from name to tensor

Not here: which weights a model has (`formats.plan`).

Source: TVM's `save_param_dict`; `formats.parameters.tvm`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy.typing as npt

from tilewright.base.errors import InputError
from tilewright.base.lazy import lazy
from tilewright.base.output_file import open_output
from tilewright.formats.parameters import read_arrays
from tilewright.formats.parameters.tvm import write_params
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module, ModuleProperties
from tilewright.runtime.packed.tensors import tensor_of

Array = npt.NDArray[Any]


@final
class ParamsModule(Module):
    """Arrays by name.

    Args:
        arrays: not copied; or what gives them when they are first asked for.
    """

    kind = "params"
    properties = ModuleProperties.BINARY_SERIALIZABLE | ModuleProperties.RUNNABLE

    def __init__(
        self, arrays: Mapping[str, Array] | Callable[[], Mapping[str, Array]]
    ) -> None:
        super().__init__()
        self._given: Mapping[str, Array] | Callable[[], Mapping[str, Array]] = arrays
        self._functions: Mapping[str, Callable[..., Any]] = {"get_params": self._tensors}

    @lazy
    def arrays(self) -> Mapping[str, Array]:
        """The arrays by name."""
        return dict(self._given() if callable(self._given) else self._given)

    def find_function(self, name: str) -> PackedFunction | None:
        found = self._functions.get(name)
        return None if found is None else packed_function(found)

    def function_names(self) -> Sequence[str]:
        return tuple(self._functions)

    def _tensors(self) -> dict[str, tvm_ffi.Tensor]:
        return {name: tensor_of(_writable(a)) for name, a in self.arrays.items()}

    def save_to_bytes(self) -> bytes:
        """TVM's params blob."""
        file = io.BytesIO()
        write_params(file, self.arrays)
        return file.getvalue()

    def get_write_formats(self) -> Sequence[str]:
        return ("params",)

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Write TVM's params blob.  Raises: InputError for another format."""
        if fmt not in ("", "params"):
            raise InputError(
                f"weights are not written as '{fmt}'",
                location=str(file_name),
                hint="formats: params",
            )
        with open_output(Path(file_name)) as file:
            write_params(file, self.arrays)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.arrays)} arrays>"


def _writable(array: Array) -> Array:
    """The array, or a copy of one that may not be written: DLPack cannot say that."""
    return array if array.flags.writeable else array.copy()


def load_params(data: bytes) -> ParamsModule:
    """The loader of the kind.  Raises: ArchiveError for bytes that are no file of parameters."""
    return ParamsModule(read_arrays(data, "module of kind 'params'"))
