"""Attacks on an account that evaluates permissions, each a request over HTTP that AWS refuses: what it is, and what is said."""

from __future__ import annotations

import base64
import datetime
import gzip
import http.client
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from moto.sts.models import sts_backends
from running_account import Running
from test_enforced import ACCOUNT, Role, allow, document

ADMIN = allow("*")
# Of who may do everything but pass a role.
PASSES_NONE = {"Effect": "Allow", "NotAction": "iam:PassRole", "Resource": "*"}
ADMIN_ROLE = f"arn:aws:iam::{ACCOUNT}:role/admin"
HERE = f"us-east-1:{ACCOUNT}"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
V4 = Config(signature_version="s3v4", s3={"addressing_style": "path"})
WAIT = json.dumps({"StartAt": "W", "States": {"W": {"Type": "Pass", "End": True}}})
TOPIC = json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})
JOB: dict[str, Any] = {
    "TrainingJobName": "attack",
    "AlgorithmSpecification": {
        "TrainingImage": f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/i:1",
        "TrainingInputMode": "File",
    },
    "OutputDataConfig": {"S3OutputPath": "s3://models/"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "RoleArn": ADMIN_ROLE,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}
SCHEDULE: dict[str, Any] = {
    "Name": "s",
    "ScheduleExpression": "rate(1 hour)",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "Target": {"Arn": f"arn:aws:states:{HERE}:stateMachine:m", "RoleArn": ADMIN_ROLE},
}


class Refused(Exception):
    """A refusal; the message has the code and the text."""


def deny(action: str | list[str], resource: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Deny", "Action": action, "Resource": resource, **more}


def tagged(key: str, value: str) -> dict[str, Any]:
    return {"Condition": {"StringEquals": {f"aws:RequestTag/{key}": value}}}


@dataclass
class World:
    """An account, with what attackers are after."""

    running: Running
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def prepare(self) -> None:
        """Makes what is precious; the root's own doing."""
        self.running.role("admin", "states.amazonaws.com", may_do_all=True)
        s3 = self.root("s3")
        for bucket in ("precious", "own"):
            s3.create_bucket(Bucket=bucket)
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        self.version = s3.put_object(Bucket="precious", Key="secret", Body=b"secret")["VersionId"]
        s3.put_object(Bucket="own", Key="a", Body=b"own")
        self.root("sqs").create_queue(QueueName="precious")
        self.root("logs").create_log_group(logGroupName="precious")
        self.root("events").create_event_bus(Name="precious")
        self.root("ssm").put_parameter(Name="/precious", Type="String", Value="secret")
        self.key = self.root("kms").create_key()["KeyMetadata"]["Arn"]
        self.root("kms").create_alias(AliasName="alias/precious", TargetKeyId=self.key)
        self.machine = self.root("stepfunctions").create_state_machine(name="m", definition=WAIT, roleArn=ADMIN_ROLE)
        self.change_set = self.root("cloudformation").create_change_set(
            StackName="precious", ChangeSetName="first", ChangeSetType="CREATE", TemplateBody=TOPIC
        )["Id"]
        self.root("iam").create_role(
            RoleName="precious", Path="/app/", AssumeRolePolicyDocument=document(trust({"Service": "x.amazonaws.com"}))
        )

    def root(self, service: str, **options: Any) -> Any:
        return self.running.client(service, **options)

    def role(self, *statements: dict[str, Any], **more: Any) -> Role:
        return Role(self.running, f"attacker-{next(self.numbers)}", *statements, **more)

    def keys(self, role: Role) -> dict[str, str]:
        keys = self.root("sts").assume_role(RoleArn=role.arn, RoleSessionName="attack")["Credentials"]
        return {
            "aws_access_key_id": keys["AccessKeyId"],
            "aws_secret_access_key": keys["SecretAccessKey"],
            "aws_session_token": keys["SessionToken"],
        }

    def user(self, *statements: dict[str, Any]) -> tuple[str, dict[str, str]]:
        iam, name = self.root("iam"), f"user-{next(self.numbers)}"
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=document(*statements))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return name, {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}

    def signing(self, keys: dict[str, str] | None = None) -> Credentials:
        if keys:
            return Credentials(keys["aws_access_key_id"], keys["aws_secret_access_key"], keys.get("aws_session_token"))
        root = self.running.account.environment()
        return Credentials(root["AWS_ACCESS_KEY_ID"], root["AWS_SECRET_ACCESS_KEY"])

    def send(
        self,
        service: str,
        body: str | bytes,
        headers: dict[str, str],
        *,
        keys: Credentials | None = None,
        method: str = "POST",
        path: str = "/",
        hashed: str = "",
        after: dict[str, str | None] | None = None,
    ) -> str:
        """Sends a request that is signed for a service, with what ``after`` changes or removes once it is signed."""
        endpoint = self.running.account.endpoint_url
        request = AWSRequest(method, f"{endpoint}{path}", data=hashed or body, headers=headers)
        signer = SigV4Auth(keys or self.signing(), service, "us-east-1")
        if hashed:
            request.headers["X-Amz-Content-SHA256"] = signer.payload(request)
        signer.add_auth(request)
        sent = {"Host": urlsplit(endpoint).netloc, **dict(request.headers), **(after or {})}
        return self.plain(method, path, body, {name: text for name, text in sent.items() if text is not None})

    def plain(self, method: str, path: str, body: str | bytes, headers: dict[str, str]) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(self.running.account.endpoint_url).port)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        if response.status in (400, 403):
            raise Refused(text)
        assert response.status < 300, (response.status, text)
        return text

    def url(self, url: str, method: str = "GET", body: bytes = b"", **headers: str) -> str:
        place = urlsplit(url)
        return self.plain(method, f"{place.path}?{place.query}", body, {"Host": place.netloc, **headers})

    def form(
        self, role: Role, sign: Callable[[Any], Any], *, query: str = "", fields: Sequence[tuple[str, str]] = ()
    ) -> str:
        """Uploads a file by a form; ``fields`` stand before those that were signed."""
        form = sign(self.root("s3", **self.keys(role), config=V4))
        parts = [*fields, *form["fields"].items(), ("file", "content")]
        body = "".join(
            f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in parts
        )
        place = urlsplit(form["url"])
        headers = {"Host": place.netloc, "Content-Type": "multipart/form-data; boundary=b"}
        return self.plain("POST", f"{place.path}{query}", f"{body}--b--\r\n", headers)


