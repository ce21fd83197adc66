"""checkov, which holds templates against rules of security, over the examples and the stacks with all that the library makes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from reasons import Finding, needless, unexplained
from under_review import STACKS, template_of

HERE = Path(__file__).parent
pytestmark = pytest.mark.soak

# Why a finding stays: rule, and the resource's type and logical id. One that is found no more may not stand here.
REASONS: Mapping[Finding, str] = {
    ("CKV_AWS_18", "AWS::S3::Bucket.BucketAccessLogs*"): "it holds the access logs of the other bucket",
    ("CKV_AWS_21", "AWS::S3::Bucket.Bucket*"): (
        "each execution writes keys of its own, and versions of checkpoints that a script deletes would be kept and billed; "
        "TrainingBucket(versioned=True) has them"
    ),
    ("CKV_AWS_27", "AWS::SQS::Queue.*DeadLetterQueue*"): (
        "SQS encrypts it with a key of its own (SqsManagedSseEnabled, which this rule does not look at); it holds the ARNs of "
        "executions"
    ),
    ("CKV_AWS_33", "AWS::KMS::Key.Key*"): (
        "FSx's role is made with its file system, so that no policy can name it; a condition names it instead"
    ),
    ("CKV_AWS_136", "AWS::ECR::Repository.*"): "ECR encrypts it with a key of its own; it has no data of the user's",
    ("CKV_AWS_158", "AWS::Logs::LogGroup.*"): (
        "CloudWatch encrypts it with a key of its own; executions are logged without their data, flow logs have addresses "
        "only, and `logs=` takes a group with a key"
    ),
    **{
        (rule, "AWS::Lambda::Function.SageMakerTrainingJobsHandler*"): (
            "CloudFormation calls it when a workflow is deleted, and notices where it does not respond; it calls AWS's APIs only"
        )
        for rule in ("CKV_AWS_115", "CKV_AWS_116", "CKV_AWS_117")
    },
    **{
        (rule, "AWS::Lambda::Function.SageMakerTrainingRulesHandler*"): (
            "the poller of a workflow calls it at each poll, and goes on where it fails; it calls AWS's APIs only"
        )
        for rule in ("CKV_AWS_115", "CKV_AWS_116", "CKV_AWS_117")
    },
    **{
        (rule, "AWS::Lambda::Function.SageMakerTrainingWaitingHandler*"): (
            "a schedule calls it again and again, so that the next call looks at what one missed; it calls AWS's APIs only"
        )
        for rule in ("CKV_AWS_115", "CKV_AWS_116", "CKV_AWS_117")
    },
    **{
        (rule, "AWS::Lambda::Function.SweepFunction*"): (
            "the state machine of a sweep calls it, retries, and fails where it does; it calls S3 only"
        )
        for rule in ("CKV_AWS_115", "CKV_AWS_116", "CKV_AWS_117")
    },
    **{
        (
            rule,
            f"AWS::Lambda::Function.{function}*",
        ): "CDK's own function, which runs while the stack is deployed or destroyed"
        for rule in ("CKV_AWS_115", "CKV_AWS_116", "CKV_AWS_117")
        for function in ("CustomS3AutoDeleteObjects", "DeployTimeBuild")
    },
}


@pytest.fixture(scope="module")
def check(programs_of: Callable[[Path], Path]) -> Callable[[Path], list[Finding]]:
    """What checkov finds in a folder of templates. It calls nobody: its rules come with it."""

    def run(folder: Path) -> list[Finding]:
        programs = programs_of(HERE / "requirements-checkov.txt")
        command = [str(programs / "checkov"), "--directory", str(folder), "--framework", "cloudformation"]
        done = subprocess.run(
            [*command, "--output", "json", "--compact", "--quiet", "--soft-fail", "--skip-download"],
            env={"PATH": f"{programs}:{os.defpath}", "HOME": str(folder), "LOG_LEVEL": "ERROR"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        report: dict[str, Any] = json.loads(done.stdout)
        assert report["summary"]["parsing_errors"] == 0
        assert report["summary"]["resource_count"]
        return sorted({(one["check_id"], one["resource"]) for one in report["results"]["failed_checks"]})

    return run


@pytest.fixture(scope="module")
def found(check: Callable[[Path], list[Finding]], tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    folder = tmp_path_factory.mktemp("templates")
    for name in STACKS:
        (folder / f"{name}.json").write_text(json.dumps(template_of(name)))
    return check(folder)


def test_nothing_is_found_that_has_no_reason(found: list[Finding]) -> None:
    left = unexplained(found, REASONS)
    assert not left, f"fix what checkov finds, or add it with the reason why it stays to REASONS of {__file__}: {left}"


def test_no_reason_is_left_of_what_is_not_found(found: list[Finding]) -> None:
    assert needless(found, REASONS) == []


def test_a_bucket_that_everybody_may_read_is_found(check: Callable[[Path], list[Finding]], tmp_path: Path) -> None:
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"AccessControl": "PublicRead"}}
    (tmp_path / "open.json").write_text(json.dumps({"Resources": {"Bucket": bucket}}))
    assert ("CKV_AWS_20", "AWS::S3::Bucket.Bucket") in check(tmp_path)
