"""A page for each setting, and what was tried beside it."""

from __future__ import annotations

import html
import re
from pathlib import Path
from unittest import mock

import pytest

import tilewright as tw
from fakes.small_models import mlp, save
from tilewright.api.explorer import Explorer
from tilewright.api.explorer import explorer as explorer_module
from tilewright.base.errors import TargetError, UserError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(mlp("batch"), tmp_path_factory.mktemp("explorer") / "mlp.onnx")


@pytest.fixture(scope="module")
def explorer(model: Path) -> Explorer:
    return Explorer(model, threads=1, dims={"batch": 3}, calls=1)


@pytest.mark.slow
def test_the_first_page_is_the_report_with_a_form(explorer: Explorer) -> None:
    page = explorer.page("")
    assert "<h1>mlp.onnx</h1>" in page
    assert "batch = 3" in page
    assert '<form class="controls"' in page
    assert "form-action 'self'" in page
    assert "Kernels" in page


@pytest.mark.slow
def test_choices_are_compared_with_each_other(explorer: Explorer) -> None:
    explorer.page("")
    page = explorer.page("opt_level=0&dim.batch=5")
    assert "batch = 5" in page
    assert "what was tried" in page
    assert "O0, host, f32, 1 thread, batch = 5" in page
    assert "O2, host, f32, 1 thread, batch = 3" in page
    assert "1.00 ×" in page


@pytest.mark.slow
def test_a_choice_that_cannot_be_is_a_page_with_the_reason(explorer: Explorer) -> None:
    with mock.patch.object(
        explorer_module, "compile", side_effect=TargetError("no <such> code")
    ):
        page = explorer.page("opt_level=1")
    assert "This cannot be" in page
    assert "no &lt;such&gt; code" in page
    assert '<form class="controls"' in page
    assert "This cannot be" not in explorer.page("opt_level=1")


@pytest.mark.slow
def test_of_an_artifact_sizes_can_be_chosen(explorer: Explorer, model: Path) -> None:
    path = model.with_suffix(".vmfb")
    tw.compile(model, threads=1).save(path)
    opened = Explorer(path, threads=1, calls=1)
    page = opened.page("dim.batch=2")
    assert "batch = 2" in page
    assert "<select" not in page
    page = opened.page("dim.batch=4")
    assert "O2" not in page.partition("what was tried")[2].partition("</table>")[0]
    links = re.findall(r'href="/\?([^"]*)"', page)
    assert len(links) == 2
    for link in links:
        assert "batch = " in opened.page(html.unescape(link))


@pytest.mark.slow
def test_sizes_that_no_input_has_are_refused(model: Path) -> None:
    with pytest.raises(UserError, match="no input has a dimension 'bath'"):
        Explorer(model, dims={"bath": 1})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("size", [-1, (1 << 20) + 1, 10**30])
def test_the_first_sizes_are_held_to_the_same_limit(model: Path, size: int) -> None:
    with pytest.raises(UserError, match=r"dims\['batch'\]"):
        Explorer(model, threads=1, dims={"batch": size})
