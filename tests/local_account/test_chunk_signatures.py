"""The signatures of chunks, held against the example of S3's API reference, and sent over HTTP."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from functools import reduce

import pytest
from attacks import Refused, World
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from running_account import Running

from sagemaker_local_account.core.chunk_signatures import SIGNED, are_right

# "Example: Chunked upload" of S3's API reference, "Transferring payload in multiple chunks".
SECRET, TIME, SCOPE = (
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "20130524T000000Z",
    "20130524/us-east-1/s3/aws4_request",
)
SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
CHUNKS = (
    (b"a" * 65_536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
    (b"a" * 1_024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
    (b"", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
)


def signer(secret: str, scope: str) -> Callable[[str], str]:
    key = reduce(lambda k, part: hmac.digest(k, part.encode(), "sha256"), scope.split("/"), f"AWS4{secret}".encode())
    return lambda text: hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def body_of(chunks: object) -> bytes:
    return b"".join(
        f"{len(data):x};chunk-signature={signature}\r\n".encode() + data + b"\r\n"
        for data, signature in chunks  # type: ignore[attr-defined]
    )


def right(body: bytes, seed: str = SEED) -> bool:
    return are_right(body, seed, f"{TIME}\n{SCOPE}", signer(SECRET, SCOPE), trailer=False)


def test_the_example_of_s3s_reference_is_right() -> None:
    assert right(body_of(CHUNKS))


@pytest.mark.parametrize(
    "body",
    [
        body_of(CHUNKS).replace(b"aaaa", b"aaba", 1),
        body_of(CHUNKS[:1] + CHUNKS[2:]),
        body_of(CHUNKS[:2]),
        body_of((CHUNKS[1], CHUNKS[0], CHUNKS[2])),
        body_of(CHUNKS)[:66_000],
        b"",
        b"no chunks",
    ],
    ids=["changed", "one less", "no end", "another order", "cut", "empty", "none"],
)
def test_what_differs_from_it_is_not(body: bytes) -> None:
    assert not right(body)


def test_a_chunk_signs_the_request_too() -> None:
    assert not right(body_of(CHUNKS), seed=CHUNKS[0][1])


@pytest.mark.parametrize("trailer", [False, True])
def test_an_upload_in_chunks_is_stored_and_one_that_was_changed_is_refused(running: Running, trailer: bool) -> None:
    world, name = World(running), f"chunks-{trailer}".lower()
    running.client("s3").create_bucket(Bucket=name)
    keys, parts = world.signing(), [b"x" * 70_000, b"y" * 10, b""]
    path = f"/{name}/object"
    headers = {
        "X-Amz-Content-SHA256": f"{SIGNED}{'-TRAILER' if trailer else ''}",
        "X-Amz-Decoded-Content-Length": str(sum(map(len, parts))),
        "Content-Encoding": "aws-chunked",
        **({"X-Amz-Trailer": "x-amz-meta-after"} if trailer else {}),
    }
    request = AWSRequest("PUT", f"{running.account.endpoint_url}{path}", headers=headers)
    signing = SigV4Auth(keys, "s3", "us-east-1")
    signing.add_auth(request)
    signed, signature = dict(request.headers), request.headers["Authorization"].rpartition("=")[2]
    scope = signed["Authorization"].partition("Credential=")[2].partition(",")[0].partition("/")[2]
    sign, chunks = signer(keys.secret_key, scope), []
    for part in parts:
        digests = f"{hashlib.sha256(b'').hexdigest()}\n{hashlib.sha256(part).hexdigest()}"
        signature = sign(f"AWS4-HMAC-SHA256-PAYLOAD\n{signed['X-Amz-Date']}\n{scope}\n{signature}\n{digests}")
        chunks.append((part, signature))
    body = body_of(chunks)
    if trailer:
        after = "x-amz-meta-after:b"
        digest = hashlib.sha256(f"{after}\n".encode()).hexdigest()
        of_trailer = sign(f"AWS4-HMAC-SHA256-TRAILER\n{signed['X-Amz-Date']}\n{scope}\n{signature}\n{digest}")
        body = body[:-2] + f"{after}\r\nx-amz-trailer-signature:{of_trailer}\r\n\r\n".encode()
    host = {"Host": running.account.endpoint_url.removeprefix("http://")}
    world.plain("PUT", path, body, {**signed, **host})
    assert running.client("s3").get_object(Bucket=name, Key="object")["Body"].read() == b"".join(parts)
    for changed in (body.replace(b"yy", b"yz", 1), *([body.replace(b"after:b", b"after:c")] if trailer else [])):
        with pytest.raises(Refused, match="the signature of a chunk"):
            world.plain("PUT", path, changed, {**signed, **host})
