"""What is run and how it is loaded: the same options for every verb that runs something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.command_line import tilewright
from tilewright.base.errors import InputError, UserError
from tilewright.cli.model_options import MODEL_SUFFIXES, ModelOptions, is_model
from tilewright.compiler.frontends.door import FRONT_ENDS

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"
LIBRARY, CALLER, TOP = (
    ARCHIVES / f"iree-3.13.0-{name}_vmvx.vmfb" for name in ("library", "caller", "top")
)
MODULES = tuple(f"--module={path}" for path in (LIBRARY, CALLER, TOP))


def test_what_counts_as_a_model_is_what_front_ends_read() -> None:
    assert {s for f in FRONT_ENDS for s in f.suffixes} == set(MODEL_SUFFIXES)
    assert is_model("a/Model.ONNX")
    assert not is_model("model.vmfb")


def test_a_library_is_not_taken_for_a_model(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    path.write_bytes(b"\x7fELF")
    done = tilewright("bench", path)
    assert done.code == 1
    assert "net.so: is a library, expected a model or a .vmfb of it" in done.err
    assert "tilewright run calls libraries" in done.err


def test_the_last_module_is_run_unless_a_model_is_named() -> None:
    three = ModelOptions(modules=("a", "b", "c"))
    assert (three.path, three.libraries) == ("c", ("a", "b"))
    named = ModelOptions(model="m", modules=("a", "b"))
    assert (named.path, named.libraries) == ("m", ("a", "b"))
    with pytest.raises(UserError, match="no model given"):
        _ = ModelOptions().path


def test_every_file_must_be_there(tmp_path: Path) -> None:
    for options in (
        ModelOptions(model=str(tmp_path / "none")),
        ModelOptions(model=str(LIBRARY), modules=(str(tmp_path / "none"),)),
    ):
        with pytest.raises(InputError, match="none: no such file"):
            options.open()


@pytest.mark.parametrize("bytecode", ["translate", "interpret"])
def test_modules_are_loaded_in_order(bytecode: str) -> None:
    done = tilewright(
        "run", *MODULES, f"--bytecode={bytecode}", "--function=main", "--input=3xf32=1 2 3",
        "--expected_output=3xf32=6 42 156", "--expected_output=1xi32=2",
    )  # fmt: skip
    assert done.code == 0, done.err
    named = tilewright(
        "run", CALLER, f"--module={LIBRARY}", "--function=run", "--input=2xf32=1 3",
        "--expected_output=2xf32=2 12",
    )  # fmt: skip
    assert named.code == 0, named.err
    wrong = tilewright("run", *reversed(MODULES), "--function=square", "--input=2xf32=1")
    assert wrong.code == 1
    assert "module 'library' is missing" in wrong.err


def test_a_function_of_a_library_is_named_with_it() -> None:
    done = tilewright(
        "run", *MODULES, "--function=library.square", "--input=2xf32=3 4",
        "--expected_output=2xf32=9 16",
    )  # fmt: skip
    assert done.code == 0, done.err


def test_several_modules_are_measured_and_profiled() -> None:
    options = (*MODULES, "--function=main", "--input=3xf32=1", "--threads=1")
    done = tilewright("bench", *options, "--repeat=2", "--no-limits", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["model"] == str(TOP)
    assert sum(kernel["calls"] for kernel in report["kernels"]) == 5
    done = tilewright("profile", *options, "--calls=2", "--no-limits", "--format=json")
    assert done.code == 0, done.err
    assert sum(kernel["calls"] for kernel in json.loads(done.out)) == 5


@pytest.mark.parametrize("verb", ["run", "bench", "profile"])
def test_every_verb_takes_every_option(verb: str, mlp_vmfb: Path) -> None:
    few = {
        "run": (),
        "bench": ("--repeat=1", "--no-limits"),
        "profile": ("--calls=1", "--no-limits"),
    }
    for options in (
        ("--engine=plan",),
        ("--engine=vm", "--device=local-sync"),
        ("--bytecode=interpret", "--function=main"),
        (f"--module={LIBRARY}",),
    ):
        done = tilewright(
            verb, mlp_vmfb, *options, *few[verb], "--input=5x20xf32=1", "--threads=1"
        )
        assert done.code == 0, done.err
    refused = tilewright(verb, mlp_vmfb, "--untrusted", "--input=5x20xf32=1")
    assert refused.code == 1
    assert "not trusted" in refused.err
    both = tilewright(verb, mlp_vmfb, "--engine=plan", "--bytecode=translate")
    assert "a plan runs no bytecode" in both.err


def test_models_that_are_compiled_take_the_options_too(mlp_onnx: Path) -> None:
    for options in ((), ("--bytecode=interpret",), (f"--module={LIBRARY}",)):
        done = tilewright("run", mlp_onnx, *options, "--random")
        assert done.code == 0, done.err
        assert "5x7xf32=" in done.out
    only = tilewright("run", f"--module={mlp_onnx}", "--random")
    assert only.code == 0, only.err
    refused = tilewright("run", mlp_onnx, "--parameters=x.irpa", "--random")
    assert "parameters belong to a .vmfb" in refused.err
