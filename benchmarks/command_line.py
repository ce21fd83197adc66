"""How long the command line takes to start, beside torchx's and SkyPilot's where they are installed, and to list 1,000 jobs.

    python benchmarks/command_line.py [--jobs 1000]

Each row is the median of several runs of a command that is typed anew. The jobs of the list are a local account's, and fail
at once. A call lists 100 jobs at most, and an account has two such calls a second, here as on AWS: a list of 1,000 takes four
seconds or more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from rich.console import Console
from rich.table import Table

from sagemaker_local_account.account import LocalAccount

RUNS = 7
OURS = str(Path(sys.prefix) / "bin" / "training-jobs")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=1000)
    jobs = arguments.parse_args().jobs
    table = Table("command", "seconds", "of a processor")
    for command in ([OURS, "--help"], ["torchx", "--help"], ["sky", "--help"], [sys.executable, "-c", "pass"]):
        if shutil.which(command[0]):
            table.add_row(" ".join([Path(command[0]).name, *command[1:]]), *measured(command, os.environ))
    with tempfile.TemporaryDirectory() as folder, LocalAccount(state=Path(folder)) as account:
        environment = account.environment()
        create(environment, jobs)
        for options in ([], ["--limit", str(jobs)]):
            command = [OURS, "list", *options]
            table.add_row(
                " ".join(["training-jobs", *command[1:], f"(of {jobs} jobs)"]), *measured(command, environment)
            )
    Console().print(table)


def measured(command: list[str], environment: Mapping[str, str]) -> tuple[str, str]:
    """The median seconds of a command, and of a processor's."""
    seconds, processor = [], []
    for _ in range(RUNS):
        start, before = time.perf_counter(), os.times()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
        after = os.times()
        processor.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return f"{statistics.median(seconds):.2f}", f"{statistics.median(processor):.2f}"


def create(environment: Mapping[str, str], jobs: int) -> None:
    """Jobs whose image is not there, so that they fail before they have a host."""
    session = boto3.Session(
        environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], region_name=environment["AWS_REGION"]
    )

    def client(service: str) -> Any:
        return session.client(service, endpoint_url=environment["AWS_ENDPOINT_URL"])

    trust = (
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", '
        '"Principal": {"Service": "sagemaker.amazonaws.com"}}]}'
    )
    role = client("iam").create_role(RoleName="Jobs", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    client("s3").create_bucket(Bucket="jobs-bucket")
    sagemaker = client("sagemaker")
    for number in range(jobs):
        sagemaker.create_training_job(
            TrainingJobName=f"job-{number}",
            AlgorithmSpecification={
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/nothing:1",
                "TrainingInputMode": "File",
            },
            RoleArn=role,
            OutputDataConfig={"S3OutputPath": "s3://jobs-bucket/models"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )


if __name__ == "__main__":
    main()
