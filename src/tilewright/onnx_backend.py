"""`tilewright.onnx_backend`: ONNX's own interface, `onnx.backend.base`, over compiled models.

    import tilewright.onnx_backend as backend

    y, = backend.run_model(onnx.load("model.onnx"), [x])
    prepared = backend.prepare(model)              # compiled once
    y, = prepared.run([x])

Takes all that ONNX has at the border of a model: beside tensors sequences (lists), optionals (None), strings
(arrays of objects) and maps (dicts).  A model with sequences or optionals is compiled when a call shows what
they consist of, and again for a call of another structure; so is, where its shapes follow from numbers that
are inputs (`Reshape` to a shape that is passed), one whose shapes cannot be computed otherwise.

What runs the suites that come with onnx: `onnx.backend.test.BackendTest(tilewright.onnx_backend, __name__)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np
from onnx import IR_VERSION, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.backend.base import Backend, BackendRep
from onnx.defs import onnx_opset_version

import tilewright.api.model as api
from tilewright.base import dtypes
from tilewright.base.errors import InputError, ModelError, UserError
from tilewright.base.foreign_tensors import unmasked
from tilewright.base.text import plural
from tilewright.compiler.frontends.onnx import (
    ImportedModel,
    Items,
    defaults_of,
    items_of,
    load_model,
    needed_inputs,
    needs_items,
    put_together,
)

__all__ = [
    "PreparedModel",
    "TilewrightBackend",
    "is_compatible",
    "prepare",
    "run",
    "run_model",
    "run_node",
    "supports_device",
]

_DEVICES: Final = ("CPU",)
_MOST_FIXED_ELEMENTS: Final = 64
_MOST_SPECIALIZATIONS: Final = 32


@final
class _Specialization:
    """The model, compiled for one structure of its inputs."""

    def __init__(self, imported: ImportedModel, options: Mapping[str, Any]) -> None:
        self.border = imported.border
        graph = imported.graph
        self._inputs: tuple[str, ...] = tuple(v.name for v in graph.inputs)
        self._outputs: tuple[str, ...] = tuple(graph.output_names)
        # A model whose results the host makes of its inputs has nothing to compile.
        self._model: api.Model | None = (
            api.compile(graph, **options) if graph.outputs else None
        )

    def run(self, inputs: Mapping[str, object]) -> tuple[Any, ...]:
        values: dict[str, Any] = {}
        for name in self.border.inputs:
            try:
                self.border.take(name, inputs[name], values)
            except InputError as error:
                raise InputError(error.message, location=f"input '{name}'") from error
        for step in self.border.host.before:
            step.run(values)
        if self._model is not None:
            results = self._model(*(values[name] for name in self._inputs))
            listed = results if isinstance(results, tuple) else (results,)
            values.update(zip(self._outputs, listed, strict=True))
        for step in self.border.host.after:
            step.run(values)
        return tuple(put_together(s, values) for s in self.border.outputs.values())


@final
class PreparedModel(BackendRep):
    """A model that is ready to run.

    Thread-safety: calls from several threads are independent once a call of their structure has been made.
    """

    def __init__(self, model: ModelProto, **options: Any) -> None:
        """Compile what can be compiled before a call.

        Raises: ModelError for what is not supported, whatever a call gives.
        """
        self._model: ModelProto = model
        self._options: dict[str, Any] = options
        held = {t.name for t in model.graph.initializer}
        self._inputs: list[ValueInfoProto] = [
            v for v in model.graph.input if v.name not in held
        ]
        self._defaults: frozenset[str] = defaults_of(model)
        self._by_structure: list[str] = [
            v.name for v in self._inputs if needs_items(v.type)
        ]
        self._specializations: dict[object, _Specialization] = {}
        self._fixed: tuple[str, ...] = ()
        if not self._by_structure:
            self._prepare()

    def _prepare(self) -> None:
        """Compile, or find out which inputs have to be known for that."""
        try:
            self._specializations[()] = self._compile({}, {})
        except ModelError:
            if not self._learn({}, {}):
                raise

    def _compile(
        self, items: Mapping[str, Items], fixed: Mapping[str, np.ndarray]
    ) -> _Specialization:
        imported = load_model(self._model, input_values=fixed, items=items)
        return _Specialization(imported, self._options)

    def _learn(self, items: Mapping[str, Items], fixed: Mapping[str, np.ndarray]) -> bool:
        """Note inputs that have to be known beyond those that are; False where there are none."""
        found = needed_inputs(self._model, input_values=fixed, items=items)
        names = {v.name for v in self._inputs}
        added = [n for n in found if n in names and n not in self._fixed]
        self._fixed = (*self._fixed, *added)
        return bool(added)

    @property
    def compilations(self) -> int:
        """How often the model is compiled so far."""
        return len(self._specializations)

    @property
    def model(self) -> ModelProto:
        """The model as it was given."""
        return self._model

    @property
    def fixed_inputs(self) -> tuple[str, ...]:
        """The inputs whose values the model is compiled for; a call with others compiles it again."""
        return self._fixed

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for `inputs`, in order.

        Args:
            inputs: a sequence, a mapping by name, or the one input: arrays, lists, dicts or None; a mapping may
                have other values for initializers that are inputs, too, for which the model is compiled again.
            kwargs: none are known.

        Raises: InputError for what does not fit; ModelError where a call needs what is not supported.
        """
        if kwargs:
            raise UserError(f"run has no option '{next(iter(kwargs))}'")
        given = self._by_name(inputs)
        items = {name: items_of(given[name]) for name in self._by_structure}
        while True:
            fixed = {
                name: unmasked(given[name])
                for name in self._fixed
                if np.asarray(given[name]).size <= _MOST_FIXED_ELEMENTS
            }
            fixed |= {n: unmasked(given[n]) for n in self._defaults & given.keys()}
            try:
                return self._specialized(items, fixed).run(given)
            except ModelError:
                if not self._learn(items, fixed):
                    raise

    def _specialized(
        self, items: Mapping[str, Items], fixed: Mapping[str, np.ndarray]
    ) -> _Specialization:
        """The model for inputs like those; the oldest makes place where there are many."""
        key = _key(items, fixed)
        found = self._specializations.get(key)
        if found is None:
            found = self._compile(items, fixed)
            if len(self._specializations) >= _MOST_SPECIALIZATIONS:
                del self._specializations[next(iter(self._specializations))]
            self._specializations[key] = found
        return found

    def _by_name(self, inputs: Any) -> dict[str, object]:
        names = [v.name for v in self._inputs]
        if isinstance(inputs, Mapping) and (
            set(cast("Any", inputs)) - self._defaults == set(names)
        ):
            return dict(cast("Mapping[str, object]", inputs))
        listed = list(cast("Any", inputs)) if isinstance(inputs, list | tuple) else [inputs]
        if len(listed) != len(names):
            raise InputError(
                f"got {plural(len(listed), 'input')}, expected {len(names)}: {' '.join(names)}"
            )
        return dict(zip(names, listed, strict=True))


