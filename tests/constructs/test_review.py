"""What a security review checks of a workflow: its logs, the trust policies of its roles, its bucket."""

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Match, Template
from stacks import UserStack

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    TrainingBucket,
    TrainingNetwork,
)


def test_every_role_of_a_workflow_but_its_functions_is_taken_on_only_for_what_lies_in_its_account() -> None:
    stack = UserStack(region=None)
    stack.workflow(network=TrainingNetwork(stack, "Network"))
    roles = Template.from_stack(stack).find_resources("AWS::IAM::Role").values()
    trusted = {}
    for role in roles:
        [statement] = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        trusted[statement["Principal"]["Service"]] = statement.get("Condition", {}).get("StringEquals")
    services = ("events", "sagemaker", "states", "vpc-flow-logs")
    # Of the function that acts on deletion, CDK makes a role without a condition, as of any function.
    assert trusted.pop("lambda.amazonaws.com") is None
    assert trusted == {
        f"{service}.amazonaws.com": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}} for service in services
    }


def test_all_state_machines_keep_every_event_without_its_data_for_three_months() -> None:
    stack = UserStack()
    stack.workflow()
    found = Template.from_stack(stack)
    found.resource_properties_count_is(
        "AWS::StepFunctions::StateMachine",
        {"LoggingConfiguration": {"Level": "ALL", "IncludeExecutionData": False, "Destinations": Match.any_value()}},
        3,  # of the workflow, its stopper and the guard
    )
    found.has_resource_properties(
        "AWS::Logs::LogGroup",
        {"RetentionInDays": 90, "LogGroupName": "/aws/vendedlogs/states/Stack-86e1c1d7-executions"},
    )


def test_what_is_kept_of_executions_can_be_said() -> None:
    stack = UserStack()
    group = logs.LogGroup(stack, "Own", retention=logs.RetentionDays.TEN_YEARS)
    stack.workflow(logs=sfn.LogOptions(destination=group, level=sfn.LogLevel.ERROR))
    found = Template.from_stack(stack)
    found.resource_properties_count_is(
        "AWS::StepFunctions::StateMachine", {"LoggingConfiguration": Match.object_like({"Level": "ERROR"})}, 1
    )  # and those of the stack's guard as by default


def test_a_job_whose_machines_do_not_fit_its_network_is_refused() -> None:
    stack = UserStack()
    nine, network = (
        DataParallelJob(InstanceGroup("ml.g5.xlarge", 9)),
        TrainingNetwork(stack, "Network", cidr="10.0.0.0/27"),
    )
    with pytest.raises(
        ValueError, match=r"^network must have a subnet with addresses for all machines, .* for 9 machines$"
    ):
        stack.workflow(job=nine, network=network)


@pytest.mark.parametrize(("encrypted", "rules"), [(True, 3), (False, 1)])
def test_a_job_that_encrypts_the_traffic_between_its_hosts_has_the_rules_for_it(encrypted: bool, rules: int) -> None:
    stack = UserStack()
    two = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2))
    stack.workflow(job=two, network=TrainingNetwork(stack, "Network"), inter_container_encryption=encrypted)
    Template.from_stack(stack).resource_count_is("AWS::EC2::SecurityGroupIngress", rules)


class Bucket:
    """A bucket in a stack of its own, and its resource beside that of its logs."""

    def __init__(self, **props: Any) -> None:
        stack = cdk.Stack()
        TrainingBucket(stack, "Bucket", **props)
        self.template = Template.from_stack(stack)
        resources = self.template.find_resources("AWS::S3::Bucket").items()
        [self.bucket] = [one for name, one in resources if name.startswith("Bucket8")]
        [self.logs] = [one for name, one in resources if name.startswith("BucketAccessLogs")]


def test_a_bucket_and_its_logs_are_encrypted_and_private() -> None:
    bucket = Bucket()
    for resource in (bucket.bucket, bucket.logs):
        [rule] = resource["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        assert set(resource["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}


def test_a_bucket_and_its_logs_are_reached_by_tls_only() -> None:
    bucket = Bucket()
    denied = {"Bool": {"aws:SecureTransport": "false"}}
    policies = bucket.template.find_resources("AWS::S3::BucketPolicy").values()
    assert len(policies) == 2
    for policy in policies:
        statements = policy["Properties"]["PolicyDocument"]["Statement"]
        assert denied in [one.get("Condition") for one in statements if one["Effect"] == "Deny"]


def test_who_read_and_wrote_a_bucket_is_logged_for_90_days() -> None:
    bucket = Bucket()
    destination = bucket.bucket["Properties"]["LoggingConfiguration"]["DestinationBucketName"]["Ref"]
    assert destination.startswith("BucketAccessLogs")
    [rule] = bucket.logs["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rule["ExpirationInDays"] == 90


@pytest.mark.parametrize(("policy", "kept"), [(None, "Retain"), (cdk.RemovalPolicy.DESTROY, "Delete")])
def test_the_logs_of_a_bucket_stay_or_go_as_it_does(policy: cdk.RemovalPolicy | None, kept: str) -> None:
    bucket = Bucket(**({} if policy is None else {"removal_policy": policy}))
    assert (bucket.bucket["DeletionPolicy"], bucket.logs["DeletionPolicy"]) == (kept, kept)


def test_a_buckets_defaults_give_way_to_the_users() -> None:
    stack = cdk.Stack()
    TrainingBucket(
        stack,
        "Bucket",
        encryption_key=kms.Key(stack, "Key"),
        server_access_logs_bucket=s3.Bucket(stack, "Logs"),
        enforce_ssl=False,
    )
    found = Template.from_stack(stack)
    found.resource_count_is("AWS::S3::Bucket", 2)
    found.has_resource_properties(
        "AWS::S3::Bucket",
        {
            "LoggingConfiguration": {"DestinationBucketName": {"Ref": Match.string_like_regexp("^Logs")}},
            "BucketEncryption": {
                "ServerSideEncryptionConfiguration": [
                    {"ServerSideEncryptionByDefault": Match.object_like({"SSEAlgorithm": "aws:kms"})}
                ]
            },
        },
    )
