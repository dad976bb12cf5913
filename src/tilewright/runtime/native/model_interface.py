"""The C interface of an exported model, by address: what it takes and gives, models of it, and calls.

The layouts are those of the generated header (`compiler/packaging/library/model.h`), marked MIRROR MODEL there.
Not here: which library has one (`runtime.library`).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Final, cast, final

import numpy as np
import numpy.typing as npt

from tilewright.base import dtypes
from tilewright.base.errors import (
    ArchiveError,
    DeviceError,
    InputError,
    TargetError,
    TilewrightError,
)
from tilewright.base.record import record
from tilewright.runtime.native.foreign_functions import address_of
from tilewright.runtime.native.model_status import ModelStatus

Array = npt.NDArray[np.generic]

_VERSION: Final = 1
_POINTER: Final = ctypes.c_void_p
_SIZES: Final = ctypes.POINTER(ctypes.c_int64)
_RESOURCE_EXHAUSTED: Final = 8


class _Options(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", ctypes.c_size_t),
        ("threads", ctypes.c_uint32),
        ("concurrency", ctypes.c_uint32),
        ("weights_path", ctypes.c_char_p),
        ("level", ctypes.c_char_p),
        ("workspace", _POINTER),
        ("workspace_bytes", ctypes.c_size_t),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", _POINTER),
        ("shape", _SIZES),
        ("rank", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("reserved", ctypes.c_uint16),
    )


class _TensorInfo(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type_name", ctypes.c_char_p),
        ("shape", _SIZES),
        ("size_bytes", ctypes.c_int64),
        ("rank", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("item_bytes", ctypes.c_uint16),
    )


class _DimInfo(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("input", ctypes.c_uint32),
        ("axis", ctypes.c_uint32),
        ("minimum", ctypes.c_int64),
        ("maximum", ctypes.c_int64),
    )


_GET: Final = ctypes.CFUNCTYPE(_POINTER)
_CREATE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Options), _POINTER)
_DESTROY: Final = ctypes.CFUNCTYPE(None, _POINTER)
_RUN: Final = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _POINTER)
_SHAPE: Final = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _SIZES, ctypes.c_uint32, _SIZES)
_ALLOCATE: Final = ctypes.CFUNCTYPE(
    _POINTER, _POINTER, ctypes.c_uint32, _SIZES, ctypes.c_int32, ctypes.c_size_t
)
_RUN_ALLOCATING: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, _POINTER, _POINTER, _ALLOCATE, _POINTER
)
_TEXT: Final = ctypes.CFUNCTYPE(ctypes.c_char_p)
_CONSTANT: Final = ctypes.CFUNCTYPE(_POINTER, _POINTER, ctypes.c_uint32)
_TEXT_OF: Final = ctypes.CFUNCTYPE(ctypes.c_char_p, _POINTER)


class _Interface(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("interface_version", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("compiler", ctypes.c_char_p),
        ("inputs", ctypes.POINTER(_TensorInfo)),
        ("outputs", ctypes.POINTER(_TensorInfo)),
        ("dims", ctypes.POINTER(_DimInfo)),
        ("levels", _POINTER),
        ("input_count", ctypes.c_uint32),
        ("output_count", ctypes.c_uint32),
        ("dim_count", ctypes.c_uint32),
        ("level_count", ctypes.c_uint32),
        ("create", _CREATE),
        ("destroy", _DESTROY),
        ("run", _POINTER),
        ("run_tensors", _RUN),
        ("prepare", _POINTER),
        ("input_shape", _POINTER),
        ("output_shape", _SHAPE),
        ("workspace_bytes", _POINTER),
        ("level", _TEXT_OF),
        ("graph_json", _TEXT_OF),
        ("error", _TEXT),
        # Not in libraries that were made before there were such members: see `_FIRST_BYTES`.
        ("constant", _CONSTANT),
        ("run_allocating", _RUN_ALLOCATING),
        ("late_outputs", ctypes.POINTER(ctypes.c_uint8)),
    )


_FIRST_BYTES: Final = _Interface.constant.offset
_CONSTANT_BYTES: Final = _Interface.run_allocating.offset


class _Bytes:
    """Bytes of a model, which they keep, as numpy asks for them."""

    def __init__(self, address: int, size_bytes: int, model: object) -> None:
        self.model: object = model
        self.__array_interface__: dict[str, object] = {
            "data": (address, True),
            "shape": (size_bytes,),
            "typestr": "|u1",
            "version": 3,
        }


@final
@record
class InterfaceTensor:
    """A tensor of the interface; -1 in its shape is an extent that depends on the call.

    `type` is DLPack's: code and bits.
    """

    name: str
    type: tuple[int, int]
    shape: tuple[int, ...]


@final
@record
class InterfaceDim:
    """A size that a call decides: the extent of one axis of one input."""

    name: str
    input: int
    axis: int


def interface_address(library: ctypes.CDLL, symbol: str) -> int:
    """What a function `symbol` of a library gives, which takes nothing; 0 for NULL."""
    get = _GET(address_of(getattr(library, symbol)))
    address: int | None = get()
    return address or 0


@final
class ModelInterface:
    """The interface at an address.

    Args:
        address: what `tilewright_model` of a library gave.
        location: the library, for errors.
        keep_alive: what keeps the library in memory.
        take_raised: gives what a function that the model calls has raised in this thread, if it has.

    Raises: ArchiveError for an interface of another version.
    """

    def __init__(
        self,
        address: int,
        location: str,
        keep_alive: object,
        take_raised: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        table = _Interface.from_address(address)
        if table.interface_version != _VERSION or table.struct_bytes < _FIRST_BYTES:
            raise ArchiveError(
                f"its interface has version {table.interface_version} and "
                f"{table.struct_bytes} bytes, this one {_VERSION} and at least {_FIRST_BYTES}",
                location=location,
                hint="load it with the release of Tilewright that made it, or export it again",
            )
        self.table: Final[_Interface] = table
        self.location: Final[str] = location
        self.keep_alive: Final[object] = keep_alive
        self._take_raised: Callable[[], BaseException | None] = take_raised
        self.name: Final[str] = _text(table.name)
        self.inputs: Final = _tensors(table.inputs[: table.input_count])
        self.outputs: Final = _tensors(table.outputs[: table.output_count])
        self.late_outputs: Final = _late_outputs(table)
        self.dims: Final = tuple(
            InterfaceDim(_text(one.name), one.input, one.axis)
            for one in table.dims[: table.dim_count]
        )

    def create(self, threads: int = 0) -> InterfaceModel:
        """A model: its code chosen, its weights mapped.

        Raises: ArchiveError for weights that are missing or damaged; TargetError where the library has no
        code for this processor; DeviceError without memory.
        """
        options = _Options(struct_bytes=ctypes.sizeof(_Options), threads=threads)
        handle = _POINTER()
        self.check(self.table.create(ctypes.byref(options), ctypes.addressof(handle)))
        assert handle.value is not None
        return InterfaceModel(self, handle.value)

    def check(self, status: int) -> None:
        """Raise for a status that is not OK: what a called function raised, or the text that the library keeps."""
        if not status:
            return
        error = _error(status, _text(self.table.error()), self.location)
        raised = self._take_raised() if status == ModelStatus.CALLEE_FAILED else None
        if raised is None:
            raise error
        raise raised from error


@final
class InterfaceModel:
    """A model that is loaded; called with arrays.

    Thread-safety: calls are independent.  Ownership: freed with its last holder.
    """

    def __init__(self, interface: ModelInterface, handle: int) -> None:
        self.interface: Final[ModelInterface] = interface
        self._handle: int = handle
        finalizer = weakref.finalize(self, _destroy, interface, handle)
        finalizer.atexit = False

    @property
    def handle(self) -> int:
        """The address that functions of the interface take."""
        return self._handle

    @property
    def level(self) -> str:
        """The code that was chosen."""
        return _text(self.interface.table.level(self._handle))

    def graph_json(self) -> str:
        """The plan in TVM's graph JSON; empty where it was left out."""
        return _text(self.interface.table.graph_json(self._handle))

    def constant(self, index: int, size_bytes: int) -> Array:
        """The bytes of a weight where they lie, which may not be written.

        Args:
            index: its place among the constants of the plan.
            size_bytes: as the plan says.

        Raises: ArchiveError for a library that does not show its weights, or has not so many.
        """
        interface = self.interface
        address: int | None = None
        if interface.table.struct_bytes >= _CONSTANT_BYTES:
            address = interface.table.constant(self._handle, index)
        if size_bytes == 0:
            return np.empty(0, np.uint8)
        if not address:
            raise ArchiveError(
                f"it does not show its weight {index}",
                location=interface.location,
                hint="export it again with this release of Tilewright",
            )
        return np.asarray(_Bytes(address, size_bytes, self))

    def __call__(self, *inputs: Array) -> tuple[Array, ...]:
        """New arrays with the outputs.  Raises: InputError, DeviceError."""
        return self.call_into(inputs, [None] * len(self.interface.outputs))

    def call_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None]
    ) -> tuple[Array, ...]:
        """The same into arrays of the caller, where there are some: dense and of the right shape."""
        call = self.prepare(inputs, outputs)
        call()
        return call.outputs

    def prepare(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None]
    ) -> PreparedCall | LateCall:
        """A call of these arrays, to be made any number of times; outputs that are None are made.

        Where data decides the shape of one, each call makes new ones.

        Raises: InputError for arrays that are too many, too few or not dense.
        """
        wanted = len(self.interface.inputs)
        if len(inputs) != wanted:
            raise InputError(
                f"got {len(inputs)} inputs, expected {wanted}",
                location=self.interface.location,
            )
        given = _described(inputs, self.interface.inputs)
        made = tuple(
            self._output(index, inputs) if one is None else one
            for index, one in enumerate(outputs)
        )
        if any(one is None for one in made):
            return LateCall(self, tuple(inputs), made, given)
        arrays = cast("tuple[Array, ...]", made)
        results = _described(arrays, self.interface.outputs)
        return PreparedCall(self, tuple(inputs), arrays, (self._handle, given, results))

    def _output(self, index: int, inputs: Sequence[Array]) -> Array | None:
        """An array for an output; None where data decides its shape."""
        info = self.interface.outputs[index]
        if self.interface.late_outputs[index]:
            return None
        shape = info.shape
        if -1 in shape:
            dims = self.interface.dims
            sizes = (ctypes.c_int64 * len(dims))(
                *(inputs[dim.input].shape[dim.axis] for dim in dims)
            )
            found = (ctypes.c_int64 * len(shape))()
            table = self.interface.table
            self.interface.check(table.output_shape(self._handle, sizes, index, found))
            shape = tuple(found)
        return np.empty(shape, dtypes.from_dlpack(*info.type).numpy)


