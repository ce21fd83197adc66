"""An account in two regions: what each has is its own, and any other region, partition or account is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from attacks import World
from botocore.exceptions import ClientError
from running_account import Running
from shell_jobs import IMAGE, ShellJobs
from test_enforced import ACCOUNT, Role, allow, document

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.core.state import AccountError
from sagemaker_local_account.iam.regions import PARTITION, WITHOUT_REGION
from sagemaker_local_account.images.image_store import ImageError, ImageStore

REGIONS = ("us-east-1", "eu-west-1")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalAccount(state=tmp_path_factory.mktemp("account"), regions=REGIONS) as account:
        yield Running(account)


@pytest.fixture(scope="module")
def jobs(running: Running) -> ShellJobs:
    return ShellJobs(running.account.environment(), running.account.state)


def why(call: Any, **arguments: Any) -> str:
    """A refusal's code and message."""
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    error = refused.value.response["Error"]
    return f"{error['Code']}: {error['Message']}"


def test_two_regions_each_have_a_job_of_one_name(running: Running, jobs: ShellJobs) -> None:
    europe = running.client("sagemaker", region_name="eu-west-1")
    running.client("s3", region_name="eu-west-1").create_bucket(
        Bucket="in-europe", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    program = 'echo "$AWS_REGION"; echo model > /opt/ml/model/model'
    request = jobs.request("twice", program)
    output = {"OutputDataConfig": {"S3OutputPath": "s3://in-europe/models"}}
    arns = [
        jobs.sagemaker.create_training_job(**request)["TrainingJobArn"],
        europe.create_training_job(**{**request, **output})["TrainingJobArn"],
    ]
    waiter = europe.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName="twice", WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    logs = running.client("logs", region_name="eu-west-1")
    events = logs.filter_log_events(logGroupName="/aws/sagemaker/TrainingJobs")["events"]
    assert [arn.split(":")[3] for arn in arns] == ["us-east-1", "eu-west-1"]
    assert [jobs.ended("twice")["TrainingJobStatus"], *jobs.said("twice").values()] == ["Completed", ["us-east-1"]]
    assert [event["message"] for event in events] == ["eu-west-1"]


def test_a_bucket_of_another_of_its_regions_is_refused_by_a_job(running: Running, jobs: ShellJobs) -> None:
    europe = running.client("sagemaker", region_name="eu-west-1")
    assert "is in us-east-1, and the training job in eu-west-1" in why(
        europe.create_training_job, **jobs.request("far", "true")
    )


# By its protocol: JSON, Query, EC2's, REST with XML and with JSON.
@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("sagemaker", "list_training_jobs"),
        ("sns", "list_topics"),
        ("ec2", "describe_vpcs"),
        ("s3", "list_buckets"),
        ("lambda", "list_functions"),
    ],
)
def test_a_call_for_another_region_names_how_to_start_the_account(
    running: Running, service: str, operation: str
) -> None:
    client = running.client(service, region_name="ap-southeast-2")
    assert why(getattr(client, operation)) == (
        "RegionDisabledException: the local account was started for us-east-1 and eu-west-1, and this request is for "
        "ap-southeast-2; start it with `local-account --region us-east-1 --region eu-west-1 --region ap-southeast-2`, or set "
        "the region of the client, or of the stack's env, to us-east-1 or eu-west-1"
    )


@pytest.mark.parametrize("service", ["sqs", "sts", "iam"])
@pytest.mark.parametrize(("region", "partition"), [("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")])
def test_a_call_for_another_partition_is_refused_by_its_name(
    running: Running, service: str, region: str, partition: str
) -> None:
    operation = {"sqs": "list_queues", "sts": "get_caller_identity", "iam": "list_roles"}[service]
    told = why(getattr(running.client(service, region_name=region), operation))
    assert f"the local account has no region {region!r} of the partition {partition}" in told


