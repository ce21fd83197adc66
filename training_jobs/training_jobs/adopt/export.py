"""A workflow's request for other tools: by itself, and as the call of SageMaker's SDK for a notebook."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from training_jobs.adopt.props import name_prefix
from training_jobs.adopt.python_source import Call, Name, functions, source
from training_jobs.client.jobs import tags_without_execution
from training_jobs.client.model_trainer import snake_member

_FORMAT = "%Y-%m-%d-%H-%M-%S"
_TIME = f"time.strftime('{_FORMAT}')"


def own_request(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a request for a job of its own: without the tag of an execution, by which the stack's guard would stop it.

    Args:
        request: A CreateTrainingJob request.
        name: How the job's name begins; the time follows.
    """
    name = f"{name_prefix(name)}-{time.strftime(_FORMAT)}"
    members = {**request, "TrainingJobName": name, "Tags": tags_without_execution(request)}
    return {member: value for member, value in members.items() if value not in ([], {})}


def sdk_call(request: Mapping[str, Any], shape: Any, name: str) -> str:
    """Return the source of ``TrainingJob.create(...)`` of sagemaker-core, on which the SDK's version 3 is built.

    Its classes are the shapes of the service model, and their fields the members in snake case (sagemaker-core's README,
    "Resources" and "Shapes").

    Args:
        request: A CreateTrainingJob request.
        shape: The input shape of CreateTrainingJob, of botocore.
        name: How the job's name begins; the time follows.
    """
    members = own_request(request, name)
    keywords = {
        snake_member(member): _expression(value, shape.members[member])
        for member, value in members.items()
        if member in shape.members
    }
    keywords["training_job_name"] = Name(f'f"{name_prefix(name)}-{{{_TIME}}}"')
    call = Call("TrainingJob.create", (), keywords)
    shapes = sorted(set(functions(call)) - {call.function, "Tag"})
    lines = [
        "# Starts a training job by SageMaker's SDK: `pip install 'sagemaker-core>=2'`.",
        "import time",
        "",
        # A tag is a resource there.
        f"from sagemaker.core.resources import {'Tag, ' if 'Tags' in members else ''}TrainingJob",
        "from sagemaker.core.shapes import (",
        *(f"    {one}," for one in shapes),
        ")",
        "",
        f"job = {source(call)}",
        "job.wait()",
        "",
    ]
    return "\n".join(lines)


def _expression(value: Any, shape: Any) -> Any:
    if shape.type_name == "structure":
        members = {snake_member(name): _expression(item, shape.members[name]) for name, item in value.items()}
        return Call(shape.name, (), members)
    if shape.type_name == "list":
        return [_expression(item, shape.member) for item in value]
    return value
