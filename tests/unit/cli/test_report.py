"""`tilewright report`: a page beside the model, or where it is asked for."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest

from fakes.command_line import tilewright
from tilewright.base.host import describe

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"
QUICK = ("--calls=1", "--no-limits")


def test_a_model_gets_a_page_beside_it(mlp_onnx: Path, tmp_path: Path) -> None:
    model = Path(shutil.copy(mlp_onnx, tmp_path / "m.onnx"))
    done = tilewright("report", model, "--calls=2", "--threads=1")
    assert done.code == 0, done.err
    page = (tmp_path / "m.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<title>m.onnx – Tilewright</title>" in page
    assert "medians of 2 calls" in page
    assert "1 thread<" in page
    assert "compute: " in page  # the limits of the machine
    assert "Why it takes that long" in page
    assert "assembly" in page
    assert str(tmp_path / "m.html") in done.err
    assert not done.out


def test_an_artifact_gets_one_too(mlp_vmfb: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    done = tilewright("report", mlp_vmfb, "-o", path, *QUICK)
    assert done.code == 0, done.err
    page = path.read_text(encoding="utf-8")
    assert "kernel IR" in page
    assert "assembly" not in page
    assert "were not measured" in page
    assert "Why it takes that long" not in page  # beside which limits?


@pytest.mark.slow
def test_inputs_and_sizes_are_those_that_are_asked_for(
    dynamic_onnx: Path, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    done = tilewright("report", dynamic_onnx, "-o", path, "--dim=batch=17", *QUICK)
    assert done.code == 0, done.err
    assert "batch = 17" in path.read_text(encoding="utf-8")
    np.save(tmp_path / "x.npy", np.zeros((5, 20), np.float32))
    given = f"--input=x=@{tmp_path / 'x.npy'}"
    done = tilewright("report", dynamic_onnx, "-o", path, given, *QUICK)
    assert done.code == 0, done.err
    assert "batch = 5" in path.read_text(encoding="utf-8")


def test_a_link_is_followed(mlp_vmfb: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.touch()
    (tmp_path / "link.html").symlink_to(path)
    done = tilewright("report", mlp_vmfb, "-o", tmp_path / "link.html", *QUICK)
    assert done.code == 0, done.err
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert (tmp_path / "link.html").is_symlink()


@pytest.mark.parametrize("name", ["page.vmfb", "page.onnx", "page"])
def test_a_name_that_is_no_page_is_refused_before_the_work(
    mlp_onnx: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_text("precious")
    done = tilewright("report", mlp_onnx, "-o", path)
    assert done.code == 1
    assert "is no name of a page, expected one that ends in .html" in done.err
    assert path.read_text() == "precious"


def test_the_model_is_not_overwritten(mlp_onnx: Path, tmp_path: Path) -> None:
    model = Path(shutil.copy(mlp_onnx, tmp_path / "model.html"))
    before = model.read_bytes()
    done = tilewright("report", model)
    assert done.code == 1
    assert "is an input" in done.err
    assert model.read_bytes() == before


@pytest.mark.skipif(describe().arch != "x86_64", reason="x86-64 code")
def test_a_module_of_iree_has_a_page_without_a_graph(tmp_path: Path) -> None:
    module = tmp_path / "mlp.vmfb"
    data = (ARCHIVES / "iree-3.13.0-mlp_cpu.vmfb.xz").read_bytes()
    module.write_bytes(lzma.decompress(data))
    done = tilewright("report", module, "--function=mlp", *QUICK)
    assert done.code == 0, done.err
    page = (tmp_path / "mlp.html").read_text(encoding="utf-8")
    assert "There is no plan" in page
    assert 'class="kernel"' in page
