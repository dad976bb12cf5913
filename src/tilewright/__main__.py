"""The command line: `tilewright`, and `python -m tilewright`."""

from __future__ import annotations

import os  # there already, as `sys` is: what is not might come from the current folder
import sys


def _forget_current_folder(path: list[str], package: str) -> None:
    """Take off the folder that `-m` puts first: a module `http` beside a stranger's model is not Python's own.

    The command `tilewright` does not look there either.  It stays where it is the one that this package was found in.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 - pathlib would be looked for in that folder
    except OSError:  # it was removed: nothing is imported from it
        return
    home = os.path.dirname(os.path.dirname(package))  # noqa: PTH120
    if path and path[0] in ("", here) and os.path.realpath(home) != os.path.realpath(here):
        del path[0]


def main() -> None:
    """Run a verb.  Until the command line can answer Ctrl-C and SIGTERM, they end the process at once."""
    import signal  # not from the current folder

    system = {
        number: answer
        for number in (signal.SIGINT, signal.SIGTERM)
        # Not ignored, as a shell may have it.
        if (answer := signal.getsignal(number))
        in (signal.default_int_handler, signal.SIG_DFL)
    }
    for number in system:
        signal.signal(number, _leave)
    from tilewright.cli import main as run  # start-up: a signal may come while it loads

    for number, answer in system.items():
        signal.signal(number, answer)
    run()


def _leave(number: int, frame: object) -> None:
    """End with the exit code of later: nothing is begun, and what is half loaded may fail in any way."""
    del frame
    os._exit(128 + number)


if __name__ == "__main__":
    _forget_current_folder(sys.path, __file__)
    main()
