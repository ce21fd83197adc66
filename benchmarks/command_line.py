"""How long `training-jobs --help` takes beside torchx's, and `training-jobs list` beside the AWS CLI's list of as many jobs.

    python benchmarks/command_line.py [--jobs 1000] [--runs 7] [--json]

torchx comes from PyPI into an environment of its own, build/peers, at the first run. Each run is a process of its own, and the
commands take turns, so that all are measured in the same minutes; a ratio is the median of those to the peer's run of the same
turn. `python -c pass` is what no command of Python's can be below. Python's bytecode is there, as pip writes it where it installs
a package, and a run before those that are measured writes that of this checkout. The account is a local one, whose jobs fail at
once, since their image is not there.

`list` shows the newest 50 of the jobs. `list --limit 1000` takes ten calls, since ListTrainingJobs lists 100 jobs at most
(`MaxResults` in the service model), and an account has two such calls a second (aws-solutions/deepracer-on-aws 87), here as on
AWS: four seconds or more. Ends with 1 where a median is above its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import boto3
from rich import box
from rich.console import Console
from rich.table import Table

from sagemaker_local_account.account import LocalAccount

OURS = str(Path(sys.prefix) / "bin" / "training-jobs")
PEER = "torchx==0.7.0"
PEERS = Path(__file__).parents[1] / "build" / "peers"
HELP_LIMIT, LIST_LIMIT = 0.3, 2.0  # seconds


@dataclass(frozen=True)
class Measured:
    """A command's runs; seconds of the wall and of a processor."""

    command: str
    median: float
    least: float
    most: float
    processor: float
    ratio: float  # to the peer
    limit: float | None

    @property
    def passed(self) -> bool:
        return self.limit is None or self.median <= self.limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000, help="how many jobs the account has (1000)")
    parser.add_argument("--runs", type=int, default=7, help="how often each command runs (7)")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as a table")
    options = parser.parse_args()
    measured = [*measure_help(options.runs), *measure_list(options.runs, options.jobs)]
    if options.json:
        print(json.dumps([{**asdict(it), "passed": it.passed} for it in measured], indent=2))
    else:
        show(measured)
    return 0 if all(it.passed for it in measured) else 1


def measure_help(runs: int) -> list[Measured]:
    commands = {
        "torchx --help": [peer(), "--help"],
        "training-jobs --help": [OURS, "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    return measure(commands, os.environ, runs, {"training-jobs --help": HELP_LIMIT})


def measure_list(runs: int, jobs: int) -> list[Measured]:
    aws = [str(Path(sys.prefix) / "bin" / "aws"), "sagemaker", "list-training-jobs", "--max-items", "50"]
    commands = {
        "aws sagemaker list-training-jobs --max-items 50": aws,
        "training-jobs list": [OURS, "list"],
        f"training-jobs list --limit {jobs}": [OURS, "list", "--limit", str(jobs)],
    }
    with tempfile.TemporaryDirectory() as folder, LocalAccount(state=Path(folder)) as account:
        environment = account.environment()
        create(environment, jobs)
        return measure(commands, environment, runs, {"training-jobs list": LIST_LIMIT})


def measure(
    commands: Mapping[str, list[str]], environment: Mapping[str, str], runs: int, limits: Mapping[str, float]
) -> list[Measured]:
    """Run the commands in turn; the first is the peer."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {key: value for key, value in environment.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        for turn in range(-1, runs):
            for name, command in commands.items():
                took = run(command, environment)
                if turn >= 0:
                    seconds[name].append(took)
    first = [wall for wall, _ in next(iter(seconds.values()))]
    return [
        Measured(
            name,
            statistics.median(wall for wall, _ in taken),
            min(wall for wall, _ in taken),
            max(wall for wall, _ in taken),
            statistics.median(processor for _, processor in taken),
            statistics.median(wall / other for (wall, _), other in zip(taken, first, strict=True)),
            limits.get(name),
        )
        for name, taken in seconds.items()
    ]


def run(command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    start, before = time.perf_counter(), os.times()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, processor


def peer() -> str:
    """The command of torchx, installed where it is not yet."""
    home = PEERS / PEER.replace("==", "-")
    if not (home / "complete").exists():
        venv.EnvBuilder(clear=True).create(home)
        pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", PEER], check=True)
        (home / "complete").touch()
    return str(home / "bin" / "torchx")


def show(measured: list[Measured]) -> None:
    table = Table("command", "median s", "least - most", "CPU s", "ratio", "limit", box=box.SIMPLE)
    for it in measured:
        limit = "" if it.limit is None else f"{it.limit} s: {'passed' if it.passed else 'missed'}"
        spread = f"{it.least:.2f} - {it.most:.2f}"
        table.add_row(it.command, f"{it.median:.2f}", spread, f"{it.processor:.2f}", f"{it.ratio:.2f}", limit)
    Console(width=120).print(table)


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
    sys.exit(main())
