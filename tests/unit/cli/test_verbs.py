"""What all verbs share: loaded on demand, explained, interrupted, errors in one form."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import click
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import tilewright as tw
from fakes.command_line import tilewright
from tilewright.base.version import VERSION
from tilewright.cli import VERBS, root

EVERY_VERB = pytest.mark.parametrize("verb", VERBS)


def command_of(verb: str) -> click.Command:
    found = root.get_command(click.Context(root), verb)
    assert found is not None
    return found


def test_help_lists_the_verbs_without_importing_them() -> None:
    script = (
        "import sys; from click.testing import CliRunner; from tilewright.cli import VERBS, root;"
        "print(CliRunner().invoke(root, ['--help']).output);"
        "print([verb for verb in VERBS if f'tilewright.cli.{verb}' in sys.modules]);"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *text, modules, has_numpy = done.stdout.splitlines()
    assert (modules, has_numpy) == ("[]", "False")
    assert all(any(line.split()[:1] == [verb] for line in text) for verb in VERBS)


@EVERY_VERB
def test_every_verb_says_what_it_does_and_shows_how(verb: str) -> None:
    result = CliRunner().invoke(root, [verb, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"  tilewright {verb} " in result.output
    assert command_of(verb).short_help == VERBS[verb]


@EVERY_VERB
def test_every_option_of_a_verb_is_explained(verb: str) -> None:
    for parameter in command_of(verb).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{verb} {parameter.opts[0]} has no help"
            assert parameter.help.strip().endswith((".", "…")), parameter.help


def test_the_version() -> None:
    assert tilewright("--version").out.strip() == f"tilewright, version {VERSION}"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["bensh"], "no verb is called 'bensh', did you mean 'bench'?"),
        (["soup"], "no verb is called 'soup', there are compile"),
        (["compile"], "Missing argument 'MODEL'"),
        (["bench", "m.vmfb", "--threads", "0"], "0 is not in the range x>=1"),
        (["inspect", __file__, "--output", "soup"], "'soup' is not one of"),
        (["run", "--nonsense"], "--nonsense"),
    ],
)
def test_a_call_that_makes_no_sense_exits_with_2(arguments: list[str], text: str) -> None:
    done = tilewright(*arguments)
    assert done.code == 2
    assert text in done.err


@pytest.mark.parametrize(
    "verb", ["bench", "compile", "coverage", "inspect", "profile", "run"]
)
def test_a_missing_file_is_one_line_and_exit_1_for_every_verb(
    verb: str, tmp_path: Path
) -> None:
    path = tmp_path / ("none.onnx" if verb in ("compile", "coverage") else "none.vmfb")
    done = tilewright(verb, path)
    assert done.code == 1
    assert done.err.lower().startswith(f"error: {path}: ")
    assert "no such file" in done.err.lower()
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["bench", "compare", "compile", "coverage", "report"])
def test_a_model_without_a_name_of_its_own_is_a_folder(verb: str) -> None:
    for path in (".", "/", ".."):
        done = tilewright(verb, path)
        assert (done.code, done.err) == (
            1,
            f"error: {path}: is a folder, expected a file\n",
        )


def test_errors_of_users_are_one_line_a_hint_and_exit_with_1(tmp_path: Path) -> None:
    path = tmp_path / "none.vmfb"
    done = tilewright("run", path)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"error: {path}: no such file\n"
    done = tilewright("run", tmp_path)
    assert (done.code, done.err) == (
        1,
        f"error: {tmp_path}: is a folder, expected a file\n",
    )
    done = tilewright("run")
    assert (
        done.err
        == "error: no model given\nhint: tilewright run model.vmfb --input=@x.npy\n"
    )
    done = tilewright("bench")
    assert done.err == "error: no model given\nhint: tilewright bench model.vmfb\n"


_HOSTILE: Final = "[/red]\x1b]0;owned\x07\u202e:smile:"


@pytest.fixture(scope="module")
def hostile_onnx(folder: Path) -> Path:
    """A model whose every name is markup and escape sequences."""
    name = _HOSTILE
    nodes = [
        helper.make_node("Exp", [f"{name}x"], [f"{name}t"], name=name),
        helper.make_node("Relu", [f"{name}t"], [f"{name}y"], name=f"{name}2"),
    ]
    value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[3])
    graph = helper.make_graph(nodes, name, [value(f"{name}x")], [value(f"{name}y")])
    opset = helper.make_opsetid("", 17)
    path = folder / "hostile.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "-o", "{folder}/o.vmfb", "--memory"],
        ["inspect"],
        ["inspect", "--output=plan"],
        ["coverage"],
        ["compare"],
        ["profile", "--no-limits", "--calls=1"],
        ["run", "--random", "-v"],
        ["run"],
        ["run", "--input=nothing=1"],
    ],
    ids=" ".join,
)
def test_names_of_a_model_are_neither_markup_nor_escape_sequences(
    words: list[str], hostile_onnx: Path, tmp_path: Path
) -> None:
    verb, *rest = (word.format(folder=tmp_path) for word in words)
    done = tilewright(verb, hostile_onnx, *rest)
    assert "Traceback" not in done.err
    assert not set(done.out + done.err) & set("\x1b\x07\u202e")


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "words",
    [
        ["compile", "-o", "{folder}/o.vmfb"],
        ["inspect"],
        ["inspect", "--output=plan"],
        ["coverage"],
        ["compare"],
        ["profile", "--no-limits", "--calls=1"],
        ["explain", "--calls=1"],
    ],
    ids=" ".join,
)
def test_a_line_end_in_a_name_of_a_model_ends_no_line(
    words: list[str], folder: Path, tmp_path: Path
) -> None:
    value = partial(
        helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=["n\nEND", 3]
    )
    name = "name\nEND"
    nodes = [helper.make_node("Exp", [f"x{name}"], [f"y{name}"], name=name)]
    graph = helper.make_graph(nodes, name, [value(f"x{name}")], [value(f"y{name}")])
    path = folder / "line_end.onnx"
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    verb, *rest = (word.format(folder=tmp_path) for word in words)
    done = tilewright(verb, path, *rest)
    assert done.code == 0
    assert "Traceback" not in done.err
    assert not [x for x in done.out.splitlines() if x.lstrip().startswith("END")]
    if verb == "coverage":
        shown = str(tw.coverage(path)).splitlines()
        assert not [x for x in shown if x.lstrip().startswith("END")]


def test_warnings_look_like_errors(host_onnx: Path, tmp_path: Path) -> None:
    done = tilewright("compile", host_onnx, "-o", tmp_path / "m.vmfb", "-q")
    assert done.code == 0
    assert "warning: " in done.err
    assert "op 'ngram_counts' has no kernel" in done.err


def interrupted(
    arguments: list[object],
    *,
    after: str,
    folder: Path,
    sent: signal.Signals = signal.SIGINT,
) -> tuple[int, str]:
    """Start a process, wait until the file `after` is there, send a signal; (exit code, stderr)."""
    (folder / "scratch").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
        env={
            **os.environ,
            "TILEWRIGHT_CACHE_DIR": str(folder / after),
            "TMPDIR": str(folder / "scratch"),
        },
    )
    stop = time.monotonic() + 30
    while process.poll() is None and not (folder / after).exists():
        assert time.monotonic() < stop
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(sent)
    try:
        _, err = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        pytest.fail(f"it goes on\n{err}")
    return process.returncode, err


@pytest.mark.slow
def test_ctrl_c_ends_a_benchmark(mlp_onnx: Path, tmp_path: Path) -> None:
    code, err = interrupted(
        ["bench", mlp_onnx, "--seconds", 60, "--no-limits"], after="cache", folder=tmp_path
    )
    assert code == 130, err
    assert "Traceback" not in err


@pytest.mark.slow
def test_ctrl_c_leaves_no_half_written_artifact(mlp_onnx: Path, tmp_path: Path) -> None:
    """Whenever it comes, the artifact is whole or not there; the process may have been faster."""
    path = tmp_path / "m.vmfb"
    code, err = interrupted(
        ["compile", mlp_onnx, "-o", path, "--levels=v2,v3,v4", "--target=x86_64"],
        after="cache",
        folder=tmp_path,
    )
    assert code in (0, 130, -signal.SIGINT), err
    assert "Traceback" not in err
    assert {p.name for p in tmp_path.iterdir()} <= {"cache", "scratch", "m.vmfb"}
    if path.exists():
        assert tilewright("inspect", path).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m.vmfb", "m.so"])
def test_a_request_to_end_leaves_no_more_than_ctrl_c(
    mlp_onnx: Path, tmp_path: Path, name: str
) -> None:
    code, err = interrupted(
        ["compile", mlp_onnx, "-o", tmp_path / name],
        after="cache",
        folder=tmp_path,
        sent=signal.SIGTERM,
    )
    assert code in (0, 143), err
    assert "Traceback" not in err
    assert {p.name for p in tmp_path.iterdir()} <= {"cache", "scratch", name}
    assert not list((tmp_path / "scratch").iterdir())


_SECOND_INTERRUPT: Final = """
import os, signal
from tilewright import cli

