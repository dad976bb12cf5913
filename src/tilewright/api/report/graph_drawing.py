"""The graph of a call as SVG: steps with their times, tensors between them; and a small map of it.

Called by `page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.api.report.layers import Layout, lay_out, layers_of
from tilewright.api.report.markup import Markup, element, number, shortened
from tilewright.api.report.palette import outcome_class
from tilewright.api.report.plan_reader import Edge
from tilewright.api.report.report_data import ReportData, StepData
from tilewright.base.text import format_bytes, format_duration, plural

STEPS_LIMIT: Final = 2000
"""More steps than that are no picture; the table has them."""

_WIDTH: Final = 248.0
_HEIGHT: Final = 60.0
_PILL: Final = 26.0  # the height of inputs and outputs
_GAP: Final = 26.0
_LAYER: Final = 96.0
_MARGIN: Final = 16.0
_SHOWN_NODES: Final = 12


@final
@dataclass(frozen=True, slots=True)
class Drawing:
    """The graph, the map beside it, the height of the graph in pixels, and how much is not drawn."""

    graph: Markup
    overview: Markup
    height: float
    far_count: int


def draw_graph(data: ReportData) -> Drawing | None:
    """None where the dataflow is not known, or too large for a picture."""
    if data.memory is None or not 0 < len(data.steps) <= STEPS_LIMIT:
        return None
    return _Graph(data).drawing()


@final
class _Graph:
    """Numbers nodes: the steps, then inputs, then outputs."""

    def __init__(self, data: ReportData) -> None:
        self.data: ReportData = data
        steps, inputs = len(data.steps), len(data.inputs)
        self.first_input: int = steps
        self.first_output: int = steps + inputs
        self.count: int = self.first_output + len(data.outputs)
        self.edges: dict[tuple[int, int], Edge] = {
            (self._source(e.source), self._target(e.target)): e for e in data.edges
        }
        self.slowest: int = max(step.row.time_ns for step in data.steps)
        pairs = list(self.edges)
        self.layout: Layout = lay_out(
            [_WIDTH + _GAP] * self.count, pairs, self._layers(pairs)
        )
        self.far: dict[int, list[int]] = {}
        for source, target in self.layout.far:
            self.far.setdefault(target, []).append(source)

    def _source(self, place: int) -> int:
        return place if place >= 0 else self.first_input - 1 - place

    def _target(self, place: int) -> int:
        return place if place >= 0 else self.first_output - 1 - place

    def _layers(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Inputs stand directly above their first reader, outputs directly below their step."""
        steps = len(self.data.steps)
        inner = [(s, t) for s, t in pairs if s < steps and t < steps]
        layers = [*layers_of(steps, inner), *[0] * (self.count - steps)]
        readers: dict[int, int] = {}
        for source, target in pairs:
            if steps <= source and target < steps:
                readers[source] = min(readers.get(source, layers[target]), layers[target])
        for node in range(self.first_input, self.first_output):
            layers[node] = readers.get(node, 0) - 1
        for source, target in pairs:
            if target >= self.first_output:
                layers[target] = layers[source] + 1
        top = min(layers)
        return [layer - top for layer in layers]

    def drawing(self) -> Drawing:
        width = self.layout.width + 2 * _MARGIN
        height = self.layout.layer_count * _LAYER - (_LAYER - _HEIGHT) + 2 * _MARGIN
        lines = (self._line(edge) for edge in self.layout.bends)
        boxes = (self._node(node) for node in range(self.count))
        graph = element(
            "svg",
            element("g", *lines, class_="edges"),
            element("g", *boxes, class_="nodes"),
            id="graph-svg",
            width=width,
            height=height,
            viewBox=f"0 0 {number(width)} {number(height)}",
            role="img",
            aria_label=f"graph of {plural(len(self.data.steps), 'step')}",
        )
        return Drawing(graph, self._overview(width, height), height, len(self.layout.far))

    def _box(self, node: int) -> tuple[float, float, float, float]:
        """Left, top, width, height."""
        center = self.layout.center[node] + _MARGIN
        top = self.layout.layer[node] * _LAYER + _MARGIN
        if node < self.first_input:
            return center - _WIDTH / 2, top, _WIDTH, _HEIGHT
        top += (_HEIGHT - _PILL) * (node < self.first_output)
        return center - _WIDTH / 2, top, _WIDTH, _PILL

    def _line(self, edge: tuple[int, int]) -> Markup:
        source, target = edge
        left, top, width, height = self._box(source)
        x, y = left + width / 2, top + height
        path = [f"M{number(x)} {number(y)}"]
        for index, bend in enumerate(self.layout.bends[edge]):
            at = bend + _MARGIN
            start = (self.layout.layer[source] + 1 + index) * _LAYER + _MARGIN
            path.append(_curve(x, y, at, start))
            x, y = at, start + _HEIGHT
            path.append(f"V{number(y)}")
        left, top, width, _ = self._box(target)
        path.append(_curve(x, y, left + width / 2, top))
        tensor = self.edges[edge].tensor
        ends = {"data_from": source, "data_to": target}
        title = element("title", f"{tensor.text}, {format_bytes(tensor.size_bytes)}")
        return element("path", title, d="".join(path), class_="edge", **ends)

    def _node(self, node: int) -> Markup:
        if node >= self.first_input:
            return self._pill(node)
        data = self.data
        step = data.steps[node]
        left, top, width, height = self._box(node)
        share = step.row.time_ns / self.slowest if self.slowest else 0.0
        parts = [
            element("title", _title(data, node)),
            element("rect", class_="box", width=width, height=height, rx=6),
            element("rect", class_="mark", width=5, height=height - 12, x=6, y=6, rx=2.5),
            element(
                "rect",
                class_="heat",
                x=18,
                y=height - 9,
                rx=1.5,
                width=max((width - 28) * share, 1.0),
                height=3.5,
            ),
            element("text", shortened(step.row.name, 19), class_="name", x=18, y=18),
            element(
                "text", format_duration(step.row.time_ns), class_="time", x=width - 10, y=18
            ),
            element("text", shortened(_nodes_text(step), 36), class_="of", x=18, y=32),
            element("text", shortened(_result_text(step), 36), class_="type", x=18, y=45),
        ]
        far = self.far.get(node)
        if far:
            text = f"also reads {', '.join(self._reference(s) for s in far[:4])}"
            text += "…" if len(far) > 4 else ""
            parts.append(element("text", text, class_="far", x=width / 2, y=-5))
        return element(
            "g",
            *parts,
            class_=f"node {outcome_class(step.row.outcome)}",
            transform=f"translate({number(left)} {number(top)})",
            tabindex=0,
            data_step=node,
            data_kernel=step.kernel,
        )

    def _reference(self, node: int) -> str:
        if node < self.first_input:
            return f"step {node}"
        return shortened(self._border(node).partition(":")[0], 16)

    def _border(self, node: int) -> str:
        names = (*self.data.inputs, *self.data.outputs)
        return names[node - self.first_input]

    def _pill(self, node: int) -> Markup:
        left, top, width, height = self._box(node)
        text = self._border(node)
        kind = "input" if node < self.first_output else "output"
        return element(
            "g",
            element("title", f"{kind} {shortened(text, 400)}"),
            element("rect", class_="pill", width=width, height=height, rx=height / 2),
            element("text", shortened(text, 34), x=width / 2, y=17),
            class_=kind,
            transform=f"translate({number(left)} {number(top)})",
        )

    def _overview(self, width: float, height: float) -> Markup:
        marks = (self._mark(node) for node in range(len(self.data.steps)))
        return element(
            "svg",
            *marks,
            element("rect", id="view", class_="view", width=width, height=height),
            id="overview",
            viewBox=f"0 0 {number(width)} {number(height)}",
            preserveAspectRatio="none",
            aria_hidden="true",
        )

    def _mark(self, node: int) -> Markup:
        step = self.data.steps[node]
        left, top, width, height = self._box(node)
        share = step.row.time_ns / self.slowest if self.slowest else 0.0
        return element(
            "rect", x=left, y=top, width=width, height=height, data_step=node,
            class_=outcome_class(step.row.outcome), fill_opacity=0.15 + 0.85 * share**0.5,
        )  # fmt: skip


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = number((y + to_y) / 2)
    return f"C{number(x)} {middle} {number(to_x)} {middle} {number(to_x)} {number(to_y)}"


def _nodes_text(step: StepData) -> str:
    if not step.row.nodes:
        return step.kind
    more = len(step.row.nodes) - 1
    return shortened(step.row.nodes[-1], 30 if more else 36) + (f" +{more}" if more else "")


def _result_text(step: StepData) -> str:
    return ", ".join(tensor.text for tensor in step.results)


def _title(data: ReportData, node: int) -> str:
    return "\n".join(_title_lines(data, node))


def _title_lines(data: ReportData, node: int) -> Iterator[str]:
    step = data.steps[node]
    row = step.row
    share = 100 * row.time_ns / (data.time_ns or 1)
    yield f"step {node}: {shortened(row.name, 200)}"
    yield f"{format_duration(row.time_ns)}, {share:.1f} % of the call, {row.outcome or step.kind}"
    for name in row.nodes[:_SHOWN_NODES]:
        yield f"  {shortened(name, 120)}"
    if len(row.nodes) > _SHOWN_NODES:
        yield f"  … and {len(row.nodes) - _SHOWN_NODES} more"
