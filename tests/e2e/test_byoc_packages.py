"""Code generators and loaders that installed packages offer: found by name, imported for nothing else."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from fakes.command_line import tilewright
from fakes.installed_package import install
from fakes.relu_package import KIND, NAME, SOURCE, install_relu
from tilewright import byoc
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.formats.artifact import BILL_ATTRIBUTE, PROVENANCE_ATTRIBUTE
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.library.load import load_module

WORDS = ("--input=x=1x3xf32=1 -2 3", "--input=scale=3xf32=1 2 3")
RESULT = "1x3xf32=[2 0 10]"
DOUBLED = "1x3xf32=[4 0 20]"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on `sys.path`, where packages are installed."""
    path = tmp_path / "site"
    monkeypatch.syspath_prepend(str(path))
    yield path
    sys.modules.pop(NAME, None)
    with contextlib.suppress(UserError):
        byoc.remove_codegen(NAME)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_models.save(small_models.scale_and_shift(), tmp_path / "model.onnx")


def test_the_generator_of_a_package_is_chosen_by_name(site: Path, model: Path) -> None:
    install_relu(site)
    assert NAME in byoc.known_codegens()
    assert [row.package for row in byoc.installed_codegens()] == [f"{NAME} 1.0"]
    assert NAME not in sys.modules
    compiled = tw.compile(model, byoc=[NAME])
    assert [module.kind for module in compiled.compiled.modules] == [KIND]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".so", ".tar", ".vmfb"])
def test_the_command_line_compiles_with_it_and_another_process_runs_the_file(
    site: Path, model: Path, suffix: str
) -> None:
    install_relu(site)
    path = model.with_suffix(suffix)
    done = tilewright(
        "compile",
        model,
        "-q",
        "-o",
        path,
        f"--byoc={NAME}",
        f"--byoc-option={NAME}.factor=2",
    )
    assert done.err == ""
    assert DOUBLED in _run_elsewhere(site, path)


def _run_elsewhere(site: Path, path: Path) -> str:
    """What `run` prints in a process that nobody registered anything in."""
    program = "import sys; sys.path.insert(0, sys.argv.pop(1))\nfrom tilewright.cli import main; main()"
    words = [sys.executable, "-c", program, str(site), "run", str(path), *WORDS]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr


def test_run_compiles_with_it(site: Path, model: Path) -> None:
    install_relu(site)
    words = (f"--byoc={NAME}", f"--byoc-option={NAME}.factor=2")
    assert DOUBLED in tilewright("run", model, *WORDS, *words).out
    assert DOUBLED in tilewright("run", model, *WORDS, *words, "--engine=vm").out
    assert RESULT in tilewright("run", model, *WORDS).out


def test_compare_takes_it(site: Path, model: Path) -> None:
    install_relu(site)
    words = ("compare", model, "oracle", "--dim", "batch=2", f"--byoc={NAME}")
    assert tilewright(*words).code == 0
    assert tilewright(*words, f"--byoc-option={NAME}.factor=2").code == 1


def test_a_module_that_is_not_installed_is_imported_by_name(
    site: Path, model: Path
) -> None:
    site.mkdir()
    (site / f"{NAME}.py").write_text(SOURCE + "\nregister()\n")
    path = model.with_suffix(".vmfb")
    words = (f"--byoc={NAME}", f"--byoc-module={NAME}")
    assert tilewright("compile", model, "-q", "-o", path, *words).code == 0
    assert "no loader for modules of kind" in tilewright("run", path, *WORDS).err
    (site / f"{NAME}.py").write_text(
        SOURCE + f"\nbyoc.register_module_kind('{KIND}', load)\n"
    )
    sys.modules.pop(NAME, None)
    try:
        done = tilewright("run", path, *WORDS, f"--byoc-module={NAME}")
        assert RESULT in done.out
    finally:
        byoc.remove_module_kind(KIND)


def test_what_an_artifact_says_of_itself_has_the_modules_and_their_options(
    site: Path, model: Path
) -> None:
    install_relu(site)
    path = model.with_suffix(".vmfb")
    tw.compile(model, byoc={NAME: {"factor": 2.0}}).save(path)
    attributes = read_archive(path.read_bytes()).attributes
    bill, said = (json.loads(attributes[n]) for n in (BILL_ATTRIBUTE, PROVENANCE_ATTRIBUTE))
    names = [row["name"] for row in bill["components"]]
    assert f"module 0 of kind '{KIND}'" in names
    options = said["predicate"]["buildDefinition"]["externalParameters"]
    assert options["byoc"] == {NAME: {"factor": "2.0"}}


@pytest.mark.slow
def test_inspect_lists_the_modules_of_a_library_that_a_module_registers(
    site: Path, model: Path
) -> None:
    site.mkdir()
    path = model.with_suffix(".so")
    (site / f"{NAME}.py").write_text(SOURCE + "\nregister()\n")
    words = (f"--byoc={NAME}", f"--byoc-module={NAME}")
    assert tilewright("compile", model, "-q", "-o", path, *words).err == ""
    assert (
        f"module of kind '{KIND}', which nobody registered"
        in tilewright("inspect", path).err
    )
    (site / f"{NAME}.py").write_text(
        SOURCE + f"\nbyoc.register_module_kind('{KIND}', load)\n"
    )
    sys.modules.pop(NAME, None)
    try:
        done = tilewright("inspect", path, f"--byoc-module={NAME}")
        assert f"module of kind '{KIND}'" in done.out
    finally:
        byoc.remove_module_kind(KIND)


