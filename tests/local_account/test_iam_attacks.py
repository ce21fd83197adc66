"""What must not get past an account that evaluates permissions, and what does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks import ADMIN, ATTACKS, JOB, V4, Refused, World, deny, refusal, trust
from pages import part
from running_account import Running
from test_enforced import ACCOUNT, Role, allow, code_and_message, document

from sagemaker_local_account.account import LocalAccount

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Running(account)


@pytest.fixture(scope="module")
def world(running: Running) -> World:
    world = World(running)
    world.prepare()
    return world


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_refused(world: World, name: str) -> None:
    assert ATTACKS[name][0] in refusal(world, name)


MALFORMED: list[tuple[str, str, dict[str, Any]]] = [
    ("events", "AWSEvents.PutEvents", {"Entries": 5}),
    ("events", "AWSEvents.PutTargets", {"Rule": "r", "Targets": 5}),
    ("sagemaker", "SageMaker.CreateTrainingJob", {**JOB, "ResourceConfig": 5}),
    ("sagemaker", "SageMaker.CreateTrainingJob", {**JOB, "VpcConfig": "x"}),
    ("sagemaker", "SageMaker.CreateTrainingJob", {**JOB, "ResourceConfig": {"InstancePreferences": [1]}}),
]


@pytest.mark.parametrize(("service", "target", "members"), MALFORMED)
def test_members_of_other_types_are_the_callers_error(
    world: World, service: str, target: str, members: dict[str, Any]
) -> None:
    keys = world.signing(world.keys(world.role(ADMIN)))
    headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
    with pytest.raises(Refused, match="SerializationException"):
        world.send(service, json.dumps(members), headers, keys=keys)


def test_the_page_has_each_of_more_than_sixty_attacks_and_that_it_is_held() -> None:
    assert len(ATTACKS) > 60
    rows = [f"| {name} | held: {said} |" for name, (said, _) in ATTACKS.items()]
    written = "\n".join(["| tried by HTTP | is |", "|---|---|", *rows])
    assert part(PAGE, "attacks", written) == written


def test_a_service_whose_requests_are_signed_by_the_name_of_another_is_reached(running: Running) -> None:
    assert running.client("dynamodbstreams").list_streams()["Streams"] == []
    assert running.client("resourcegroupstaggingapi").get_resources()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_metrics_that_a_client_compresses_are_allowed_in_their_own_namespace(running: Running) -> None:
    own = {"StringEquals": {"cloudwatch:namespace": "Own"}}
    client = Role(running, "metrics", {**allow("cloudwatch:PutMetricData"), "Condition": own}).client("cloudwatch")
    encodings = []
    client.meta.events.register(
        "before-send.cloudwatch.PutMetricData",
        lambda request, **_: encodings.append(request.headers.get("Content-Encoding")),
    )
    data = [{"MetricName": "loss", "Value": 1.0, "Dimensions": [{"Name": "Host", "Value": "algo-1"}]}] * 500
    client.put_metric_data(Namespace="Own", MetricData=data)
    assert "AccessDenied" in code_and_message(lambda: client.put_metric_data(Namespace="Other", MetricData=data))[0]
    assert {str(it.decode() if isinstance(it, bytes) else it) for it in encodings} == {"gzip"}
    assert [it["MetricName"] for it in running.client("cloudwatch").list_metrics(Namespace="Own")["Metrics"]] == [
        "loss"
    ]


def test_a_role_is_assumed_by_whom_its_trust_policy_names(world: World) -> None:
    assuming, powerless = world.role(allow("sts:AssumeRole")), world.role()
    iam = world.root("iam")

    def assumed(by: Role, *trusts: dict[str, Any], **more: Any) -> None:
        name = f"trusting-{next(world.numbers)}"
        made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(*trusts))["Role"]
        by.client("sts").assume_role(RoleArn=made["Arn"], RoleSessionName="test", **more)

    assumed(assuming, trust({"AWS": f"arn:aws:iam::{ACCOUNT}:root"}))
    assumed(assuming, trust({"AWS": ACCOUNT}, Condition={"StringEquals": {"sts:ExternalId": "id"}}), ExternalId="id")
    assumed(powerless, trust({"AWS": powerless.arn}))


def test_a_session_may_do_what_one_of_its_policies_allows_inline_or_by_arn_and_nothing_else(running: Running) -> None:
    role = Role(running, "sessions", ADMIN)
    by_arn = running.client("iam").create_policy(PolicyName="topics", PolicyDocument=document(allow("sns:ListTopics")))
    arns = [by_arn["Policy"]["Arn"], "arn:aws:iam::aws:policy/AWSStepFunctionsReadOnlyAccess"]
    session = {"PolicyArns": [{"arn": arn} for arn in arns], "Policy": document(allow("sqs:ListQueues"))}
    role.client("sns", **session).list_topics()
    role.client("sqs", **session).list_queues()
    role.client("stepfunctions", **session).list_state_machines()
    code, message = code_and_message(lambda: role.client("sns", **session).create_topic(Name="more"))
    assert (code, "because no session policy allows" in message) == ("AccessDenied", True)
    role.client("sns").create_topic(Name="more")


@pytest.mark.parametrize(
    ("arns", "code"),
    [
        (["arn:aws:iam::123456789012:policy/missing"], "MalformedPolicyDocument"),
        (["arn:aws:iam::aws:policy/ReadOnlyAccess"] * 11, "ValidationError"),
    ],
)
def test_a_session_with_policies_that_the_account_has_not_or_too_many_is_refused(
    running: Running, arns: list[str], code: str
) -> None:
    role = Role(running, f"refused-{len(arns)}", ADMIN)
    assert code_and_message(lambda: role.client("sns", PolicyArns=[{"arn": arn} for arn in arns]))[0] == code


def test_policies_by_arn_are_refused_for_sessions_that_do_not_take_them_here(running: Running) -> None:
    sts = Role(running, "federating", ADMIN).client("sts")
    federated = {"Name": "person", "PolicyArns": [{"arn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}]}
    code, message = code_and_message(lambda: sts.get_federation_token(**federated))
    assert (code, "PolicyArns of a session are not evaluated" in message) == ("AccessDenied", True)


def test_what_a_deny_of_another_service_or_tag_is_not_about_is_allowed(running: Running) -> None:
    of_table = deny("*", f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/precious")
    of_tag = deny("sns:CreateTopic", Condition={"StringEquals": {"aws:RequestTag/env": "prod"}})
    role = Role(running, "denied-elsewhere", ADMIN, of_table, of_tag)
    role.client("sns").create_topic(Name="test", Tags=[{"Key": "env", "Value": "test"}])
    role.client("lambda").list_functions()


def test_not_principal_denies_all_but_whom_it_names(running: Running) -> None:
    kept, others = Role(running, "kept", ADMIN), Role(running, "others", ADMIN)
    s3 = running.client("s3")
    s3.create_bucket(Bucket="not-principal")
    but = {"AWS": [kept.arn, f"arn:aws:sts::{ACCOUNT}:assumed-role/kept/test", f"arn:aws:iam::{ACCOUNT}:root"]}
    statement = {"Effect": "Deny", "NotPrincipal": but, "Action": "s3:*", "Resource": "arn:aws:s3:::not-principal"}
    s3.put_bucket_policy(Bucket="not-principal", Policy=document(statement))
    kept.client("s3").list_objects_v2(Bucket="not-principal")
    code, message = code_and_message(lambda: others.client("s3").list_objects_v2(Bucket="not-principal"))
    assert (code, "explicit deny in a resource-based policy" in message) == ("AccessDenied", True)


def test_a_users_boundary_bounds_it_and_one_that_is_removed_does_not(running: Running) -> None:
    iam = running.client("iam")
    boundary = iam.create_policy(PolicyName="only-s3", PolicyDocument=document(allow("s3:*")))["Policy"]["Arn"]
    iam.create_user(UserName="bounded", PermissionsBoundary=boundary)
    iam.put_user_policy(UserName="bounded", PolicyName="p", PolicyDocument=document(ADMIN))
    key = iam.create_access_key(UserName="bounded")["AccessKey"]
    keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    running.client("s3", **keys).list_buckets()
    topics = running.client("sns", **keys).list_topics
    assert "no permissions boundary allows" in code_and_message(topics)[1]
    iam.delete_user_permissions_boundary(UserName="bounded")
    topics()
    iam.put_user_permissions_boundary(UserName="bounded", PermissionsBoundary=boundary)
    assert code_and_message(topics)[0] in ("AccessDenied", "AuthorizationError")


def test_what_is_signed_and_allowed_passes(world: World) -> None:
    url = world.root("s3", config=V4).generate_presigned_url("put_object", Params={"Bucket": "own", "Key": "b"})
    world.url(url, "PUT", b"content")
    role = world.role(allow("s3:PutObject", "arn:aws:s3:::own/*"))
    conditions: list[Any] = [{"acl": "private"}, ["starts-with", "$x-amz-meta-a", "b"], ["content-length-range", 1, 9]]
    fields = {"acl": "private", "x-amz-meta-a": "bc", "x-ignore-me": "x"}
    world.form(role, lambda s3: s3.generate_presigned_post("own", "c", Fields=fields, Conditions=conditions))
    assert world.root("s3").get_object(Bucket="own", Key="c")["Body"].read() == b"content"


def test_a_key_is_used_by_its_alias_and_by_what_it_encrypted_where_it_is_allowed(world: World) -> None:
    client = world.role(allow(["kms:Encrypt", "kms:Decrypt"], world.key)).client("kms")
    blob = client.encrypt(KeyId="alias/precious", Plaintext=b"text")["CiphertextBlob"]
    assert client.decrypt(CiphertextBlob=blob)["Plaintext"] == b"text"


def test_an_operation_of_a_rest_service_is_authorized_by_its_own_name(world: World) -> None:
    functions = world.role(allow("lambda:ListFunctions")).client("lambda")
    functions.list_functions()
    _, message = code_and_message(lambda: functions.delete_function(FunctionName="f"))
    assert "lambda:DeleteFunction" in str(message)
