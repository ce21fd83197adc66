"""An account that enforces permissions, as boto3 sees it under roles and users of several kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_account import Running

from sagemaker_local_account.account import LocalAccount

ACCOUNT = "123456789012"
TRUST = {"Effect": "Allow", "Principal": {"AWS": ACCOUNT}, "Action": "sts:AssumeRole"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Running(account)


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(action: str | list[str], resource: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


class Role:
    """A role with policies, and the clients of who has assumed it."""

    def __init__(self, running: Running, name: str, *statements: dict[str, Any], boundary: str | None = None) -> None:
        iam = running.client("iam")
        bounded = {"PermissionsBoundary": boundary} if boundary else {}
        made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(TRUST), **bounded)
        self.arn = made["Role"]["Arn"]
        if statements:
            iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=document(*statements))
        self._running = running

    def client(self, service: str, **session: Any) -> Any:
        sts = self._running.client("sts")
        keys = sts.assume_role(RoleArn=self.arn, RoleSessionName="test", **session)["Credentials"]
        return self._running.client(
            service,
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
            aws_session_token=keys["SessionToken"],
        )


def code_and_message(call: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as error:
        call()
    said = error.value.response["Error"]
    return said["Code"], said["Message"]


def test_a_refusal_says_who_may_not_do_what_on_what(running: Running) -> None:
    role = Role(running, "nothing")
    code, message = code_and_message(lambda: role.client("s3").list_buckets())
    assert code == "AccessDenied"
    assert message == (
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/nothing/test is not authorized to perform: s3:ListAllMyBuckets "
        "on resource: * because no identity-based policy allows the s3:ListAllMyBuckets action"
    )


@pytest.mark.parametrize(
    ("service", "call", "code"),
    [
        ("sagemaker", lambda c: c.describe_training_job(TrainingJobName="a"), "AccessDeniedException"),
        ("stepfunctions", lambda c: c.list_state_machines(), "AccessDeniedException"),
        ("logs", lambda c: c.describe_log_groups(), "AccessDeniedException"),
        ("iam", lambda c: c.list_roles(), "AccessDenied"),
        ("cloudformation", lambda c: c.describe_stacks(), "AccessDenied"),
        ("ec2", lambda c: c.describe_vpcs(), "UnauthorizedOperation"),
        ("lambda", lambda c: c.list_functions(), "AccessDeniedException"),
    ],
)
def test_each_service_refuses_in_its_own_way(running: Running, service: str, call: Any, code: str) -> None:
    role = Role(running, f"refused-{service}")
    refused, message = code_and_message(lambda: call(role.client(service)))
    assert (refused, "is not authorized to perform" in message) == (code, True)


def test_who_one_is_may_always_be_asked(running: Running) -> None:
    arn = Role(running, "who").client("sts").get_caller_identity()["Arn"]
    assert arn == f"arn:aws:sts::{ACCOUNT}:assumed-role/who/test"
    assert running.client("sts").get_caller_identity()["Arn"] == f"arn:aws:iam::{ACCOUNT}:root"


def test_a_listing_is_allowed_of_the_prefix_in_the_condition_only(running: Running) -> None:
    running.client("s3").create_bucket(Bucket="listed")
    condition = {"StringLike": {"s3:prefix": ["in/*"]}}
    s3 = Role(running, "lists", allow("s3:ListBucket", "arn:aws:s3:::listed", Condition=condition)).client("s3")
    assert s3.list_objects_v2(Bucket="listed", Prefix="in/")["KeyCount"] == 0
    for prefix in ("out/", ""):
        code, _ = code_and_message(lambda prefix=prefix: s3.list_objects_v2(Bucket="listed", Prefix=prefix))
        assert code == "AccessDenied"


def test_copying_an_object_takes_leave_to_read_it(running: Running) -> None:
    s3 = running.client("s3")
    s3.create_bucket(Bucket="copied")
    s3.put_object(Bucket="copied", Key="a", Body=b"a")
    writer = Role(running, "copies", allow("s3:PutObject", "arn:aws:s3:::copied/*")).client("s3")
    _, message = code_and_message(lambda: writer.copy_object(Bucket="copied", Key="b", CopySource="copied/a"))
    assert "s3:GetObject on resource: arn:aws:s3:::copied/a" in message


def test_s3_rejects_in_xml_whatever_the_content_type_of_the_object(running: Running) -> None:
    running.client("s3").create_bucket(Bucket="reports")
    s3 = Role(running, "reports").client("s3")
    put = {"Bucket": "reports", "Key": "a.json", "Body": b"{}", "ContentType": "application/json"}
    code, message = code_and_message(lambda: s3.put_object(**put))
    assert code == "AccessDenied"
    assert "is not authorized to perform: s3:PutObject on resource: arn:aws:s3:::reports/a.json" in message


def test_each_object_of_a_deletion_takes_leave(running: Running) -> None:
    running.client("s3").create_bucket(Bucket="deleted")
    s3 = Role(running, "deletes", allow("s3:DeleteObject", "arn:aws:s3:::deleted/mine/*")).client("s3")
    s3.delete_objects(Bucket="deleted", Delete={"Objects": [{"Key": "mine/a"}]})
    keys = [{"Key": "mine/a"}, {"Key": "yours/a"}]
    _, message = code_and_message(lambda: s3.delete_objects(Bucket="deleted", Delete={"Objects": keys}))
    assert "arn:aws:s3:::deleted/yours/a" in message


def test_a_bucket_policy_may_allow_a_role_of_the_account_and_deny_it(running: Running) -> None:
    owner = running.client("s3")
    owner.create_bucket(Bucket="shared")
    owner.put_object(Bucket="shared", Key="a", Body=b"a")
    owner.put_object(Bucket="shared", Key="secret", Body=b"a")
    role = Role(running, "guest")
    policy = document(
        allow("s3:GetObject", "arn:aws:s3:::shared/*", Principal={"AWS": role.arn}),
        {**allow("s3:*", "arn:aws:s3:::shared/secret", Principal="*"), "Effect": "Deny"},
    )
    owner.put_bucket_policy(Bucket="shared", Policy=policy)
    s3 = role.client("s3")
    assert s3.get_object(Bucket="shared", Key="a")["Body"].read() == b"a"
    _, message = code_and_message(lambda: s3.get_object(Bucket="shared", Key="secret"))
    assert message.endswith("with an explicit deny in a resource-based policy")


def test_a_bucket_that_insists_on_tls_is_used_over_loopback(running: Running) -> None:
    owner = running.client("s3")
    owner.create_bucket(Bucket="tls")
    insist = {
        **allow(
            "s3:*", "arn:aws:s3:::tls/*", Principal={"AWS": "*"}, Condition={"Bool": {"aws:SecureTransport": "false"}}
        ),
        "Effect": "Deny",
    }
    owner.put_bucket_policy(Bucket="tls", Policy=document(insist))
    Role(running, "secure", allow("s3:PutObject", "arn:aws:s3:::tls/*")).client("s3").put_object(Bucket="tls", Key="a")


def test_a_permissions_boundary_bounds(running: Running) -> None:
    iam = running.client("iam")
    boundary = iam.create_policy(PolicyName="boundary", PolicyDocument=document(allow("logs:*")))["Policy"]["Arn"]
    role = Role(running, "bounded", allow("*"), boundary=boundary)
    role.client("logs").describe_log_groups()
    _, message = code_and_message(lambda: role.client("s3").list_buckets())
    assert message.endswith("because no permissions boundary allows the s3:ListAllMyBuckets action")


def test_a_session_policy_bounds(running: Running) -> None:
    role = Role(running, "session", allow("*"))
    s3 = role.client("s3", Policy=document(allow("logs:*")))
    _, message = code_and_message(s3.list_buckets)
    assert message.endswith("because no session policy allows the s3:ListAllMyBuckets action")


def test_an_aws_managed_policy_counts(running: Running) -> None:
    role = Role(running, "managed")
    running.client("iam").attach_role_policy(
        RoleName="managed", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    )
    role.client("s3").list_buckets()


def test_a_user_and_its_groups_have_policies(running: Running) -> None:
    iam = running.client("iam")
    iam.create_user(UserName="ann")
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    code, _ = code_and_message(running.client("s3", **keys).list_buckets)
    assert code == "AccessDenied"
    iam.create_group(GroupName="readers")
    iam.put_group_policy(GroupName="readers", PolicyName="p", PolicyDocument=document(allow("s3:ListAllMyBuckets")))
    iam.add_user_to_group(GroupName="readers", UserName="ann")
    running.client("s3", **keys).list_buckets()


def test_a_key_is_used_by_whom_its_policy_leaves_it_to(running: Running) -> None:
    role = Role(running, "crypt", allow(["kms:Encrypt"], "*"))
    kms = running.client("kms")
    ours = kms.create_key()["KeyMetadata"]["KeyId"]
    root_only = {**allow("kms:*", "*"), "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:user/ann"}}
    theirs = kms.create_key(Policy=document(root_only), BypassPolicyLockoutSafetyCheck=True)["KeyMetadata"]["KeyId"]
    role.client("kms").encrypt(KeyId=ours, Plaintext=b"a")
    code, message = code_and_message(lambda: role.client("kms").encrypt(KeyId=theirs, Plaintext=b"a"))
    assert code == "AccessDeniedException"
    assert message.endswith("because no resource-based policy allows the kms:Encrypt action")


def test_passing_a_role_takes_leave_for_that_service(running: Running) -> None:
    job_role = running.role("job", "sagemaker.amazonaws.com")
    condition = {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}
    role = Role(
        running, "passes", allow("sagemaker:CreateTrainingJob"), allow("iam:PassRole", job_role, Condition=condition)
    )
    request = {
        "TrainingJobName": "passed",
        "AlgorithmSpecification": {"TrainingImage": "python:3.11", "TrainingInputMode": "File"},
        "RoleArn": job_role,
        "OutputDataConfig": {"S3OutputPath": "s3://nowhere/"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    _, message = code_and_message(lambda: role.client("sagemaker").create_training_job(**request))
    assert f"iam:PassRole on resource: {job_role}" in message


def test_a_job_may_be_limited_by_its_instance_types(running: Running) -> None:
    condition = {"ForAllValues:StringEquals": {"sagemaker:InstanceTypes": ["ml.m5.large"]}}
    role = Role(running, "small", allow("sagemaker:CreateTrainingJob", Condition=condition))
    groups = [{"InstanceGroupName": "g", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1}]
    code, _ = code_and_message(
        lambda: role.client("sagemaker").create_training_job(
            TrainingJobName="large",
            AlgorithmSpecification={"TrainingImage": "python:3.11", "TrainingInputMode": "File"},
            RoleArn="arn:aws:iam::123456789012:role/job",
            OutputDataConfig={"S3OutputPath": "s3://nowhere/"},
            ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )
    )
    assert code == "AccessDeniedException"


def test_a_policy_that_is_not_evaluated_allows_nothing_and_is_named(running: Running) -> None:
    condition = {"StringEquals": {"aws:SourceVpc": "vpc-1"}}
    role = Role(running, "odd", allow("s3:*", Condition=condition))
    _, message = code_and_message(lambda: role.client("s3").list_buckets())
    assert "the condition key aws:SourceVpc, which one of the policies uses, is not evaluated" in message


def test_a_call_without_a_known_resource_says_so(running: Running) -> None:
    role = Role(running, "narrow", allow("sagemaker:ListModels", "arn:aws:sagemaker:*:*:model/*"))
    _, message = code_and_message(lambda: role.client("sagemaker").list_models())
    assert "the local account evaluates it without a resource" in message
