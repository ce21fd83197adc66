"""boto3's clients with nothing but the environment: `walk_boto3.py CALLS` prints what each call came to, by its service."""

import json
import os
import sys
from pathlib import Path

import boto3
from botocore.exceptions import ClientError


def called(session: boto3.Session, service: str, operation: str, members: dict[str, str]) -> str:
    try:
        getattr(session.client(service), operation.replace("-", "_"))(**members)
    except ClientError as error:  # the account's own answer; whatever else was raised, there was none
        return f"refused: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"
    return "answered"


calls = json.loads(Path(sys.argv[1]).read_text())
outcomes = {service: called(boto3.Session(), service, *call) for service, call in calls.items()}
# By the configuration file alone, which version 2 of the AWS CLI reads as botocore does.
for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
    del os.environ[name]
outcomes |= {f"{name} by the file": called(boto3.Session(), name, *calls[name]) for name in ("sts", "sqs", "s3")}
print(json.dumps(outcomes))
