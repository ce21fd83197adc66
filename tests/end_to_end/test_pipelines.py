"""Two jobs, one after the other, with a gate, an approval and a registration, through deployed state machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    Approval,
    ArtifactOf,
    DataParallelJob,
    Gate,
    InstanceGroup,
    RegisterModel,
    S3Prefix,
    TrainingImage,
    TrainingPipeline,
    TrainingWorkflow,
)
from sagemaker_local_account.faults import LostAnswer, Throttling

# A deployment of its own; test_prove.py and test_pipeline.py of the constructs have each of its ways with every change.
pytestmark = pytest.mark.soak
A_MEASURED_JOB = Path(__file__).parent / "a_measured_job"
GROUP = "digits"


class Pipelines(cdk.Stack):
    """Pretraining, a gate on its accuracy, finetuning of its model, an approval, and the registration."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Pipelines")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        image = TrainingImage.from_asset(self, "Image", directory=str(A_MEASURED_JOB))
        group = sagemaker.CfnModelPackageGroup(self, "Group", model_package_group_name=GROUP)
        topic, asked = sns.Topic(self, "Topic"), sqs.Queue(self, "Asked")
        topic.add_subscription(subscriptions.SqsSubscription(asked, raw_message_delivery=True))
        common: dict[str, Any] = {
            "job": DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            "image": image,
            "metric_definitions": {"accuracy": "accuracy=([0-9.]+)"},
            "environment": {"ACCURACY": sfn.JsonPath.string_at("$.accuracy")},
        }
        first = TrainingWorkflow(self, "Pretraining", output=S3Prefix(bucket, "first/"), **common)
        second = TrainingWorkflow(
            self, "Finetuning", output=S3Prefix(bucket, "second/"), channels={"model": ArtifactOf(first)}, **common
        )
        pipeline = TrainingPipeline(
            self,
            "Pipeline",
            steps=[
                first,
                Gate(self, "GoodEnough", first, metric="accuracy", at_least=0.9),
                second,
                Approval(self, "Release", topic=topic),
                RegisterModel(self, "Register", second, group=GROUP, metrics=["accuracy"]),
            ],
        )
        cdk.CfnOutput(self, "Machine", value=pipeline.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "AskedUrl", value=asked.queue_url)
        cdk.CfnOutput(self, "GroupArn", value=group.ref)


