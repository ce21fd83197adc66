"""The AWS CLI and boto3, with nothing but the account's environment: a job, its log, its model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from two_groups import LINES, LOG_GROUP, WEIGHTS, Place, files_of, groups_of


def aws(place: Place, *arguments: str) -> str:
    """The AWS CLI's output."""
    done = subprocess.run(
        ["aws", *arguments], env=place.running.account.environment(), text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait(place: Place, name: str) -> None:
    # With AWS's delays: the CLI looks each two minutes, boto3 as often as it is told.
    waiter = place.running.client("sagemaker").get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})


@pytest.mark.soak  # test_deploying.py types the AWS CLI's commands, and the next test has both groups
def test_the_aws_cli_creates_a_job_of_two_groups_reads_its_log_and_fetches_its_model(
    place: Place, tmp_path: Path
) -> None:
    request = tmp_path / "job.json"
    request.write_text(json.dumps(place.request("by-cli")))
    aws(place, "sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")
    wait(place, "by-cli")
    aws(place, "sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", "by-cli")
    job = json.loads(aws(place, "sagemaker", "describe-training-job", "--training-job-name", "by-cli"))
    events = ("logs", "filter-log-events", "--log-group-name", LOG_GROUP, "--log-stream-name-prefix", "by-cli/")
    said = aws(place, *events, "--query", "events[].message", "--output", "text").strip().split("\t")
    aws(place, "s3", "cp", job["ModelArtifacts"]["S3ModelArtifacts"], str(tmp_path))
    assert (job["TrainingJobStatus"], groups_of(job)) == ("Completed", {"data_group": 1, "dnn_group": 2})
    assert sorted(said) == LINES
    assert files_of(tmp_path / "model.tar.gz") == WEIGHTS


def test_boto3_creates_a_job_of_two_groups_reads_its_log_and_fetches_its_model(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in place.running.account.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    session = boto3.Session()
    sagemaker = session.client("sagemaker")
    sagemaker.create_training_job(**place.request("by-boto3"))
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName="by-boto3", WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    job = sagemaker.describe_training_job(TrainingJobName="by-boto3")
    found = session.client("logs").filter_log_events(logGroupName=LOG_GROUP, logStreamNamePrefix="by-boto3/")
    bucket, key = job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").split("/", 1)
    session.client("s3").download_file(bucket, key, str(tmp_path / "model.tar.gz"))
    assert (job["TrainingJobStatus"], groups_of(job)) == ("Completed", {"data_group": 1, "dnn_group": 2})
    assert sorted(event["message"] for event in found["events"]) == LINES
    assert files_of(tmp_path / "model.tar.gz") == WEIGHTS


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.soak)])
def test_every_client_of_the_aws_cli_has_the_accounts_endpoint(place: Place, every: int) -> None:
    """Of each ``every``-th service, by name."""
    program = """
import sys
import awscli.clidriver
session = awscli.clidriver.create_clidriver().session
for service in sorted(session.get_available_services())[:: int(sys.argv[1])]:
    print(session.create_client(service).meta.endpoint_url)
"""
    python = Path(sys.prefix) / "bin" / "python"
    environment = place.running.account.environment()
    command = [str(python), "-c", program, str(every)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    urls = done.stdout.split()
    assert len(urls) > 300 / every
    assert set(urls) == {environment["AWS_ENDPOINT_URL"]}
