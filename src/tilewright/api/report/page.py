"""The page: one file that needs nothing else, with the drawings, the table and the code of the kernels.

The only script that may run in it is the one that comes from here: the page says so to the browser by
its hash, and forbids all loading.  Called by `report`.

Source: W3C, "Content Security Policy Level 3".
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final

from tilewright.api.profiling import KernelRow
from tilewright.api.profiling.causes import KernelFinding
from tilewright.api.report.graph_drawing import STEPS_LIMIT, draw_graph
from tilewright.api.report.markup import Markup, clean, element, joined, shortened
from tilewright.api.report.palette import MEANINGS, OTHER, outcome_class
from tilewright.api.report.plan_reader import Tensor
from tilewright.api.report.plots import draw_memory, draw_roofline, draw_strip
from tilewright.api.report.report_data import ReportData, StepData
from tilewright.base.outcome import Outcome
from tilewright.base.text import format_bytes, format_duration, format_quantity, plural
from tilewright.base.version import VERSION

if TYPE_CHECKING:
    from tilewright.api.profiling.roofline import Roofline

_FILES: Final = files("tilewright.api.report")
_NAME_LIMIT: Final = 200  # characters of a name, wherever it stands
_NODES_LIMIT: Final = 40  # of a step or kernel
_CELL_NODES: Final = 3
_KERNELS_LIMIT: Final = 5000
_FINDINGS: Final = 5
_FINDING_SHARE: Final = 0.02  # of a call
_ROOFLINE_WORDS: Final = (
    "A kernel that touches the flat roof computes as fast as this machine can.",
    "One that touches a slope gets its bytes as fast as that level of memory delivers.",
    "One below all roofs has room: its schedule, or the start of its threads, costs what is missing.",
)
_COLUMNS: Final = (
    ("kernel", ""), ("runs as", ""), ("calls", "n"), ("time", "n"), ("share", "n"), ("GFLOP/s", "n"), ("GB/s", "n"),
    ("limit", ""), ("of it", "n"), ("nodes of the model", ""),
)  # fmt: skip


def render(data: ReportData, *, controls: Markup | None = None) -> str:
    """The page that shows `data`; `controls` above all else ask the server that shows it for another."""
    return _page(
        data.name,
        _subtitle(data),
        joined(*(() if controls is None else (controls,)), *_sections(data)),
        footer=f"made by Tilewright {VERSION}; medians of {_calls(data)}",
        data=_data(data),
        script=_read("page.js"),
        has_form=controls is not None,
    )


def render_problem(name: str, text: str, controls: Markup) -> str:
    """The page of a choice that cannot be: what is wrong, and the controls to choose again."""
    message = _section("This cannot be", "", element("pre", text))
    footer = f"made by Tilewright {VERSION}"
    return _page(
        name,
        "",
        joined(controls, message),
        footer=footer,
        data="{}",
        script="",
        has_form=True,
    )


def _page(
    name: str,
    subtitle: str,
    content: Markup,
    *,
    footer: str,
    data: str,
    script: str,
    has_form: bool,
) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    name = shortened(name, _NAME_LIMIT)
    return Template(_read("page.html")).substitute(
        script_hash=f"sha256-{digest}",
        form_action="'self'" if has_form else "'none'",
        title=joined(f"{name} – Tilewright"),
        style=_read("page.css"),
        heading=joined(name),
        subtitle=joined(subtitle),
        content=content,
        footer=joined(footer),
        data=data,
        script=script,
    )


def _read(name: str) -> str:
    return _FILES.joinpath(name).read_text(encoding="utf-8")


def _calls(data: ReportData) -> str:
    return f"{plural(data.calls, 'call')}, one command at a time"


def _subtitle(data: ReportData) -> str:
    dims = ", ".join(f"{name} = {value}" for name, value in sorted(data.dims.items()))
    taken = ", ".join(shortened(text, 80) for text in data.inputs[:4])
    more = " …" if len(data.inputs) > 4 else ""
    words = (
        f"{taken}{more}",
        dims,
        f"code for {data.target}" if data.target else "",
        f"on {data.machine}",
        plural(data.threads, "thread"),
    )
    return " · ".join(word for word in words if word)


def _sections(data: ReportData) -> Iterator[Markup]:
    yield element("div", *_cards(data), class_="cards")
    yield _section(
        "A call",
        "Every step, as wide as it takes; select one to find it in all drawings.",
        draw_strip(data),
        _legend(data),
    )
    if data.findings:
        yield _findings(data.findings)
    yield _graph(data)
    yield _roofline(data)
    yield _memory(data)
    yield _kernels(data)


def _section(title: str, note: str, *content: str, tools: str = "") -> Markup:
    head = element(
        "div",
        element("h2", title),
        element("span", note, class_="note"),
        tools,
        class_="title",
    )
    return element("section", head, *content)


# --- figures -----------------------------------------------------------------------------------


def _cards(data: ReportData) -> Iterator[Markup]:
    total, flops = data.time_ns, sum(step.row.flops for step in data.steps)
    yield _card(format_duration(total), "a call, the sum of its steps")
    rate = flops / (total or 1)
    share = ""
    if data.limits is not None:
        share = f", {100e9 * rate / data.limits.flops:.0f} % of the peak"
    yield _card(
        format_quantity(1e9 * rate, "FLOP/s"), f"{format_quantity(flops, 'FLOP')}{share}"
    )
    yield _card(str(len(data.kernels)), f"kernels for {plural(len(data.steps), 'step')}")
    if data.memory is not None:
        yield _card(format_bytes(data.memory.weights_bytes), "weights")
        count = len(data.memory.lifetimes)
        yield _card(
            format_bytes(data.memory.arena_bytes), f"arena for {plural(count, 'tensor')}"
        )
    if data.limits is not None:
        yield _card(
            f"{data.limits.read_bytes / 1e9:,.1f} GB/s",
            f"from memory; {data.limits.flops / 1e9:,.0f} GFLOP/s at most",
        )


def _card(value: str, text: str) -> Markup:
    return element("div", element("b", value), element("span", text), class_="card")


def _legend(data: ReportData) -> Markup:
    times: dict[Outcome | None, int] = {}
    for step in data.steps:
        times[step.row.outcome] = times.get(step.row.outcome, 0) + step.row.time_ns
    known = [outcome for outcome in (*Outcome, None) if outcome in times]
    items = (
        element(
            "span",
            element("i", class_=outcome_class(outcome)),
            element(
                "b",
                f"{outcome or OTHER} {100 * times[outcome] / (data.time_ns or 1):.1f} %",
            ),
            f" {MEANINGS.get(outcome, 'copies, and what nobody knows') if outcome else 'copies, and what is not known'}",
        )
        for outcome in known
    )
    return element("div", *items, class_="legend")


def _findings(findings: Sequence[KernelFinding]) -> Markup:
    """What holds up the kernels that take longest, and what would help."""
    shown = [f for f in findings if f.share >= _FINDING_SHARE][:_FINDINGS] or findings[:1]
    items = (
        element(
            "li",
            element("b", shortened(found.kernel, _NAME_LIMIT)),
            f" {100 * found.share:.1f} %, {found.cause}. {found.reason}",
            *(
                element("span", shortened(text, _NAME_LIMIT), class_="try")
                for text in found.advice
            ),
        )
        for found in shown
    )
    return _section(
        "Why it takes that long",
        "The kernels that take longest, what holds them up, and what would help.",
        element("ol", *items, class_="findings"),
    )


# --- drawings ------------------------------------------------------------------------------------


def _graph(data: ReportData) -> Markup:
    drawing = draw_graph(data)
    if drawing is None:
        reason = "There is no plan that tells what flows where; the kernels below are all that is known."
        if data.memory is not None:
            reason = f"{len(data.steps)} steps, more than the {STEPS_LIMIT} that are drawn; see the kernels below."
        return _section("Graph", reason)
    tools = (("zoom-out", "−"), ("zoom-in", "+"), ("zoom-one", "1:1"), ("zoom-fit", "fit"))
    buttons = (element("button", text, id=name, type="button") for name, text in tools)
    note = "Steps with the nodes of the model that they compute; the bar is the time. Drag, or Ctrl and the wheel."
    if drawing.far_count:
        note += (
            f" {plural(drawing.far_count, 'tensor')} read far away are named, not drawn."
        )
    hint = element("p", "Select a step to see what it is.", class_="hint")
    return _section(
        "Graph",
        note,
        element(
            "div",
            element("div", drawing.graph, class_="canvas", id="canvas"),
            element("div", drawing.overview, class_="map"),
            element("div", hint, class_="details", id="details"),
            class_="graph",
            style=f"--content: {drawing.height:.0f}px",  # a short graph needs no tall panel
        ),
        tools=element("span", *buttons, class_="tools"),
    )


def _roofline(data: ReportData) -> Markup:
    drawing = draw_roofline(data)
    if drawing is None:
        return _section("Roofline", "No kernel does arithmetic that is known.")
    hidden = [row for row in data.kernels if not (row.flops and row.size_bytes)]
    words = [*_ROOFLINE_WORDS]
    if hidden:
        share = 100 * sum(row.time_ns for row in hidden) / (data.time_ns or 1)
        words.append(
            f"{plural(len(hidden), 'kernel')} without arithmetic ({share:.1f} % of the time) have no place here."
        )
    if data.limits is None:
        words.append("The limits of the machine were not measured.")
    text = element("div", *(element("p", word) for word in words), *_by_limit(data))
    return _section(
        "Roofline",
        "One point per kernel, its area the time of all its calls.",
        element("div", drawing, text, class_="pair"),
    )


def _by_limit(data: ReportData) -> Iterator[Markup]:
    """The share of the time that each limit bounds."""
    if data.limits is None:
        return
    times: dict[str, int] = {}
    for row in data.kernels:
        name, _ = row.limit(data.limits)
        times[name] = times.get(name, 0) + row.time_ns
    items = (
        element(
            "li",
            element("b", f"{100 * time / (data.time_ns or 1):.1f} %"),
            f" nearest to {name}",
        )
        for name, time in sorted(times.items(), key=lambda item: -item[1])
        if time >= data.time_ns / 1000
    )
    yield element("p", element("b", "Where the time goes"))
    yield element("ul", *items)


def _memory(data: ReportData) -> Markup:
    drawing = draw_memory(data)
    if data.memory is None or drawing is None:
        return _section(
            "Memory", "No intermediate tensors, or no plan that tells where they lie."
        )
    unshared = sum(lifetime.size_bytes for lifetime in data.memory.lifetimes)
    note = (
        f"Tensors between steps share {format_bytes(data.memory.arena_bytes)}; "
        f"each in a place of its own, they would take {format_bytes(unshared)}. "
        "The colour is that of the step that writes first."
    )
    return _section("Memory", note, drawing)


# --- the table -----------------------------------------------------------------------------------


def _kernels(data: ReportData) -> Markup:
    head = (
        element(
            "th",
            element("button", text, type="button"),
            **({"class_": kind} if kind else {}),
            **({"aria_sort": "descending"} if text == "time" else {}),
        )
        for text, kind in _COLUMNS
    )
    shown = data.kernels[:_KERNELS_LIMIT]
    rows = (_row(data, place, row) for place, row in enumerate(shown))
    note = "Select a row to see its code."
    if len(shown) < len(data.kernels):
        note += f" The slowest {_KERNELS_LIMIT} of {len(data.kernels)}."
    search = Markup(
        '<input type="search" id="filter" placeholder="filter by any word" aria-label="filter">'
    )
    return _section(
        "Kernels",
        note,
        element(
            "div",
            element(
                "table",
                element("thead", element("tr", *head)),
                element("tbody", *rows),
                id="kernels",
            ),
            class_="scroll",
        ),
        tools=search,
    )


def _row(data: ReportData, place: int, row: KernelRow) -> Markup:
    share = row.time_ns / (data.time_ns or 1)
    limit, of_it = ("", 0.0) if data.limits is None else row.limit(data.limits)
    kind = outcome_class(row.outcome)
    bar = element(
        "span", element("i", style=f"width:{100 * share:.2f}%"), class_=f"bar {kind}"
    )
    return element(
        "tr",
        element("td", shortened(row.name, _NAME_LIMIT), class_="name"),
        element("td", element("span", row.outcome or OTHER, class_=f"chip {kind}")),
        _number(row.calls, str(row.calls)),
        _number(row.time_ns, format_duration(row.time_ns)),
        _number(share, joined(bar, f"{100 * share:.1f} %")),
        _number(row.flops_rate, f"{row.flops_rate / 1e9:.1f}"),
        _number(row.bytes_rate, f"{row.bytes_rate / 1e9:.1f}"),
        element("td", limit),
        _number(of_it, f"{100 * of_it:.0f} %" if limit else ""),
        element("td", _named(row.nodes, _CELL_NODES), class_="nodes"),
        class_="kernel",
        tabindex=0,
        data_kernel=place,
    )


def _number(value: float, text: str) -> Markup:
    return element("td", text, class_="n", data_value=repr(value))


def _named(nodes: Sequence[str], count: int) -> str:
    more = len(nodes) - count
    names = ", ".join(shortened(name, 60) for name in nodes[:count])
    return f"{names} +{more}" if more > 0 else names


# --- what the script shows -----------------------------------------------------------------------


def _data(data: ReportData) -> str:
    """Of steps and kernels, as JSON that cannot end its element."""
    kernels = [
        {
            "name": shortened(row.name, _NAME_LIMIT),
            "nodes": _lines(row.nodes),
            "code": {
                level: _packed(text) for level, text in data.code.get(row.name, {}).items()
            },
        }
        for row in data.kernels[:_KERNELS_LIMIT]
    ]
    steps = [_step(data, step) for step in data.steps]
    slowest = max(range(len(steps)), key=lambda s: data.steps[s].row.time_ns, default=None)
    tables = {"kernels": kernels, "steps": steps, "slowest": slowest}
    text = json.dumps(_cleaned(tables), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _step(data: ReportData, step: StepData) -> Mapping[str, object]:
    row = step.row
    share = 100 * row.time_ns / (data.time_ns or 1)
    return {
        "kernel": step.kernel,
        "outcome": row.outcome or step.kind,
        "class": outcome_class(row.outcome),
        "time": f"{format_duration(row.time_ns)}, {share:.1f} % of the call",
        "flops": format_quantity(row.flops, "FLOP") if row.flops else "",
        "bytes": format_bytes(row.size_bytes) if row.size_bytes else "",
        "rates": f"{format_quantity(row.flops_rate, 'FLOP/s')}, {format_quantity(row.bytes_rate, 'B/s')}",
        "limit": "" if data.limits is None else _limit(row, data.limits),
        "grid": " × ".join(map(str, step.grid)) if step.kind == "dispatch" else "",
        "nodes": _lines(row.nodes),
        "operands": _tensors(step.operands),
        "constants": _tensors(step.constants),
        "results": _tensors(step.results),
    }


def _limit(row: KernelRow, limits: Roofline) -> str:
    name, share = row.limit(limits)
    return f"{100 * share:.0f} % of {name}"


def _tensors(tensors: Iterable[Tensor]) -> list[str]:
    return [f"{tensor.text}, {format_bytes(tensor.size_bytes)}" for tensor in tensors]


def _lines(names: Sequence[str]) -> list[str]:
    more = len(names) - _NODES_LIMIT
    lines = [shortened(name, _NAME_LIMIT) for name in names[:_NODES_LIMIT]]
    return [*lines, f"… and {more} more"] if more > 0 else lines


def _cleaned(value: object) -> object:
    match value:
        case str():
            return clean(value)
        case list():
            return [_cleaned(item) for item in value]
        case dict():
            return {key: _cleaned(item) for key, item in value.items()}
        case _:
            return value


def _packed(text: str) -> str:
    """Compressed, in characters that mean nothing to a page."""
    return base64.b64encode(zlib.compress(clean(text).encode(), 6)).decode()
