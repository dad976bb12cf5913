"""How a compiled model of torch is called: as its module is.

Arguments are taken apart as torch takes them apart, results put together the same way; tensors stay where
they are.  What the module keeps between calls (buffers that it changes) is kept here.

Ownership: owns the states.  Thread-safety: a model with states runs one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, final

import numpy as np

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.errors import InputError
from tilewright.base.foreign_tensors import unmasked
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.torch.decisions import remedy_of
from tilewright.compiler.frontends.torch.layout_questions import orders_that_matter
from tilewright.compiler.frontends.torch.program import (
    Decision,
    Input,
    Output,
    Program,
    Role,
    computed_number,
    is_computed,
)
from tilewright.compiler.graph.schema import Array

Run = Callable[[Sequence[Array]], Sequence[Array]]


@final
class Calling:
    """Calls a compiled program the way its module is called.

    Args:
        specs: how torch takes arguments apart, and how it puts results together.
        slots: whether each leaf of the arguments is a tensor, or a whole number that calls decide; others are part of the model.
        constants: values of the leaves that are part of the model.
        program: its inputs and outputs in order.
        orders: of arguments whose elements the program reads by strides, in which order their axes lie in memory.
    """

    def __init__(
        self,
        specs: tuple[Any, Any],
        slots: Sequence[bool],
        constants: Sequence[object],
        program: Program,
        orders: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._in_spec, self._out_spec = specs
        self._slots: tuple[bool, ...] = tuple(slots)
        self._constants: tuple[object, ...] = tuple(constants)
        self._orders: Mapping[str, tuple[int, ...]] = orders
        self._lock: Lock = Lock()
        held = [
            entry for entry in program.inputs
            if entry.role is not Role.WEIGHT and entry.type is not None
        ]  # fmt: skip
        self._order: tuple[str, ...] = tuple(entry.name for entry in held)
        self._complex: frozenset[str] = frozenset(e.name for e in held if e.is_complex)
        self._states: dict[str, Array] = {
            entry.name: np.array(entry.array)
            for entry in program.inputs
            if entry.role is Role.STATE and entry.array is not None
        }
        self._decisions: tuple[Decision, ...] = program.decisions
        self._shapes: dict[str, tuple[Dim, ...]] = {e.name: _sizes_of(e) for e in held}
        self._outputs: tuple[Output, ...] = program.outputs
        self._users: tuple[str, ...] = tuple(
            name for name in self._order if name not in self._states
        )
        self._plain: int = _plain_arguments(self._in_spec) if all(self._slots) else -1
        self._has_shapes: bool = _has_shapes(self._out_spec)

    @staticmethod
    def of(exported: Any, program: Program) -> Calling:
        """The convention of an exported program."""
        slots: list[bool] = []
        constants: list[object] = []
        for spec in exported.graph_signature.input_specs:
            if spec.kind.name != "USER_INPUT":
                continue
            is_tensor = type(spec.arg).__name__ in ("TensorArgument", "SymIntArgument")
            slots.append(is_tensor)
            constants.append(None if is_tensor else getattr(spec.arg, "value", None))
        call = exported.call_spec
        orders = orders_that_matter(exported)
        return Calling((call.in_spec, call.out_spec), slots, constants, program, orders)

    @property
    def states(self) -> Mapping[str, Array]:
        """What is kept between calls, by the name of its input."""
        return self._states

    def __call__(
        self, run: Run, arguments: Sequence[object], named: Mapping[str, object]
    ) -> Any:
        """Run on what the module takes; give what it gives.

        Raises: InputError for arguments of another structure than those it was exported with, or whose axes lie in
            another order in memory where that decides what is read.
        """
        if not named and len(arguments) == self._plain and _are_tensors(arguments):
            leaves = [*arguments]
        else:
            leaves = self._flatten(arguments, named)
        is_torch = _are_of_torch(leaves)
        given = dict(zip(self._users, leaves, strict=True))
        for name, order in self._orders.items():
            _check_order(name, given.get(name), order)
        arrays = {n: _arrays(leaf, n in self._complex) for n, leaf in given.items()}
        if self._states:
            with self._lock:
                results = self._run(run, arrays)
        else:
            results = self._run(run, arrays)
        made = iter(results)
        found: list[object] = []
        for output in self._outputs:
            if output.written:
                _write(given[output.written], output, made)
            elif not output.state:
                found.append(self._result(output, made, is_torch))
        if self._out_spec.is_leaf():
            return found[0]
        if self._has_shapes:
            return _joined(self._out_spec, iter(found))
        return border.load("torch.utils._pytree").tree_unflatten(found, self._out_spec)

    def _run(self, run: Run, arrays: Mapping[str, list[Array]]) -> Sequence[Array]:
        given = [
            array
            for name in self._order
            for array in (arrays[name] if name in arrays else [self._states[name]])
        ]
        try:
            results = list(run(given))
        except InputError as error:
            sides = [
                (self._shapes[name], _numbers_of(held[0], self._shapes[name]))
                for name, held in arrays.items()
            ]
            hint = remedy_of(self._decisions, sides)
            if hint is None:
                raise
            raise InputError(error.message, location=error.location, hint=hint) from error
        kept: list[Array] = []
        at = iter(results)
        for output in self._outputs:
            if not is_computed(output.value):
                continue
            if output.state:
                self._states[output.state] = next(at)
            else:
                kept += [next(at) for _ in range(1 + output.is_complex)]
        return kept

    @staticmethod
    def _result(output: Output, made: Iterator[Array], is_torch: bool) -> object:
        value = output.value
        if not is_computed(value):
            return value
        if output.is_complex:
            whole = border.of_parts(next(made), next(made))
            return whole if is_torch else whole.numpy()
        array = next(made)
        number = computed_number(value, array)
        if number is not None:
            return number
        return border.to_tensor(array) if is_torch else array

    def _flatten(
        self, arguments: Sequence[object], named: Mapping[str, object]
    ) -> list[object]:
        pytree = border.load("torch.utils._pytree")
        leaves, spec = pytree.tree_flatten((tuple(arguments), self._ordered(named)))
        if spec != self._in_spec:
            raise InputError(
                f"arguments have the structure {spec}, the model was exported with {self._in_spec}"
            )
        found: list[object] = []
        for leaf, is_tensor, constant in zip(
            leaves, self._slots, self._constants, strict=True
        ):
            if is_tensor:
                found.append(leaf)
            elif leaf != constant:
                raise InputError(
                    f"argument {leaf!r} was {constant!r} when the model was exported, "
                    "and is part of it"
                )
        return found

    def _ordered(self, named: Mapping[str, object]) -> dict[str, object]:
        """Named arguments in the order of the export, which is part of the structure."""
        known = self._in_spec.children()[1].context if named else ()
        if set(named) != set(known or ()):
            return dict(named)
        return {name: named[name] for name in known}


def _is_shape(spec: Any) -> bool:
    return isinstance(spec.type, type) and issubclass(spec.type, border.load().Size)


def _has_shapes(spec: Any) -> bool:
    """Whether a structure has a `torch.Size` in it, which torch puts together as a tuple."""
    return not spec.is_leaf() and (
        _is_shape(spec) or any(map(_has_shapes, spec.children()))
    )


def _joined(spec: Any, leaves: Iterator[object]) -> Any:
    """The leaves in a structure, each `torch.Size` as one."""
    if spec.is_leaf():
        return next(leaves)
    parts = [_joined(child, leaves) for child in spec.children()]
    if _is_shape(spec):
        return border.load().Size(parts)
    nodes = border.load("torch.utils._pytree").SUPPORTED_NODES
    return nodes[spec.type].unflatten_fn(parts, spec.context)


def _check_order(name: str, leaf: Any, order: tuple[int, ...]) -> None:
    """Hold the elements of an argument against how they lay in the example.  Raises: InputError."""
    if np.ndim(leaf) != len(order):
        return
    if border.is_instance(leaf, "Tensor"):
        is_same = leaf.permute(order).is_contiguous()
    else:
        is_same = (
            not isinstance(leaf, np.ndarray) or leaf.transpose(order).flags.c_contiguous
        )
    if not is_same:
        raise InputError(
            f"'{name}' lies in memory in another way than in the example, and is read by strides (as_strided)",
            hint=f"let its elements lie one after the other, axes in the order {list(order)}; or compile for such an example",
        )


def _sizes_of(entry: Input) -> tuple[Dim, ...]:
    """The sizes by which a program knows an input: its shape, or the number that it is."""
    if entry.number is not None:
        return (entry.number,)
    return () if entry.type is None else entry.type.shape


def _numbers_of(array: Array, sizes: Sequence[Dim]) -> Sequence[int]:
    """What those are in a call."""
    is_number = len(sizes) == 1 and np.ndim(array) == 0
    return (int(array),) if is_number else np.shape(array)


def _are_of_torch(leaves: Sequence[object]) -> bool:
    """Whether tensors are to come back: some are given, or nothing but numbers of Python is."""
    if any(border.is_instance(leaf, "Tensor") for leaf in leaves):
        return True
    return all(isinstance(leaf, int) for leaf in leaves)


def _plain_arguments(spec: Any) -> int:
    """How many arguments a module takes if they are leaves, none of them named; else -1."""
    if spec.is_leaf() or len(spec.children()) != 2:
        return -1
    positional, named = spec.children()
    leaves = [child.is_leaf() for child in positional.children()]
    is_plain = positional.type is tuple and all(leaves) and not named.children()
    return len(leaves) if is_plain else -1


def _are_tensors(arguments: Sequence[object]) -> bool:
    """Whether they are leaves of any structure, which need not be taken apart."""
    return all(
        isinstance(value, np.ndarray) or border.is_instance(value, "Tensor")
        for value in arguments
    )


def _arrays(leaf: object, is_complex: bool) -> list[Array]:
    """The elements of a tensor, or of the two parts of a complex one."""
    if is_complex:
        if border.is_instance(leaf, "Tensor"):
            return list(border.to_parts(leaf))
        return [np.real(unmasked(leaf)), np.imag(np.asarray(leaf))]
    if border.is_instance(leaf, "Tensor"):
        return [border.to_array(leaf)]
    return [unmasked(leaf)]


def _write(leaf: Any, output: Output, made: Iterator[Array]) -> None:
    """Let an argument that the module changes have its new elements."""
    if output.is_complex:
        with border.load().no_grad():
            leaf.copy_(border.of_parts(next(made), next(made)))
        return
    array = next(made)
    if border.is_instance(leaf, "Tensor"):
        with border.load().no_grad():
            leaf.copy_(border.to_tensor(array))
    else:
        leaf[...] = array
