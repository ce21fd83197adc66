"""Policies and requests of every form that the local account evaluates, drawn by a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ACCOUNT, OTHER = "123456789012", "999988887777"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Role"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/Role/session"
USER = f"arn:aws:iam::{ACCOUNT}:user/person"
MACHINE = f"arn:aws:states:us-east-1:{ACCOUNT}:stateMachine"
CALLS = {
    "ec2:DescribeSubnets": "*",
    "ecr:BatchGetImage": f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/jobs",
    "events:PutEvents": f"arn:aws:events:us-east-1:{ACCOUNT}:event-bus/default",
    "iam:PassRole": f"arn:aws:iam::{ACCOUNT}:role/Job",
    "kms:Decrypt": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "lambda:InvokeFunction": f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:f",
    "logs:PutLogEvents": f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/sagemaker/TrainingJobs:log-stream:a",
    "s3:GetObject": "arn:aws:s3:::models/a/model.tar.gz",
    "s3:ListBucket": "arn:aws:s3:::models",
    "s3:PutObject": "arn:aws:s3:::models/b",
    "sagemaker:CreateTrainingJob": f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/train-1",
    "sagemaker:ListTrainingJobs": "*",
    "sagemaker:StopTrainingJob": f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/train-1",
    "sns:Publish": f"arn:aws:sns:us-east-1:{ACCOUNT}:topic",
    "sqs:SendMessage": f"arn:aws:sqs:us-east-1:{ACCOUNT}:queue",
    "states:DescribeExecution": f"arn:aws:states:us-east-1:{ACCOUNT}:execution:Train:run-1",
    "states:StartExecution": f"{MACHINE}:Train",
    "sts:AssumeRole": f"arn:aws:iam::{ACCOUNT}:role/Job",
}
WITH_POLICIES = ("ecr", "events", "kms", "lambda", "s3", "sns", "sqs", "sts")
ALWAYS_WITH_POLICY = ("kms:Decrypt", "sts:AssumeRole")
_TEXT = ["StringEquals", "StringEqualsIgnoreCase", "StringLike"]
_TEXT += ["StringNotEquals", "StringNotEqualsIgnoreCase", "StringNotLike"]
_ARN = ["ArnEquals", "ArnLike", "ArnNotEquals", "ArnNotLike", "StringEquals", "StringLike", "StringNotLike"]
_DATE = [
    f"Date{name}" for name in ("Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals")
]
_SETS = [
    f"{quantifier}:{operator}"
    for quantifier in ("ForAllValues", "ForAnyValue")
    for operator in ("StringEquals", "StringLike", "StringNotEquals")
]
# Condition keys with their operators and the values to compare with.
CONDITIONS: dict[str, tuple[list[str], list[str]]] = {
    "aws:CurrentTime": (_DATE, ["2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2026-11-27T12:00:00Z"]),
    "aws:EpochTime": (_DATE, ["1577836800", "1893456000"]),
    "aws:PrincipalAccount": (_TEXT, [ACCOUNT, OTHER, "1234*"]),
    "aws:PrincipalArn": (
        _ARN,
        [ROLE, USER, SESSION, "arn:aws:iam::*:role/*", f"arn:aws:iam::{ACCOUNT}:role/R?le", "arn:aws:iam::*"],
    ),
    "aws:PrincipalType": (_TEXT, ["AssumedRole", "User", "Account"]),
    "aws:RequestTag/team": (_TEXT, ["vision", "text", "vis*"]),
    "aws:RequestedRegion": (_TEXT, ["us-east-1", "eu-west-1", "us-*", "US-EAST-1"]),
    "aws:ResourceTag/owner": (_TEXT, ["me", "you", "m?"]),
    "aws:SecureTransport": (["Bool"], ["true", "false"]),
    "aws:SourceAccount": (_TEXT, [ACCOUNT, OTHER]),
    "aws:SourceArn": (_ARN, [f"{MACHINE}:Train", "arn:aws:states:*:*:stateMachine:*", "arn:aws:*"]),
    "aws:TagKeys": (_SETS, ["team", "cost", "stage"]),
    "aws:ViaAWSService": (["Bool"], ["true", "false"]),
    "s3:prefix": (_TEXT, ["a/", "b/", "a/*"]),
}
_PRINCIPALS = [ROLE, ROLE, SESSION, USER, f"arn:aws:iam::{ACCOUNT}:root", ACCOUNT, "*"]
_PRINCIPALS += [f"arn:aws:iam::{OTHER}:root", f"arn:aws:iam::{OTHER}:role/Role"]


@dataclass
class Case:
    """A request of a role's session or a user, and the policies that decide it."""

    action: str
    is_user: bool
    context: dict[str, str | list[str]]
    identity: list[dict[str, Any]]
    of_resource: dict[str, Any] | None
    boundary: dict[str, Any] | None
    session: dict[str, Any] | None
    organization: list[list[dict[str, Any]]] = field(default_factory=list)
    resource: str = field(init=False)

    def __post_init__(self) -> None:
        self.resource = CALLS[self.action]

    @property
    def principal(self) -> str:
        return USER if self.is_user else SESSION

    @property
    def identity_arn(self) -> str:
        return USER if self.is_user else ROLE


