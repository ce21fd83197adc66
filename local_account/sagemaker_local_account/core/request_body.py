"""The body of a request, which each of its readers leaves for the next."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


def drop_invalid_length(environ: WSGIEnvironment) -> None:
    """Makes a request whose Content-Length is no number one without a body."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not (length.isascii() and length.isdecimal()):
        environ["CONTENT_LENGTH"] = "0"


def body_of(environ: WSGIEnvironment) -> bytes:
    """Reads the body of a request and puts it back; empty for one without a Content-Length, whose stream is left as it is."""
    if not environ.get("CONTENT_LENGTH"):
        return b""
    body: bytes = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(body)
    return body
