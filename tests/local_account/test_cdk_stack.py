"""A stack such as a CDK app makes around its jobs: each of its resources is made, and nothing of it stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import (
    aws_cloudwatch as cloudwatch,
)
from aws_cdk import (
    aws_cloudwatch_actions as actions,
)
from aws_cdk import (
    aws_ec2 as ec2,
)
from aws_cdk import (
    aws_ecr as ecr,
)
from aws_cdk import (
    aws_events as events,
)
from aws_cdk import (
    aws_events_targets as targets,
)
from aws_cdk import (
    aws_iam as iam,
)
from aws_cdk import (
    aws_kms as kms,
)
from aws_cdk import (
    aws_logs as logs,
)
from aws_cdk import (
    aws_s3 as s3,
)
from aws_cdk import (
    aws_sns as sns,
)
from aws_cdk import (
    aws_sns_subscriptions as subscriptions,
)
from aws_cdk import (
    aws_sqs as sqs,
)
from aws_cdk import (
    aws_ssm as ssm,
)
from aws_cdk import (
    aws_stepfunctions as sfn,
)
from cdk_stacks import deploy, destroy, ids
from running_account import Running

TAGGED = {
    "AWS::ECR::Repository",
    "AWS::Events::Rule",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
    "AWS::S3::Bucket",
    "AWS::SNS::Topic",
    "AWS::SQS::Queue",
}
DESTROY = cdk.RemovalPolicy.DESTROY


def network(stack: cdk.Stack) -> None:
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2, nat_gateways=1, restrict_default_security_group=False)
    vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
    vpc.add_interface_endpoint("Ecr", service=ec2.InterfaceVpcEndpointAwsService.ECR)
    vpc.add_flow_log("Flow")
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc, allow_all_outbound=False)
    group.add_ingress_rule(group, ec2.Port.all_traffic())
    group.add_egress_rule(group, ec2.Port.all_traffic())
    esp = ec2.Port(protocol=ec2.Protocol.ESP, string_representation="without ports")
    group.add_ingress_rule(group, esp)
    group.add_egress_rule(group, esp)


def storage(stack: cdk.Stack) -> None:
    key = kms.Key(stack, "Key", enable_key_rotation=True, alias="alias/cdk", removal_policy=DESTROY)
    access = s3.Bucket(stack, "Access", removal_policy=DESTROY)
    bucket = s3.Bucket(
        stack,
        "Bucket",
        encryption_key=key,
        enforce_ssl=True,
        versioned=True,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        server_access_logs_bucket=access,
        lifecycle_rules=[
            s3.LifecycleRule(
                expiration=cdk.Duration.days(9),
                prefix="tmp/",
                noncurrent_version_expiration=cdk.Duration.days(3),
                abort_incomplete_multipart_upload_after=cdk.Duration.days(1),
            )
        ],
        removal_policy=DESTROY,
    )
    repository = ecr.Repository(
        stack,
        "Repository",
        image_scan_on_push=True,
        encryption_key=key,
        image_tag_mutability=ecr.TagMutability.IMMUTABLE,
        empty_on_delete=True,
        lifecycle_rules=[ecr.LifecycleRule(max_image_count=3)],
        removal_policy=DESTROY,
    )
    repository.add_to_resource_policy(
        iam.PolicyStatement(actions=["ecr:BatchGetImage"], principals=[iam.AccountRootPrincipal()])
    )
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    bucket.grant_read_write(role)
    iam.ManagedPolicy(
        stack, "Policy", roles=[role], statements=[iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"])]
    )
    ssm.StringParameter(stack, "Parameter", parameter_name="/cdk/bucket", string_value=bucket.bucket_name)


def watching(stack: cdk.Stack) -> None:
    log_group = logs.LogGroup(stack, "Logs", retention=logs.RetentionDays.ONE_WEEK, removal_policy=DESTROY)
    machine = sfn.StateMachine(
        stack,
        "Machine",
        definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass")),
        logs=sfn.LogOptions(destination=log_group, level=sfn.LogLevel.ALL),
    )
    topic = sns.Topic(stack, "Topic", display_name="alarms")
    queue = sqs.Queue(
        stack,
        "Queue",
        enforce_ssl=True,
        dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=3, queue=sqs.Queue(stack, "Dead")),
    )
    topic.add_subscription(subscriptions.SqsSubscription(queue))
    topic.add_subscription(subscriptions.EmailSubscription("me@example.com"))
    alarm = machine.metric_failed().create_alarm(stack, "Alarm", threshold=1, evaluation_periods=1)
    alarm.add_alarm_action(actions.SnsAction(topic))
    cloudwatch.Dashboard(stack, "Dashboard", widgets=[[cloudwatch.GraphWidget(left=[machine.metric_time()])]])
    events.Rule(
        stack,
        "Rule",
        event_pattern=events.EventPattern(source=["aws.sagemaker"]),
        targets=[
            targets.SfnStateMachine(machine, input=events.RuleTargetInput.from_object({"a": events.EventField.time})),
            targets.SnsTopic(topic, message=events.RuleTargetInput.from_text(f"at {events.EventField.time}")),
            targets.SqsQueue(queue),
        ],
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All of it, without what the CDK CLI looks at only."""
    folder: Path = tmp_path_factory.mktemp("cdk.out")
    app = cdk.App(outdir=str(folder), analytics_reporting=False)
    synthesizer = cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
    stack = cdk.Stack(app, "Example", synthesizer=synthesizer)
    for part in (network, storage, watching):
        part(stack)
    app.synth()
    made: dict[str, Any] = json.loads((folder / "Example.template.json").read_text())
    return made