class Drawn:
    """Cases of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self) -> Case:
        action = self._one(*CALLS)
        is_user = self._often(0.35)
        service = action.partition(":")[0]
        of_resource = None
        if action in ALWAYS_WITH_POLICY or (service in WITH_POLICIES and self._often(0.6)):
            of_resource = self._policy(action, of_resource=True)
        if of_resource and action == "sts:AssumeRole":  # a trust policy has no resource
            for statement in of_resource["Statement"]:
                statement.pop("Resource", None)
                statement.pop("NotResource", None)
        return Case(
            action,
            is_user,
            self._context(action, is_user),
            [self._policy(action) for _ in range(self._one(0, 1, 1, 2))],
            of_resource,
            boundary=self._policy(action) if self._often(0.2) else None,
            session=self._policy(action) if not is_user and self._often(0.2) else None,
            organization=[self._level(action) for _ in range(self._one(1, 2))] if self._often(0.2) else [],
        )

    def _level(self, action: str) -> list[dict[str, Any]]:
        """The service control policies of a level of an organization, most of which have FullAWSAccess."""
        full = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
        return [self._policy(action), *([full] if self._often(0.6) else [])]

    def _context(self, action: str, is_user: bool) -> dict[str, str | list[str]]:
        context: dict[str, str | list[str]] = {
            "aws:CurrentTime": "2026-11-27T12:00:00Z",
            "aws:EpochTime": "1795780800",
            "aws:PrincipalAccount": ACCOUNT,
            "aws:PrincipalArn": USER if is_user else ROLE,
            "aws:PrincipalType": "User" if is_user else "AssumedRole",
            "aws:RequestedRegion": "us-east-1",
            "aws:ResourceAccount": ACCOUNT,
            "aws:SecureTransport": "true",
            "aws:ViaAWSService": "false",
        }
        if self._often(0.3):
            context["aws:SourceAccount"] = self._one(ACCOUNT, OTHER)
        if self._often(0.3):
            context["aws:SourceArn"] = f"{MACHINE}:{self._one('Train', 'Other')}"
        if action == "sagemaker:CreateTrainingJob" and self._often(0.6):
            context["aws:TagKeys"] = tags = self._random.sample(["team", "cost", "owner"], self._one(1, 2))
            if "team" in tags:
                context["aws:RequestTag/team"] = self._one("vision", "text")
        if action.startswith("sagemaker:") and CALLS[action] != "*":
            context["aws:ResourceTag/owner"] = self._one("me", "you")
        if action == "s3:ListBucket" and self._often(0.6):
            context["s3:prefix"] = self._one("a/", "b/", "a/c")
        return context

    def _policy(self, action: str, *, of_resource: bool = False) -> dict[str, Any]:
        statements = [self._statement(action, of_resource) for _ in range(self._one(1, 1, 2, 3))]
        return {"Version": "2012-10-17", "Statement": statements}

    def _statement(self, action: str, of_resource: bool) -> dict[str, Any]:
        statement: dict[str, Any] = {"Effect": self._one("Allow", "Allow", "Allow", "Deny")}
        statement["NotAction" if self._often(0.12) else "Action"] = self._some(lambda: self._action(action))
        resource = CALLS[action]
        statement["NotResource" if self._often(0.1) else "Resource"] = self._some(lambda: self._resource(resource))
        if self._often(0.4):
            statement["Condition"] = self._condition()
        if of_resource:
            negated = statement["Effect"] == "Deny" and self._often(0.3)
            statement["NotPrincipal" if negated else "Principal"] = self._principal(negated)
        return statement

    def _principal(self, negated: bool) -> Any:
        named = {"AWS": self._some(lambda: self._one(*_PRINCIPALS))}
        anybody = [] if negated else ["*"]
        service = {"Service": "states.amazonaws.com"}
        return self._one(named, named, {**named, "Service": "lambda.amazonaws.com"}, service, *anybody)

    def _action(self, action: str) -> str:
        service, name = action.split(":")
        part = name[: self._random.randrange(1, len(name))]
        other = self._one(*CALLS)
        return self._one(
            action, action, action.lower(), action.upper(), f"{service}:{part}*", f"{service}:*", "*", other
        )

    def _resource(self, resource: str) -> str:
        if resource == "*" or self._often(0.25):
            return "*"
        if self._often(0.15):
            return self._one(*CALLS.values())
        parts = resource.split(":", 5)
        if self._often(0.1):
            parts[4] = parts[4].replace(ACCOUNT, "${aws:PrincipalAccount}")
        if self._often(0.1):
            parts[3] = "*" if parts[3] else ""
        last = self._wild(parts[5])
        # IAM's guide calls a wildcard in the resource's type incorrect, and does not say what it matches.
        of_type = re.match(r"[^/:]*(?=[/:])", last)
        if of_type and parts[2] != "s3" and re.search(r"[*?$]", of_type[0]):
            last = parts[5]
        return ":".join([*parts[:5], last])

    def _wild(self, text: str) -> str:
        first, second = sorted(self._random.randrange(len(text) + 1) for _ in range(2))
        one = min(first, len(text) - 1)
        variable = f"{text[:first]}${{aws:RequestedRegion}}{text[first:]}"
        ends = [f"{text[:first]}*", f"{text[:first]}*{text[second:]}", f"{text[:one]}?{text[one + 1 :]}"]
        return self._one(text, *ends, "*", variable)

    def _condition(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self._one(1, 1, 2)):
            key = self._one(*CONDITIONS)
            operators, values = CONDITIONS[key]
            operator = self._one(*operators) + ("IfExists" if self._often(0.15) else "")
            wanted: Any = self._some(lambda values=values: self._one(*values))  # type: ignore[misc]
            if self._often(0.1):
                operator, wanted = "Null", self._one("true", "false")
            found.setdefault(operator, {})[key] = wanted
        return found

    def _some(self, draw: Callable[[], Any]) -> Any:
        found = [draw() for _ in range(self._one(1, 1, 1, 2))]
        return found[0] if len(found) == 1 and self._often(0.6) else found

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _often(self, probability: float) -> bool:
        return self._random.random() < probability