def echo(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)

def interrupted(*arguments, **options):
    raise {first}

cli.click.echo, cli.root = echo, interrupted
cli.main()
"""
_INTERRUPTED_IMPORT: Final = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{first}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["tilewright", "devices"]
runpy.run_module("tilewright", run_name="__main__")
"""


_TERMINATED: Final = """
import os, signal
from tilewright import cli

def terminated(*arguments, **options):
    try:
        os.kill(os.getpid(), number)
    finally:
        print("unwound")

cli.root = terminated
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("on_interrupt", ["default_int_handler", "SIG_IGN"])
def test_a_request_to_end_unwinds_what_a_verb_does(
    on_interrupt: str, number: signal.Signals
) -> None:
    done = subprocess.run(
        [sys.executable, "-c",
         f"import signal; signal.signal(signal.SIGINT, signal.{on_interrupt}); number = {int(number)}\n{_TERMINATED}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (128 + number, "unwound\n")
    assert done.stderr == "terminated\n"


_LEFT_ALONE: Final = """
import contextlib, os, signal, sys
from tilewright import cli

def left_alone(*arguments, **options):
    with contextlib.suppress(OSError):
        os.read(0, 1)
    try:
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        open(sys.argv[1], "w").close()
        os.write(2, b"what a progress bar leaves")

