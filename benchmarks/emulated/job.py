"""The emulation as a training job, deployed to the local account and started through the state machine.

    python benchmarks/emulated/job.py

It emulates ResNet-50 on 96 + 144 vCPUs, the 96 as local workers, and takes a minute. It exits with 1 where the step is not within
5 % of the ideal, which is not reached where local workers are used only after the training has waited.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3
from article import SETUPS
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2]))

from demo import cdk, describe, empty, step, watch

from sagemaker_local_account.account import LocalAccount

APP = ("--app", f"{sys.executable} {Path(__file__).with_name('app.py')}")
STACK, SETUP, CLOSE = "Emulated", SETUPS[1], 0.05


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        account = LocalAccount(state=Path(folder))
        with step(console, "start the account"):
            account.start()
        try:
            milliseconds = run(console, account)
        finally:
            account.close()
    deviation = milliseconds / (1000 * SETUP.ideal) - 1
    console.print(f"step {milliseconds:.1f} ms, ideal {1000 * SETUP.ideal:.1f} ms, off by {deviation:+.1%}")
    return 0 if abs(deviation) <= CLOSE else 1


def run(console: Console, account: Any) -> float:
    """The job's own metric: milliseconds of a step."""
    environment = account.environment()
    keys = (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
    session = boto3.Session(*keys, region_name=environment["AWS_REGION"])

    def client(service: str) -> Any:
        return session.client(service, endpoint_url=environment["AWS_ENDPOINT_URL"])

    with step(console, "cdk bootstrap"):
        cdk(environment, "bootstrap", *APP)
    outputs = account.state / "outputs.json"
    with step(console, f"cdk deploy {STACK}"):
        cdk(environment, "deploy", STACK, *APP, "--require-approval", "never", "--outputs-file", str(outputs))
    said = json.loads(outputs.read_text())[STACK]
    try:
        started = client("stepfunctions").start_execution(stateMachineArn=said["StateMachineArn"])
        watch(environment, started["executionArn"], None)
        job = describe(environment, started["executionArn"])
        return next(metric["Value"] for metric in job["FinalMetricDataList"] if metric["MetricName"] == "step time")
    finally:
        with step(console, "cdk destroy"):
            empty(client("s3"), said["BucketName"])
            cdk(environment, "destroy", STACK, *APP, "--force")


if __name__ == "__main__":
    sys.exit(main())
