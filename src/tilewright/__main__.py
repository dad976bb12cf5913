"""The command line: `tilewright`, and `python -m tilewright`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run a verb.  Until the command line can answer Ctrl-C, the system does: it ends the process."""
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
    main()