def trust(principal: Any, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}


def assume(world: World, trusts: dict[str, Any], *, may: dict[str, Any] | None = None, **more: Any) -> None:
    name = f"target-{next(world.numbers)}"
    target = world.root("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document(trusts))["Role"]["Arn"]
    sts = world.role(*([may or allow("sts:AssumeRole")])).client("sts")
    sts.assume_role(RoleArn=target, RoleSessionName="attack", **more)


def misnamed(service: str, target: str) -> Callable[[World], Any]:
    headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
    return lambda w: w.send(service, "{}", headers)


def identity(w: World, **more: Any) -> str:
    return w.send("sts", "Action=GetCallerIdentity&Version=2011-06-15", FORM, **more)


def at(minutes: int) -> Any:
    """Lets the signer sign at another time."""
    time = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    return mock.patch("botocore.auth.get_current_datetime", return_value=time)


def signed_at(minutes: int) -> Callable[[World], Any]:
    def attack(w: World) -> None:
        with at(minutes):
            identity(w)

    return attack


def presigned(w: World, **more: Any) -> str:
    return str(
        w.root("s3", config=V4).generate_presigned_url("get_object", Params={"Bucket": "own", "Key": "a"}, **more)
    )


def expired_url(w: World) -> None:
    with at(-2):
        url = presigned(w, ExpiresIn=60)
    w.url(url)


def older_url_that_expired(w: World) -> None:
    s3 = w.root("s3", config=Config(signature_version="s3"))
    w.url(s3.generate_presigned_url("get_object", Params={"Bucket": "own", "Key": "a"}, ExpiresIn=-60))


def unsigned_header(w: World, config: Config = V4) -> None:
    url = w.root("s3", config=config).generate_presigned_url("put_object", Params={"Bucket": "own", "Key": "b"})
    w.url(url, "PUT", b"content", **{"x-amz-copy-source": "/precious/secret"})


def deleted_user(w: World) -> None:
    name, keys = w.user(ADMIN)
    iam = w.root("iam")
    w.root("sqs", **keys).list_queues()
    iam.delete_access_key(UserName=name, AccessKeyId=keys["aws_access_key_id"])
    iam.delete_user_policy(UserName=name, PolicyName="p")
    iam.delete_user(UserName=name)
    w.root("sqs", **keys).list_queues()


def inactive_key(w: World) -> None:
    name, keys = w.user(ADMIN)
    w.root("iam").update_access_key(UserName=name, AccessKeyId=keys["aws_access_key_id"], Status="Inactive")
    w.root("sqs", **keys).list_queues()


def deleted_role(w: World) -> None:
    role = w.role(ADMIN)
    sqs = role.client("sqs")
    sqs.list_queues()
    name = role.arn.rpartition("/")[2]
    w.root("iam").delete_role_policy(RoleName=name, PolicyName="p")
    w.root("iam").delete_role(RoleName=name)
    sqs.list_queues()


def ended_session(w: World) -> None:
    keys = w.keys(w.role(ADMIN))
    sqs = w.root("sqs", **keys)
    sqs.list_queues()
    session = sts_backends[ACCOUNT]["aws"].get_assumed_role_from_access_key(keys["aws_access_key_id"])
    assert session is not None
    session.expiration -= datetime.timedelta(hours=2)
    sqs.list_queues()


def without_token(w: World) -> None:
    keys = w.keys(w.role(ADMIN))
    w.root("sqs", **{**keys, "aws_session_token": None}).list_queues()


def with_the_token_of_another(w: World) -> None:
    one, other = w.keys(w.role(ADMIN)), w.keys(w.role(ADMIN))
    w.root("sqs", **{**one, "aws_session_token": other["aws_session_token"]}).list_queues()


def boundary_of(w: World, user: bool) -> None:
    made = w.root("iam").create_policy(PolicyName=f"b-{next(w.numbers)}", PolicyDocument=document(allow("s3:*")))
    arn = made["Policy"]["Arn"]
    if user:
        name, keys = w.user(ADMIN)
        w.root("iam").put_user_permissions_boundary(UserName=name, PermissionsBoundary=arn)
        w.root("sqs", **keys).list_queues()
    w.role(ADMIN, boundary=arn).client("sqs").list_queues()


def two_keys(w: World) -> None:
    role = w.role(allow("s3:PutObject", "arn:aws:s3:::own/*"), deny("s3:PutObject", "arn:aws:s3:::own/precious"))
    w.form(role, lambda s3: s3.generate_presigned_post("own", "a"), fields=[("key", "precious")])


def key_in_the_query(w: World) -> None:
    role = w.role(allow("s3:PutObject", "arn:aws:s3:::own/*"), deny("s3:PutObject", "arn:aws:s3:::own/precious"))
    w.form(role, lambda s3: s3.generate_presigned_post("own", "a"), query="?key=precious")


def form_beyond_its_policy(**given: Any) -> Callable[[World], Any]:
    fields = [*given.pop("fields", {}).items()]

    def attack(w: World) -> None:
        role = w.role(allow("s3:PutObject", "arn:aws:s3:::own/*"))
        w.form(role, lambda s3: s3.generate_presigned_post("own", **{"Key": "a", **given}), fields=fields)

    return attack


def old_form(w: World) -> None:
    role = w.role(allow("s3:PutObject", "arn:aws:s3:::own/*"))

    def sign(s3: Any) -> Any:
        form = s3.generate_presigned_post("own", "a")
        fields = form["fields"]
        policy = json.loads(base64.b64decode(fields["policy"]))
        policy["expiration"] = "2020-01-01T00:00:00Z"
        fields["policy"] = base64.b64encode(json.dumps(policy).encode()).decode()
        signer = SigV4Auth(Credentials("", s3._request_signer._credentials.secret_key), "s3", "us-east-1")
        day = AWSRequest()
        day.context["timestamp"] = fields["x-amz-date"]
        fields["x-amz-signature"] = signer.signature(fields["policy"], day)
        return form

    w.form(role, sign)


def forged(service: str, target: str, body: dict[str, Any], *statements: dict[str, Any]) -> Callable[[World], Any]:
    """A request with members that the service's model does not have, which no client writes."""
    headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
    return lambda w: w.send(service, json.dumps(body), headers, keys=w.signing(w.keys(w.role(*statements))))


def may(*statements: dict[str, Any]) -> Callable[[Callable[[World, Any], Any]], Callable[[World], Any]]:
    """An attack by a role with statements: called with the world and a maker of the role's clients."""
    return lambda attack: lambda w: attack(w, w.role(*statements).client)


def passing(attack: Callable[[World, Any], Any]) -> tuple[str, Callable[[World], Any]]:
    return "iam:PassRole", may(PASSES_NONE)(attack)


def denied(action: str | list[str], resource: str, attack: Callable[[World, Any], Any], **more: Any) -> Any:
    return "explicit deny in an identity-based policy", may(ADMIN, deny(action, resource, **more))(attack)


def unknown(action: str, resource: str, attack: Callable[[World, Any], Any]) -> tuple[str, Callable[[World], Any]]:
    return f"the resource of {action}", may(ADMIN, deny(action, resource))(attack)


def submit(w: World, client: Any) -> None:
    payload = json.dumps(JOB)
    client("batch").submit_service_job(
        jobName="j", jobQueue="q", serviceJobType="SAGEMAKER_TRAINING", serviceRequestPayload=payload
    )


def cloud_control(w: World, client: Any) -> None:
    patch = json.dumps([{"op": "replace", "path": "/RoleArn", "value": ADMIN_ROLE}])
    client("cloudcontrol").update_resource(
        TypeName="AWS::StepFunctions::StateMachine", Identifier=w.machine["stateMachineArn"], PatchDocument=patch
    )


def publishing(w: World, client: Any) -> None:
    client("events").put_events(
        Entries=[{"EventBusName": "precious", "Source": "s", "DetailType": "d", "Detail": "{}"}]
    )


def encrypted(w: World, client: Any) -> None:
    blob = w.root("kms").encrypt(KeyId=w.key, Plaintext=b"x")["CiphertextBlob"]
    client("kms").decrypt(CiphertextBlob=blob)


def encrypted_anew(w: World, client: Any) -> None:
    blob = w.root("kms").encrypt(KeyId=w.key, Plaintext=b"x")["CiphertextBlob"]
    client("kms").re_encrypt(CiphertextBlob=blob, DestinationKeyId="alias/precious")


LOGS = f"arn:aws:logs:{HERE}:log-group:precious:*"
NOT_SIGNED = "Credential should be scoped to correct service"
NO_TRUST = "no resource-based policy allows the sts:AssumeRole action"

# What is tried, what the answer says, and the attack.
ATTACKS: dict[str, tuple[str, Callable[[World], Any]]] = {
    **{
        f"`{target}`, signed for {service}": (NOT_SIGNED, misnamed(service, target))
        for service, target in (
            ("s3", "AWSStepFunctions.ListStateMachines"),
            ("sts", "SageMaker.ListTrainingJobs"),
            ("logs", "SageMaker.ListTrainingJobs"),
            ("states", "SageMaker.ListTrainingJobs"),
            ("iam", "CodeBuild_20161006.ListProjects"),
            ("no-such-service", "SageMaker.ListTrainingJobs"),
            ("sagemaker", "LocalAccount.ListFaults"),
        )
    },
    "an `Action` in the query beside another in the body": (
        "Action must be in the body",
        lambda w: w.send("sts", "Action=GetSessionToken", FORM, path="/?Action=GetCallerIdentity&Version=2011-06-15"),
    ),
    "another body than that of its hash": (
        "x-amz-content-sha256",
        lambda w: w.send("sts", "Action=ListUsers", FORM, hashed="Action=GetCallerIdentity&Version=2011-06-15"),
    ),
    "a request that is not signed": (
        "MissingAuthenticationToken",
        lambda w: identity(w, after={"Authorization": None}),
    ),
    "a signature by another secret": (
        "SignatureDoesNotMatch",
        lambda w: identity(w, keys=Credentials(w.signing().access_key, "another")),
    ),
    "a key that the account did not issue": (
        "InvalidClientTokenId",
        lambda w: identity(w, keys=Credentials("AKIAANOTHER", "another")),
    ),
    "a signature of 20 minutes ago": ("RequestTimeTooSkewed", signed_at(-20)),
    "a signature of 20 minutes from now": ("RequestTimeTooSkewed", signed_at(20)),
    "a request from a web page": ("web pages", lambda w: identity(w, after={"Origin": "http://localhost"})),
    "a request to another host name (DNS rebinding)": (
        "Host must be",
        lambda w: identity(w, after={"Host": "rebound.example.com"}),
    ),
    "moto's own API": ("moto's own API", lambda w: identity(w, path="/moto-api/reset")),
    "a presigned URL that has expired": ("RequestTimeTooSkewed", expired_url),
    "a presigned URL with another key": (
        "SignatureDoesNotMatch",
        lambda w: w.url(presigned(w).replace("/own/a?", "/precious/secret?")),
    ),
    "a header that a presigned URL did not sign": ("not signed: x-amz-copy-source", unsigned_header),
    "the same of Signature Version 2": (
        "SignatureDoesNotMatch",
        lambda w: unsigned_header(w, Config(signature_version="s3")),
    ),
    "a presigned URL of Signature Version 2 that has expired": ("Request has expired", older_url_that_expired),
    "the key of a user that was deleted": ("InvalidClientTokenId", deleted_user),
    "a key that is inactive": ("InvalidClientTokenId", inactive_key),
    "the session of a role that was deleted": ("no identity-based policy", deleted_role),
    "a session that has ended": ("ExpiredToken", ended_session),
    "a session's key without its token": ("InvalidClientTokenId", without_token),
    "a session's key with the token of another": ("InvalidClientTokenId", with_the_token_of_another),
    "the account's own API by a role": (
        "root",
        lambda w: w.send(
            "local-account",
            "{}",
            {"X-Amz-Target": "LocalAccount.ListFaults", "Content-Type": "application/x-amz-json-1.1"},
            keys=w.signing(w.keys(w.role(ADMIN))),
        ),
    ),
    "a denied tag in a compressed body": (
        "explicit deny",
        lambda w: w.send(
            "sagemaker",
            gzip.compress(json.dumps({"ResourceArn": "a", "Tags": [{"Key": "team", "Value": "other"}]}).encode()),
            {
                "X-Amz-Target": "SageMaker.AddTags",
                "Content-Type": "application/x-amz-json-1.1",
                "Content-Encoding": "gzip",
            },
            keys=w.signing(w.keys(w.role(ADMIN, deny("sagemaker:AddTags", **tagged("team", "other"))))),
        ),
    ),
    "a denied action in a compressed form": (
        "explicit deny",
        lambda w: w.send(
            "iam",
            gzip.compress(b"Action=CreateUser&UserName=attacker&Version=2010-05-08"),
            {**FORM, "Content-Encoding": "gzip"},
            keys=w.signing(w.keys(w.role(ADMIN, deny("iam:*")))),
        ),
    ),
    "AssumeRole of a role for a service": (
        NO_TRUST,
        lambda w: assume(w, trust({"Service": "sagemaker.amazonaws.com"})),
    ),
    "AssumeRole of a role for another role": (NO_TRUST, lambda w: assume(w, trust({"AWS": ADMIN_ROLE}))),
    "AssumeRole without the external id": (
        NO_TRUST,
        lambda w: assume(w, trust({"AWS": ACCOUNT}, Condition={"StringEquals": {"sts:ExternalId": "id"}})),
    ),
    "AssumeRole with another external id": (
        NO_TRUST,
        lambda w: assume(
            w, trust({"AWS": ACCOUNT}, Condition={"StringEquals": {"sts:ExternalId": "id"}}), ExternalId="other"
        ),
    ),
    "AssumeRole of a role that denies everyone else": (
        "explicit deny in a resource-based policy",
        lambda w: assume(w, {**trust({"AWS": "*"}), "Effect": "Deny"}),
    ),
    "AssumeRole by who may not, of a role for the account": (
        "no identity-based policy",
        lambda w: assume(w, trust({"AWS": ACCOUNT}), may=allow("s3:*")),
    ),
    "AssumeRole with tags of a role whose trust policy does not allow them": (
        "sts:TagSession",
        lambda w: assume(w, trust({"AWS": ACCOUNT}), may=allow("sts:*"), Tags=[{"Key": "team", "Value": "other"}]),
    ),
    "AssumeRole with a source identity of such a role": (
        "sts:SetSourceIdentity",
        lambda w: assume(w, trust({"AWS": ACCOUNT}), may=allow("sts:*"), SourceIdentity="another"),
    ),
    "AssumeRole of a role of another account": (
        "is of account 999988887777",
        may(ADMIN)(
            lambda w, client: client("sts").assume_role(
                RoleArn="arn:aws:iam::999988887777:role/admin", RoleSessionName="attack"
            )
        ),
    ),
    "what a session's policy grants and its role does not": (
        "no identity-based policy",
        lambda w: w.role(allow("s3:*")).client("sqs", Policy=document(ADMIN)).list_queues(),
    ),
    "what a session's policy by ARN does not allow": (
        "no session policy",
        lambda w: (
            w.role(ADMIN)
            .client("sqs", PolicyArns=[{"arn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}])
            .list_queues()
        ),
    ),
    "a user beyond its permissions boundary": ("no permissions boundary", lambda w: boundary_of(w, user=True)),
    "a role beyond its permissions boundary": ("no permissions boundary", lambda w: boundary_of(w, user=False)),
    "CreateTrainingJob with a role that may not be passed": passing(
        lambda w, client: client("sagemaker").create_training_job(**JOB)
    ),
    "the same in SubmitServiceJob": passing(submit),
    "the same in CreateStateMachine": passing(
        lambda w, client: client("stepfunctions").create_state_machine(name="n", definition=WAIT, roleArn=ADMIN_ROLE)
    ),
    "the same in UpdateStateMachine": passing(
        lambda w, client: client("stepfunctions").update_state_machine(
            stateMachineArn=w.machine["stateMachineArn"], roleArn=ADMIN_ROLE
        )
    ),
    "the same by Cloud Control API": passing(cloud_control),
    "the same in PutTargets": passing(
        lambda w, client: client("events").put_targets(
            Rule="r", Targets=[{"Id": "1", "Arn": w.machine["stateMachineArn"], "RoleArn": ADMIN_ROLE}]
        )
    ),
    "the same in CreateSchedule": passing(lambda w, client: client("scheduler").create_schedule(**SCHEDULE)),
    "the same in UpdateSchedule": passing(lambda w, client: client("scheduler").update_schedule(**SCHEDULE)),
    "the same in CreateFunction": passing(
        lambda w, client: client("lambda").create_function(
            FunctionName="f", Runtime="python3.12", Role=ADMIN_ROLE, Handler="a.b", Code={"ZipFile": b"x"}
        )
    ),
    "the same in CreateProject": passing(
        lambda w, client: client("codebuild").create_project(
            name="project",
            source={"type": "NO_SOURCE", "buildspec": "version: 0.2"},
            artifacts={"type": "NO_ARTIFACTS"},
            environment={
                "type": "LINUX_CONTAINER",
                "image": "aws/codebuild/standard:7.0",
                "computeType": "BUILD_GENERAL1_SMALL",
            },
            serviceRole=ADMIN_ROLE,
        )
    ),
    "the same in CreateStack": passing(
        lambda w, client: client("cloudformation").create_stack(
            StackName="s", TemplateBody='{"Resources": {}}', RoleARN=ADMIN_ROLE
        )
    ),
    "the same in DeleteStack": passing(
        lambda w, client: client("cloudformation").delete_stack(StackName="s", RoleARN=ADMIN_ROLE)
    ),
    "a job with tags by who may not tag": (
        "sagemaker:AddTags",
        may({"Effect": "Allow", "NotAction": "sagemaker:AddTags", "Resource": "*"})(
            lambda w, client: client("sagemaker").create_training_job(**JOB, Tags=[{"Key": "a", "Value": "b"}])
        ),
    ),
    "a job that was denied, by its name in capitals": denied(
        "sagemaker:StopTrainingJob",
        f"arn:aws:sagemaker:{HERE}:training-job/precious",
        lambda w, client: client("sagemaker").stop_training_job(TrainingJobName="Precious"),
    ),
    "a denied tag in JSON": denied(
        "logs:CreateLogGroup",
        "*",
        lambda w, client: client("logs").create_log_group(logGroupName="g", tags={"env": "prod"}),
        **tagged("env", "prod"),
    ),
    "a denied tag in Query": denied(
        "sns:CreateTopic",
        "*",
        lambda w, client: client("sns").create_topic(Name="t", Tags=[{"Key": "env", "Value": "prod"}]),
        **tagged("env", "prod"),
    ),
    "a denied tag in EC2's protocol": denied(
        "ec2:CreateVpc",
        "*",
        lambda w, client: client("ec2").create_vpc(
            CidrBlock="10.0.0.0/16",
            TagSpecifications=[{"ResourceType": "vpc", "Tags": [{"Key": "env", "Value": "prod"}]}],
        ),
        **tagged("env", "prod"),
    ),
    "a denied function by its name": unknown(
        "lambda:DeleteFunction",
        f"arn:aws:lambda:{HERE}:function:precious",
        lambda w, client: client("lambda").delete_function(FunctionName="precious"),
    ),
    "a denied function by a part of its ARN": denied(
        "lambda:InvokeFunction",
        f"arn:aws:lambda:{HERE}:function:precious",
        lambda w, client: client("lambda").invoke(FunctionName=f"{ACCOUNT}:function:precious"),
    ),
    "a denied resource of a service that is moto's": unknown(
        "kinesis:DescribeStream",
        f"arn:aws:kinesis:{HERE}:stream/precious",
        lambda w, client: client("kinesis").describe_stream(StreamName="precious"),
    ),
    "a denied log group by its ARN": denied(
        "logs:FilterLogEvents",
        LOGS,
        lambda w, client: client("logs").filter_log_events(logGroupIdentifier=LOGS.removesuffix(":*")),
    ),
    "a denied log group beside one that is allowed": (
        "explicit deny",
        forged(
            "logs",
            "Logs_20140328.FilterLogEvents",
            {"logGroupName": "own", "logGroupIdentifier": "precious"},
            ADMIN,
            deny("logs:FilterLogEvents", LOGS),
        ),
    ),
    "a denied repository beside one that is allowed": (
        "explicit deny",
        forged(
            "ecr",
            "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories",
            {"repositoryName": "own", "repositoryNames": ["precious"]},
            ADMIN,
            deny("ecr:DescribeRepositories", f"arn:aws:ecr:{HERE}:repository/precious"),
        ),
    ),
    "a denied queue by the path of the request": (
        "the resource of sqs:SendMessage",
        lambda w: w.send(
            "sqs",
            "Action=SendMessage&MessageBody=x&Version=2012-11-05",
            FORM,
            path=f"/{ACCOUNT}/precious",
            keys=w.signing(w.keys(w.role(ADMIN, deny("sqs:SendMessage", f"arn:aws:sqs:{HERE}:precious")))),
        ),
    ),
    "a denied bus in an event": denied("events:PutEvents", f"arn:aws:events:{HERE}:event-bus/precious", publishing),
    "a denied rule of another bus": denied(
        "events:PutRule",
        f"arn:aws:events:{HERE}:rule/precious/*",
        lambda w, client: client("events").put_rule(
            Name="r", EventBusName="precious", EventPattern='{"source": ["s"]}'
        ),
    ),
    "a denied key by its alias": (
        "explicit deny",
        lambda w: (
            w.role(ADMIN, deny("kms:Encrypt", w.key)).client("kms").encrypt(KeyId="alias/precious", Plaintext=b"x")
        ),
    ),
    "a denied key by what it encrypted": (
        "explicit deny",
        lambda w: encrypted(w, w.role(ADMIN, deny("kms:Decrypt", w.key)).client),
    ),
    "a denied key as that from which to encrypt anew": (
        "kms:ReEncryptFrom",
        lambda w: encrypted_anew(w, w.role(ADMIN, deny("kms:ReEncryptFrom", w.key)).client),
    ),
    "a denied key as that to which to encrypt anew": (
        "kms:ReEncryptTo",
        lambda w: encrypted_anew(w, w.role(ADMIN, deny("kms:ReEncryptTo", w.key)).client),
    ),
    "a denied role that has a path": denied(
        "iam:UpdateAssumeRolePolicy",
        f"arn:aws:iam::{ACCOUNT}:role/app/*",
        lambda w, client: client("iam").update_assume_role_policy(
            RoleName="precious", PolicyDocument=document(trust({"AWS": ACCOUNT}))
        ),
    ),
    "a denied parameter with a version": denied(
        "ssm:GetParameter",
        f"arn:aws:ssm:{HERE}:parameter/precious",
        lambda w, client: client("ssm").get_parameter(Name="/precious:1"),
    ),
    "a denied schedule with another group in the body": (
        "explicit deny",
        lambda w: w.send(
            "scheduler",
            json.dumps({"GroupName": "own"}),
            {"Content-Type": "application/json"},
            method="DELETE",
            path="/schedules/precious",
            keys=w.signing(
                w.keys(w.role(ADMIN, deny("scheduler:DeleteSchedule", f"arn:aws:scheduler:{HERE}:schedule/default/*")))
            ),
        ),
    ),
    "a copy of an object that may not be read": (
        "s3:GetObject",
        may(allow("s3:*", "arn:aws:s3:::own/*"))(
            lambda w, client: client("s3").copy_object(Bucket="own", Key="b", CopySource="precious/secret")
        ),
    ),
    "a copy of a version that may not be read": denied(
        "s3:GetObjectVersion",
        "arn:aws:s3:::precious/*",
        lambda w, client: client("s3").copy_object(
            Bucket="own", Key="b", CopySource=f"precious/secret?versionId={w.version}"
        ),
    ),
    "a copy whose source has a fragment": (
        "s3:GetObject",
        lambda w: w.send(
            "s3",
            b"",
            {"x-amz-copy-source": "/precious/secret#.public"},
            method="PUT",
            path="/own/b",
            keys=w.signing(
                w.keys(w.role(allow("s3:PutObject"), allow("s3:GetObject", "arn:aws:s3:::precious/*.public")))
            ),
            hashed="",
        ),
    ),
    "an object with a list of access that may not be set": denied(
        "s3:PutObjectAcl",
        "arn:aws:s3:::own/*",
        lambda w, client: client("s3").put_object(Bucket="own", Key="b", ACL="public-read"),
    ),
    "an object with tags by who may not tag": denied(
        "s3:PutObjectTagging",
        "arn:aws:s3:::own/*",
        lambda w, client: client("s3").put_object(Bucket="own", Key="b", Tagging="team=other"),
    ),
    "a denied stack by the ARN of its change set": denied(
        "cloudformation:ExecuteChangeSet",
        f"arn:aws:cloudformation:{HERE}:stack/precious/*",
        lambda w, client: client("cloudformation").execute_change_set(StackName="own", ChangeSetName=w.change_set),
    ),
    "a deletion of several objects of which one is denied": denied(
        "s3:DeleteObject",
        "arn:aws:s3:::precious/*",
        lambda w, client: client("s3").delete_objects(Bucket="precious", Delete={"Objects": [{"Key": "secret"}]}),
    ),
    "a version that may not be deleted": denied(
        "s3:DeleteObjectVersion",
        "arn:aws:s3:::precious/*",
        lambda w, client: client("s3").delete_object(Bucket="precious", Key="secret", VersionId=w.version),
    ),
    "a listing of another prefix": (
        "s3:ListBucket",
        may({**allow("s3:ListBucket"), "Condition": {"StringLike": {"s3:prefix": "own/*"}}})(
            lambda w, client: client("s3").list_objects_v2(Bucket="own", Prefix="")
        ),
    ),
    "a form that uploads what its sender may not put": (
        "s3:PutObject",
        lambda w: w.form(
            w.role(allow("s3:PutObject", "arn:aws:s3:::own/own/*")), lambda s3: s3.generate_presigned_post("own", "a")
        ),
    ),
    "a form with two keys": ("s3:PutObject", two_keys),
    "a form with a key in the query": ("s3:PutObject", key_in_the_query),
    "a form after its expiration": ("Policy expired", old_form),
    "a form with a field that its policy does not have": (
        "Extra input fields: acl",
        form_beyond_its_policy(Fields={"acl": "public-read"}),
    ),
    "a form with another value than its policy's": (
        "Policy Condition failed",
        form_beyond_its_policy(Fields={"acl": "public-read"}, Conditions=[{"acl": "private"}]),
    ),
    "a form with a larger file than its policy's": (
        "EntityTooLarge",
        form_beyond_its_policy(Conditions=[["content-length-range", 1, 3]]),
    ),
}


def refusal(world: World, name: str) -> str:
    """What an attack is answered."""
    try:
        ATTACKS[name][1](world)
    except ClientError as error:
        said = error.response["Error"]
        return f"{said['Code']}: {said['Message']}"
    except Refused as error:
        return str(error)
    raise AssertionError(f"it was not refused: {name}")
