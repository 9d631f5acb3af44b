"""A file opened in a browser that may ask nobody for anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from attrs import Factory, frozen

HEIGHT = 900


@frozen
class Visit:
    """A page, and what it did while it was open."""

    page: Any
    requests: list[str] = Factory(list)
    """Addresses asked for, beside the file's own."""

    messages: list[str] = Factory(list)
    """What the console says, errors of scripts among it."""


@contextmanager
def visited(chromium: Any) -> Iterator[Callable[..., Visit]]:
    """Gives the function that opens files, and closes what it opened."""
    contexts = []

    def visit(path: Path, width: int = 1280, dark: bool = False, scripts: bool = True) -> Visit:
        context = chromium.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        contexts.append(context)
        own = path.resolve().as_uri()
        found = Visit(context.new_page())
        context.route(lambda address: address.partition("#")[0] != own, lambda route: route.abort())
        context.on("request", lambda request: _note(request.url, own, found.requests))
        found.page.on("console", lambda message: found.messages.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.messages.append(f"error: {error}"))
        found.page.goto(own)
        return found

    try:
        yield visit
    finally:
        for context in contexts:
            context.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serves files of a folder on this machine, at the address it gives."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def _note(address: str, own: str, requests: list[str]) -> None:
    if address.partition("#")[0] != own:
        requests.append(address)