def test_a_queue_of_another_of_its_regions_is_used_by_whom_its_own_policy_lets(running: Running) -> None:
    role = Role(running, "of-queues", allow("sqs:*"))
    world = World(running)
    for region, effect in zip(REGIONS, ("Allow", "Deny"), strict=True):
        queue = running.client("sqs", region_name=region).create_queue(QueueName="of-both")["QueueUrl"]
        arn = f"arn:aws:sqs:{region}:{ACCOUNT}:of-both"
        statement = {"Effect": effect, "Principal": {"AWS": role.arn}, "Action": "sqs:SendMessage", "Resource": arn}
        running.client("sqs", region_name=region).set_queue_attributes(
            QueueUrl=queue, Attributes={"Policy": document(statement)}
        )
    keys = world.keys(role)
    here, there = (running.client("sqs", **keys, region_name=region) for region in REGIONS)
    here.send_message(QueueUrl=here.get_queue_url(QueueName="of-both")["QueueUrl"], MessageBody="x")
    url = there.get_queue_url(QueueName="of-both")["QueueUrl"]
    assert "explicit deny in a resource-based policy" in why(there.send_message, QueueUrl=url, MessageBody="x")


def test_a_service_without_regions_answers_for_any_region(running: Running) -> None:
    found = [
        running.client("sts", region_name="ap-southeast-2").get_caller_identity()["Account"],
        running.client("iam", region_name="ap-southeast-2").list_users()["Users"],
    ]
    assert found == ["123456789012", []]


def test_each_service_that_botocore_has_without_regions_is_known() -> None:
    services = botocore.session.Session().get_data("endpoints")["partitions"][0]["services"]
    without = {name for name, found in services.items() if found.get("isRegionalized") is False}
    # Their endpoints have other names than what signs; none of them is in moto.
    assert without - WITHOUT_REGION == {"codecatalyst", "importexport", "mturk-requester", "notifications-contacts"}


@pytest.mark.parametrize(
    ("region", "told"),
    [
        ("eu-west-9", "region must be one that SageMaker is in, like eu-west-1, got 'eu-west-9'"),
        ("europe", "region must be one that SageMaker is in, like eu-west-1, got 'europe'"),
        (
            "us-gov-west-1",
            f"region must be of the partition {PARTITION}, like eu-west-1, got 'us-gov-west-1' of aws-us-gov",
        ),
        ("cn-north-1", f"region must be of the partition {PARTITION}, like eu-west-1, got 'cn-north-1' of aws-cn"),
    ],
)
def test_an_account_is_not_started_in_what_is_no_region_of_its_partition(
    tmp_path: Path, region: str, told: str
) -> None:
    with pytest.raises(AccountError) as refused:
        LocalAccount(state=tmp_path, regions=["us-east-1", region])
    assert told in str(refused.value)


def test_a_role_of_another_account_is_refused_to_who_assumes_it(running: Running) -> None:
    role = "arn:aws:iam::999999999999:role/Deploy"
    told = why(running.client("sts").assume_role, RoleArn=role, RoleSessionName="deploy")
    assert told == (
        f"AccessDenied: the role {role} is of account 999999999999, and the local account is 123456789012; set the account of "
        "the stack's env, or of the role's ARN, to 123456789012 (CDK_DEFAULT_ACCOUNT has it)"
    )


def test_a_role_of_another_account_is_refused_to_a_job(jobs: ShellJobs) -> None:
    role = "arn:aws:iam::999999999999:role/Jobs"
    told = why(jobs.sagemaker.create_training_job, **jobs.request("foreign", "true") | {"RoleArn": role})
    assert f"the role {role!r} is of another account; the local account is 123456789012" in told


def test_an_image_of_another_accounts_registry_is_refused_by_the_accounts_number(running: Running) -> None:
    uri = IMAGE.replace("123456789012", "999999999999")
    with pytest.raises(
        ImageError, match="registry belongs to account 999999999999, and the local account is 123456789012"
    ):
        ImageStore(running.account.state).resolve(uri)
