"""An app for another region than us-east-1: it bootstraps, deploys and trains there, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingWorkflow,
)

pytestmark = pytest.mark.soak  # tests/local_account/test_regions.py has jobs of two regions, and what is refused

REGIONS = ("eu-west-1", "us-east-1")
REGION, OTHER = REGIONS
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
ONE_HOST = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
# By `.sync`, and, since `.sync` is not known to take instance groups, by the loop.
KINDS = {
    "Sync": ONE_HOST,
    "Loop": HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge")}, train=ONE_HOST, train_group="dnn_group"
    ),
}


class InEurope(cdk.Stack):
    """Workflows in the region, and a queue that has the events of their jobs."""

    def __init__(self, app: cdk.App, folder: Path) -> None:
        super().__init__(app, "InEurope", env=cdk.Environment(account="123456789012", region=REGION))
        (folder / "Dockerfile").write_text(
            "FROM python:3.11\n"
            'ENTRYPOINT ["sh", "-ec", "echo trains in $AWS_REGION; echo model > /opt/ml/model/model.txt"]\n'
        )
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=str(folder))
        queue = sqs.Queue(self, "Queue")
        rule = events.Rule(self, "Rule", event_pattern=events.EventPattern(source=["aws.sagemaker", "aws.states"]))
        rule.add_target(targets.SqsQueue(queue))
        cdk.CfnOutput(self, "QueueUrl", value=queue.queue_url)
        for name, job in KINDS.items():
            workflow = TrainingWorkflow(
                self,
                name,
                job=job,
                image=image,
                output=S3Prefix(bucket, "models/"),
                max_runtime=cdk.Duration.minutes(30),
            )
            cdk.CfnOutput(self, f"{name}Arn", value=workflow.state_machine.state_machine_arn)


@dataclass(frozen=True)
class Ran:
    """An execution in the region, and its job."""

    deployed: Deployed
    queue: str
    execution: dict[str, Any]
    job: dict[str, Any]


@pytest.fixture(scope="module")
def outputs(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    app = cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))
    return deployed.deploy(InEurope(app, tmp_path_factory.mktemp("image")))


@pytest.fixture(scope="module", params=KINDS)
def ran(deployed: Deployed, outputs: dict[str, str], request: pytest.FixtureRequest) -> Ran:
    execution = deployed.start(outputs[f"{request.param}Arn"])
    ended = deployed.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended
    return Ran(deployed, outputs["QueueUrl"], ended, deployed.the_job_of(execution))


def test_an_execution_and_its_job_are_of_the_region(ran: Ran) -> None:
    begins = ran.job["TrainingJobArn"], ran.execution["executionArn"]
    assert [arn.split(":")[3] for arn in begins] == [REGION, REGION]


def test_its_image_is_of_the_registry_of_the_region(ran: Ran) -> None:
    host = ran.job["AlgorithmSpecification"]["TrainingImage"].partition("/")[0]
    assert host == f"123456789012.dkr.ecr.{REGION}.amazonaws.com"


def test_its_script_and_its_log_are_in_the_region(ran: Ran) -> None:
    assert set(ran.deployed.said(ran.job["TrainingJobName"])) == {f"trains in {REGION}"}


def test_nothing_of_it_is_in_another_region(ran: Ran) -> None:
    jobs = ran.deployed.client("sagemaker", OTHER).list_training_jobs()["TrainingJobSummaries"]
    groups = ran.deployed.client("logs", OTHER).describe_log_groups()["logGroups"]
    machines = ran.deployed.client("stepfunctions", OTHER).list_state_machines()["stateMachines"]
    assert (jobs, groups, machines) == ([], [], [])


def test_the_events_of_both_name_the_region(ran: Ran) -> None:
    wanted = {("aws.sagemaker", ran.job["TrainingJobArn"]), ("aws.states", ran.execution["executionArn"])}
    seen: set[tuple[str, str]] = set()

    def heard() -> bool:
        found = ran.deployed.client("sqs").receive_message(QueueUrl=ran.queue, MaxNumberOfMessages=10)
        for event in (json.loads(message["Body"]) for message in found.get("Messages", [])):
            assert event["region"] == REGION
            seen.add((event["source"], event["resources"][0]))
        return wanted <= seen

    wait_until(heard)


def refused(deployed: Deployed, folder: Path, account: str, region: str) -> str:
    """What the CDK CLI prints of a stack of another place."""
    app = cdk.App(outdir=str(folder))
    stack = cdk.Stack(app, "Elsewhere", env=cdk.Environment(account=account, region=region))
    sqs.Queue(stack, "Queue")
    done = deployed.cdk_called("deploy", "--app", app.synth().directory, "--require-approval", "never")
    assert done.returncode != 0
    return done.stdout


def test_a_stack_for_a_region_that_the_account_does_not_have_is_refused_with_what_to_change(
    deployed: Deployed, tmp_path: Path
) -> None:
    printed = refused(deployed, tmp_path, "123456789012", "ap-southeast-2")
    assert "`local-account --region eu-west-1 --region us-east-1 --region ap-southeast-2`" in printed


def test_a_stack_for_another_account_is_refused_with_what_to_change(deployed: Deployed, tmp_path: Path) -> None:
    printed = refused(deployed, tmp_path, "999999999999", REGION)
    assert "is of account 999999999999, and the local account is 123456789012; set the account of the stack's env" in (
        printed
    )
