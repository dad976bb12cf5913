"""What files are called as, and that what a hint names is there."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.base import file_kinds
from tilewright.base.file_kinds import is_artifact_name, kind_of
from tilewright.cli import VERBS
from tilewright.cli.library_model import is_library
from tilewright.cli.model_options import MODEL_SUFFIXES
from tilewright.compiler.packaging.weights_file import FORMATS
from tilewright.runtime.library.forms import FORMS


@pytest.mark.parametrize(
    "suffix", sorted({*MODEL_SUFFIXES, *FORMATS, *FORMS} - {"", ".exe"})
)
def test_every_suffix_that_something_reads_or_writes_is_known(suffix: str) -> None:
    assert kind_of(f"net{suffix}") is not None
    assert kind_of(Path("a") / f"NET{suffix.upper()}") == kind_of(f"net{suffix}")


def test_run_and_inspect_take_what_hints_send_to_them() -> None:
    for suffix, kind in file_kinds._KINDS.items():
        assert is_library(f"net{suffix}") == ("tilewright run calls it" in kind.remedy)
    assert not is_library("net")


def test_others_are_not() -> None:
    assert [kind_of(name) for name in ("net", "net.txt", ".onnx", "net.vmfb.old")] == [
        None
    ] * 4


def test_artifacts_are_known_in_capitals() -> None:
    for name in ("net.vmfb", "NET.VMFB", Path("a") / "net.Vmfb"):
        assert is_artifact_name(name)
    for name in ("net", "vmfb", "net.onnx", "net.vmfb.old"):
        assert not is_artifact_name(name)


def test_functions_and_verbs_of_the_hints_are_there() -> None:
    named, verbs = set[str](), set[str]()
    for kind in file_kinds._KINDS.values():
        named |= set(re.findall(r"tilewright\.([\w.]*\w)", kind.remedy))
        verbs |= set(re.findall(r"tilewright (\w+)", kind.remedy))
    assert {"load", "compile", "runtime.load_module"} <= named
    for name in named:
        assert callable(reduce(getattr, name.split("."), tw)), name
    assert verbs <= set(VERBS)
