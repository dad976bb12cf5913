"""Rows for operators that run graphs: branches, loops, scans, maps, and graphs that are only called.

A branch whose condition is known is the only one imported, and a scan of few operations is written out; everything
else becomes control flow of the program (`kit.control`).  Looked up by the importer, which runs the graphs.

Source: `torch.cond`, `torch._higher_order_ops` (while_loop, scan, map, invoke_subgraph).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, Expr, proves_equal
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.complex_parts import Complex
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import to_bool
from tilewright.compiler.frontends.torch.program import Argument, Body, Ref, Relation
from tilewright.compiler.frontends.torch.sizes import of_data, parts_of_signed
from tilewright.compiler.graph.schema import TensorType

Held = Tensor | Complex
Given = Held | Dim
Inline = Callable[[Body, Sequence[Given]], list[Held | None]]


@final
@dataclass(frozen=True, slots=True)
class Flow:
    """An operator that runs graphs, as its row sees it.

    Attributes:
        call: its arguments and results.
        inline: imports a graph where nodes go now.
    """

    call: Call
    inline: Inline

    @property
    def maker(self) -> NodeMaker:
        """Writes nodes."""
        return self.call.maker

    def body(self, name: str) -> Body:
        """A graph among the arguments."""
        found = self.call.argument(name)
        if not isinstance(found, Body):
            raise ModelError(f"argument '{name}' is no graph")
        return found

    def given(self, name: str) -> list[Given]:
        """A list of tensors and numbers."""
        found = self.call.argument(name)
        if not isinstance(found, tuple):
            raise ModelError(f"argument '{name}' is no list")
        return [self.operand(item) for item in found]

    def operand(self, item: Argument) -> Given:
        """One tensor or number."""
        if isinstance(item, Ref):
            return self.call.hold(item)
        if isinstance(item, Expr) or (isinstance(item, int) and not isinstance(item, bool)):
            return item
        raise UnsupportedError(f"{item!r} as an operand of control flow is not supported")

    def trip(self, step: Tensor) -> AbstractContextManager[None]:
        """What is drawn in this context is that of a trip of a loop."""
        return self.call.draws.trip(step) if self.call.can_draw else nullcontext()

    def finished(self, held: Sequence[Held | None]) -> list[Held | None]:
        """Results, with the sizes in them that torch knows by names of its own bound."""
        numbers = self.call.operation.numbers
        for place, whole in enumerate(held):
            tensor = whole.real if isinstance(whole, Complex) else whole
            if tensor is None:
                continue
            if place in numbers:
                self._bind(numbers[place], tensor)
                continue
            e = self.maker
            for ours, theirs in zip(tensor.shape, self.call.shape(place), strict=True):
                if not proves_equal(ours, theirs):
                    self._bind(theirs, e.reshape(e.dim(ours), (1,)))
        return list(held)

    def _bind(self, size: Dim, value: Tensor) -> None:
        parts = parts_of_signed(size)
        known = of_data((size,)) if parts is None else [parts[0] - parts[1]]
        if known == [size]:
            self.call.bind(value, size)


def as_tensors(e: NodeMaker, held: Sequence[Given | None]) -> list[Tensor]:
    """Values as the tensors that they are made of; a number is one, what is missing is none."""
    found: list[Tensor] = []
    for whole in held:
        if isinstance(whole, Complex):
            found += [whole.real, whole.imaginary]
        elif isinstance(whole, Tensor):
            found.append(whole)
        elif whole is not None:
            found.append(e.dim(whole))
    return found


def as_held(forms: Sequence[Given | None], tensors: Sequence[Tensor]) -> list[Held | None]:
    """Tensors as values of the same forms."""
    rest = iter(tensors)
    found: list[Held | None] = []
    for form in forms:
        if form is None:
            found.append(None)
        elif isinstance(form, Complex):
            found.append(Complex(next(rest), next(rest)))
        else:
            found.append(next(rest))
    return found


def _present(held: Sequence[Held | None]) -> list[Given]:
    found: list[Given] = [whole for whole in held if whole is not None]
    if len(found) != len(held):
        raise UnsupportedError("a loop that carries what is no tensor is not supported")
    return found


# --- rows ---------------------------------------------------------------------------------------


def _cond(flow: Flow) -> list[Held | None]:
    e, asked = flow.maker, flow.call.argument("pred")
    then, otherwise = flow.body("true_fn"), flow.body("false_fn")
    given = flow.given("operands")
    if isinstance(asked, Relation):
        condition = flow.call.condition(asked)
    elif isinstance(asked, Ref):
        condition = to_bool(e, flow.call.tensor("pred"))
    else:
        return flow.finished(flow.inline(then if asked else otherwise, given))
    if condition.array is not None:
        chosen = then if condition.array.reshape(()) else otherwise
        return flow.finished(flow.inline(chosen, given))
    forms: list[Held | None] = []

    def branch(body: Body) -> list[Tensor]:
        forms[:] = flow.inline(body, given)
        return as_tensors(e, forms)

    results = control.conditional(
        e, condition, lambda: branch(then), lambda: branch(otherwise)
    )
    return flow.finished(as_held(forms, results))


def _while(flow: Flow) -> list[Held | None]:
    """A loop whose condition is asked before each trip."""
    e = flow.maker
    condition, body = flow.body("cond_fn"), flow.body("body_fn")
    carried, extra = flow.given("carried_inputs"), flow.given("additional_inputs")

    def go_on(values: list[Tensor]) -> Tensor:
        _, *rest = values
        (going,) = as_tensors(
            e, flow.inline(condition, [*_present(as_held(carried, rest)), *extra])
        )
        return to_bool(e, going)

    def trip(values: list[Tensor]) -> list[Tensor]:
        step, *rest = values
        with flow.trip(step):
            made = flow.inline(body, [*_present(as_held(carried, rest)), *extra])
        return [e.op("add", step, e.scalar(1, dtypes.i64)), *as_tensors(e, made)]

    begin = [e.scalar(0, dtypes.i64), *as_tensors(e, carried)]
    _, *ended = control.loop(e, begin, go_on, trip)
    return flow.finished(as_held(carried, ended))


def _scan(flow: Flow) -> list[Held | None]:
    body = flow.body("combine_fn")
    state, xs = flow.given("init"), flow.given("xs")
    return _rows(flow, body, (state, xs), flow.given("additional_inputs"))


def _map(flow: Flow) -> list[Held | None]:
    body, xs = flow.body("argument_0"), flow.given("argument_1")
    return _rows(flow, body, ([], xs), flow.given("argument_2"))


def _rows(
    flow: Flow,
    body: Body,
    taken: tuple[Sequence[Given], Sequence[Given]],
    extra: Sequence[Given],
) -> list[Held | None]:
    """A graph for row after row of what is scanned; what it gives behind the state is stacked.

    `taken` is the state before the first row, and what is scanned along its first axis.
    """
    e, (state, xs) = flow.maker, taken
    scanned = as_tensors(e, xs)
    if not scanned:
        raise UnsupportedError("a scan over nothing is not supported")
    length = scanned[0].shape[0]
    known = length if isinstance(length, int) else 0
    if known and control.worth_unrolling(known, _count(body)):
        return _written_out(flow, body, taken, extra)
    stacks = _stacks(flow, len(state))
    count = len(as_tensors(e, state))

    def trip(step: Tensor, rest: list[Tensor]) -> list[Tensor]:
        rows = [control.row_at(e, x, step, 0) for x in scanned]
        given = [*as_held(state, rest[:count]), *as_held(xs, rows)]
        with flow.trip(step):
            made = flow.inline(body, [*_present(given), *extra])
        later = as_tensors(e, made[: len(state)])
        added = as_tensors(e, made[len(state) :])
        filled = [
            control.with_row(e, stack, step, row)
            for stack, row in zip(rest[count:], added, strict=True)
        ]
        return [*later, *filled]

    begin = [*as_tensors(e, state), *as_tensors(e, stacks)]
    ended = control.counted(e, length, begin, trip)
    return flow.finished(as_held([*state, *stacks], ended))


def _count(body: Body) -> int:
    """The operations of a graph, those of graphs in it included."""
    return len(body.operations) + sum(
        _count(argument)
        for operation in body.operations
        for argument in operation.arguments.values()
        if isinstance(argument, Body)
    )


def _stacks(flow: Flow, begin: int) -> list[Held]:
    """What rows are stacked in: the results from `begin` on, of zeros."""
    e, call = flow.maker, flow.call
    found: list[Held] = []
    for place in range(begin, len(call.operation.results)):
        type_: TensorType = call.result(place)
        count = 2 if call.is_complex(place) else 1
        parts = [e.full(0, type_.dtype, type_.shape) for _ in range(count)]
        found.append(Complex(*parts) if count == 2 else parts[0])
    return found


def _written_out(
    flow: Flow,
    body: Body,
    taken: tuple[Sequence[Given], Sequence[Given]],
    extra: Sequence[Given],
) -> list[Held | None]:
    """Row after row, of which there is one at least."""
    e, (state, xs) = flow.maker, taken
    scanned = as_tensors(e, xs)
    held: list[Given] = list(state)
    columns: list[list[Held | None]] = []
    (length,) = {x.shape[0] for x in scanned}
    assert isinstance(length, int), "known"
    for step in range(length):
        rows = [e.squeeze(e.slice(x, 0, step, 1), (0,)) for x in scanned]
        with flow.trip(e.scalar(step, dtypes.i64)):
            made = flow.inline(body, [*held, *_present(as_held(xs, rows)), *extra])
        held = _present(made[: len(state)])
        columns.append(made[len(state) :])
    stacked: list[Held | None] = []
    for column in zip(*columns, strict=True):
        parts = zip(*(as_tensors(e, [whole]) for whole in column), strict=True)
        joined = [e.concat([e.unsqueeze(t, (0,)) for t in part], 0) for part in parts]
        stacked += as_held(column[:1], joined)
    return flow.finished([*as_held(held, as_tensors(e, held)), *stacked])


def _called(flow: Flow) -> list[Held | None]:
    """A graph that runs once; what stands before it among the arguments says how torch is to run it."""
    arguments = list(flow.call.operation.arguments)
    values = [flow.call.argument(name) for name in arguments]
    bodies = [place for place, value in enumerate(values) if isinstance(value, Body)]
    if len(bodies) != 1:
        raise ModelError("runs one graph")
    (place,) = bodies
    body = flow.body(arguments[place])
    rest = [value for value in values[place + 1 :] if not isinstance(value, str)]
    flat = [
        item for value in rest for item in (value if isinstance(value, tuple) else (value,))
    ]
    return flow.finished(flow.inline(body, [flow.operand(item) for item in flat]))


Build = Callable[[Flow], list[Held | None]]
ROWS: Final[Mapping[str, Build]] = {
    "higher_order.cond": _cond,
    "higher_order.invoke_subgraph": _called,
    "higher_order.map_impl": _map,
    "higher_order.scan": _scan,
    "higher_order.tag_activation_checkpoint": _called,
    "higher_order.while_loop": _while,
    "higher_order.wrap_with_set_grad_enabled": _called,
}
