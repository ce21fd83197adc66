"""docs/deploy.md as typed: "Step by step", in two terminals, and its way to AWS."""

import hashlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import boto3
import pytest

ROOT = Path(__file__).parents[2]
# What a clone sets up first, and these tests have been set up with.
SET_UP = ("make setup", ". .venv/bin/activate", "PATH=$PWD/node_modules/.bin:$PATH")


def typed(title: str) -> list[list[str]]:
    """The lines of each console block of a section."""
    section = (ROOT / "docs" / "deploy.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [[line for line in block.splitlines() if line not in SET_UP] for block in blocks]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    subprocess.run(["git", "-C", str(ROOT), "checkout-index", "--all", f"--prefix={tmp_path}/clone/"], check=True)
    return tmp_path / "clone"


def make_older_jobs(exports: dict[str, str], names: list[str]) -> None:
    """Jobs that fail at once, since their image is not there."""
    session = boto3.Session(exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"], region_name="us-east-1")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "sagemaker.amazonaws.com"}}
    iam = session.client("iam", endpoint_url=exports["AWS_ENDPOINT_URL"])
    policy = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = iam.create_role(RoleName="OlderJobs", AssumeRolePolicyDocument=policy)["Role"]["Arn"]
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    allowed = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
    iam.put_role_policy(RoleName="OlderJobs", PolicyName="Everything", PolicyDocument=allowed)
    session.client("s3", endpoint_url=exports["AWS_ENDPOINT_URL"]).create_bucket(Bucket="older-jobs")
    sagemaker = session.client("sagemaker", endpoint_url=exports["AWS_ENDPOINT_URL"])
    for name in names:
        sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/nothing:1",
                "TrainingInputMode": "File",
            },
            RoleArn=role,
            OutputDataConfig={"S3OutputPath": "s3://older-jobs/models"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )


@pytest.mark.soak  # its commands take a minute of a processor; test_destroy.py deploys the stack, test_train.py trains its hosts
def test_step_by_step_works_as_typed_twice_beside_ten_older_jobs(clone: Path) -> None:
    account, deployment, start, stop, deletion = typed("Step by step")
    environment = {**os.environ, "PATH": f"{ROOT}/node_modules/.bin:{os.environ['PATH']}", "AWS_PROFILE": "another"}
    with subprocess.Popen(account, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            exports = []
            for line in running.stdout:
                exports.append(line)
                if "Ctrl-C" in line:
                    break
            # As those of the workflow's older executions are named.
            older = [f"HeterogeneousTraining-{hashlib.md5(bytes([number])).hexdigest()}-1" for number in range(10)]
            make_older_jobs(dict(re.findall(r"^export (\w+)=(\S+)$", "".join(exports), re.MULTILINE)), older)
            lines = [*deployment, *(start + stop) * 2, *deletion]
            done = subprocess.run(
                ["bash", "-exo", "pipefail", "-c", "".join(exports) + "\n".join(lines)],
                cwd=clone,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        finally:
            running.send_signal(signal.SIGINT)
    assert done.returncode == 0, done.stdout
    assert '"SecondaryStatus": "' in done.stdout
    assert '"searchedLogStreams"' in done.stdout
    # Each job is that of the execution which was started, whatever other jobs there are.
    executions = re.findall(r"^\+ EXECUTION=(\S+)$", done.stdout, re.MULTILINE)
    assert len({*executions}) == 2
    jobs = [name for name in re.findall(r"^\+ JOB=(\S+)$", done.stdout, re.MULTILINE) if name != "None"]
    assert len(jobs) == 2
    for execution, job in zip(executions, jobs, strict=True):
        assert hashlib.md5(execution.encode(), usedforsecurity=False).hexdigest() in job
    assert "HeterogeneousTraining: destroyed" in done.stdout
    assert running.returncode == 0


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A folder with the command `docker`, logged in to nothing.

    A double, since there is no Docker engine where these tests run: it is the account's own, which refuses ECR's private
    registries without a log-in and takes its public gallery, as Docker does.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text('#!/bin/sh\nexec "$CDK_DOCKER" "$@"\n')
    (folder / "docker").chmod(0o755)
    return folder


@pytest.mark.soak  # the test before deploys the same stack; tests/local_account/test_docker.py has who needs a log-in
def test_the_way_to_aws_reaches_the_deployment_with_a_docker_that_is_logged_in_to_nothing(
    clone: Path, docker: Path
) -> None:
    [deployment] = typed("On AWS")
    done = subprocess.run(
        ["local-account", "run", "--", "bash", "-exo", "pipefail", "-c", "\n".join(deployment)],
        cwd=clone,
        env={**os.environ, "PATH": f"{docker}:{ROOT}/node_modules/.bin:{os.environ['PATH']}"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "FROM public.ecr.aws/deep-learning-containers/pytorch:" in done.stdout
    assert "HeterogeneousTraining.StateMachineArn = " in done.stdout
