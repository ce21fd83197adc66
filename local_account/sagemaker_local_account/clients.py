"""The boto3 clients by which the account calls itself, with its own root keys."""

from __future__ import annotations

import threading
from typing import Any

import boto3
from botocore.config import Config


class Clients:
    """Stands in for the module `boto3` where moto's state machine interpreter makes its clients.

    moto makes a client per state, with fixed keys, from boto3's default session, which is not safe to use from several
    threads at once. Here clients are made once per service and region, under a lock, with this account's keys. moto's
    other settings stay: no validation of parameters (the service answers for itself) and no retries.
    """

    def __init__(self, *, endpoint_url: str, access_key_id: str, secret_access_key: str) -> None:
        self._endpoint_url = endpoint_url
        self._session = boto3.Session(aws_access_key_id=access_key_id, aws_secret_access_key=secret_access_key)
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, *, service_name: str, region_name: str, config: Config, **_: Any) -> Any:
        """A client of a service; what else moto passes (its own keys and endpoint) is left aside."""
        key = (service_name, region_name)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._session.client(
                    service_name, region_name=region_name, endpoint_url=self._endpoint_url, config=config
                )
            return self._clients[key]
