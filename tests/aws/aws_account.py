"""The AWS account of the caller's credentials."""

from __future__ import annotations

import os
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
# Stacks of these tests begin with this, so that none is a user's.
STACK_PREFIX = "CdkSagemakerTrainingTests"


class NoAccount(Exception):
    """There is no account to test in; the text is what to do."""


class AwsAccount:
    """The account and region of the caller's credentials and configuration, as boto3 and the CDK CLI find them."""

    def __init__(self, state: Path) -> None:
        self.state = state
        session = boto3.Session()
        if session.get_credentials() is None:
            raise NoAccount("there are no AWS credentials: name a profile, like AWS_PROFILE=mine make test-aws YES=1")
        if session.region_name is None:
            raise NoAccount("there is no AWS region: name one, like AWS_REGION=us-east-1 make test-aws YES=1")
        self.region = session.region_name
        try:
            self.number = session.client("sts").get_caller_identity()["Account"]
        except (BotoCoreError, ClientError) as error:
            raise NoAccount(f"the AWS credentials cannot be used: {error}") from None

    def check_bootstrapped(self) -> None:
        """Raise `NoAccount` unless `cdk bootstrap` has been run for the account and region."""
        try:
            boto3.client("ssm").get_parameter(Name=BOOTSTRAP_PARAMETER)
        except (BotoCoreError, ClientError) as error:
            raise NoAccount(
                f"the region is not bootstrapped: run cdk bootstrap aws://{self.number}/{self.region} ({error})"
            ) from None

    def environment(self) -> dict[str, str]:
        """The caller's own environment, with the region said to each client alike."""
        return {**os.environ, "AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region}
