"""The boto3 clients by which the account's services call the account: each under the role that it acts as."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config


class Clients:
    """Makes clients once per service, region, keys and settings, and shares them: boto3's clients, unlike its sessions,
    may be used by several threads."""

    def __init__(self, endpoint_url: str) -> None:
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str, str, Config | None], Any] = {}

    def client(self, service: str, region: str, keys: Mapping[str, str], config: Config | None = None) -> Any:
        """A client that signs with ``keys``, which are AWS_* variables."""
        key = (service, region, keys["AWS_ACCESS_KEY_ID"], config)
        with self._lock:
            if key not in self._clients:
                session = boto3.Session(
                    keys["AWS_ACCESS_KEY_ID"],
                    keys["AWS_SECRET_ACCESS_KEY"],
                    keys.get("AWS_SESSION_TOKEN"),
                    region_name=region,
                )
                self._clients[key] = session.client(service, endpoint_url=self._endpoint_url, config=config)
            return self._clients[key]


# What a state's call is made with: the service answers for its own parameters, and Step Functions for retries.
OF_STATES = Config(
    parameter_validation=False,
    retries={"max_attempts": 0, "total_max_attempts": 1},
    connect_timeout=99_999_999,
    read_timeout=99_999_999,
)
# What SageMaker's own calls for a job are made with. Many jobs upload at once.
OF_JOBS = Config(max_pool_connections=50, s3={"addressing_style": "path"})

# What CodeBuild makes its calls with; it gives out presigned URLs.
OF_BUILDS = Config(signature_version="s3v4", s3={"addressing_style": "path"})