@final
class PreparedCall:
    """A call of one model with the same arrays; made by `InterfaceModel.prepare`.

    Ownership: keeps the model and the arrays.
    """

    def __init__(
        self,
        model: InterfaceModel,
        inputs: tuple[Array, ...],
        outputs: tuple[Array, ...],
        arguments: tuple[int, ctypes.Array[_Tensor], ctypes.Array[_Tensor]],
    ) -> None:
        self.inputs: Final = inputs
        self.outputs: Final = outputs
        self._model: InterfaceModel = model
        handle, given, results = arguments
        self._kept = given, results
        pointers = (ctypes.addressof(given), ctypes.addressof(results))
        self._arguments = tuple(_POINTER(one) for one in (handle, *pointers))
        self._run = model.interface.table.run_tensors

    def __call__(self) -> None:
        """Call it.  Raises: InputError, DeviceError."""
        status = self._run(*self._arguments)
        if status:
            self._model.interface.check(status)


@final
class LateCall:
    """A call whose outputs have shapes that data decides; made by `InterfaceModel.prepare`.

    Args:
        model: whose call it is.
        inputs: its inputs.
        outputs: arrays of the caller, whose shapes are checked when they are known; the others are made by each call.
        given: the inputs as the interface takes them.

    Ownership: keeps the model and the arrays.  Thread-safety: one thread at a time.
    """

    def __init__(
        self,
        model: InterfaceModel,
        inputs: tuple[Array, ...],
        outputs: tuple[Array | None, ...],
        given: ctypes.Array[_Tensor],
    ) -> None:
        self.inputs: Final = inputs
        self.outputs: tuple[Array, ...] = ()
        self._model: InterfaceModel = model
        self._wanted: Final = outputs
        self._given: Final = given

    def __call__(self) -> None:
        """Call it.  Raises: InputError, DeviceError."""
        interface, made = self._model.interface, _Results(self._model, self._wanted)
        run = interface.table.run_allocating
        allocate = _ALLOCATE(made.allocate)
        status = run(self._model.handle, ctypes.addressof(self._given), allocate, None)
        if made.problem is not None:
            raise made.problem
        interface.check(status)
        self.outputs = made.arrays


