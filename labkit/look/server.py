"""Serve the page to this machine only, under an address that cannot be guessed."""

from __future__ import annotations

import secrets
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread


@cache
def served() -> tuple[Path, str]:
    """The folder of a page and its address at 127.0.0.1; both end with this process."""
    home = TemporaryDirectory(prefix="tinyllm-look-")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=home.name))
    server.home = home  # removed with the server
    Thread(target=server.serve_forever, daemon=True).start()
    secret = secrets.token_urlsafe(16)
    return Path(home.name, secret), f"http://127.0.0.1:{server.server_port}/{secret}/index.html"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass

    def send_head(self):
        """Refuse other host names for this address: a foreign page could use one."""
        if self.headers["Host"] == f"127.0.0.1:{self.server.server_port}":
            return super().send_head()
        self.send_error(403)
        return None

    def list_directory(self, path):
        """Refuse: a listing of the folder would reveal the secret."""
        self.send_error(404)

    def end_headers(self) -> None:
        # each call of `look` writes the page again
        self.send_header("Cache-Control", "no-store")
        super().end_headers()