@pytest.fixture(scope="module")
def outputs(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return deployed.deploy(Pipelines(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly")))))


def start(deployed: Deployed, outputs: dict[str, str], accuracy: str) -> str:
    given = json.dumps({"accuracy": accuracy})
    states = deployed.client("stepfunctions")
    return str(states.start_execution(stateMachineArn=outputs["Machine"], input=given)["executionArn"])


def token_of(deployed: Deployed, outputs: dict[str, str], execution: str) -> str:
    """The task token in the message that asks for an approval of an execution."""
    queue, states = deployed.client("sqs"), deployed.client("stepfunctions")

    def asked() -> str | None:
        for message in queue.receive_message(QueueUrl=outputs["AskedUrl"]).get("Messages", ()):
            told = json.loads(message["Body"])
            if told["Execution"] == execution:
                command, _, token = told["ToApprove"].rpartition(" ")
                assert command == "aws stepfunctions send-task-success --task-output true --task-token"
                return str(token)
        described = states.describe_execution(executionArn=execution)
        assert described["status"] == "RUNNING", f"the execution ended before: {described}"
        return None

    return wait_until(asked)


def jobs(deployed: Deployed) -> list[str]:
    """The names of all jobs, the newest first."""
    found = deployed.client("sagemaker").list_training_jobs(SortBy="CreationTime", SortOrder="Descending")
    return [job["TrainingJobName"] for job in found["TrainingJobSummaries"]]


def versions(deployed: Deployed) -> list[dict[str, Any]]:
    found: dict[str, Any] = deployed.client("sagemaker").list_model_packages(ModelPackageGroupName=GROUP)
    return list(found["ModelPackageSummaryList"])


def test_a_model_that_is_good_enough_is_trained_on_approved_and_registered_with_its_metrics(
    deployed: Deployed, outputs: dict[str, str]
) -> None:
    execution = start(deployed, outputs, "0.93")
    token = token_of(deployed, outputs, execution)
    assert versions(deployed) == []
    deployed.client("stepfunctions").send_task_success(taskToken=token, output="true")
    ended = deployed.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended.get("cause")

    [second, first] = jobs(deployed)
    assert "trains on a model of 0.93" in deployed.said(second)
    client = deployed.client("sagemaker")
    of_first = client.describe_training_job(TrainingJobName=first)["ModelArtifacts"]["S3ModelArtifacts"]
    described = client.describe_training_job(TrainingJobName=second)
    assert described["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] == of_first

    [summary] = versions(deployed)
    assert summary["ModelApprovalStatus"] == "PendingManualApproval"
    assert json.loads(ended["output"])["Steps"]["Register"] == {"ModelPackageArn": summary["ModelPackageArn"]}
    package = client.describe_model_package(ModelPackageName=summary["ModelPackageArn"])
    assert package["CustomerMetadataProperties"] == {"accuracy": "0.93"}
    assert package["MetadataProperties"] == {"GeneratedBy": described["TrainingJobArn"]}
    [container] = package["InferenceSpecification"]["Containers"]
    assert container["ModelDataUrl"] == described["ModelArtifacts"]["S3ModelArtifacts"]
    source = package["ModelMetrics"]["ModelQuality"]["Statistics"]
    bucket, _, key = source["S3Uri"].removeprefix("s3://").partition("/")
    written = deployed.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    assert json.loads(written) == {"training_metrics": {"accuracy": {"value": 0.93}}}


def test_a_workflow_that_ended_before_its_lost_start_was_repeated_is_found(
    deployed: Deployed, outputs: dict[str, str]
) -> None:
    states, faults = deployed.client("stepfunctions"), deployed.account.faults
    machines = states.list_state_machines()["stateMachines"]
    [first] = [one["stateMachineArn"] for one in machines if "-Pretraining-" in one["name"]]

    def ended_ones() -> set[str]:
        executions = states.list_executions(stateMachineArn=first)["executions"]
        return {one["executionArn"] for one in executions if one["status"] != "RUNNING"}

    before = ended_ones()
    faults.add(LostAnswer("StartExecution", "assumed-role"))
    outage = faults.add(Throttling("StartExecution", "assumed-role", times=None))
    execution = start(deployed, outputs, "0.5")
    wait_until(lambda: ended_ones() - before)
    faults.mend(outage)
    ended = deployed.ended(execution)
    # The gate has read the metric of the job that was found.
    assert (ended["status"], ended["error"]) == ("FAILED", "GateNotPassed"), ended.get("cause")
    events = states.get_execution_history(executionArn=execution)["events"]
    entered = [it["stateEnteredEventDetails"]["name"] for it in events if "stateEnteredEventDetails" in it]
    assert entered[:3] == ["Pretraining", "Pretraining: Find", "Pretraining: Has succeeded"]
    assert len(ended_ones() - before) == 1


def test_a_model_that_is_not_good_enough_ends_the_execution_and_is_not_trained_on(
    deployed: Deployed, outputs: dict[str, str]
) -> None:
    before, registered = jobs(deployed), versions(deployed)
    ended = deployed.ended(start(deployed, outputs, "0.5"))
    assert (ended["status"], ended["error"]) == ("FAILED", "GateNotPassed")
    [job] = [name for name in jobs(deployed) if name not in before]
    assert ended["cause"] == f"{job}: accuracy must be at least 0.9, and is 0.5"
    assert versions(deployed) == registered


def test_a_job_that_logs_no_value_of_the_metric_fails_the_execution_by_name(
    deployed: Deployed, outputs: dict[str, str]
) -> None:
    ended = deployed.ended(start(deployed, outputs, "none"))
    assert (ended["status"], ended["error"]) == ("FAILED", "MetricMissing")
    assert ended["cause"] == f"{jobs(deployed)[0]}: no value of accuracy"


def test_a_model_that_is_refused_is_not_registered_and_the_cause_is_the_answer(
    deployed: Deployed, outputs: dict[str, str]
) -> None:
    registered = versions(deployed)
    execution = start(deployed, outputs, "0.95")
    token = token_of(deployed, outputs, execution)
    deployed.client("stepfunctions").send_task_failure(taskToken=token, error="ApprovalRefused", cause="too slow")
    ended = deployed.ended(execution)
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", "ApprovalRefused", "too slow")
    assert versions(deployed) == registered
