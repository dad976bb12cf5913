"""Calls that begin now and end later: futures, asyncio, and a service that never blocks its loop.

    python examples/08_async_calls.py

A session may be called from any thread.  `begin` hands the call to a thread of the session and
returns at once; `async_call` is the same for asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

import tilewright as tw
from small_models import encoder_layer


async def serve(session: tw.Session, requests: list[np.ndarray]) -> Sequence[object]:
    """Answer all requests; meanwhile the loop keeps ticking."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    clock = asyncio.create_task(tick())
    answers = await asyncio.gather(*(session.async_call(x) for x in requests))
    clock.cancel()
    print(f"  the loop went on meanwhile: {ticks > 0}")
    return answers


def main() -> None:
    """Begin calls, wait for them in three ways, and see a failure arrive."""
    model = tw.compile(encoder_layer())
    session = model.session
    random = np.random.default_rng(3)
    requests = [random.standard_normal((2, 8, 64), np.float32) for _ in range(12)]
    expected = [session(x) for x in requests]

    def equal(answers: Sequence[object]) -> bool:
        return all(
            bool(np.all(np.asarray(a) == e)) for a, e in zip(answers, expected, strict=True)
        )

    calls = [session.begin(x) for x in requests]
    print(f"futures: {equal([call.result() for call in calls])}")
    print(f"asyncio: {equal(asyncio.run(serve(session, requests)))}")

    wrong = session.begin(np.zeros((1, 2), np.float32))
    try:
        wrong.result(timeout=10)
    except tw.InputError as error:
        print(f"a failure arrives where the result is asked for: {error.location}")


if __name__ == "__main__":
    main()