@final
class _Results:
    """The outputs of one call, made when their shapes are known."""

    def __init__(self, model: InterfaceModel, wanted: Sequence[Array | None]) -> None:
        self.problem: Exception | None = None
        self._infos: Sequence[InterfaceTensor] = model.interface.outputs
        self._arrays: list[Array | None] = list(wanted)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(cast("list[Array]", self._arrays))

    def allocate(
        self, _: int | None, index: int, shape: Sequence[int], rank: int, size_bytes: int
    ) -> int | None:
        """The address of an output; None where it has none, and then what is the matter is the call's error."""
        del size_bytes
        extents = tuple(shape[:rank])
        try:
            self._arrays[index] = array = self._array(index, extents)
        except Exception as error:
            self.problem = error
            return None
        return array.ctypes.data

    def _array(self, index: int, shape: tuple[int, ...]) -> Array:
        info, given = self._infos[index], self._arrays[index]
        dtype = dtypes.from_dlpack(*info.type).numpy
        if given is None:
            return np.empty(shape, dtype)
        if given.shape != shape or given.dtype != dtype or not given.flags.c_contiguous:
            raise InputError(
                f"got {given.dtype}{list(given.shape)}, expected a dense {dtype}{list(shape)}",
                location=f"output '{info.name}'",
            )
        return given


