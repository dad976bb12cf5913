"""The report as its reader sees it: in a browser that may load nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tw
from fakes.browser import Page, browser_path
from fakes.hostile_names import hostile_model
from fakes.small_models import mlp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_path() is None, reason="no Chromium"),
]
COUNT = "document.querySelectorAll({!r}).length"
NAMES = "[...document.querySelectorAll('tr.kernel')].map(row => row.children[{}].{})"
SOON = "new Promise(done => setTimeout(done, {}))"


@pytest.fixture(scope="module")
def report() -> tw.Report:
    return tw.report(mlp("batch"), dims={"batch": 64}, calls=3)


@pytest.fixture
def page(report: tw.Report, tmp_path: Path) -> Iterator[Page]:
    report.save(tmp_path / "report.html")
    with Page(tmp_path / "report.html", tmp_path) as page:
        yield page
        assert page.complaints == []
        assert page.requests == []


def test_every_drawing_has_its_elements_and_nothing_complains(
    page: Page, report: tw.Report
) -> None:
    data = report.data
    assert data.memory is not None
    points = [row for row in data.kernels if row.flops and row.size_bytes]
    for selector, count in (
        ("#graph-svg .node", len(data.steps)),
        ("#graph-svg .edge", len(data.edges)),
        ("#overview [data-step]", len(data.steps)),
        ("#strip .step", len(data.steps)),
        ("#roofline .point", len(points)),
        ("#memory .life", len(data.memory.lifetimes)),
        ("tr.kernel", len(data.kernels)),
    ):
        assert page.run(COUNT.format(selector)) == count, selector


def test_drawings_have_sizes_and_texts_lie_within_them(page: Page) -> None:
    for name in ("graph-svg", "strip", "roofline", "memory"):
        outside = page.run(f"""(() => {{
            const svg = document.getElementById('{name}'), box = svg.getBoundingClientRect();
            if (box.width < 100 || box.height < 40) return ['no size'];
            const isOutside = (b) => b.left < box.left - 2 || b.right > box.right + 2 || b.top < box.top - 2 || b.bottom > box.bottom + 2;
            return [...svg.querySelectorAll('text')].filter(t => isOutside(t.getBoundingClientRect())).map(t => t.textContent);
        }})()""")
        assert outside == [], name


def test_texts_of_a_step_do_not_overlap(page: Page) -> None:
    overlapping = page.run("""[...document.querySelectorAll('.node')].filter(node => {
        const name = node.querySelector('.name').getBoundingClientRect(), time = node.querySelector('.time').getBoundingClientRect();
        return name.right > time.left;
    }).map(node => node.textContent)""")
    assert overlapping == []


def test_the_table_sorts_by_every_column(page: Page) -> None:
    heads = page.run("[...document.querySelectorAll('th')].map(head => head.textContent)")
    for place, head in enumerate(heads):
        is_number = page.run(
            f"document.querySelectorAll('th')[{place}].classList.contains('n')"
        )
        value = "dataset.value" if is_number else "textContent"
        seen: list[list[str]] = []
        for _ in range(2):
            page.run(f"document.querySelectorAll('th button')[{place}].click()")
            seen.append(page.run(NAMES.format(place, value)))
        if is_number:
            numbers = [[float(v) for v in values] for values in seen]
            assert sorted(numbers[0]) in numbers, head
            assert sorted(numbers[0], reverse=True) in numbers, head
        assert sorted(seen[0]) == sorted(seen[1])
        if len(set(seen[0])) > 1:
            assert seen[0] != seen[1], head


def test_a_row_shows_its_code_on_every_level(page: Page, report: tw.Report) -> None:
    name = report.data.kernels[0].name
    page.run("document.querySelector('tr.kernel').click()")
    page.run(SOON.format(300))
    assert name in page.run("document.querySelector('tr.code pre').textContent")
    tabs = page.run(
        "[...document.querySelectorAll('.tabs button')].map(t => t.textContent)"
    )
    assert tabs == ["kernel IR", "loops before scheduling", "LLVM IR", "assembly"]
    page.run("document.querySelectorAll('.tabs button')[2].click()")
    page.run(SOON.format(300))
    assert "define " in page.run("document.querySelector('tr.code pre').textContent")
    page.run("document.querySelector('tr.kernel').click()")
    assert page.run(COUNT.format("tr.code")) == 0


def test_a_step_is_selected_in_all_drawings(page: Page) -> None:
    page.run(
        "document.querySelector('#strip .step').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    for selector in ("#strip .is-selected", ".node.is-selected", "#overview .is-selected"):
        assert page.run(COUNT.format(selector)) == 1
    shown = page.run("document.querySelector('#details h3').textContent")
    first = page.run(
        "JSON.parse(document.getElementById('report-data').textContent).steps[0].kernel"
    )
    assert shown == page.run(
        f"JSON.parse(document.getElementById('report-data').textContent).kernels[{first}].name"
    )


def test_words_filter_the_table(page: Page) -> None:
    page.run("""(() => { const box = document.querySelector('#filter');
        box.value = 'softmax'; box.dispatchEvent(new Event('input')); })()""")
    visible = page.run(
        "[...document.querySelectorAll('tr.kernel')].filter(row => !row.hidden).map(row => row.textContent)"
    )
    assert visible
    assert all("softmax" in text.lower() for text in visible)
    assert page.run("[...document.querySelectorAll('tr.kernel')].some(row => row.hidden)")


def test_the_graph_zooms_and_fits(page: Page) -> None:
    width = "document.querySelector('#graph-svg').getBoundingClientRect().width"
    before = page.run(width)
    page.run("document.querySelector('#zoom-in').click()")
    assert page.run(width) == pytest.approx(before * 1.25, rel=0.01)
    page.run("document.querySelector('#zoom-fit').click()")
    height = page.run("document.querySelector('#graph-svg').getBoundingClientRect().height")
    assert height <= page.run("document.querySelector('#canvas').clientHeight") + 1


def test_dark_is_dark_and_the_button_turns_it(page: Page) -> None:
    ink = "getComputedStyle(document.body).color"
    page.prefer("light")
    light = page.run(ink)
    page.prefer("dark")
    dark = page.run(ink)
    assert light != dark
    page.run("document.querySelector('#theme').click()")
    assert page.run(ink) == light
    assert page.screenshot().startswith(b"\x89PNG")


def test_names_of_strangers_do_nothing(tmp_path: Path) -> None:
    tw.report(hostile_model(), calls=1, limits=False).save(tmp_path / "report.html")
    with Page(tmp_path / "report.html", tmp_path) as page:
        page.run(
            "document.querySelectorAll('.node').forEach(node => node.dispatchEvent(new MouseEvent('click', {bubbles: true})))"
        )
        page.run("document.querySelectorAll('tr.kernel').forEach(row => row.click())")
        page.run(SOON.format(300))
        assert page.run("window.hacked") is None
        assert page.run("document.scripts.length") == 2
        assert page.run(COUNT.format("img")) == 0
        assert page.run("document.body.scrollWidth <= innerWidth")
        assert page.complaints == []
        assert page.requests == []


def test_what_a_page_loads_would_be_seen(tmp_path: Path) -> None:
    """The tests above cannot pass because nobody looks."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<script>console.error('no'); fetch('http://127.0.0.1:9/x').catch(() => 0)</script>"
    )
    with Page(path, tmp_path) as page:
        page.run(SOON.format(300))
        assert any("no" in text for text in page.complaints)
        assert page.requests == ["http://127.0.0.1:9/x"]


def test_a_graph_begins_readable_and_where_the_model_begins(page: Page) -> None:
    first = "document.querySelector('.node').getBoundingClientRect()"
    canvas = "document.querySelector('#canvas').getBoundingClientRect()"
    assert page.run(f"{first}.width") >= 190
    assert page.run(f"{first}.left >= {canvas}.left && {first}.right <= {canvas}.right")
    assert page.run(f"{first}.top >= {canvas}.top && {first}.bottom <= {canvas}.bottom")
