"""Runs a script of SageMaker's SDK without a network, and writes the request of the first job that it would start.

``python catch_request.py OUTPUT ACCOUNT SCRIPT [ARGUMENT ...]``, with the Python of the SDK's environment, which need not have
this library. The script's calls to AWS are answered here: an upload succeeds and is listed, STS and IAM answer with the account's
number, and CreateTrainingJob ends the script. Any other call is an error, and so is any connection of the process.

SageMaker's SDKs call AWS by boto3, whose clients all pass ``BaseClient._make_api_call`` (client.py of botocore; sagemaker-core's
``TrainingJob.create`` of version 3 calls ``create_training_job`` of such a client too).
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

# What AWS answers where all is well. Of permissions the SDK's version 3 reads which are denied (model_trainer.py).
_ANSWERS: dict[str, Any] = {
    "iam:GetRole": {"Role": {"Arn": "arn:aws:iam::ACCOUNT:role/ROLE"}},
    "iam:SimulatePrincipalPolicy": {"EvaluationResults": [], "IsTruncated": False},
    "s3:CreateBucket": {},
    "s3:HeadBucket": {},
    "s3:ListBuckets": {"Buckets": []},
    "s3:ListObjectsV2": {"KeyCount": 0},
    "s3:PutObject": {},
    "sts:GetCallerIdentity": {
        "Account": "ACCOUNT",
        "Arn": "arn:aws:sts::ACCOUNT:assumed-role/ExecutionRole/script",
        "UserId": "AROAEXAMPLE:script",
    },
}


class RequestCaughtError(BaseException):
    """Ends the script; a script that catches ``Exception`` does not catch it."""


class OfflineError(RuntimeError):
    """A call to AWS that has no answer here."""


def main(output: str, account: str, script: str, *arguments: str) -> None:
    """Run the script and write what it would send as JSON: ``request``, ``region`` and ``uploads``; else what ``failed``.

    Args:
        output: The file.
        account: The number of the account for which the answers are.
        script: The script.
        arguments: Its arguments.
    """
    from botocore.client import BaseClient

    found: dict[str, Any] = {"uploads": []}

    def answer(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        call = f"{client.meta.service_model.service_name}:{operation}"
        if call == "sagemaker:CreateTrainingJob":
            Path(output).write_text(json.dumps({**found, "request": parameters, "region": client.meta.region_name}))
            raise RequestCaughtError
        if call == "s3:PutObject":
            found["uploads"].append(f"s3://{parameters['Bucket']}/{parameters['Key']}")
        if call not in _ANSWERS:
            why = f"{call} has no answer without a network, and the script calls it before it starts a job"
            Path(output).write_text(json.dumps({"failed": why}))
            raise OfflineError(why)
        text = json.dumps(_ANSWERS[call]).replace("ACCOUNT", account).replace("ROLE", str(parameters.get("RoleName")))
        return dict(json.loads(text))

    BaseClient._make_api_call = answer
    sys.addaudithook(_refuse_connections)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except RequestCaughtError:
        return


def _refuse_connections(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's audit events of connections and look-ups (Python's documentation, "Audit events table")."""
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        raise OfflineError(f"the script has no network, and connects to {address!r}")


if __name__ == "__main__":
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    main(*sys.argv[1:])
