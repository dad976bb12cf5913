"""The command line: `tilewright`, and `python -m tilewright`."""

from __future__ import annotations

import sys


def _forget_current_folder(path: list[str], package: str) -> None:
    """Take off the folder that `-m` puts first: a module `http` beside a stranger's model is not Python's own.

    The command `tilewright` does not look there either.  It stays where it is the one that this package was found in.
    """
    import os  # there already, by Python's own start

    try:
        here = os.getcwd()  # noqa: PTH109 - pathlib would be looked for in that folder
    except OSError:  # it was removed: nothing is imported from it
        return
    home = os.path.dirname(os.path.dirname(package))  # noqa: PTH120
    if path and path[0] in ("", here) and os.path.realpath(home) != os.path.realpath(here):
        del path[0]


def main() -> None:
    """Run a verb.  Until the command line can answer Ctrl-C, the system does: it ends the process."""
    import signal  # not from the current folder

    on_interrupt = signal.getsignal(signal.SIGINT)
    is_ours = (
        on_interrupt is signal.default_int_handler
    )  # not ignored, as a shell may have it
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tilewright.cli import main as run  # start-up: Ctrl-C may come while it loads

    if is_ours:
        signal.signal(signal.SIGINT, on_interrupt)
    run()


if __name__ == "__main__":
    _forget_current_folder(sys.path, __file__)
    main()