# --- nothing else is imported ----------------------------------------------------------------------


def test_a_file_imports_a_loader_for_exactly_its_kind_and_nothing_else(
    site: Path, model: Path, tmp_path: Path
) -> None:
    install_relu(site)
    mark = tmp_path / "imported"
    path = model.with_suffix(".vmfb")
    tw.compile(model, byoc=[NAME]).save(path)
    sys.modules.pop(NAME, None)
    (site / f"{NAME}-1.0.dist-info" / "entry_points.txt").write_text(
        f"[tilewright.module_kinds]\n{KIND}x = {NAME}:load\n{NAME} = {NAME}\n"
        f"[tilewright.byoc]\n{KIND} = {NAME}:load\n"
    )
    (site / f"{NAME}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    with pytest.raises(ArchiveError, match=f"no loader for modules of kind '{KIND}'"):
        tw.load(path)(np.ones((1, 3), "f"), np.ones(3, "f"))
    assert not mark.exists()
    assert NAME not in sys.modules


@pytest.mark.slow
def test_a_kind_that_is_the_name_of_a_python_module_imports_nothing(
    site: Path, tmp_path: Path
) -> None:
    site.mkdir()
    (site / f"{NAME}.py").write_text("raise SystemExit('imported')\n")

    class Named(byoc.Module):
        kind = NAME
        properties = byoc.ModuleProperties.BINARY_SERIALIZABLE

        def save_to_bytes(self) -> bytes:
            return b"-"

    root = tw.build(small_models.mlp()).module
    root.import_module(Named())
    root.export_library(tmp_path / "net.so")
    with pytest.raises(InputError, match=f"module of kind '{NAME}'") as caught:
        load_module(tmp_path / "net.so")
    assert f"register_module_kind('{NAME}', load)" in str(caught.value)
    assert f"offers '{NAME}' in 'tilewright.module_kinds'" in str(caught.value)


def test_a_stranger_s_file_imports_no_loader(site: Path, model: Path) -> None:
    install_relu(site)
    path = model.with_suffix(".vmfb")
    tw.compile(model, byoc=[NAME]).save(path)
    sys.modules.pop(NAME, None)
    with pytest.raises(tw.TilewrightError):
        tw.load(path, untrusted=True)(np.ones((1, 3), "f"), np.ones(3, "f"))
    assert NAME not in sys.modules


def test_listing_imports_nothing(site: Path) -> None:
    install_relu(site, "raise SystemExit('imported')")
    printed = tilewright("devices").out
    assert f"{NAME} 1.0" in printed
    assert KIND in tilewright("devices", "--json").out


# --- what is broken is named -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "import no_such_package",
            "ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("def register(): 1 / 0", "ZeroDivisionError: division by zero"),
        ("def register(): pass", f"does not register the code generator '{NAME}'"),
    ],
)
def test_a_broken_generator_names_its_package(
    site: Path, model: Path, source: str, text: str
) -> None:
    install_relu(site, source)
    done = tilewright("compile", model, f"--byoc={NAME}")
    assert done.code == 1
    assert f"package {NAME} 1.0, entry point '{NAME}' of 'tilewright.byoc'" in done.err
    assert text in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import no_such_package", "ModuleNotFoundError"),
        ("load = 3", "is a int, expected a function"),
    ],
)
def test_a_broken_loader_names_its_package(
    site: Path, model: Path, source: str, text: str
) -> None:
    install_relu(site)
    path = model.with_suffix(".vmfb")
    tw.compile(model, byoc=[NAME]).save(path)
    sys.modules.pop(NAME, None)
    (site / f"{NAME}.py").write_text(source)
    with pytest.raises(
        UserError, match=f"package {NAME} 1.0, entry point '{KIND}'"
    ) as caught:
        tw.load(path)(np.ones((1, 3), "f"), np.ones(3, "f"))
    assert text in str(caught.value)


def test_two_packages_with_one_name_are_both_named(site: Path, model: Path) -> None:
    install_relu(site)
    install(site, "another", "", {"tilewright.byoc": {NAME: "another"}})
    with pytest.raises(UserError, match=f"another 1.0 and {NAME} 1.0"):
        tw.compile(model, byoc=[NAME])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--byoc=nobody",), "there is no code generator 'nobody'"),
        (("--byoc-option=a.b=c",), "'a' takes no part"),
        (("--byoc-option=a",), "expected NAME.KEY=VALUE"),
        (("--byoc-module=no_such_module",), "'no_such_module' cannot be imported"),
        (("--byoc-module=",), "cannot be imported"),
    ],
)
def test_what_makes_no_sense_is_said(
    model: Path, words: tuple[str, ...], text: str
) -> None:
    for verb in ("compile", "run"):
        done = tilewright(verb, model, *words)
        assert done.code == 1
        assert text in " ".join(done.err.split())


@pytest.mark.slow
def test_an_artifact_takes_no_generator(site: Path, model: Path) -> None:
    path = model.with_suffix(".vmfb")
    assert tilewright("compile", model, "-q").code == 0
    done = tilewright("run", path, *WORDS, f"--byoc={NAME}")
    assert "is an artifact, code generators take part when a model is compiled" in done.err
    path = model.with_suffix(".so")
    assert tilewright("compile", model, "-q", "-o", path).code == 0
    done = tilewright("run", path, *WORDS, f"--byoc={NAME}")
    assert "is a library, code generators" in done.err
