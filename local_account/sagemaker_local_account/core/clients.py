"""The boto3 clients with which the account's services call the account, each with the credentials of its role."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.session import Session

from sagemaker_local_account.core.service_models import loader


class Clients:
    """Caches clients by service, region, keys and settings; boto3's clients, unlike its sessions, are thread-safe."""

    def __init__(self, endpoint_url: str) -> None:
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        session = Session()
        session.register_component("data_loader", loader())
        self._session = boto3.Session(botocore_session=session)
        self._clients: dict[tuple[str, str, str, Config | None], Any] = {}

    def client(self, service: str, region: str, keys: Mapping[str, str], config: Config | None = None) -> Any:
        """Returns a client.

        Args:
            service: boto3's name of the service.
            region: the region that it signs for.
            keys: the AWS_* variables with its credentials.
            config: its settings.
        """
        key = (service, region, keys["AWS_ACCESS_KEY_ID"], config)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._session.client(
                    service,
                    region_name=region,
                    endpoint_url=self._endpoint_url,
                    aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
                    aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
                    aws_session_token=keys.get("AWS_SESSION_TOKEN"),
                    config=config,
                )
            return self._clients[key]


# For calls of a state machine's tasks: the service validates parameters, and Step Functions retries.
OF_STATES = Config(
    parameter_validation=False,
    retries={"max_attempts": 0, "total_max_attempts": 1},
    connect_timeout=99_999_999,
    read_timeout=99_999_999,
)
# For SageMaker's calls on behalf of a job. Many jobs upload at once.
OF_JOBS = Config(max_pool_connections=50, s3={"addressing_style": "path"})

# For CodeBuild's calls, which include presigned URLs.
OF_BUILDS = Config(signature_version="s3v4", s3={"addressing_style": "path"})
