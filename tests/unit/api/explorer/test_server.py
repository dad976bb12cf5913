"""Pages over HTTP, for the browser of this machine alone."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from fakes.small_models import mlp, save
from tilewright.api.explorer import Explorer, ExplorerServer
from tilewright.base.errors import UserError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplorerServer]:
    path = save(mlp("batch"), tmp_path_factory.mktemp("server") / "mlp.onnx")
    with ExplorerServer(Explorer(path, threads=1, calls=1)) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: ExplorerServer,
    path: str,
    method: str = "GET",
    host: str | None = None,
    site: str | None = None,
) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    given = {"Host": host, "Sec-Fetch-Site": site}
    headers = {name: value for name, value in given.items() if value is not None}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.headers.get("Content-Type", ""), answer.read().decode()
    connection.close()
    return found


@pytest.mark.slow
def test_the_address_shows_the_page(server: ExplorerServer) -> None:
    assert server.address == f"http://127.0.0.1:{server.server_port}/"
    status, kind, page = ask(server, "/?dim.batch=4")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert "batch = 4" in page


def test_what_cannot_be_asked_for_is_refused_as_plain_text(server: ExplorerServer) -> None:
    status, kind, text = ask(server, "/?opt_level=%3Cscript%3E")
    assert (status, kind) == (400, "text/plain; charset=utf-8")
    assert "opt_level is '<script>', expected 0 1 2" in text
    assert ask(server, "/etc/passwd")[0] == 404
    assert ask(server, "/", "POST")[0] == 501


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil:1"]
)
def test_pages_of_other_places_get_nothing(server: ExplorerServer, host: str) -> None:
    assert ask(server, "/", host=host)[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_places_start_nothing(server: ExplorerServer, site: str) -> None:
    assert ask(server, "/", site=site)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:80"])
def test_names_of_this_machine_are_answered(server: ExplorerServer, host: str) -> None:
    assert ask(server, "/nothing", host=host, site="none")[0] == 404


@pytest.mark.slow
def test_a_port_that_is_taken_is_said(server: ExplorerServer) -> None:
    with pytest.raises(UserError, match=r"cannot listen on 127(.|\n)*--port=0"):
        ExplorerServer(server.explorer, server.server_port)
