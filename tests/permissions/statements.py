"""The policy statements of a template, with whose they are and their ARNs filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iam_reference import listed

PSEUDO_PARAMETERS = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::URLSuffix": "amazonaws.com",
}
# The ARN of a resource that a template makes, `{}` being its logical id, by its type.
ARNS = {
    "AWS::Batch::JobQueue": "arn:aws:batch:us-east-1:123456789012:job-queue/{}",
    "AWS::Batch::QuotaShare": "arn:aws:batch:us-east-1:123456789012:job-queue/queue/quota-share/{}",
    "AWS::CodeBuild::Project": "arn:aws:codebuild:us-east-1:123456789012:project/{}",
    "AWS::ECR::Repository": "arn:aws:ecr:us-east-1:123456789012:repository/{}",
    "AWS::EFS::FileSystem": "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/{}",
    "AWS::IAM::Role": "arn:aws:iam::123456789012:role/{}",
    "AWS::KMS::Key": "arn:aws:kms:us-east-1:123456789012:key/{}",
    "AWS::Lambda::Function": "arn:aws:lambda:us-east-1:123456789012:function:{}",
    "AWS::Logs::LogGroup": "arn:aws:logs:us-east-1:123456789012:log-group:{}:*",
    "AWS::S3::Bucket": "arn:aws:s3:::{}",
    "AWS::SNS::Topic": "arn:aws:sns:us-east-1:123456789012:{}",
    "AWS::SQS::Queue": "arn:aws:sqs:us-east-1:123456789012:{}",
    "AWS::StepFunctions::StateMachine": "arn:aws:states:us-east-1:123456789012:stateMachine:{}",
}
ARN_BY_REF = ("AWS::SNS::Topic", "AWS::StepFunctions::StateMachine")
# Whose a role is, by the service that takes it on.
ROLES = {
    "codebuild": "build",
    "events": "rule",
    "lambda": "handler",
    "sagemaker": "job",
    "states": "machine",
    "vpc-flow-logs": "flow logs",
}
# Roles of Step Functions besides, by a part of their logical id.
MACHINES = {
    "Caller": "caller",
    "JobsGuard": "guard",
    "Pipeline": "pipeline",
    "Poller": "poller",
    "Sweep": "sweep",
}
# A role of Lambda besides.
WAITER = ("WaitingHandler", "waiter")
POLICIES = {
    "AWS::KMS::Key": ("KeyPolicy", "key"),
    "AWS::S3::BucketPolicy": ("PolicyDocument", "bucket"),
    "AWS::SNS::TopicPolicy": ("PolicyDocument", "topic"),
    "AWS::SQS::QueuePolicy": ("PolicyDocument", "queue"),
}


@dataclass(frozen=True)
class Held:
    """A statement with its texts filled in; ``holder`` is whose it is, in the words of docs/permissions.md."""

    holder: str
    resource: str
    statement: Mapping[str, Any]

    @property
    def actions(self) -> list[str]:
        return listed(self.statement["Action"])


def statements(template: Mapping[str, Any]) -> list[Held]:
    """Every statement of a template that allows something, trust policies included."""
    found = [one for name in template["Resources"] for one in _of(template, name)]
    return [one for one in found if one.statement["Effect"] == "Allow"]


def _of(template: Mapping[str, Any], name: str) -> Iterator[Held]:
    resource = template["Resources"][name]
    properties, kind = resource.get("Properties", {}), resource["Type"]
    if kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for role in properties.get("Roles", []):
            held = _holder(template, role)
            yield from _each(template, properties["PolicyDocument"], held, name)
    elif kind == "AWS::IAM::Role":
        yield from _each(template, properties["AssumeRolePolicyDocument"], "trust", name)
        for policy in properties.get("Policies", []):
            yield from _each(template, policy["PolicyDocument"], _holder(template, {"Ref": name}), name)
    elif kind in POLICIES and POLICIES[kind][0] in properties:
        document, holder = POLICIES[kind]
        yield from _each(template, properties[document], holder, name)


def _each(template: Mapping[str, Any], document: Mapping[str, Any], holder: str, name: str) -> Iterator[Held]:
    for statement in document["Statement"]:
        filled = filled_in(template, statement)
        # FSx has no role in the template: it acts as its service-linked role, for which the key's policy has a statement.
        fsx = "AWSServiceRoleForFSxS3Access" in str(filled.get("Condition"))
        yield Held("FSx" if fsx else holder, name, filled)


def _holder(template: Mapping[str, Any], role: Mapping[str, Any]) -> str:
    """Whose a role is, by the service that it trusts."""
    name = role.get("Ref", "")
    trusted = template["Resources"].get(name, {}).get("Properties", {}).get("AssumeRolePolicyDocument", {})
    for statement in trusted.get("Statement", []):
        service = str(filled_in(template, statement["Principal"]).get("Service", "")).partition(".")[0]
        if service == "states":
            return next((holder for part, holder in MACHINES.items() if part in name), ROLES[service])
        if service == "lambda" and WAITER[0] in name:
            return WAITER[1]
        if service in ROLES:
            return ROLES[service]
    raise ValueError(f"whose role is {name}? Say so in ROLES of {__name__}, by the service that it trusts: {trusted}")


def filled_in(template: Mapping[str, Any], value: Any) -> Any:
    """``value`` with its intrinsic functions filled in: ARNs of resources by `ARNS`, anything else by a name for it."""
    if isinstance(value, list):
        return [filled_in(template, one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) != 1:
        return {key: filled_in(template, one) for key, one in value.items()}
    [(function, argument)] = value.items()
    match function:
        case "Ref" if argument in PSEUDO_PARAMETERS:
            return PSEUDO_PARAMETERS[argument]
        case "Ref":
            return _arn_or_name(template, argument, ARN_BY_REF)
        case "Fn::GetAtt" if argument[1] in ("Arn", "JobQueueArn", "QuotaShareArn"):
            return _arn_or_name(template, argument[0], tuple(ARNS))
        case "Fn::Join":
            return argument[0].join(map(str, filled_in(template, argument[1])))
        case "Fn::FindInMap":
            return PSEUDO_PARAMETERS["AWS::AccountId"]  # the account of AWS's containers in the region
        case str() if function.startswith("Fn::"):
            return "filled-in-when-deployed"
    return {function: filled_in(template, argument)}


def _arn_or_name(template: Mapping[str, Any], name: str, types: tuple[str, ...]) -> str:
    kind = template["Resources"].get(name, {}).get("Type")
    return ARNS[kind].format(name) if kind in types else name
