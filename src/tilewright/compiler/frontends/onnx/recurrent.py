"""Rows for RNN, GRU and LSTM: a loop over the steps, or where they are few and known, one after the other.

The product with the input weights is one matmul over all steps; only the recurrent part is step
by step.

Source: ONNX operator reference (RNN, GRU, LSTM: equations, gate order iofc and zrh).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, bounds
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.recurrence import Rows, walked
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.activations import ACTIVATIONS, Function, activation
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import swap_last
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Build, Result, Row, row


def _functions(
    call: Call, defaults: Sequence[str], directions: int
) -> list[list[Function]]:
    """The activations of every direction."""
    names = list(call.attributes.strings("activations") or list(defaults) * directions)
    alphas = list(call.attributes.floats("activation_alpha") or ())
    betas = list(call.attributes.floats("activation_beta") or ())
    if len(defaults) == 1 and len(names) == 2:
        # The schema's default of RNN names two, whatever the direction; exporters write it out.
        names = names[:directions]
    if len(names) != len(defaults) * directions:
        raise ModelError(f"attribute 'activations' has {len(names)} entries")
    found: list[Function] = []
    for name in names:
        low = name.lower()
        if low not in ACTIVATIONS:
            raise UnsupportedError(f"activation '{name}' is not supported")
        values: dict[str, float] = {}
        for key, _ in ACTIVATIONS[low][1]:
            rest = alphas if key == "alpha" else betas
            if rest:
                values[key] = rest.pop(0)
        found.append(activation(call.maker, low, values))
    return [found[i : i + len(defaults)] for i in range(0, len(found), len(defaults))]


@final
@record
class _Cell:
    """One direction: what the equations need, with the direction axis removed."""

    e: NodeMaker
    functions: Sequence[Function]
    recurrent: Tensor
    input_bias: Tensor | None
    recurrent_bias: Tensor | None
    peepholes: Tensor | None
    hidden: int
    clip: float | None
    linear_before_reset: bool
    input_forget: bool

    def bounded(self, x: Tensor) -> Tensor:
        if self.clip is None:
            return x
        low, high = (self.e.scalar(s * self.clip, x.dtype) for s in (-1, 1))
        return self.e.op("clip", x, low, high)

    def gate(self, x: Tensor, index: int) -> Tensor:
        """Columns of gate `index`."""
        return self.e.slice(x, x.rank - 1, index * self.hidden, self.hidden)

    def product(self, h: Tensor, first: int = 0, count: int | None = None) -> Tensor:
        """`h` times the recurrent weights of some gates, with their bias."""
        weights = self.recurrent
        bias = self.recurrent_bias
        if count is not None:
            start, size = first * self.hidden, count * self.hidden
            weights = self.e.slice(weights, 1, start, size)
            bias = None if bias is None else self.e.slice(bias, 0, start, size)
        result = self.e.op("matmul", h, weights)
        return result if bias is None else self.e.op("add", result, bias)


Step = Callable[[_Cell, Tensor, Tensor, "Tensor | None"], tuple[Tensor, "Tensor | None"]]


def _rnn_step(
    cell: _Cell, x: Tensor, h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    total = cell.e.op("add", x, cell.product(h))
    return cell.functions[0](cell.bounded(total)), c


def _gru_step(
    cell: _Cell, x: Tensor, h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    e, (f, g) = cell.e, cell.functions
    both = e.op("add", e.slice(x, 1, 0, 2 * cell.hidden), cell.product(h, 0, 2))
    z, r = (f(cell.bounded(cell.gate(both, i))) for i in range(2))
    if cell.linear_before_reset:
        inner = e.op("mul", r, cell.product(h, 2, 1))
    else:
        inner = cell.product(e.op("mul", r, h), 2, 1)
    fresh = g(cell.bounded(e.op("add", cell.gate(x, 2), inner)))
    kept = e.op("mul", z, h)
    one = e.scalar(1, h.dtype)
    return e.op("add", e.op("mul", e.op("sub", one, z), fresh), kept), c


def _lstm_step(
    cell: _Cell, x: Tensor, h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    assert c is not None
    e, (f, g, last) = cell.e, cell.functions
    total = e.op("add", x, cell.product(h))

    def peep(part: Tensor, index: int, state: Tensor) -> Tensor:
        if cell.peepholes is None:
            return part
        weights = e.slice(cell.peepholes, 0, index * cell.hidden, cell.hidden)
        return e.op("add", part, e.op("mul", weights, state))

    i = f(cell.bounded(peep(cell.gate(total, 0), 0, c)))
    if cell.input_forget:
        forget = e.op("sub", e.scalar(1, i.dtype), i)
    else:
        forget = f(cell.bounded(peep(cell.gate(total, 2), 2, c)))
    fresh = g(cell.bounded(cell.gate(total, 3)))
    state = e.op("add", e.op("mul", forget, c), e.op("mul", i, fresh))
    o = f(cell.bounded(peep(cell.gate(total, 1), 1, state)))
    return e.op("mul", o, last(state)), state


@final
@record
class _Kind:
    """What differs between the three ops."""

    gates: int
    activations: tuple[str, ...]
    step: Step
    has_state: bool = False


def _pick(e: NodeMaker, x: Tensor | None, direction: int) -> Tensor | None:
    """`x` of one direction."""
    return None if x is None else e.squeeze(e.slice(x, 0, direction, 1), (0,))


def _need(x: Tensor | None) -> Tensor:
    if x is None:
        raise ModelError("a weight is missing")
    return x


def _cells(call: Call, kind: _Kind, directions: int) -> list[_Cell]:
    e, hidden = call.maker, call.integer("hidden_size")
    functions = _functions(call, kind.activations, directions)
    size = kind.gates * hidden
    linear = call.flag("linear_before_reset") if kind.gates == 3 else False
    forget = call.flag("input_forget") if kind.has_state else False
    clip = call.attributes.float("clip")
    cells: list[_Cell] = []
    for d in range(directions):
        recurrent = swap_last(e, _need(_pick(e, call.tensor(2), d)))
        bias = _pick(e, call.optional(3), d)
        halves = [
            None if bias is None else e.slice(bias, 0, i * size, size) for i in range(2)
        ]
        peepholes = _pick(e, call.optional(7), d) if kind.has_state else None
        cells.append(
            _Cell(e, functions[d], recurrent, halves[0], halves[1], peepholes, hidden, clip,
                  linear, forget)
        )  # fmt: skip
    return cells


def _initial(
    call: Call, index: int, direction: int, like: Sequence[Dim], x: Tensor
) -> Tensor:
    given = _pick(call.maker, call.optional(index), direction)
    return call.maker.full(0, x.dtype, like) if given is None else given


def _after(
    cell: _Cell,
    step: Step,
    lengths: Tensor | None,
    place: Tensor,
    x: Tensor,
    state: list[Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """The output of the step at `place`, and the states behind it, which stay behind the end of a sequence.

    `lengths`, [batch] i64, says how many steps of each sequence count; None: all.
    """
    e = cell.e
    h, *rest = state
    new_h, new_c = step(cell, x, h, rest[0] if rest else None)
    later = [new_h] if new_c is None else [new_h, new_c]
    if lengths is None:
        return new_h, later
    inside = e.unsqueeze(e.op("less", place, lengths), (1,))
    out = e.op("where", inside, new_h, e.full(0, h.dtype, h.shape))
    pairs = zip(later, state, strict=True)
    return out, [e.op("where", inside, new, old) for new, old in pairs]


Walked = tuple["Tensor | None", Tensor, "Tensor | None"]
"""[steps, batch, hidden], the hidden state after every step, and the last states."""


def _run_direction(
    call: Call, kind: _Kind, cell: _Cell, x: Tensor, direction: int, *, backwards: bool
) -> Walked:
    e = call.maker
    weights = swap_last(e, _need(_pick(e, call.tensor(1), direction)))
    inputs = e.op("matmul", x, weights)
    if cell.input_bias is not None:
        inputs = e.op("add", inputs, cell.input_bias)
    shape = (x.shape[1], cell.hidden)
    h = _initial(call, 5, direction, shape, x)
    states = [h]
    if kind.has_state:
        states.append(_initial(call, 6, direction, shape, x))
    lengths = call.optional(4)
    if lengths is not None:
        lengths = e.cast(lengths, dtypes.i64)
    keeps_rows = call.wants(0)

    def step(place: Tensor, rows: Rows, held: Rows) -> tuple[Rows, Rows]:
        out, later = _after(cell, kind.step, lengths, place, rows[0], held)
        return [out] if keeps_rows else [], later

    rows, states = walked(
        e,
        [inputs],
        states,
        step,
        [h.type] if keeps_rows else [],
        backwards=backwards,
        is_certain=(bounds(x.shape[0])[0] or 0) >= 1,
    )
    return rows[0] if rows else None, states[0], states[1] if kind.has_state else None


def _recurrent(kind: _Kind) -> Build:
    def build(call: Call) -> list[Tensor | None]:
        e, x = call.maker, call.tensor(0)
        name = call.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
        batch_first = call.flag("layout")
        call.flag("output_sequence")
        if batch_first:
            x = e.transpose(x, (1, 0, 2))
        if x.rank != 3:
            raise ModelError(f"operand 1 has type {x.type}, expected rank 3")
        directions = 2 if name == "bidirectional" else 1
        if batch_first:
            call.inputs = _direction_first(call)
        results = [
            _run_direction(call, kind, cell, x, d, backwards=name == "reverse" or d == 1)
            for d, cell in enumerate(_cells(call, kind, directions))
        ]
        return _outputs(e, results, batch_first=batch_first, has_state=kind.has_state)

    return build


def _direction_first(call: Call) -> list[Tensor | None]:
    """The operands with initial states in the order of layout 0."""
    e = call.maker
    operands = [call.optional(i) for i in range(len(call.inputs))]
    for index in (5, 6):
        state = operands[index] if index < len(operands) else None
        if state is not None:
            operands[index] = e.transpose(state, (1, 0, 2))
    return operands


def _outputs(
    e: NodeMaker, results: Sequence[Walked], *, batch_first: bool, has_state: bool
) -> list[Tensor | None]:
    """Y, Y_h (and Y_c) with the direction axis back in place."""
    columns = [rows for rows, _, _ in results if rows is not None]
    y = e.concat([e.unsqueeze(c, (1,)) for c in columns], 1) if columns else None
    states = [e.concat([e.unsqueeze(h, (0,)) for _, h, _ in results], 0)]
    if has_state:
        states.append(e.concat([e.unsqueeze(_need(c), (0,)) for _, _, c in results], 0))
    if batch_first:
        y = None if y is None else e.transpose(y, (2, 0, 1, 3))
        states = [e.transpose(s, (1, 0, 2)) for s in states]
    return [y, *states]


_LSTM: Final = _Kind(4, ("Sigmoid", "Tanh", "Tanh"), _lstm_step, has_state=True)


def _quantized_lstm(call: Call) -> Result:
    """With the numbers that weights of bytes stand for: quantizing inputs on the fly only loses precision."""
    given: list[Tensor | None] = [call.optional(i) for i in range(8)]
    for place, scale in ((1, 8), (2, 10)):
        weights = call.tensor(place), call.tensor(scale), call.tensor(scale + 1)
        given[place] = _numbers(call.maker, *weights)
    return _recurrent(_LSTM)(replace(call, inputs=given))


def _numbers(e: NodeMaker, weights: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Bytes [directions, depth, columns] as numbers [directions, columns, depth]; a scale for all, or per column."""
    directions = weights.shape[0]
    if not isinstance(directions, int):
        raise UnsupportedError("weights of a dynamic number of directions")
    found: list[Tensor] = []
    for d in range(directions):
        own = [_need(_pick(e, x, d)) for x in (weights, scale, zero)]
        own[1:] = [e.reshape(x, ()) if x.shape == (1,) else x for x in own[1:]]
        plain = e.op("dequantize_linear", *own, axis=1)
        found.append(e.unsqueeze(swap_last(e, plain), (0,)))
    return e.concat(found, 0)


ROWS: Final[tuple[Row, ...]] = (
    row("GRU", _recurrent(_Kind(3, ("Sigmoid", "Tanh"), _gru_step))),
    row(
        "LSTM",
        _recurrent(_LSTM),
    ),
    row("RNN", _recurrent(_Kind(1, ("Tanh",), _rnn_step))),
    row("DynamicQuantizeLSTM", _quantized_lstm, domain=MICROSOFT),
)
