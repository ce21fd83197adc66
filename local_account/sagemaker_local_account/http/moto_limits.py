"""Disables what in moto would reach outside the account: Docker containers, and Firehose's HTTP endpoints.

Callers of the account's API could otherwise start any image with the user's folders mounted, or send requests to other servers
on this machine. SNS's HTTP subscriptions are restricted in `aws/sns/subscriptions.py`, moto's own API in `iam/authentication.py`.
"""

from __future__ import annotations

from typing import Any

from moto.firehose.models import FirehoseBackend
from moto.utilities.docker_utilities import DockerModel

from sagemaker_local_account.core.patches import patch


def install() -> None:
    """Patches moto."""

    def no_client(self: DockerModel) -> Any:
        raise NotImplementedError("the account runs no Docker containers")

    def no_requests(*_: object, **__: object) -> Any:
        raise NotImplementedError("the account does not deliver to HTTP endpoints of Firehose")

    patch(DockerModel, "docker_client", property(no_client))
    patch(FirehoseBackend, "put_http_records", staticmethod(no_requests), "http_destination, records")
