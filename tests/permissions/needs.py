"""What the role of each state machine, and of each job that it creates, needs in a template, by the calls and the request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from sources import RECORDED
from statements import filled_in, statements

# IAM's prefix of a service, where Step Functions names it otherwise.
PREFIXES = {"eventbridge": "events", "sfn": "states", "cloudwatchlogs": "logs"}
# The permission of a call whose name is not that of its API.
NAMED_OTHERWISE = {"s3:ListObjectsV2": "s3:ListBucket"}
# What an optimised integration stands for: whose list of which source.
INTEGRATIONS = {
    "sagemaker:createTrainingJob.sync": ("sagemaker-iam", "machine"),
    "events:putEvents": ("events-iam", "machine"),
    "lambda:invoke": ("lambda-iam", "sweep"),
    "sns:publish.waitForTaskToken": ("sns-iam", "pipeline"),
    "states:startExecution.sync:2": ("stepfunctions-iam", "caller"),
}
# What of SageMaker's page of execution roles a job needs, by the member of its request that asks for it.
OF_MEMBERS = {
    "VpcConfig": ("ec2:*",),
    "MetricDefinitions": ("cloudwatch:*",),
    "S3DataSource": ("s3:GetObject", "s3:ListBucket"),
    "VolumeKmsKeyId": ("kms:CreateGrant",),
}
OF_EVERY_JOB = ("logs:*", "s3:PutObject")


def lacking(template: Mapping[str, Any]) -> list[str]:
    """The actions that a role of a template has to have and has not."""
    granted: dict[str, set[str]] = {}
    for held in statements(template):
        for role in template["Resources"][held.resource].get("Properties", {}).get("Roles", []):
            granted.setdefault(str(role.get("Ref")), set()).update(held.actions)
    return sorted(
        f"{role} has no {action}"
        for role, action in {*needs(template)}
        if not any(fnmatchcase(action, had) for had in granted.get(role, ()))
    )


def needs(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Role and action: the calls of state machines, and what SageMaker's page lists for the requests of jobs."""
    for resource in template["Resources"].values():
        if resource["Type"] != "AWS::StepFunctions::StateMachine":
            continue
        properties = filled_in(template, resource["Properties"])
        for state in _states(json.loads(properties["DefinitionString"])):
            call = state.get("Resource", "").partition(":states:::")[2]
            for action in _actions(call):
                yield _role(properties["RoleArn"]), action
            # The request of a job in a queue is made before it is submitted.
            if "createTrainingJob" in call or "TrainingJobName" in state.get("Parameters", {}):
                request = state["Parameters"]
                for action in _of_job(request):
                    yield _role(request["RoleArn"]), action


def _actions(call: str) -> Iterator[str]:
    if call.startswith("aws-sdk:"):
        _, service, operation = call.split(":")
        action = f"{PREFIXES.get(service, service)}:{operation[:1].upper()}{operation[1:]}"
        yield NAMED_OTHERWISE.get(action, action)
    elif call in INTEGRATIONS:
        source, holder = INTEGRATIONS[call]
        yield from RECORDED[source][holder]
    elif call:
        raise ValueError(
            f"which permissions does {call} take? Say so in INTEGRATIONS of {__file__}, by a recorded source"
        )
    if "createTrainingJob" in call:
        yield from ("iam:PassRole", "sagemaker:AddTags")
    if "submitServiceJob" in call:
        yield from RECORDED["batch-operations"]["machine"]


def _of_job(request: Mapping[str, Any]) -> Iterator[str]:
    text = json.dumps(request)
    patterns = [*OF_EVERY_JOB]
    patterns += [pattern for member, asked in OF_MEMBERS.items() if f'"{member}' in text for pattern in asked]
    # An image of ECR's, not one of a registry in the job's own network.
    patterns += [] if "TrainingRepositoryAccessMode" in text else ["ecr:*"]
    for action in RECORDED["sagemaker-roles"]["job"]:
        if any(fnmatchcase(action, pattern) for pattern in patterns):
            yield action


def _states(definition: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for state in definition["States"].values():
        yield state
        for inner in (state.get("ItemProcessor"), *state.get("Branches", [])):
            if inner:
                yield from _states(inner)


def _role(arn: str) -> str:
    return arn.rpartition("/")[2]
