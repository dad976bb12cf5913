"""A real browser without a window, for tests that look at a page as its reader does.

Chromium is driven through its DevTools protocol over a pipe, which needs no package.  Pages come from
files; nothing else may be loaded, and what a page tried to load or complained about is kept.

Source: Chrome DevTools Protocol, `--remote-debugging-pipe` (messages end with a zero byte).
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip


def browser_path() -> str | None:
    """Where a browser is; None without one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """One page in a browser of its own.

    Attributes:
        complaints: errors and warnings of its console, and exceptions that nobody caught.
        requests: addresses that it asked for, its own excepted.
    """

    def __init__(
        self, path: Path, folder: Path, *, size: tuple[int, int] = (1400, 1000)
    ) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._numbers = itertools.count(1)
        self._path: Path = path
        self._buffer = b""
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        program = browser_path()
        assert program is not None
        command = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", command, "browser", program, *_OPTIONS,
             f"--user-data-dir={folder / 'profile'}", f"--window-size={size[0]},{size[1]}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self._address = path.resolve().as_uri()
        self._loaded = False
        self._ask("Page.navigate", url=self._address)
        while not self._loaded:
            self._hear(self._read())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def run(self, script: str) -> Any:
        """The value of an expression, awaited.  Raises: AssertionError if it throws."""
        answer = self._ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def prefer(self, scheme: str) -> None:
        """Have the reader like `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._ask("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._hear(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _hear(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                self.complaints.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.complaints.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                address = parameters["request"]["url"]
                if address != self._address and not address.startswith("data:"):
                    self.requests.append(address)
            case _:
                pass
