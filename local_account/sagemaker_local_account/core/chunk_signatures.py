"""The signatures of the chunks of an upload to S3, each of which signs the one before, and that of the headers behind them.

Source: "Signature calculations for the authorization header: transferring payload in multiple chunks" and "... including trailing
headers" in S3's API reference, whose example is a test.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable

SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"  # the value of x-amz-content-sha256, with "-TRAILER" where headers follow
_CHUNK = re.compile(rb"([0-9a-fA-F]+);chunk-signature=([0-9a-f]{64})\r\n")
_TRAILER = re.compile(rb"(.*?)\r?\n?x-amz-trailer-signature:([0-9a-f]{64})\r\n", re.DOTALL)


def are_right(body: bytes, seed: str, scope: str, signed: Callable[[str], str], *, trailer: bool) -> bool:
    """Returns whether each chunk of a body, up to the empty one, and its trailing headers have their signatures.

    Args:
        body: as it was sent, with the chunks' sizes and signatures.
        seed: the signature of the request, which the first chunk signs.
        scope: the time and the scope of the request, in two lines.
        signed: returns the signature of a text.
        trailer: whether headers follow the last chunk.
    """
    at, before, size = 0, seed, -1
    while size != 0:
        head = _CHUNK.match(body, at)
        if head is None:
            return False
        size, at = int(head[1], 16), head.end() + int(head[1], 16)
        data = body[head.end() : at]
        digests = f"{hashlib.sha256(b'').hexdigest()}\n{hashlib.sha256(data).hexdigest()}"
        before, expected = head[2].decode(), signed(f"AWS4-HMAC-SHA256-PAYLOAD\n{scope}\n{before}\n{digests}")
        if len(data) < size or not hmac.compare_digest(before, expected):
            return False
        at += 2 if size else 0  # a line ends after the data
    if not trailer:
        return True
    found = _TRAILER.match(body, at)
    if found is None:
        return False
    headers = b"".join(line + b"\n" for line in found[1].splitlines())
    digest = hashlib.sha256(headers).hexdigest()
    return hmac.compare_digest(found[2].decode(), signed(f"AWS4-HMAC-SHA256-TRAILER\n{scope}\n{before}\n{digest}"))