def test_a_stack_of_the_cdk_is_made_whole_and_leaves_nothing(running: Running, template: dict[str, Any]) -> None:
    deploy(running, "Example", template["Resources"])
    made = ids(running, "Example")
    assert set(made) == set(template["Resources"])
    [repository] = running.client("ecr").describe_repositories()["repositories"]
    assert repository["imageScanningConfiguration"] == {"scanOnPush": True}
    assert repository["encryptionConfiguration"]["encryptionType"] == "KMS"
    name = repository["repositoryName"]
    ecr_client = running.client("ecr")
    assert "BatchGetImage" in ecr_client.get_repository_policy(repositoryName=name)["policyText"]
    rules = json.loads(ecr_client.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"])["rules"]
    assert rules[0]["selection"]["countNumber"] == 3
    bucket = next(id for name, id in made.items() if name.startswith("Bucket") and "Policy" not in name)
    s3_client = running.client("s3")
    [rule] = s3_client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert (rule["Expiration"]["Days"], rule["NoncurrentVersionExpiration"]["NoncurrentDays"]) == (9, 3)
    assert s3_client.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert s3_client.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]["BlockPublicAcls"]
    access = next(id for name, id in made.items() if name.startswith("Access") and "Policy" not in name)
    written = s3_client.list_objects_v2(Bucket=access)["Contents"]
    s3_client.delete_objects(Bucket=access, Delete={"Objects": [{"Key": one["Key"]} for one in written]})
    destroy(running, "Example")
    assert running.client("ecr").describe_repositories()["repositories"] == []
    assert running.client("s3").list_buckets()["Buckets"] == []
    assert running.client("sns").list_topics()["Topics"] == []
    assert running.client("sqs").list_queues().get("QueueUrls", []) == []


def test_a_stack_of_the_cdk_can_be_changed(running: Running, template: dict[str, Any]) -> None:
    deploy(running, "Example", template["Resources"])
    before = ids(running, "Example")
    tags = [{"Key": "cost", "Value": "mine"}]
    tagged = {
        name: {**one, "Properties": {**one.get("Properties", {}), "Tags": tags}} if one["Type"] in TAGGED else one
        for name, one in template["Resources"].items()
    }
    deploy(running, "Example", tagged)
    assert ids(running, "Example") == before
    destroy(running, "Example")
