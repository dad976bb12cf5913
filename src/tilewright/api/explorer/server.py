"""Shows pages to the browser of this machine, over HTTP on the loopback interface.

Nothing but GET is answered, and only to who names this machine as the host: pages of other places could
send a browser here.  Called by `tilewright explore`.

Source: RFC 9110, sections 7.2 (Host) and 15 (status codes).
"""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import Final, final

from tilewright.api.explorer.explorer import Explorer
from tilewright.api.http_server import HttpHandler, HttpServer
from tilewright.api.same_host import is_for_this_host
from tilewright.base.errors import TilewrightError
from tilewright.base.log import Log

_HOST: Final = "127.0.0.1"
_NAMES: Final = (_HOST, "localhost")
_LOG: Final = Log("explorer")


@final
class ExplorerServer(HttpServer):
    """Listens on the loopback interface; `serve_forever` answers until `shutdown`.

    Args:
        explorer: makes the pages.
        port: 0 for any that is free (`server_port` says which).

    Raises: UserError where the port is taken.
    """

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        self.explorer: Final[Explorer] = explorer
        super().__init__(_HOST, port, _Handler, _LOG)

    @property
    def address(self) -> str:
        """Where the first page is."""
        return f"http://{_HOST}:{self.server_port}/"


@final
class _Handler(HttpHandler):
    """One connection."""

    def get(self) -> None:
        """Answer with the page that the query asks for."""
        assert isinstance(self.server, ExplorerServer), "made by it"
        path, _, query = self.path.partition("?")
        if not is_for_this_host(self.headers, _NAMES):
            self._send(
                HTTPStatus.FORBIDDEN,
                "this server is for the browser of its machine",
                "plain",
            )
        elif path != "/":
            self._send(HTTPStatus.NOT_FOUND, "there is one page: /", "plain")
        else:
            try:
                self._send(HTTPStatus.OK, self.server.explorer.page(query), "html")
            except TilewrightError as error:
                self._send(HTTPStatus.BAD_REQUEST, str(error), "plain")

    def answer_failure(self, problem: str) -> None:
        """Say what went wrong."""
        self._send(HTTPStatus.INTERNAL_SERVER_ERROR, problem, "plain")

    def _send(self, status: HTTPStatus, text: str, kind: str) -> None:
        content = text.encode(errors="replace")
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)
