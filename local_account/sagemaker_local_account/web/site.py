"""The WSGI application of the web page, and its server on a port of its own.

A web page in the user's browser can reach any port on loopback, and other users of the machine can as well. A request is
therefore answered only if its path begins with a token that is made at each start, its Host is the page's own (DNS rebinding),
it has no `Origin` header, and its method is GET. The pages have no scripts, load nothing from elsewhere and send no referrer
(Content-Security-Policy level 3; Referrer Policy, section 3.1), and browsers do not store them (RFC 9111, section 5.2.2.5).
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from botocore.exceptions import ClientError
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from werkzeug.serving import WSGIRequestHandler, make_server

from sagemaker_local_account.core.service_errors import ServiceError
from sagemaker_local_account.http import server
from sagemaker_local_account.web.content import Content, NotThere, time_text

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_log = logging.getLogger(__name__)
_HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]
_HOSTS = ("127.0.0.1", "localhost")


class Site:
    """The web page, served until `close`.

    ``url`` is its address, which contains the token.

    Args:
        content: what the pages show.
    """

    def __init__(self, content: Content) -> None:
        self._content = content
        self._token = secrets.token_urlsafe(24)
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.filters["path"] = lambda text: quote(str(text), safe="")
        self._templates.filters["time"] = time_text
        listener = server.listen(0)
        self._port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/{self._token}/"
        self._server = make_server(
            "127.0.0.1", self._port, self, threaded=True, request_handler=_Handler, fd=listener.fileno()
        )
        listener.close()
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, name="local-account-web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers one request."""
        status, body = self._answer(environ)
        payload = body.encode()
        start_response(status, [*_HEADERS, ("Content-Length", str(len(payload)))])
        return [payload]

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, str]:
        if environ.get("HTTP_HOST", "") not in {f"{host}:{self._port}" for host in _HOSTS}:
            return "403 Forbidden", "the address of this page is 127.0.0.1\n"
        if "HTTP_ORIGIN" in environ:
            return "403 Forbidden", "requests of other web pages are rejected\n"
        parts = [*str(environ.get("PATH_INFO", "")).split("/"), ""]
        token, path = parts[1], parts[2:]
        if not hmac.compare_digest(token.encode(errors="replace"), self._token.encode()):
            return "403 Forbidden", "the address of this page is what `local-account status` prints\n"
        if environ["REQUEST_METHOD"] != "GET":
            return "405 Method Not Allowed", "this page is read only\n"
        page, *names = [part for part in path if part] or ["account"]
        query = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        try:
            shown = self._content.page(page, names, query)
        except (ClientError, NotThere, ServiceError) as error:
            return "404 Not Found", self._rendered("error", {"message": str(error)})
        except Exception:
            _log.exception("the page %s cannot be shown", page)
            return "500 Internal Server Error", self._rendered("error", {"message": "see the account's log"})
        return "200 OK", self._rendered(page, shown)

    def _rendered(self, page: str, shown: dict[str, Any]) -> str:
        return self._templates.get_template(f"{page}.html").render(base=f"/{self._token}/", **shown)


class _Handler(WSGIRequestHandler):
    """Logs errors of the HTTP protocol alone: a line for each request would contain the token."""

    def log(self, type: str, message: str, *args: Any) -> None:
        if type == "error":
            _log.warning("the web page: an invalid request")