def _destroy(interface: ModelInterface, handle: int) -> None:
    interface.table.destroy(handle)


def _described(
    arrays: Sequence[Array], infos: Sequence[InterfaceTensor]
) -> ctypes.Array[_Tensor]:
    """Arrays as the interface takes them; the addresses are theirs, so they must be kept."""
    described = (_Tensor * max(len(arrays), 1))()
    for target, array, info in zip(described, arrays, infos, strict=False):
        if not array.flags.c_contiguous:
            raise InputError("the array is not dense", location=f"tensor '{info.name}'")
        dtype = dtypes.from_numpy(array.dtype)
        target.data = array.ctypes.data
        target.shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        target.rank = array.ndim
        target.type_code, target.type_bits = dtype.dlpack
    return described


def _tensors(infos: Sequence[_TensorInfo]) -> tuple[InterfaceTensor, ...]:
    return tuple(
        InterfaceTensor(
            _text(one.name), (one.type_code, one.type_bits), tuple(one.shape[: one.rank])
        )
        for one in infos
    )


def _late_outputs(table: _Interface) -> tuple[bool, ...]:
    """For each output whether data decides its shape; before there was such a member, there were no such outputs."""
    if table.struct_bytes < ctypes.sizeof(_Interface):
        return (False,) * table.output_count
    return tuple(map(bool, table.late_outputs[: table.output_count]))


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="replace")


def _error(status: int, text: str, location: str) -> TilewrightError:
    if status == ModelStatus.BAD_INPUT:
        return InputError(text, location=location)
    if status == ModelStatus.NO_MEMORY:
        return DeviceError(text, code=_RESOURCE_EXHAUSTED, location=location)
    if status == ModelStatus.NO_CODE:
        return TargetError(text, location=location)
    if status == ModelStatus.BAD_WEIGHTS:
        return ArchiveError(text, location=location)
    return DeviceError(text, location=location)
