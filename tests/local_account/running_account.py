"""A running account, as the clients of its user see it."""

from __future__ import annotations

import json
from typing import Any

import boto3

from sagemaker_local_account.account import LocalAccount

# A type of which nothing is known but how many devices it has.
NEWER_TYPE = "ml.p9e.48xlarge"


class Running:
    """A running account, and its clients."""

    def __init__(self, account: LocalAccount) -> None:
        self.account = account
        self._clients: dict[tuple[Any, ...], Any] = {}  # each takes as long to make as many calls take

    def client(self, service: str, **options: Any) -> Any:
        environment = self.account.environment()
        own = {
            "region_name": "us-east-1",
            "aws_access_key_id": environment["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
        }
        key = (service, *sorted(options.items()))
        if key not in self._clients:
            self._clients[key] = boto3.client(service, endpoint_url=self.account.endpoint_url, **{**own, **options})
        return self._clients[key]

    def role(self, name: str, service: str, *, may_do_all: bool = False) -> str:
        """A role that a service may take on, and which may do everything or nothing; its ARN."""
        statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam = self.client("iam")
        arn = str(iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"])
        if may_do_all:
            iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
        return arn
