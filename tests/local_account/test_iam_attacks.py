"""What must not get past an account that enforces permissions: each an attack that once did."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from running_account import Running
from test_enforced import ACCOUNT, Role, allow, code_and_message, document

from sagemaker_local_account.account import LocalAccount

ADMIN = allow("*")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Running(account)


def deny(action: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Deny", "Action": action, "Resource": resource, **more}


def sent(
    running: Running,
    keys: Credentials,
    service: str,
    body: str | bytes,
    *,
    path: str = "/",
    hashed: str = "",
    **headers: str,
) -> tuple[int, str]:
    """The status and text of a request that is signed for a service, whatever else it says."""
    request = AWSRequest("POST", f"{running.account.endpoint_url}{path}", data=hashed or body, headers=headers)
    if hashed:
        request.headers["X-Amz-Content-SHA256"] = SigV4Auth(keys, service, "us-east-1").payload(request)
    SigV4Auth(keys, service, "us-east-1").add_auth(request)
    place = urlsplit(running.account.endpoint_url)
    connection = http.client.HTTPConnection("127.0.0.1", place.port)
    connection.request("POST", path, body, {"Host": place.netloc, **dict(request.headers)})
    response = connection.getresponse()
    return response.status, response.read().decode()


def keys_of(running: Running, role: Role) -> Credentials:
    keys = running.client("sts").assume_role(RoleArn=role.arn, RoleSessionName="test")["Credentials"]
    return Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])


@pytest.mark.parametrize(
    ("service", "target"),
    [
        ("s3", "AWSStepFunctions.ListStateMachines"),
        ("sts", "SageMaker.ListTrainingJobs"),
        ("logs", "SageMaker.ListTrainingJobs"),
        ("states", "SageMaker.ListTrainingJobs"),
        ("iam", "CodeBuild_20161006.ListProjects"),
        ("no-such-service", "SageMaker.ListTrainingJobs"),
        ("sagemaker", "LocalAccount.ListFaults"),
    ],
)
def test_a_request_that_is_signed_for_one_service_and_names_another_is_refused(
    running: Running, service: str, target: str
) -> None:
    root = running.account.environment()
    keys = Credentials(root["AWS_ACCESS_KEY_ID"], root["AWS_SECRET_ACCESS_KEY"])
    json_request = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
    status, text = sent(running, keys, service, "{}", **json_request)
    assert (status, "Credential should be scoped to correct service" in text) == (403, True)


def test_a_service_whose_requests_are_signed_by_the_name_of_another_is_reached(running: Running) -> None:
    assert running.client("dynamodbstreams").list_streams()["Streams"] == []
    assert running.client("resourcegroupstaggingapi").get_resources()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_an_action_in_the_query_beside_another_in_the_body_is_refused(running: Running) -> None:
    role = Role(running, "two-actions", allow("sts:GetCallerIdentity"))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/?Action=GetCallerIdentity&Version=2011-06-15"
    body = "Action=GetSessionToken&Version=2011-06-15"
    status, text = sent(running, keys_of(running, role), "sts", body, path=path, **form)
    assert (status, "Action must be in the body" in text) == (403, True)


def test_a_body_that_is_not_the_one_that_was_signed_is_refused(running: Running) -> None:
    root = running.account.environment()
    keys = Credentials(root["AWS_ACCESS_KEY_ID"], root["AWS_SECRET_ACCESS_KEY"])
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    other = "Action=GetCallerIdentity&Version=2011-06-15"
    status, text = sent(running, keys, "sts", "Action=ListUsers&Version=2010-05-08", hashed=other, **form)
    assert (status, "x-amz-content-sha256" in text) == (403, True)
    assert sent(running, keys, "sts", other, hashed=other, **form)[0] == 200


def test_a_compressed_body_is_authorized_by_what_is_in_it(running: Running) -> None:
    role = Role(
        running,
        "compressed",
        ADMIN,
        deny("sagemaker:AddTags", Condition={"StringEquals": {"aws:RequestTag/team": "other"}}),
        deny("iam:*"),
    )
    keys = keys_of(running, role)
    arn = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/none"
    tags = {"X-Amz-Target": "SageMaker.AddTags", "Content-Type": "application/x-amz-json-1.1"}
    tagged = json.dumps({"ResourceArn": arn, "Tags": [{"Key": "team", "Value": "other"}]})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for service, body, headers in (
        ("sagemaker", tagged, tags),
        ("iam", "Action=CreateUser&UserName=attacker&Version=2010-05-08", form),
    ):
        for compressed in (False, True):
            content = gzip.compress(body.encode()) if compressed else body
            encoding = {"Content-Encoding": "gzip"} if compressed else {}
            status, text = sent(running, keys, service, content, **headers, **encoding)
            assert status in (400, 403)
            assert "explicit deny in an identity-based policy" in text
    assert running.client("iam").list_users()["Users"] == []


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


def trusting(running: Running, name: str, *statements: dict[str, Any]) -> str:
    made = running.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document(*statements))
    return str(made["Role"]["Arn"])


def trust(principal: Any, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}


def assumed(client: Any, arn: str, **more: Any) -> Any:
    return lambda: client.assume_role(RoleArn=arn, RoleSessionName="attack", **more)


def test_a_role_is_assumed_by_whom_its_trust_policy_names_and_nobody_else(running: Running) -> None:
    any_role = Role(running, "any-role", allow("sts:AssumeRole"))
    powerless = Role(running, "powerless")
    of_service = trusting(running, "for-sagemaker", trust({"Service": "sagemaker.amazonaws.com"}))
    of_account = trusting(running, "for-the-account", trust({"AWS": f"arn:aws:iam::{ACCOUNT}:root"}))
    of_another = trusting(running, "for-another", trust({"AWS": powerless.arn}))
    except_one = trusting(
        running, "except-one", trust({"AWS": ACCOUNT}), {**trust({"AWS": any_role.arn}), "Effect": "Deny"}
    )
    with_id = trusting(
        running, "with-an-id", trust({"AWS": ACCOUNT}, Condition={"StringEquals": {"sts:ExternalId": "the-id"}})
    )
    sts = any_role.client("sts")
    for refused in (of_service, of_another, except_one, with_id):
        assert code_and_message(assumed(sts, refused))[0] == "AccessDenied", refused
    assumed(sts, of_account)()
    assumed(sts, with_id, ExternalId="the-id")()
    # The account is named, which leaves it to identity-based policies, of which this role has none; and the role is named itself.
    assert code_and_message(assumed(powerless.client("sts"), of_account))[0] == "AccessDenied"
    assumed(powerless.client("sts"), of_another)()


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


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        (
            deny("lambda:DeleteFunction", f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:precious"),
            lambda client: client("lambda").delete_function(FunctionName="precious"),
        ),
        (
            deny("lambda:*", f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:precious"),
            lambda client: client("lambda").get_function(FunctionName="precious"),
        ),
        (
            deny("*", f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/precious"),
            lambda client: client("dynamodb").describe_table(TableName="precious"),
        ),
        (
            deny("sns:CreateTopic", Condition={"StringEquals": {"aws:RequestTag/env": "prod"}}),
            lambda client: client("sns").create_topic(Name="t", Tags=[{"Key": "env", "Value": "prod"}]),
        ),
        (
            deny("sns:CreateTopic", Condition={"ForAnyValue:StringEquals": {"aws:TagKeys": ["owner"]}}),
            lambda client: client("sns").create_topic(Name="t", Tags=[{"Key": "owner", "Value": "me"}]),
        ),
        (
            deny("states:CreateStateMachine", Condition={"StringLike": {"aws:RequestTag/env": "p*"}}),
            lambda client: client("stepfunctions").create_state_machine(
                name="m",
                definition='{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}',
                roleArn=f"arn:aws:iam::{ACCOUNT}:role/none",
                tags=[{"key": "env", "value": "prod"}],
            ),
        ),
        (
            deny("logs:CreateLogGroup", Condition={"StringEquals": {"aws:RequestTag/env": "prod"}}),
            lambda client: client("logs").create_log_group(logGroupName="g", tags={"env": "prod"}),
        ),
        (
            deny("ec2:CreateVpc", Condition={"StringEquals": {"aws:RequestTag/env": "prod"}}),
            lambda client: client("ec2").create_vpc(
                CidrBlock="10.0.0.0/16",
                TagSpecifications=[{"ResourceType": "vpc", "Tags": [{"Key": "env", "Value": "prod"}]}],
            ),
        ),
    ],
)
def test_a_deny_holds_beside_an_allow_of_everything(
    running: Running, statement: dict[str, Any], call: Any, request: Any
) -> None:
    name = f"denied-{request.node.callspec.indices['statement']}"
    role = Role(running, name, ADMIN, statement)
    code, message = code_and_message(lambda: call(role.client))
    assert code in ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"), message


def test_what_a_deny_of_another_service_or_tag_is_not_about_is_allowed(running: Running) -> None:
    of_table = deny("*", f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/precious")
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


def test_a_role_that_a_target_of_a_rule_gets_must_be_one_that_the_caller_may_pass(running: Running) -> None:
    role = Role(running, "rules", allow(["events:PutRule", "events:PutTargets"]))
    events = role.client("events")
    events.put_rule(Name="every-minute", ScheduleExpression="rate(1 minute)")
    passed = f"arn:aws:iam::{ACCOUNT}:role/admin"
    machine = f"arn:aws:states:us-east-1:{ACCOUNT}:stateMachine:m"
    targets = [{"Id": "1", "Arn": machine, "RoleArn": passed}]
    code, message = code_and_message(lambda: events.put_targets(Rule="every-minute", Targets=targets))
    assert (code, "iam:PassRole" in message) == ("AccessDeniedException", True)


def test_a_header_that_a_presigned_url_did_not_sign_is_refused(running: Running) -> None:
    s3 = running.client("s3", config=Config(signature_version="s3v4"))
    s3.create_bucket(Bucket="presigned-headers")
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "presigned-headers", "Key": "a"})
    place = urlsplit(url)

    def put(**headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", place.port)
        connection.request("PUT", f"{place.path}?{place.query}", b"content", {"Host": place.netloc, **headers})
        response = connection.getresponse()
        return response.status, response.read().decode()

    copies = put(**{"x-amz-copy-source": "/another/secret"})
    assert (copies[0], "not signed: x-amz-copy-source" in copies[1]) == (403, True)
    assert put()[0] == 200


def test_a_form_uploads_what_its_sender_may_put_and_nothing_else(running: Running) -> None:
    running.client("s3").create_bucket(Bucket="forms")
    role = Role(running, "forms", allow("s3:PutObject", "arn:aws:s3:::forms/own/*"), allow("s3:ListBucket"))

    def upload(key: str) -> int:
        keys = keys_of(running, role)
        session = {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
        v4 = Config(signature_version="s3v4")
        s3 = running.client("s3", **session, aws_session_token=keys.token, config=v4)
        form = s3.generate_presigned_post("forms", key)
        parts = {**form["fields"], "file": "content"}
        body = "".join(
            f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in parts.items()
        )
        place = urlsplit(form["url"])
        connection = http.client.HTTPConnection("127.0.0.1", place.port)
        headers = {"Host": place.netloc, "Content-Type": "multipart/form-data; boundary=b"}
        connection.request("POST", place.path or "/", f"{body}--b--\r\n", headers)
        return connection.getresponse().status

    assert upload("own/a") in (200, 204)
    assert upload("others/a") == 403


def test_an_operation_of_a_rest_service_is_authorized_by_its_own_name(running: Running) -> None:
    role = Role(running, "functions", allow("lambda:ListFunctions"))
    role.client("lambda").list_functions()
    _, message = code_and_message(lambda: role.client("lambda").delete_function(FunctionName="f"))
    assert "lambda:DeleteFunction" in json.dumps(message)
