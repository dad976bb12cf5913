"""Rows for recurrent layers as one operator: a loop over the steps, or where they are few and known, all of them.

The product with the input weights is one for all steps; only the recurrent part is step by step.  Torch itself would
write out every step of a length that it knows, and fix one that it does not; `whole_recurrences` keeps it from
looking into these operators while it traces.

Source: `torch.nn.LSTM`, `GRU`, `RNN` (equations; gates in the orders i f g o and r z n).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.recurrence import Rows, walked
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.packed_sequences import recurrent
from tilewright.compiler.frontends.torch.row import Build, Row, row
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing

_LIBRARY: Final = "tilewright"
_OPERATORS: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@final
@dataclass(frozen=True, slots=True)
class _Cell:
    """One direction of one layer.

    Attributes:
        e: writes nodes.
        weights: [hidden, gates * cells], of the recurrent product.
        bias: [gates * cells], added to it; None: it stands with the inputs.
        projection: [cells, hidden]; None: hidden states are outputs of cells.
        activation: of plain layers.
    """

    e: NodeMaker
    weights: Tensor
    bias: Tensor | None
    projection: Tensor | None
    activation: str

    def product(self, h: Tensor) -> Tensor:
        """The recurrent part of all gates."""
        found = self.e.op("matmul", h, self.weights)
        return found if self.bias is None else self.e.op("add", found, self.bias)

    def gates(self, x: Tensor, count: int) -> list[Tensor]:
        """The columns of each gate."""
        size = x.shape[-1]
        assert isinstance(size, int), "weights have sizes that are known"
        each = size // count
        return [self.e.slice(x, x.rank - 1, i * each, each) for i in range(count)]


States = tuple[Tensor, ...]
"""The hidden state, and that of the cells of an LSTM."""
Step = Callable[[_Cell, Tensor, States], States]


def _plain_step(cell: _Cell, x: Tensor, states: States) -> States:
    total = cell.e.op("add", x, cell.product(states[0]))
    return (cell.e.op(cell.activation, total),)


def _gru_step(cell: _Cell, x: Tensor, states: States) -> States:
    e, (h,) = cell.e, states
    reset_x, update_x, fresh_x = cell.gates(x, 3)
    reset_h, update_h, fresh_h = cell.gates(cell.product(h), 3)
    reset = e.op("sigmoid", e.op("add", reset_x, reset_h))
    update = e.op("sigmoid", e.op("add", update_x, update_h))
    fresh = e.op("tanh", e.op("add", fresh_x, e.op("mul", reset, fresh_h)))
    rest = e.op("sub", e.scalar(1, h.dtype), update)
    return (e.op("add", e.op("mul", rest, fresh), e.op("mul", update, h)),)


def _lstm_step(cell: _Cell, x: Tensor, states: States) -> States:
    e, (h, c) = cell.e, states
    enter, forget, fresh, leave = cell.gates(e.op("add", x, cell.product(h)), 4)
    kept = e.op("mul", e.op("sigmoid", forget), c)
    added = e.op("mul", e.op("sigmoid", enter), e.op("tanh", fresh))
    c = e.op("add", kept, added)
    h = e.op("mul", e.op("sigmoid", leave), e.op("tanh", c))
    return (h if cell.projection is None else e.op("matmul", h, cell.projection)), c


@final
@dataclass(frozen=True, slots=True)
class _Kind:
    """What differs between the operators.

    Attributes:
        step: from one step to the next.
        resets: the recurrent bias stands inside of a product, and so by itself.
        states: how many there are.
        activation: of plain layers.
    """

    step: Step
    resets: bool = False
    states: int = 1
    activation: str = ""


def _cell(
    e: NodeMaker, kind: _Kind, parameters: Sequence[Tensor], *, has_biases: bool
) -> tuple[_Cell, Tensor, Tensor | None]:
    """A cell, the weights of its inputs, and what is added to their product."""
    of_input, of_hidden, *rest = parameters
    biases = [rest.pop(0), rest.pop(0)] if has_biases else []
    first: Tensor | None = None
    second: Tensor | None = None
    if biases:
        first, second = biases
        if not kind.resets:
            first, second = e.op("add", first, second), None
    projection = e.transpose(rest[0], (1, 0)) if rest else None
    weights = e.transpose(of_hidden, (1, 0))
    cell = _Cell(e, weights, second, projection, kind.activation)
    return cell, e.transpose(of_input, (1, 0)), first


def _walked(
    e: NodeMaker, kind: _Kind, cell: _Cell, inputs: Rows, states: Rows, *, backwards: bool
) -> tuple[Tensor, Rows]:
    """[steps, batch, hidden], the hidden state after every step, and the last states.

    Args:
        e: writes nodes.
        kind: of the layer.
        cell: one direction.
        inputs: [steps, batch, gates * cells], and where sequences have several lengths which of them have a step,
            [steps, batch, 1]: states stay what they are where they do not.
        states: before the first step.
        backwards: the last step comes first.
    """

    def step(_place: Tensor, rows: Rows, held: Rows) -> tuple[Rows, Rows]:
        x, *present = rows
        later = [*kind.step(cell, x, tuple(held))]
        for flags in present:
            pairs = zip(later, held, strict=True)
            later = [e.op("where", flags, new, old) for new, old in pairs]
        return [later[0]], later

    (rows,), ended = walked(e, inputs, states, step, [states[0].type], backwards=backwards)
    return rows, ended


def _recurrent(kind: _Kind) -> Build:
    def build(call: Call) -> list[Tensor | None]:
        e, x = call.maker, call.tensor("input")
        given = call.tensors("hx") if kind.states > 1 else [call.tensor("hx")]
        layers, directions = call.integer("num_layers"), 1 + call.flag("bidirectional")
        _refuse_dropout(call, layers)
        count = layers * directions
        parameters = call.tensors("params")
        if not count or len(parameters) % count:
            raise ModelError(f"{len(parameters)} weights of {count} layers")
        each = len(parameters) // count
        batch_first = call.flag("batch_first")
        x = e.transpose(x, (1, 0, 2)) if batch_first else x
        flags = call.optional("present") if call.has("present") else None
        present = [] if flags is None else [e.unsqueeze(flags, (2,))]
        last: list[Rows] = []
        for _ in range(layers):
            columns: list[Tensor] = []
            for direction in range(directions):
                place = len(last)
                own = parameters[place * each : (place + 1) * each]
                cell, weights, bias = _cell(
                    e, kind, own, has_biases=call.flag("has_biases")
                )
                inputs = e.op("matmul", x, weights)
                inputs = inputs if bias is None else e.op("add", inputs, bias)
                states = [e.squeeze(e.slice(t, 0, place, 1), (0,)) for t in given]
                rows, ended = _walked(
                    e, kind, cell, [inputs, *present], states, backwards=direction == 1
                )
                columns.append(rows)
                last.append(ended)
            x = e.concat(columns, 2)
        stacked = [
            e.concat([e.unsqueeze(t, (0,)) for t in column], 0)
            for column in zip(*last, strict=True)
        ]
        return [e.transpose(x, (1, 0, 2)) if batch_first else x, *stacked]

    return build


def _refuse_dropout(call: Call, layers: int) -> None:
    draws = call.number("dropout", 0.0) and call.flag("train") and layers > 1
    if draws:
        raise UnsupportedError("dropout between recurrent layers is not supported")


ROWS: Final[tuple[Row, ...]] = (
    row("gru.input tilewright::gru", _recurrent(_Kind(_gru_step, resets=True))),
    row("lstm.input tilewright::lstm", _recurrent(_Kind(_lstm_step, states=2))),
    row(
        "rnn_relu.input tilewright::rnn_relu",
        _recurrent(_Kind(_plain_step, activation="relu")),
    ),
    row(
        "rnn_tanh.input tilewright::rnn_tanh",
        _recurrent(_Kind(_plain_step, activation="tanh")),
    ),
)


# --- tracing ------------------------------------------------------------------------------------


def whole_recurrences() -> AbstractContextManager[None]:
    """While this thread traces in this context, recurrent layers of modules are operators that torch does not look into.

    Contexts of several threads may overlap; what another thread runs meanwhile is torch's own.
    """
    return _LAYERS.used()


def _module() -> Any:
    return border.load("torch.nn.modules.rnn")


def _whole(held: Any, tracing: Tracing) -> _Whole:
    return _Whole(held, _operators(), tracing)


_LAYERS: Final = Substitute(_module, "_VF", _whole)


@final
class _Whole:
    """Torch's own functions, with operators of ours for the recurrent ones in threads that trace.

    Args:
        held: the functions.
        operators: ours, by name.
        tracing: of the thread that asks.
    """

    def __init__(self, held: Any, operators: dict[str, Any], tracing: Tracing) -> None:
        self._held: Any = held
        self._torch: Any = border.load()
        self._operators: dict[str, Any] = operators
        self._tracing: Tracing = tracing

    def __getattr__(self, name: str) -> Any:
        """Raises: AttributeError for what torch does not have."""
        found = getattr(self._held, name)
        own = self._operators.get(name)
        if own is None or not self._tracing.depth or self._is_transformed():
            return found

        def called(*arguments: Any) -> Any:
            # A packed sequence has other arguments: (data, sizes of batches, states, ...).
            is_packed = isinstance(arguments[3], list | tuple)
            return recurrent(own, *arguments) if is_packed else own(*arguments)

        return called

    def _is_transformed(self) -> bool:
        """Whether derivatives or rows are taken of what runs: our operators have none, and torch takes zeros for them."""
        torch = self._torch
        if torch.is_grad_enabled():
            return True
        # Dynamo, which reads this, does not know the stack; derivatives along a direction it takes are refused.
        is_read = torch.compiler.is_dynamo_compiling()
        return not is_read and torch._C._functorch.peek_interpreter_stack() is not None


@functools.cache
def _operators() -> dict[str, Any]:
    """Operators that say what they give, which is all that tracing needs."""
    torch = border.load()
    found: dict[str, Any] = {}
    for name in _OPERATORS:
        is_lstm = name == "lstm"
        states, results = ("Tensor[]", 3) if is_lstm else ("Tensor", 2)
        gives = ", ".join(["Tensor"] * results)
        torch.library.define(
            f"{_LIBRARY}::{name}",
            f"(Tensor input, {states} hx, Tensor[] params, bool has_biases, int num_layers, "
            f"float dropout, bool train, bool bidirectional, bool batch_first, "
            f"Tensor? present=None) -> ({gives})",
        )
        torch.library.register_fake(f"{_LIBRARY}::{name}", _described)
        found[name] = getattr(getattr(torch.ops, _LIBRARY), name)
    return found


def _described(x: Any, hx: Any, params: Any, *options: Any) -> Any:  # noqa: ARG001 - as the schema has them
    """Tensors of the types of the results."""
    states = hx if isinstance(hx, list | tuple) else [hx]
    directions = 1 + bool(options[4])
    rows = x.new_empty((*x.shape[:2], directions * states[0].shape[-1]))
    return (rows, *(state.new_empty(state.shape) for state in states))
