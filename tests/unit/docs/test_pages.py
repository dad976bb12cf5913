"""Pages point at what exists, and no class of errors is without its paragraph."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tilewright.base import dtypes, errors
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import Dimension, Entry, Plan, Step, Storage, to_json

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "native" / "README.md"]
)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
CODE = re.compile(
    r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL
)  # `module["f"](x)` is no link
PLACE = re.compile(r"`((?:src|tests|docs|examples|tools|benchmarks)/[\w./-]+?)/?`")
ROOM = re.compile(
    r"`((?:base|formats|compiler|runtime|cli|api|hal|backends|printers|lowering|schedule|transforms|drivers)"
    r"/[\w/]+\.py)`"
)


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown renderer makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


def test_every_link_leads_somewhere() -> None:
    broken = {ids(page): found for page in PAGES if (found := broken_links(page))}
    assert broken == {}


def broken_links(page: Path) -> list[str]:
    """The links of a page to files and headings that are not there."""
    broken: list[str] = []
    prose = CODE.sub("`code`", page.read_text(encoding="utf-8"))
    for target, anchor in LINK.findall(prose):
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        if not path.exists():
            broken.append(target)
        elif anchor and anchor[1:] not in anchors(path):
            broken.append(target + anchor)
    return broken


def test_every_place_of_the_tree_that_is_named_exists() -> None:
    missing = {ids(page): found for page in PAGES if (found := missing_places(page))}
    assert missing == {}


def missing_places(page: Path) -> list[str]:
    """The files and folders that a page names and that are not there."""
    text = page.read_text(encoding="utf-8")
    missing = [
        name
        for name in PLACE.findall(text)
        if not (ROOT / name).exists() and not (page.parent / name).exists()
    ]
    source = ROOT / "src" / "tilewright"
    roots = (source, source / "runtime", source / "compiler", ROOT)
    missing += [
        name
        for name in ROOM.findall(text)
        if not any((root / name).exists() for root in roots)
    ]
    return missing


def user_facing() -> list[str]:
    return [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.TilewrightError)
    ]


def test_every_error_class_has_its_section() -> None:
    page = ROOT / errors.DOCS
    assert {name.lower() for name in user_facing()} <= anchors(page)


def test_the_glossary_is_in_order_and_says_each_noun_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    nouns = re.findall(r"^\*\*([^*]+?)(?: \(.*\))?\.\*\*", text, re.MULTILINE)
    assert nouns == sorted(set(nouns), key=str.lower)


def test_no_page_speaks_of_machines_or_sessions_of_its_author() -> None:
    for page in PAGES:
        assert not re.search(
            r"(?<![\w.])/(?:home|root|srv|mnt|work|tmp/[a-z])/",
            page.read_text(encoding="utf-8"),
        ), page


def test_the_plan_of_the_page_has_the_fields_of_a_plan() -> None:
    text = (ROOT / "docs" / "formats" / "plan.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = json.loads(block)
    x = Entry(0, dtypes.f32, (symbol("batch", 1), 48))
    plan = Plan(
        "layer", (("x", 0),), (("x", 0),), (Dimension("batch", 0, 0, 1),),
        (Storage("input", x.size_bytes, name="x"),), (x,),
        (Step("dispatch", "k", "k", (0, 0), 1),),
    )  # fmt: skip
    written = json.loads(to_json(plan))["metadata"]["tilewright"]
    assert shown.keys() == written.keys()
    assert shown["version"] == written["version"]
    for field in ("dims", "storages", "entries"):
        assert [len(shown[field][0])] == [len(written[field][0])], field
    assert shown["steps"][0].keys() == written["steps"][0].keys()
    assert shown["dims"][0] == written["dims"][0]
