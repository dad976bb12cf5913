"""The page: complete without anything else, and nothing of a model is more than text in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.hostile_names import LONG, hostile_model
from fakes.small_models import mlp, save, with_host_op
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import InputError, UserError


class Elements(HTMLParser):
    """What a page consists of, as a parser of HTML sees it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open, []).append(data)

    def all(self, tag: str, class_: str = "") -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.found
            if name == tag
            and (not class_ or class_ in (attributes.get("class") or "").split())
        ]

    def with_id(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.found if attributes.get("id") == name]


@pytest.mark.slow
def test_commands_that_are_proposed_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(mlp("batch"), tmp_path / "my model.onnx")
    model, named = tw.compile(path), []

    def findings(*_: object, model: str, **__: object) -> tuple[()]:
        named.append(model)
        return ()

    monkeypatch.setattr("tilewright.api.report.report_data.findings_of", findings)
    assert model.compiled.graph.name != path.name
    model.report(calls=1)
    tw.report(path, calls=1)
    model.save(saved := tmp_path / "saved.vmfb")
    tw.report(saved, calls=1)
    assert named == [str(path), str(path), str(saved)]


@pytest.fixture(scope="module")
def report() -> tw.Report:
    return tw.report(mlp("batch"), dims={"batch": 3}, calls=2, limits=False)


@pytest.fixture(scope="module")
def hostile() -> str:
    return str(tw.report(hostile_model(), calls=1, limits=False))


def data_of(page: str) -> dict[str, list[dict[str, object]]]:
    text = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page)
    assert text is not None
    return json.loads(text[1])


def test_every_step_kernel_and_tensor_has_its_element(report: tw.Report) -> None:
    data, page = report.data, Elements(str(report))
    assert data.memory is not None
    assert len(page.all("g", "node")) == len(data.steps)
    assert len(page.all("rect", "step")) == len(data.steps)
    assert len(page.all("tr", "kernel")) == len(data.kernels)
    assert len(page.all("path", "edge")) == len(data.edges)
    assert len(page.all("g", "input")) == 1
    assert len(page.all("g", "output")) == 1
    assert len(page.all("rect", "life")) == len(data.memory.lifetimes)
    points = [row for row in data.kernels if row.flops and row.size_bytes]
    assert len(page.all("circle", "point")) == len(points)


def test_steps_have_times_and_nodes_of_the_model(report: tw.Report) -> None:
    data = report.data
    assert all(step.row.time_ns > 0 for step in data.steps)
    assert data.time_ns == sum(row.time_ns for row in data.kernels)
    assert all(step.row.nodes for step in data.steps)
    assert data.dims == {"batch": 3}


def test_the_code_of_every_kernel_is_in_the_page(report: tw.Report) -> None:
    kernels = data_of(str(report))["kernels"]
    assert len(kernels) == len(report.data.kernels)
    for kernel in kernels:
        code = kernel["code"]
        assert isinstance(code, dict)
        assert set(code) == {"kernel IR", "loops before scheduling", "LLVM IR", "assembly"}
        ir = zlib.decompress(base64.b64decode(code["kernel IR"])).decode()
        assert str(kernel["name"]) in ir


def test_an_artifact_shows_the_sources_that_it_holds(tmp_path: Path) -> None:
    model = tw.compile(mlp(), jobs=1)
    path = tmp_path / "m.vmfb"
    model.save(path)
    kernels = data_of(str(tw.report(path, calls=1, limits=False)))["kernels"]
    assert all(
        set(k["code"]) == {"kernel IR", "loops before scheduling", "LLVM IR"}
        for k in kernels
    )  # type: ignore[arg-type]
    model.save(path, sources=False)
    page = tw.report(tw.load(path), calls=1, limits=False)
    assert all(k["code"] == {} for k in data_of(str(page))["kernels"])
    assert page.data.memory is not None


def test_bytecode_has_a_page_without_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(mlp(), jobs=1).save(path)
    report = tw.report(tw.load(path, engine="vm"), calls=1, limits=False)
    page = Elements(str(report))
    assert report.data.memory is None
    assert not page.with_id("graph-svg")
    assert page.all("tr", "kernel")
    assert page.all("rect", "step")