cli.root = left_alone
cli.main()
"""


def test_a_terminal_that_is_closed_takes_no_line_and_ends_a_verb_with_129(
    tmp_path: Path,
) -> None:
    ours, theirs = os.openpty()
    unwound = tmp_path / "unwound"
    with subprocess.Popen(
        [sys.executable, "-c", _LEFT_ALONE, str(unwound)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as verb:
        os.close(theirs)
        os.close(ours)
        assert verb.wait(60) == 129
    assert unwound.exists()


@pytest.mark.parametrize(
    ("script", "first"),
    [
        (_SECOND_INTERRUPT, "KeyboardInterrupt"),
        (_SECOND_INTERRUPT, "MemoryError"),
        (_INTERRUPTED_IMPORT, "tilewright.cli"),
        (_INTERRUPTED_IMPORT, "click"),
        (_INTERRUPTED_IMPORT, "tilewright.cli.devices"),
    ],
)
def test_ctrl_c_at_the_beginning_and_at_the_end_is_no_traceback(
    script: str, first: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script.format(first=first)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("first", ["click", "tilewright.cli"])
@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_signals_before_the_command_line_is_loaded_have_the_exit_codes_of_later(
    first: str, sent: str, code: int
) -> None:
    script = _INTERRUPTED_IMPORT.format(first=first).replace("SIGINT", sent)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, b"")


def test_ctrl_c_in_the_middle_of_a_text_that_is_executed_has_its_exit_code(
    tmp_path: Path,
) -> None:
    """Python takes such an interrupt for one that nobody answered, if it was started with `-m`."""
    (tmp_path / "verb.py").write_text(
        "from tilewright import cli\n"
        "def root(*arguments, **options): exec('raise KeyboardInterrupt')\n"
        "cli.root = root\n"
        "cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "verb"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (130, b"interrupted\n")


def test_what_a_verb_leaves_is_not_searched_for_garbage_at_the_end() -> None:
    """A compiled model is a million objects: the last look at them all took longer than the verb."""
    script = (
        "import atexit, gc, sys\n"
        "from tilewright.cli import main\n"
        "def left(): print('to be looked at:', len(gc.get_objects()))\n"
        "atexit.register(left)\n"
        "print('before:', len(gc.get_objects()) > 1000)\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = re.search(r"before: True\n.*\nto be looked at: (\d+)\n", done.stdout)
    assert found is not None
    assert int(found[1]) < 100


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(mlp_vmfb: Path) -> None:
    script = (
        f"{sys.executable} -m tilewright inspect {mlp_vmfb} --output=bytecode | head -n 1"
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_the_steps_of_a_compilation_are_said_on_request(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    silent = tilewright("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb")
    assert silent.err == ""
    done = tilewright("compile", mlp_onnx, "-q", "-v", "-o", tmp_path / "m.vmfb")
    assert "tilewright.compiler: generate code: " in done.err
    assert tilewright("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb").err == ""


def test_the_hint_of_a_driver_that_is_not_there_has_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CUDA_LIBRARY", "libnothing.so")
    done = tilewright("devices")
    assert "\\n" not in done.out
    assert [x for x in done.out.splitlines() if x.strip().startswith("hint: ")]


def test_devices_are_listed_as_json() -> None:
    found = json.loads(tilewright("devices", "--json").out)
    assert {device["driver"] for device in found["devices"]} >= {"local-task", "local-sync"}
    assert found["target"].startswith(found["arch"])
