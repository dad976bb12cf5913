"""The command line: one verb per file, loaded when it is asked for.

`tilewright --help` lists the verbs without importing any of them.  Errors of users are printed
as `error: …` with exit code 1 (and a traceback if `TILEWRIGHT_DEBUG` is set); Ctrl-C exits with
130, SIGTERM with 143, a terminal that is closed (SIGHUP) with 129, and none leaves anything half-written.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import logging
import os
import signal
import sys
import warnings
from typing import Final, TextIO, cast, final

import click

from tilewright.base import knobs
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import TilewrightError
from tilewright.base.interrupts import (
    INTERRUPTED,
    answer_termination,
    answered,
    exit_code,
    is_terminated,
    keep_interrupts,
    leave_termination,
)
from tilewright.base.text import abridged, did_you_mean, printable
from tilewright.base.version import VERSION
from tilewright.cli.option_groups import GroupedOption, OptionGroup
from tilewright.cli.streams import discard_output, has_lost_its_reader, prepare_streams

# verb -> what `--help` says about it; the function of the same name lives in `cli/<verb>.py`.
VERBS: Final = {
    "compile": "Compile a model to an archive, a library, or a program.",
    "tune": "Search faster schedules by running kernels; compile uses them.",
    "run": "Run an artifact or a model on given inputs.",
    "generate": "Let a language model go on with a text, or answer.",
    "serve": "Serve a language model over HTTP, with OpenAI's interface.",
    "bench": "Measure latency, GFLOP/s and every kernel.",
    "profile": "Time every command of a call; write a trace for Perfetto.",
    "explain": "Say why a model is slow, kernel by kernel, and what would help.",
    "report": "Write a page with the graph, its times, memory and code.",
    "explore": "Show a page that compiles and calls a model as you ask it to.",
    "inspect": "Look into an artifact at any level.",
    "compare": "Run a model in two ways; name the first node that differs.",
    "coverage": "Say how a model will run, operator by operator, before compiling it.",
    "quantize": "Store the weights of a model in 4 or 8 bits.",
    "devices": "List the devices and what they can do.",
    "sign": "Sign an artifact, or any file, with a private key.",
    "keygen": "Make a key to sign with.",
    "cache": "Show or clear what earlier compilations left.",
    "completion": "Print what lets a shell complete verbs, options and files.",
}


_FULL: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@final
class _Lines(logging.Formatter):
    """Records as lines that a terminal can take."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(abridged(super().format(record)))


def _log_to_stderr(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
    """Show what the logger `tilewright` is told: steps with -v, all with -vv."""
    del parameter
    if not value or ctx.resilient_parsing:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(name)s: %(message)s"))
    logger = logging.getLogger("tilewright")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if value == 1 else logging.DEBUG)

    def stop() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    ctx.call_on_close(stop)


_VERBOSE: Final = GroupedOption(
    ["-v", "--verbose"],
    group=OptionGroup.GENERAL,
    count=True,
    expose_value=False,
    callback=_log_to_stderr,
    help="Say what is done, step by step; -vv says more.",
)


@final
class _Verbs(click.Group):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"tilewright.cli.{cmd_name}")
        command = cast("click.Command", module.command)
        if not any(parameter.name == _VERBOSE.name for parameter in command.params):
            command.params.append(_VERBOSE)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_asked_for = not ctx.resilient_parsing  # else a shell looks for completions
        if is_asked_for and args[0] not in VERBS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], VERBS) or f"there are {', '.join(VERBS)}"
            ctx.fail(f"no verb is called '{args[0]}', {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="VERB ...",
    epilog="""\b
Begin with:
  tilewright coverage model.onnx                  will it run, and how
  tilewright compile model.onnx -o model.vmfb
  tilewright run model.vmfb --random
  tilewright VERB --help                          options and examples""",
)
@click.version_option(VERSION, prog_name="tilewright")
@click.option(
    "--flagfile",
    metavar="FILE",
    expose_value=False,  # replaced before the line is parsed
    help="Options from a file, one per line; may stand anywhere.",
)
def root() -> None:
    """Compile ML models to machine code and run them."""


