"""A stack that trains with what users have beside it: functions in a VPC, uploaded data, a secret, a table of its jobs."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_deployment as s3_deployment
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    TrainingFunctions,
    TrainingImage,
    TrainingWorkflow,
)

DOCKERFILE = """
FROM python:3.11
RUN pip install --no-cache-dir boto3
COPY train.py /
ENTRYPOINT ["python", "/train.py"]
"""
# As docs/how-to.md has it, "A secret".
TRAIN = """
import boto3, os, pathlib
token = boto3.client("secretsmanager").get_secret_value(SecretId=os.environ["HF_TOKEN_NAME"])["SecretString"]
data = pathlib.Path("/opt/ml/input/data/letters/a.txt").read_text()
pathlib.Path("/opt/ml/model/model.txt").write_text(f"{len(token)} {data}")
"""
KEEPS = """
import boto3, json, os
def handler(event, context):
    table = boto3.resource("dynamodb").Table(os.environ["TABLE"])
    for record in event["Records"]:
        job = json.loads(record["body"])["detail"]
        table.put_item(Item={"job": job["TrainingJobName"], "status": job["TrainingJobStatus"]})
"""


class Beside(cdk.Stack):
    """Data are uploaded when the stack is deployed; each job that completes is an item of a table."""

    def __init__(self, app: cdk.App, folder: Path) -> None:
        super().__init__(app, "Beside")
        gone = cdk.RemovalPolicy.DESTROY
        # For organisations that forbid functions outside of one.
        vpc = ec2.Vpc(self, "Vpc", availability_zones=[f"{cdk.Aws.REGION}a"], restrict_default_security_group=False)
        TrainingFunctions.of(self).in_vpc(vpc)
        bucket = s3.Bucket(self, "Bucket", removal_policy=gone, auto_delete_objects=True)
        (folder / "data").mkdir(parents=True)
        (folder / "data/a.txt").write_text("letters")
        uploaded = s3_deployment.BucketDeployment(
            self,
            "Upload",
            sources=[s3_deployment.Source.asset(str(folder / "data"))],
            destination_bucket=bucket,
            destination_key_prefix="letters/",
        )
        (folder / "image").mkdir()
        (folder / "image/Dockerfile").write_text(DOCKERFILE)
        (folder / "image/train.py").write_text(TRAIN)
        secret = secretsmanager.Secret(self, "Token", removal_policy=gone)
        workflow = TrainingWorkflow(
            self,
            "Training",
            image=TrainingImage.from_asset(self, "Image", directory=str(folder / "image")),
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            channels={"letters": S3Channel(bucket, "letters/")},
            environment={"HF_TOKEN_NAME": secret.secret_name},
            output=S3Prefix(bucket, "models/"),
            max_runtime=cdk.Duration.minutes(10),
        )
        secret.grant_read(workflow)
        workflow.node.add_dependency(uploaded)
        self._keep(gone)
        cdk.CfnOutput(self, "Machine", value=workflow.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)

    def _keep(self, gone: cdk.RemovalPolicy) -> None:
        key = dynamodb.Attribute(name="job", type=dynamodb.AttributeType.STRING)
        table = dynamodb.TableV2(self, "Jobs", partition_key=key, removal_policy=gone)
        queue = sqs.Queue(self, "Completed", visibility_timeout=cdk.Duration.minutes(6))
        pattern = events.EventPattern(
            source=["aws.sagemaker"],
            detail_type=["SageMaker Training Job State Change"],
            detail={"TrainingJobStatus": ["Completed"]},
        )
        events.Rule(self, "Rule", event_pattern=pattern, targets=[targets.SqsQueue(queue)])
        function = lambda_.Function(
            self,
            "Keeps",
            code=lambda_.Code.from_inline(KEEPS),
            environment={"TABLE": table.table_name},
            events=[sources.SqsEventSource(queue)],
            handler="index.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            timeout=cdk.Duration.minutes(1),
        )
        table.grant_write_data(function)
        cdk.CfnOutput(self, "Table", value=table.table_name)


@pytest.mark.soak  # its parts are in tests/local_account/test_users_stack.py
def test_a_job_trains_on_what_the_stack_uploads_with_a_secret_and_a_function_keeps_that_it_has(
    deployed: Deployed, tmp_path: Path
) -> None:
    outputs = deployed.deploy(Beside(cdk.App(outdir=str(tmp_path / "assembly")), tmp_path))
    ended = deployed.ended(deployed.start(outputs["Machine"]))
    assert ended["status"] == "SUCCEEDED", ended
    [job] = deployed.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    described = deployed.client("sagemaker").describe_training_job(TrainingJobName=job["TrainingJobName"])
    assert "HF_TOKEN_NAME" in described["Environment"]
    model = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix(f"s3://{outputs['BucketName']}/")
    body = deployed.client("s3").get_object(Bucket=outputs["BucketName"], Key=model)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        text = archive.extractfile("model.txt")
        assert text is not None
        assert text.read() == b"32 letters"  # the length of a generated secret
    functions = deployed.client("lambda").list_functions()["Functions"]
    places = {it["VpcConfig"]["VpcId"] for it in functions if "Training" in it["FunctionName"]}
    [vpc] = [it["VpcId"] for it in deployed.client("ec2").describe_vpcs()["Vpcs"] if not it["IsDefault"]]
    assert places == {vpc}
    items = wait_until(lambda: deployed.client("dynamodb").scan(TableName=outputs["Table"])["Items"])
    assert items == [{"job": {"S": job["TrainingJobName"]}, "status": {"S": "Completed"}}]
