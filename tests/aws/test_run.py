"""`make test-aws`, against an account on this machine, as it would be run against AWS."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from account_process import Serving

HERE = Path(__file__).parent
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
# What makes the process that pytest-xdist started one of its own is not for the tests that the command runs.
OURS = ("PYTEST_XDIST", "PYTEST_CURRENT_TEST", "AWS_")


def environment(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith(OURS)}, **more}


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "run.py"), *arguments],
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What to export for an account on this machine that holds every call against its policies, not bootstrapped yet."""
    with Serving(tmp_path_factory.mktemp("account")) as account:
        yield account.exports


@pytest.fixture(scope="module")
def bootstrapped(exports: dict[str, str]) -> dict[str, str]:
    subprocess.run(
        ["cdk", "bootstrap"], cwd=HERE.parents[1], env=environment(**exports), check=True, capture_output=True
    )
    return exports


def client(exports: dict[str, str], service: str) -> Any:
    keys = exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"]
    return boto3.Session(*keys, region_name=exports["AWS_REGION"]).client(
        service, endpoint_url=exports["AWS_ENDPOINT_URL"]
    )


def nothing_is_left(exports: dict[str, str]) -> None:
    """There is nothing but the bootstrap's stack with its bucket."""
    stacks = [stack["StackName"] for stack in client(exports, "cloudformation").describe_stacks()["Stacks"]]
    assert stacks == ["CDKToolkit"]
    assert len(client(exports, "s3").list_buckets()["Buckets"]) == 1
    groups = client(exports, "logs").describe_log_groups(logGroupNamePrefix=LOG_GROUP)["logGroups"]
    for group in groups:
        assert client(exports, "logs").describe_log_streams(logGroupName=group["logGroupName"])["logStreams"] == []


def test_without_credentials_it_says_so_and_ends_with_2(tmp_path: Path) -> None:
    none = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    done = run("--yes", **none)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("test-aws: there are no AWS credentials: name a profile, like AWS_PROFILE=mine")


@pytest.mark.soak  # an account of its own
def test_where_the_cdk_is_not_bootstrapped_it_says_what_to_run_and_ends_with_2(exports: dict[str, str]) -> None:
    done = run("--yes", **exports)
    assert (done.returncode, done.stdout) == (2, "")
    assert "run cdk bootstrap aws://123456789012/us-east-1" in done.stderr


@pytest.mark.soak  # synthesizes every stack that is marked aws
def test_it_prints_what_it_would_create_and_cost_and_refuses_without_yes(bootstrapped: dict[str, str]) -> None:
    done = run(**bootstrapped)
    assert done.returncode == 2
    assert done.stderr == "test-aws: nothing was created; say --yes to agree\n"
    golden = HERE / "plan.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        golden.write_text(done.stdout)
    assert done.stdout == golden.read_text()


@pytest.mark.soak  # deploys a stack by the real CLI once more; test_unknowns.py has the test that it runs
def test_agreed_to_it_runs_a_test_and_leaves_no_stack_and_no_bucket(bootstrapped: dict[str, str]) -> None:
    done = run("--yes", "--only", "efs_is_mounted_without_a_role", **bootstrapped)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    nothing_is_left(bootstrapped)


@pytest.mark.soak  # make test has each of these tests in its own file
def test_agreed_to_it_runs_all_tests_and_leaves_no_stack_bucket_or_log_stream(bootstrapped: dict[str, str]) -> None:
    done = run("--yes", **bootstrapped)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = client(bootstrapped, "sagemaker").list_training_jobs(MaxResults=100)["TrainingJobSummaries"]
    assert len(jobs) > 10
    assert {job["TrainingJobStatus"] for job in jobs} == {"Completed", "Failed", "Stopped"}
    nothing_is_left(bootstrapped)
