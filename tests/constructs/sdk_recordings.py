"""Requests of AWS's SDK, as recorded in tests/sdk_requests, and how one of ours is laid beside one of them."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

SDK_REQUESTS = Path(__file__).parents[1] / "sdk_requests"

# Where the script lies, which here is in the image, and what the toolkit takes without being told.
HYPERPARAMETERS_OF_THE_SCRIPT = {
    "sagemaker_container_log_level": "20 is what the toolkit takes without it",
    "sagemaker_job_name": "the name is known only when the state runs, and in TRAINING_JOB_NAME",
    "sagemaker_program": "the image names the script",
    "sagemaker_region": "in AWS_REGION, which SageMaker sets",
    "sagemaker_submit_directory": "the image holds the script",
}
# What ours name beside: the network interface of several hosts, which the SDK leaves to each script.
BETWEEN_HOSTS = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
# The tag that says which execution started a job.
EXECUTION_TAG = "StepFunctionsExecution"


def recorded(case: str) -> dict[str, Any]:
    """What came of a case: ``request``, or ``refused`` with the SDK's error."""
    return dict(json.loads((SDK_REQUESTS / "recorded" / f"{case}.json").read_text()))


def recorded_v3(case: str) -> dict[str, Any]:
    """The same of version 3 of the SDK."""
    return dict(json.loads((SDK_REQUESTS / "recorded_v3" / f"{case}.json").read_text()))


def cases_of(module: str) -> set[str]:
    """The names of the cases of one `cases_*.py`."""
    spec = importlib.util.spec_from_file_location(module, SDK_REQUESTS / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    return set(cases.CASES)


def canonical(request: dict[str, Any]) -> dict[str, Any]:
    """A request as the service reads it, each member as the other side says it too.

    Left out are the job's name, which ours have from their execution, what tells the toolkit where the script lies, and the
    network interface between hosts. Hyperparameters are as the toolkit decodes them; a channel without a mode has the job's; of
    the checkpoints' place it is the part that the user gave, below which a workflow of ours has a folder, and each execution
    in that.
    """
    members = {
        key.removesuffix(".$"): value for key, value in request.items() if key.removesuffix(".$") != "TrainingJobName"
    }
    mode = members["AlgorithmSpecification"]["TrainingInputMode"]
    decoded = {
        key: as_read(text)
        for key, text in members.get("HyperParameters", {}).items()
        if key not in HYPERPARAMETERS_OF_THE_SCRIPT
    }
    compared = {
        **members,
        "Environment": dict(members.get("Environment", {}).items() - BETWEEN_HOSTS.items()),
        "CheckpointConfig": _checkpoints(members.get("CheckpointConfig", {})),
        "HyperParameters": decoded,
        "InputDataConfig": [{"InputMode": mode, **channel} for channel in members.get("InputDataConfig", [])],
        "Tags": [tag for tag in members.get("Tags", []) if tag["Key"] != EXECUTION_TAG],
    }
    return {name: value for name, value in compared.items() if value not in ({}, [])}


def as_read(text: str) -> Any:
    """A hyperparameter as SageMaker's toolkit makes it from the request's text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _checkpoints(config: dict[str, Any]) -> dict[str, Any]:
    computed = config.get("S3Uri.$")
    if computed is None:
        return config
    [place] = re.findall(r"^States\.Format\('\{\}\{\}/', '([^']+/)[^/']+/', ", computed)
    return {**{key: value for key, value in config.items() if key != "S3Uri.$"}, "S3Uri": place}
