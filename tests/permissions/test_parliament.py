"""parliament, a linter of IAM policies with data of its own, on every statement that the library writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from reasons import Finding, needless, unexplained
from under_review import STACKS, held_by

HERE = Path(__file__).parent
# Why a finding stays: whose statement, what is found, what it is about. One that is found no more may not stand here.
REASONS: Mapping[Finding, str] = {
    ("job", "CREDENTIALS_EXPOSURE", "ecr:getauthorizationtoken"): "pulling an image takes it, and it has no resource",
    ("build", "CREDENTIALS_EXPOSURE", "ecr:getauthorizationtoken"): "as do pulling the base and pushing the image",
    ("job", "PERMISSIONS_MANAGEMENT_ACTIONS", "ec2:*networkinterfacepermission"): (
        "SageMaker attaches interfaces to its hosts by it; it is on interfaces in the network's subnets"
    ),
    ("job", "PERMISSIONS_MANAGEMENT_ACTIONS", "kms:creategrant"): "on one key, for services of AWS by a condition",
    ("machine", "PERMISSIONS_MANAGEMENT_ACTIONS", "iam:passrole"): "on the jobs' role, for SageMaker by a condition",
    ("*", "PERMISSIONS_MANAGEMENT_ACTIONS", "logs:putresourcepolicy"): "CDK's grant for the log of executions",
    ("machine", "RESOURCE_MISMATCH", "sagemaker:CreateTrainingJob"): (
        "parliament's data knows no training plans; AmazonSageMakerFullAccess has the action on them"
    ),
    ("*", "RESOURCE_MISMATCH", "states:DescribeExecution"): "on executions that are no express ones",
    ("handler", "RESOURCE_MISMATCH", "states:ListExecutions"): "on a state machine, not the runs of a distributed Map",
    ("waiter", "RESOURCE_MISMATCH", "states:ListExecutions"): "the same",
    (
        "build",
        "RESOURCE_MISMATCH",
        "s3:*",
    ): "CDK's s3:List* and s3:Get*, which stand for actions of other resources too",
    ("job", "UNKNOWN_ACTION", "Unknown action sagemaker-mlflow:*"): "MLflow 3's, newer than parliament's data",
    ("*", "UNKNOWN_ACTION", "Unknown action batch:*ServiceJob*"): "of July 2025, newer than parliament's data",
}


@pytest.fixture(scope="module")
def audit(programs_of: Callable[[Path], Path]) -> Callable[[list[Any]], list[list[list[str]]]]:
    def run(statements: list[Any]) -> list[list[list[str]]]:
        done = subprocess.run(
            [str(programs_of(HERE / "requirements-parliament.txt") / "python"), str(HERE / "audit.py")],
            input=json.dumps(statements),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return list(json.loads(done.stdout))

    return run


@pytest.fixture(scope="module")
def found(audit: Callable[[list[Any]], list[list[list[str]]]]) -> set[Finding]:
    # parliament does not know the policies of resources; their actions are held against IAM's definition.
    held = [one for name in STACKS for one in held_by(name) if "Principal" not in one.statement]
    findings = zip(held, audit([one.statement for one in held]), strict=True)
    return {(one.holder, issue, text) for one, each in findings for issue, text in each}


@pytest.mark.soak  # test_permission_sources.py holds each statement against IAM's own definition
def test_nothing_is_found_that_has_no_reason(found: set[Finding]) -> None:
    left = unexplained(found, REASONS)
    assert not left, (
        f"fix what parliament finds, or add it with the reason why it stays to REASONS of {__file__}: {left}"
    )


@pytest.mark.soak  # the same
def test_no_reason_is_left_of_what_is_not_found(found: set[Finding]) -> None:
    assert needless(found, REASONS) == []


def test_a_statement_that_is_wrong_is_found(audit: Callable[[list[Any]], list[list[list[str]]]]) -> None:
    statement = {"Effect": "Allow", "Action": ["s3:GetObjekt"], "Resource": "arn:aws:s3:::data/*"}
    assert audit([statement]) == [[["UNKNOWN_ACTION", "Unknown action s3:GetObjekt"]]]
