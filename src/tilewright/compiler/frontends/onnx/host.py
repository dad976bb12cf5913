"""What the host does before and after the compiled part of a model: strings, maps, labels.

A step is a Python function over values of a call, found by name.  Steps before the compiled part make
inputs of its graph; steps after it read outputs.  What lies between two computed tensors cannot be done
here.  Filled by rows through `Call.host`; run by whoever calls the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.errors import InputError, ModelError, TilewrightError
from tilewright.base.record import field, record
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import (
    REFUSALS,
    SkipNodeError,
    UnsupportedError,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.values import Held, HostValue, Nothing
from tilewright.compiler.graph.ir import Location, Value
from tilewright.compiler.graph.schema import Array, TensorType
from tilewright.compiler.ops.shapes import broadcast_shapes

# Arrays, maps and None where absent -> the results, in order.
HostFunction = Callable[..., Sequence[object]]


MOST_ELEMENTS: Final = 1 << 28
"""Of a result of strings: references alone are 2 GiB then.  A call that asks for more is refused, not served until memory ends."""
_HINT: Final = "the host computes this node: look at what the call gives to its operands"


@final
@record
class Known:
    """An operand of a step that the model holds."""

    value: object


@final
@record
class HostStep:
    """One function; sources and results are keys of the values of a call, `node` is whose work it is."""

    function: HostFunction
    sources: tuple[str | Known, ...]
    results: tuple[str, ...]
    node: str = ""

    def run(self, values: MutableMapping[str, Any]) -> None:
        """Add the results to `values`.  Raises: InputError with the node's name."""
        given = [s.value if isinstance(s, Known) else values[s] for s in self.sources]
        try:
            made = self.function(*given)
        except (*REFUSALS, AttributeError) as error:
            raise self._refused(error) from error
        values.update(zip(self.results, made, strict=True))

    def _refused(self, error: Exception) -> TilewrightError:
        """What a function raises, as the fault of a call, with the name of the node."""
        place = Location(name=self.node).place
        if isinstance(error, ModelError | InputError):
            place, hint = error.location or place, error.hint or _HINT
            return InputError(error.message, location=place, hint=hint)
        if isinstance(error, TilewrightError):
            return error
        text = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0][:200]
        return InputError(f"the operands do not fit ({text})", location=place, hint=_HINT)


@final
@record(frozen=False)
class HostProgram:
    """The steps of one model, in order; `reads` are the tensors that late steps need."""

    before: list[HostStep] = field(default_factory=list[HostStep])
    after: list[HostStep] = field(default_factory=list[HostStep])
    reads: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    count: int = 0

    def apply(
        self,
        maker: NodeMaker,
        function: HostFunction,
        operands: Sequence[Held | None],
        results: Sequence[TensorType | tuple[Any, ...] | None],
    ) -> list[Held]:
        """Have `function` called with the operands.

        A result with a type is a tensor, one with a shape is strings, one with None anything else.

        Raises: UnsupportedError where an operand is no tensor, string or map.
        """
        if maker.is_inside:
            raise UnsupportedError("the host computes nothing inside of a branch or a loop")
        late = any(map(_is_late, operands))
        sources = tuple(self._source(maker, held) for held in operands)
        if all(isinstance(s, Known) for s in sources):
            return self._compute(maker, function, sources, results)
        names = tuple(self._fresh() for _ in results)
        step = HostStep(function, sources, names, maker.location.name)
        (self.after if late else self.before).append(step)
        return [
            self._result(maker, name, result, late=late)
            for name, result in zip(names, results, strict=True)
        ]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of the model of which it does something."""
        return frozenset(s.node for s in (*self.before, *self.after) if s.node)

    def _fresh(self) -> str:
        self.count += 1
        return f"host.{self.count}"

    def _source(self, maker: NodeMaker, held: Held | None) -> str | Known:
        if held is None or isinstance(held, Nothing):
            return Known(None)
        if isinstance(held, HostValue):
            return held.name if held.constant is None else Known(held.constant)
        if not isinstance(held, Tensor):
            raise UnsupportedError("sequences are not supported on the host side")
        if held.stand_in:
            raise SkipNodeError("an input is unknown")
        if held.array is not None:
            return Known(held.array)
        value = maker.value(held)
        if value.node is None:
            return value.name
        for name, tensor in self.reads.items():
            if tensor is held:
                return name
        name = self._fresh()
        self.reads[name] = held
        return name

    @staticmethod
    def _result(
        maker: NodeMaker,
        name: str,
        result: TensorType | tuple[Any, ...] | None,
        *,
        late: bool,
    ) -> Held:
        if not isinstance(result, TensorType):
            return HostValue(name, result, late)
        if late:
            return HostValue(name, result.shape, late)
        value = Value(result, name)
        maker.graph.inputs.append(value)
        return maker.of_value(value)

    @staticmethod
    def _compute(
        maker: NodeMaker,
        function: HostFunction,
        sources: Sequence[str | Known],
        results: Sequence[TensorType | tuple[Any, ...] | None],
    ) -> list[Held]:
        made = function(*(s.value for s in sources if isinstance(s, Known)))
        held: list[Held] = []
        for value, result in zip(made, results, strict=True):
            if isinstance(result, TensorType):
                held.append(maker.constant(np.asarray(value)))
            else:
                array: Any = value
                held.append(HostValue("", getattr(array, "shape", None), constant=array))
        return held


def _is_late(held: Held | None) -> bool:
    if isinstance(held, HostValue):
        return held.late
    if not isinstance(held, Tensor) or held.array is not None:
        return False
    return held.value is None or held.value.node is not None


def check_count(shape: Sequence[int]) -> None:
    """Raises: ModelError for no shape, or where strings of that shape are more than the host makes."""
    if min(shape, default=0) < 0:
        raise ModelError(f"shape {list(shape)} has a size below 0")
    count = math.prod(shape)
    if count > MOST_ELEMENTS:
        raise ModelError(
            f"the result has {count} elements, expected at most {MOST_ELEMENTS} of strings"
        )


def common_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The numpy broadcast of shapes of a call.

    Raises: ModelError where they do not broadcast, or to more elements than the host makes.
    """
    found = cast("tuple[int, ...]", broadcast_shapes(*map(tuple, shapes)))
    check_count(found)
    return found


def as_text(array: Array) -> Array:
    """A tensor of strings as `str` objects; bytes are UTF-8."""
    plain = [
        v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in array.flat
    ]
    found = np.empty(array.size, object)
    found[:] = plain
    return found.reshape(array.shape)
