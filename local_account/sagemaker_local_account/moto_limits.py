"""What of moto would lead out of the account: its containers of Docker's, and the HTTP endpoints that Firehose calls.

Who may call the account's API could otherwise have it start any image with folders of the person's, or send requests to what
listens on this machine. HTTP subscriptions of topics are `notifications.py`'s; moto's own API is refused by `gate.py`.
"""

from __future__ import annotations

from typing import Any

from moto.firehose.models import FirehoseBackend
from moto.utilities.docker_utilities import DockerModel

from .patches import patch


def install() -> None:
    def no_client(self: DockerModel) -> Any:
        raise NotImplementedError("the account runs no containers of Docker's")

    def no_requests(*_: object, **__: object) -> Any:
        raise NotImplementedError("the account sends nothing to HTTP endpoints of Firehose")

    patch(DockerModel, "docker_client", property(no_client))
    patch(FirehoseBackend, "put_http_records", staticmethod(no_requests), "http_destination, records")
