"""What the wheel carries besides modules, and that settings reach the compiler."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import tilewright
from tilewright.api import model
from tilewright.base.target import Target
from tilewright.compiler import pipeline

ROOT = Path(__file__).resolve().parents[2]


def test_a_typed_package_says_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "Typing :: Typed" in project["classifiers"]
    assert (Path(tilewright.__file__).parent / "py.typed").is_file()


def test_the_wheel_and_the_source_archive_carry_every_file_that_is_read() -> None:
    """A page, a style sheet: found beside the modules here, and missed only where it is installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    in_wheel = settings["package-data"]["*"]
    (line,) = re.findall(
        r"^recursive-include src (.*)$", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE
    )
    kept = [
        path
        for path in (ROOT / "src" / "tilewright").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc", ".so", ".pyi"}
    ]
    assert {".css", ".js", ".html"} <= {path.suffix for path in kept}
    for path in kept:
        assert any(fnmatch(path.name, pattern) for pattern in in_wheel), path
        assert any(fnmatch(path.name, pattern) for pattern in line.split()), path


def test_every_base_dependency_is_imported_and_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [text.split(">")[0] for text in project["dependencies"]]
    explained = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text()
    sources = "\n".join(
        path.read_text() for path in (ROOT / "src" / "tilewright").rglob("*.py")
    )
    for name in names:
        module = name.removeprefix("apache-").replace("-", "_")
        assert f"import {module}" in sources or f"from {module}" in sources, name
        assert f"| {name} |" in explained


def test_the_settings_for_target_and_jobs_are_the_defaults_of_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[pipeline.CompileOptions] = []

    class Stop(Exception):  # noqa: N818 - not an error
        pass

    def note(source: object, options: pipeline.CompileOptions, progress: object) -> None:
        del source, progress
        seen.append(options)
        raise Stop

    monkeypatch.setattr(pipeline, "compile_model", note)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "x86_64-v2")
    monkeypatch.setenv("TILEWRIGHT_JOBS", "7")
    for given in ({}, {"target": "x86_64-v3", "jobs": 2}):
        with pytest.raises(Stop):
            model.compile(b"", **given)
    assert [options.jobs for options in seen] == [7, 2]
    assert [options.targets for options in seen] == [
        (Target.level("v2"),),
        (Target.level("v3"),),
    ]