def main() -> None:
    """The entry point of the `tilewright` command."""
    keep_interrupts()
    answer_termination()
    # Python looks for garbage at the end, too: after a compilation for a second, in which the system frees all anyway.
    atexit.register(gc.freeze)
    try:
        prepare_streams()
        code = _run()
        _end_at_signals()
    except KeyboardInterrupt:  # once more, while the first was answered
        _end_at_signals()
        code = INTERRUPTED
    except OSError:  # nobody hears what is said of the end
        if not is_terminated():
            raise
        discard_output()
        code = INTERRUPTED
    # Whatever a request to end came out as: a terminal that is gone takes no line.
    if code == INTERRUPTED or (code and is_terminated()):
        # Python ends `python -m` by the signal where an interrupt left the text of an `exec`, also one that was answered,
        # unless another text has run since.
        exec("")
        code = exit_code()
    sys.exit(code)


def _end_at_signals() -> None:
    """Let the system end the process at Ctrl-C, SIGTERM and SIGHUP: nothing is half-written any more.

    Python's own leaving (joining threads, atexit) answers them with a traceback.
    """
    answered()
    leave_termination()
    if (
        signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    ):  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run() -> int:
    """Run the verb; the exit code."""
    warnings.showwarning = _show_warning
    for variable in knobs.unknown_variables():
        _say("warning:", "yellow", f"no setting is called {variable}")
    try:
        # What a verb passes to `Exit` comes back as a number.
        words = _expanded(sys.argv[1:])
        done = root(words, prog_name="tilewright", standalone_mode=False)
        sys.stdout.flush()
        return cast("int | None", done) or 0
    except click.exceptions.Abort:  # what click makes of an interrupt
        answered()
        return INTERRUPTED
    except (
        SystemExit
    ) as left:  # click's own answer to a shell that completes, and to a closed pipe
        if left.code == 0:
            return 0
        return _failure_of_system(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TilewrightError as error:
        if knobs.DEBUG.get():
            raise
        _say("error:", "red", str(error))
        for line in getattr(error, "__notes__", ()):
            click.echo(printable(abridged(line)), err=True)
        return 1
    except KeyboardInterrupt:
        _end_at_signals()
        with contextlib.suppress(OSError):  # the terminal may be gone
            click.echo("terminated" if is_terminated() else "interrupted", err=True)
        return INTERRUPTED
    except (MemoryError, OSError) as error:
        if knobs.DEBUG.get():
            raise
        return _failure_of_system(error)


def _failure_of_system(error: MemoryError | OSError) -> int:
    """Say that a disk is full, memory is short, a folder is not there; nothing if a pipe was closed."""
    is_wanted = not (isinstance(error, BrokenPipeError) and has_lost_its_reader())
    discard_output()
    if not is_wanted:
        return 0
    if isinstance(error, MemoryError):
        text = f"not enough memory: {str(error) or 'an allocation failed'}"
    else:
        from tilewright.base.host_thread import NO_FILES, room_hint

        # Files are written through `output_file`, which names them: what is full and has no name is this.
        place = error.filename or ("standard output" if error.errno in _FULL else None)
        where = "" if place is None else f"{place}: "
        text = f"{where}{error.strerror or error}"
        if error.errno in NO_FILES:
            text += f"\nhint: {room_hint(error)}"
    _say("error:", "red", text)
    return 1


def _expanded(words: list[str]) -> list[str]:
    """The command line with flag files read, where it names any."""
    if not any(word.startswith("--flagfile") for word in words):
        return words
    from tilewright.cli.flagfile import expand_flagfiles

    return expand_flagfiles(words)


def _say(word: str, colour: str, text: str) -> None:
    click.echo(
        f"{click.style(word, fg=colour, bold=True)} {printable(abridged(text))}", err=True
    )


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings of ours in the form of errors; others as Python shows them."""
    if issubclass(category, TilewrightWarning):
        _say("warning:", "yellow", str(message))
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (file or sys.stderr).write(text)
