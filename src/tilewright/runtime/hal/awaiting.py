"""Lets asyncio wait for what the HAL signals from any thread.

Not here: what is waited for (`semaphore`, `fence`, `pending_call`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.base.fork_locks import LATE_IMPORTS

if TYPE_CHECKING:
    import asyncio

Reached = Callable[[BaseException | None], None]
"""Called once, when something is reached (None) or never will be (the error)."""

Watch = Callable[[Reached], Callable[[], None]]
"""Asks to be called; returns what takes the request back."""


def future_of(watch: Watch) -> asyncio.Future[None]:
    """A future of the running loop that is done when `watch` reports.

    Cancelling it takes the request back, so that nothing is left behind by waits with a timeout.
    Raises: RuntimeError where no loop is running.
    """
    with LATE_IMPORTS:
        import asyncio  # noqa: PLC0415 - 20 ms that only programs with a loop should pay

    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def reached(error: BaseException | None) -> None:
        with contextlib.suppress(
            RuntimeError
        ):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(settle, error)

    undo = watch(reached)

    def done(settled: asyncio.Future[None]) -> None:
        if settled.cancelled():
            undo()

    future.add_done_callback(done)
    return future
