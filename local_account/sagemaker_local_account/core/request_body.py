"""The body of a request, which each of its readers leaves for the next."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


_MOST_BYTES = 64 << 20  # of a body that is decompressed


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


def content_of(environ: WSGIEnvironment) -> bytes:
    """Reads the body of a request as its service does: decompressed where it was compressed, as SDKs do to a large PutMetricData.

    A body that is not what its Content-Encoding says, or decompressed would be larger than 64 MiB, is returned as it is. Not for
    S3, where Content-Encoding is metadata of the object.
    """
    body = body_of(environ)
    if environ.get("HTTP_CONTENT_ENCODING", "").strip().lower() != "gzip":
        return body
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = decompressor.decompress(body, _MOST_BYTES)
    except zlib.error:
        return body
    return content if decompressor.eof and not decompressor.unused_data else body


def decompress(environ: WSGIEnvironment) -> None:
    """Replaces the body of a request by its `content_of`, so that all who read it read the same."""
    content = content_of(environ)
    if environ.pop("HTTP_CONTENT_ENCODING", None) is not None:
        environ["wsgi.input"] = io.BytesIO(content)
        environ["CONTENT_LENGTH"] = str(len(content))