def _key(items: Mapping[str, Items], fixed: Mapping[str, np.ndarray]) -> object:
    frozen = tuple((name, repr(item)) for name, item in sorted(items.items()))
    values = tuple(
        (name, array.dtype.str, array.shape, array.tobytes())
        for name, array in sorted(fixed.items())
    )
    return (frozen, values) if frozen or values else ()


@final
class TilewrightBackend(Backend):
    """The class form of this module."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` takes the model."""
        try:
            cls.prepare(model, device, **kwargs)
        except ModelError:
            return False
        return True

    @classmethod
    def prepare(
        cls, model: ModelProto, device: str = "CPU", **kwargs: Any
    ) -> PreparedModel:
        """A model, ready to run.

        Args:
            model: the model.
            device: `"CPU"`.
            kwargs: options of `tilewright.compile`, such as `target` and `threads`.

        Raises: ModelError listing everything that is not supported; UserError for another device.
        """
        if not cls.supports_device(device):
            raise UserError(
                f"there is no device '{device}'", hint=f"known: {' '.join(_DEVICES)}"
            )
        return PreparedModel(model, **kwargs)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a model that runs once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node for tensors.

        Args:
            node: the node; inputs that it leaves out have empty names.
            inputs: arrays, in the order of those that it has.
            device: `"CPU"`.
            outputs_info: not needed.
            kwargs: `opset_version`, else the newest; options of `tilewright.compile`.
        """
        del outputs_info
        version = int(kwargs.pop("opset_version", onnx_opset_version()))
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = [unmasked(value) for value in inputs]
        if len(arrays) != len(names):
            raise InputError(f"got {plural(len(arrays), 'input')}, expected {len(names)}")
        typed = [
            helper.make_tensor_value_info(name, _code(array), array.shape)
            for name, array in zip(names, arrays, strict=True)
        ]
        outputs = [ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "node", typed, outputs)
        imports = [helper.make_opsetid("", version)]
        if node.domain not in ("", "ai.onnx"):
            imports.append(helper.make_opsetid(node.domain, 1))
        model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `prepare` knows the device (`"CPU"`, `"CPU:0"`)."""
        return device.partition(":")[0] in _DEVICES


def _code(array: np.ndarray) -> int:
    if array.dtype.kind in "OUS":
        return int(TensorProto.STRING)
    dtypes.from_numpy(array.dtype)
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run = TilewrightBackend.run_model
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