def test_ops_on_the_host_are_steps_too() -> None:
    with pytest.warns(TilewrightWarning, match="runs its reference"):
        report = tw.report(with_host_op(), calls=1, limits=False)
    assert Elements(str(report)).all("g", "o-host")


@pytest.mark.slow
def test_limits_make_roofs(report: tw.Report) -> None:
    assert not Elements(str(report)).all("line", "cache")
    page = Elements(str(tw.report(mlp(), calls=1, limits=True)))
    assert page.all("line", "roof")
    assert any("compute: " in text for text in page.texts["text"])


def test_nothing_is_loaded_from_anywhere(report: tw.Report) -> None:
    page = Elements(str(report))
    for tag, attributes in page.found:
        assert tag not in {"iframe", "object", "embed", "base", "img"}
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "data:,") == "data:,"
    assert "url(" not in str(report)
    assert "@import" not in str(report)


def test_the_only_script_that_may_run_is_the_one_of_the_page(report: tw.Report) -> None:
    (policy,) = [
        a["content"] or ""
        for a in Elements(str(report)).all("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    script = str(report).rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy


def test_names_of_strangers_become_no_elements(hostile: str) -> None:
    page = Elements(hostile)
    assert len(page.all("script")) == 2
    assert not page.all("img")
    assert not page.all("b", "x")
    for _, attributes in page.found:
        assert not [name for name in attributes if name.startswith("on")]
    assert "${data}" in hostile  # a template that was filled in twice would have lost it
    assert "window.hacked" in hostile


def test_names_of_strangers_cannot_leave_the_data(hostile: str) -> None:
    text = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', hostile)
    assert text is not None
    assert "<" not in text[1]
    nodes = [str(node) for step in json.loads(text[1])["steps"] for node in step["nodes"]]
    assert any("</script>" in node for node in nodes)


def test_long_names_are_shortened_and_directions_do_not_turn(hostile: str) -> None:
    assert LONG[:500] not in hostile
    for char in "\u202e\u2066\x1b\x07\x01":
        assert char not in hostile
    assert len(hostile) < 600_000


def test_a_notebook_shows_it_in_a_frame(report: tw.Report) -> None:
    frame = Elements(report._repr_html_())
    ((tag, attributes),) = frame.found
    assert tag == "iframe"
    assert attributes["srcdoc"] == str(report)
    assert attributes["sandbox"] == "allow-scripts"


@pytest.mark.slow
def test_inputs_are_taken_by_position_and_by_name() -> None:
    model = tw.compile(mlp("batch"), jobs=1)
    x = np.zeros((4, 20), np.float32)
    for inputs in ([x], {"x": x}, x):
        assert model.report(inputs, calls=1, limits=False).data.dims == {"batch": 4}


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"calls": 0}, UserError, "calls is 0, expected a number of 1 or more"),
        ({"limits": "no"}, UserError, "limits is 'no', expected True or False"),
        ({"dims": {"bath": 3}}, UserError, "no input has a dimension 'bath'\nhint: did you mean 'batch'?"),
        ({"inputs": {"y": 1}}, InputError, "there is no input 'y'\nhint: inputs: x"),
        ({"inputs": {}}, InputError, "inputs ['x'] are missing"),
        (
            {"inputs": [1], "dims": {"batch": 3}},
            UserError,
            "dims go with random inputs, not with inputs that are given",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_said_in_the_terms_of_the_caller(
    options: dict[str, object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        tw.compile(mlp("batch"), jobs=1).report(**options)
    assert str(caught.value) == text


def test_a_page_is_written_only_under_the_name_of_one(
    report: tw.Report, tmp_path: Path
) -> None:
    report.save(tmp_path / "m.html")
    assert (tmp_path / "m.html").read_text(encoding="utf-8") == str(report)
    (tmp_path / "m.onnx").write_bytes(b"weights")
    with pytest.raises(
        UserError, match=r"is no name of a page, expected one that ends in \.html"
    ):
        report.save(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"weights"
