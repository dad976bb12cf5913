"""The functions of TVM's graph executor over a program: tensors by name or number, parameters, runs.

Not here: what a program does (`program`), and how the functions are called from elsewhere
(`executor_module`, `graph_module`).

Source: TVM 0.19, `src/runtime/graph_executor/graph_executor.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.options import wrong
from tilewright.base.text import did_you_mean
from tilewright.formats.parameters import read_arrays, read_parameters
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.graph_executor.graph_program import GraphProgram
from tilewright.runtime.graph_executor.program import Program
from tilewright.runtime.plan_executor import as_array
from tilewright.runtime.plan_executor.tensors import Array

Key = str | int


@final
class GraphExecutor:
    """Runs a program again and again.

    Args:
        program: what to run.

    Thread-safety: one thread at a time; executors are independent of each other, also those that
    share parameters.
    """

    def __init__(self, program: Program) -> None:
        self.program: Program = program
        self._indices: dict[str, int] = {
            spec.name: index for index, spec in enumerate(program.inputs)
        }
        self._parameters: set[str] = set()

    # --- inputs

    @property
    def input_count(self) -> int:
        """Inputs and parameters."""
        return len(self.program.inputs)

    @property
    def output_count(self) -> int:
        return len(self.program.outputs)

    def input_index(self, name: str) -> int:
        """The number of an input or parameter; -1 for a name that none has."""
        return self._indices.get(name, -1)

    def set_input(self, key: Key, value: object) -> None:
        """Copy a tensor (numpy, DLPack, anything that converts) to where the next run reads it.

        Raises: InputError naming the input: unknown, of another type, or of another shape.
        """
        index = self._input(key)
        self.program.set_input(index, self._array(value, self.program.inputs[index]))

    def set_input_zero_copy(self, key: Key, value: object) -> None:
        """Let runs read the caller's memory itself, as it is when they run.

        Raises: InputError for a tensor that does not fit, is not dense or has an address that does not do.
        """
        index = self._input(key)
        self.program.bind_input(index, self._array(value, self.program.inputs[index]))

    def get_input(self, key: Key) -> Array:
        """The memory that the next run reads."""
        return self.program.input(self._input(key))

    def set_inputs(self, values: Mapping[str, object]) -> None:
        """`set_input` for each name, large ones first."""
        if len(values) == 1:
            for name, value in values.items():
                self.set_input(name, value)
            return
        arrays = {name: as_array(value) for name, value in values.items()}
        for name in sorted(arrays, key=lambda one: -arrays[one].nbytes):
            self.set_input(name, arrays[name])

    # --- outputs

    def get_output(self, index: int) -> Array:
        """The memory that the last run wrote, and the next one may write again."""
        return self.program.output(self._output(index))

    def copy_output(self, index: int, out: object) -> None:
        """Copy an output into a tensor of the caller's.

        Raises: InputError for one of another type or shape, or that cannot be written.
        """
        found, target = self.get_output(index), as_array(out)
        name = self.program.outputs[self._output(index)].name
        if not target.flags.writeable:
            raise InputError("the array is read-only", location=f"output '{name}'")
        if target.shape != found.shape or target.dtype != found.dtype:
            raise InputError(
                f"got {target.dtype}{list(target.shape)} to copy {found.dtype}{list(found.shape)} to",
                location=f"output '{name}'",
            )
        np.copyto(target, found)

    def set_output_zero_copy(self, key: Key, value: object) -> None:
        """Let runs write into the caller's memory itself.

        Args:
            key: number of the output; a name works if one output has it.
            value: a dense tensor that can be written.
        """
        index = self._output(key)
        self.program.bind_output(index, self._array(value, self.program.outputs[index]))

    # --- running

    def run(self) -> None:
        """Run the program once."""
        self.program.run()

    def run_from_inputs(self, *pairs: object) -> list[Array]:
        """Set inputs, run, and copy all outputs.

        Args:
            pairs: name or number, value, name or number, value ...
        """
        if len(pairs) % 2:
            raise InputError(
                f"got {len(pairs)} arguments, expected pairs of an input and its value"
            )
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            self.set_input(_key(key), value)
        self.run()
        return [self.get_output(index).copy() for index in range(self.output_count)]

    # --- parameters

    def load_params(self, data: bytes | bytearray | memoryview) -> None:
        """Set parameters from a file of them, as TVM writes it; names that are no input are passed over.

        Raises: ArchiveError for a damaged file; InputError for a tensor that does not fit its parameter.
        """
        for name, array in read_arrays(_checked(data)).items():
            self._parameters.add(name)
            if name in self._indices:
                self.program.set_input(self._indices[name], array)

    def share_params(self, other: GraphExecutor, names: Sequence[str]) -> None:
        """Read the parameters of another executor instead of copies.

        Args:
            other: whose parameters.
            names: which; those that are no input here are passed over.

        Raises: InputError for one that has another type there, or that is no parameter of its own.
        """
        for name in names:
            index, theirs = self.input_index(name), other.input_index(name)
            self._parameters.add(name)
            if index < 0:
                continue
            if theirs < 0:
                raise InputError(f"the other executor has no input '{name}'")
            if isinstance(self.program, GraphProgram) and isinstance(
                other.program, GraphProgram
            ):
                self.program.share_input(index, other.program, theirs)
            else:
                self.program.bind_input(index, other.program.input(theirs))

    # --- what there is

    def input_info(self) -> tuple[TensorSpec, ...]:
        """The inputs without the parameters that were loaded."""
        return tuple(s for s in self.program.inputs if s.name not in self._parameters)

    def output_info(self) -> tuple[TensorSpec, ...]:
        """The outputs."""
        return tuple(self.program.outputs)

    def _input(self, key: Key) -> int:
        if isinstance(key, str):
            found = self._indices.get(key)
            if found is not None:
                return found
            names = list(self._indices)
            raise InputError(
                f"there is no input '{key:.80}'",
                hint=did_you_mean(key, names) or f"inputs: {', '.join(names[:12])}",
            )
        return _index(key, self.input_count, "input")

    def _output(self, key: Key) -> int:
        if not isinstance(key, str):
            return _index(key, self.output_count, "output")
        names = [spec.name for spec in self.program.outputs]
        if names.count(key) != 1:
            raise InputError(
                f"there are {names.count(key)} outputs '{key:.80}', expected one",
                hint=f"outputs: {', '.join(names[:12])}",
            )
        return names.index(key)

    def _array(self, value: object, spec: TensorSpec) -> Array:
        try:
            return as_array(value)
        except InputError as error:
            raise InputError(
                error.message, location=f"'{spec.name}'", hint=error.hint
            ) from error


def _key(value: object) -> Key:
    if isinstance(value, str):
        return str(value)
    return _index_like(value)


def _index_like(value: object) -> int:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise InputError(f"got {type(value).__name__}, expected the name or number of a tensor")


def _index(key: object, count: int, subject: str) -> int:
    index = _index_like(key)
    if not 0 <= index < count:
        raise InputError(f"there is no {subject} {index}, there are {count}")
    return index


def parameter_names(data: bytes | bytearray | memoryview) -> tuple[str, ...]:
    """The names in a file of parameters.  Raises: ArchiveError."""
    return tuple(read_parameters(bytes(_checked(data))).entries)


def _checked(data: object) -> bytes | bytearray | memoryview:
    if isinstance(data, bytes | bytearray | memoryview):
        return data
    raise wrong(
        "params",
        data,
        "the bytes of a file of parameters",
        "pathlib.Path(file).read_bytes()" if isinstance(data, str) else None,
    )
