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
import shlex
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

    def caught(client: Any, parameters: dict[str, Any]) -> dict[str, Any]:
        return {**found, "request": parameters, "region": client.meta.region_name, "source": source_of(sys._getframe())}

    def answer(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        call = f"{client.meta.service_model.service_name}:{operation}"
        if call == "sagemaker:CreateTrainingJob":
            Path(output).write_text(json.dumps(caught(client, parameters)))
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


def source_of(frame: Any) -> dict[str, Any] | None:
    """Return the folder of the estimator or ModelTrainer whose method calls, and what starts its script; None for none.

    Args:
        frame: The frame of the call.
    """
    while frame is not None:
        caller = frame.f_locals.get("self")
        if getattr(caller, "source_code", None) is not None and hasattr(caller, "training_image"):
            return _of_model_trainer(caller)
        if getattr(caller, "entry_point", None) and hasattr(caller, "source_dir") and not caller.git_config:
            return _of_estimator(caller)
        frame = frame.f_back
    return None


def _of_model_trainer(trainer: Any) -> dict[str, Any] | None:
    """Of ``ModelTrainer`` (model_trainer.py of sagemaker-train, and of sagemaker 2, where arguments are in the command alone)."""
    code, distributed = trainer.source_code, trainer.distributed
    if not code.source_dir:
        return None
    arguments = [shlex.quote(str(one)) for one in getattr(code, "args", None) or ()]
    return {
        "directory": os.path.abspath(code.source_dir),
        "entry_point": "" if code.command else code.entry_script,
        "command": " ".join([*code.command.split(), *arguments]) if code.command else "",
        "requirements": code.requirements or "",
        "exclude": list(code.ignore_patterns or ()),
        "launcher": "" if code.command or distributed is None else type(distributed).__name__,
        "processes": getattr(distributed, "process_count_per_node", None),
        "mpi_options": " ".join(getattr(distributed, "mpi_additional_options", None) or ()),
        "of_model_trainer": True,
    }


def _of_estimator(estimator: Any) -> dict[str, Any]:
    """Of the SDK's estimators, version 2: without ``source_dir`` the script is sent alone."""
    folder, script = os.path.split(estimator.entry_point)
    return {
        "directory": os.path.abspath(estimator.source_dir or folder or "."),
        "entry_point": estimator.entry_point if estimator.source_dir else script,
        "dependencies": list(estimator.dependencies or ()),
    }


def _refuse_connections(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's audit events of connections and look-ups (Python's documentation, "Audit events table")."""
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        raise OfflineError(f"the script has no network, and connects to {address!r}")


if __name__ == "__main__":
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    main(*sys.argv[1:])
