"""Who may speak to the account: asked of a running one, over HTTP."""

import http.client
import json
import socket
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from botocore.loaders import Loader
from moto.utilities.docker_utilities import DockerModel
from running_account import Running

from sagemaker_local_account.core.rest_operations import metadata_of

BODY = "Action=GetCallerIdentity&Version=2011-06-15"


def answer(running: Running, *, secret: str = "", path: str = "/", **headers: str) -> tuple[int, str]:
    """The status and text of a signed request for one's identity, with more headers than were signed."""
    environment = running.account.environment()
    key = Credentials(environment["AWS_ACCESS_KEY_ID"], secret or environment["AWS_SECRET_ACCESS_KEY"])
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    request = AWSRequest("POST", f"{running.account.endpoint_url}{path}", data=BODY, headers=form)
    SigV4Auth(key, "sts", "us-east-1").add_auth(request)
    place = urlsplit(running.account.endpoint_url)
    connection = http.client.HTTPConnection("127.0.0.1", place.port)
    connection.request("POST", path, BODY, {"Host": place.netloc, **dict(request.headers), **headers})
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_a_signed_request_passes(running: Running) -> None:
    assert answer(running)[0] == 200


def test_a_request_with_an_origin_is_refused(running: Running) -> None:
    status, text = answer(running, Origin="http://localhost")
    assert status == 403
    assert "Origin" in text


def test_a_request_to_another_host_is_refused(running: Running) -> None:
    status, text = answer(running, Host="rebound.example.com")
    assert status == 403
    assert "Host" in text


def test_a_request_signed_with_another_secret_is_refused(running: Running) -> None:
    assert answer(running, secret="another")[0] == 403


def with_token(running: Running, service: str, of: dict[str, str], **changes: str) -> Any:
    """A client with the credentials of GetSessionToken."""
    keys = {
        "aws_access_key_id": "AccessKeyId",
        "aws_secret_access_key": "SecretAccessKey",
        "aws_session_token": "SessionToken",
    }
    return running.client(service, **{name: {**of, **changes}[member] for name, member in keys.items()})


def test_the_credentials_of_get_session_token_are_those_of_who_called_for_an_hour(running: Running) -> None:
    """Of the root at most an hour (STS's API, GetSessionToken); by session credentials it cannot be called."""
    of_root = running.client("sts").get_session_token(DurationSeconds=7_200)["Credentials"]
    assert of_root["Expiration"] - datetime.now(tz=UTC) < timedelta(hours=1, minutes=1)
    sts = with_token(running, "sts", of_root)
    assert sts.get_caller_identity()["Arn"] == "arn:aws:iam::123456789012:root"
    with_token(running, "s3", of_root).list_buckets()
    for refused, code in (
        (sts.get_session_token, "AccessDenied"),
        (with_token(running, "sts", of_root, SessionToken="another").get_caller_identity, "InvalidClientTokenId"),
        (with_token(running, "sts", of_root, SecretAccessKey="another").get_caller_identity, "SignatureDoesNotMatch"),
    ):
        with pytest.raises(ClientError) as error:
            refused()
        assert error.value.response["Error"]["Code"] == code


def test_a_users_session_token_is_theirs(running: Running) -> None:
    iam = running.client("iam")
    iam.create_user(UserName="somebody")
    key = iam.create_access_key(UserName="somebody")["AccessKey"]
    of_user = with_token(running, "sts", {**key, "SessionToken": None}).get_session_token()["Credentials"]
    assert with_token(running, "sts", of_user).get_caller_identity()["Arn"] == "arn:aws:iam::123456789012:user/somebody"
    with pytest.raises(ClientError, match="user/somebody is not authorized to perform: s3:ListAllMyBuckets"):
        with_token(running, "s3", of_user).list_buckets()


def test_a_federation_token_is_refused_in_place_of_keys_that_nobody_issued(running: Running) -> None:
    with pytest.raises(ClientError, match="does not support this operation: GetFederationToken"):
        running.client("sts").get_federation_token(Name="somebody")


def test_the_api_of_moto_itself_is_refused_to_whoever_has_keys(running: Running) -> None:
    status, text = answer(running, path="/moto-api/reset")
    assert status == 403
    assert "moto" in text


def test_no_container_of_dockers_is_started(running: Running) -> None:
    with pytest.raises(NotImplementedError, match="runs no Docker containers"):
        DockerModel().docker_client  # noqa: B018 - a property


def test_nothing_is_sent_to_an_http_endpoint_for_firehose(running: Running) -> None:
    role = running.role("Delivering", "firehose.amazonaws.com")
    bucket = {"RoleARN": role, "BucketARN": "arn:aws:s3:::presigned"}
    firehose = running.client("firehose")
    with socket.create_server(("127.0.0.1", 0)) as others:
        others.setblocking(False)
        endpoint = {"Url": f"http://127.0.0.1:{others.getsockname()[1]}/", "Name": "others"}
        firehose.create_delivery_stream(
            DeliveryStreamName="out",
            HttpEndpointDestinationConfiguration={"EndpointConfiguration": endpoint, "S3Configuration": bucket},
        )
        with pytest.raises(ClientError, match="does not deliver to HTTP endpoints"):
            firehose.put_record(DeliveryStreamName="out", Record={"Data": b"content"})
        with pytest.raises(BlockingIOError):
            others.accept()


def test_a_request_without_a_signature_is_refused(running: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(running.account.endpoint_url).port)
    connection.request("GET", "/", headers={"Host": urlsplit(running.account.endpoint_url).netloc})
    assert connection.getresponse().status == 403


def test_a_key_that_the_account_did_not_issue_is_refused(running: Running) -> None:
    with pytest.raises(ClientError, match="InvalidClientTokenId"):
        running.client("sts", aws_access_key_id="AKIAANOTHER").get_caller_identity()


def test_the_keys_of_a_role_that_was_taken_on_pass(running: Running) -> None:
    role = running.role("Taken", "sagemaker.amazonaws.com")
    keys = running.client("sts").assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    identity = running.client(
        "sts",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    ).get_caller_identity()
    assert ":assumed-role/Taken/" in identity["Arn"]


def test_a_presigned_url_passes_and_one_that_was_changed_does_not(running: Running) -> None:
    s3 = running.client("s3", config=Config(signature_version="s3v4", s3={"addressing_style": "path"}))
    s3.create_bucket(Bucket="presigned")
    s3.put_object(Bucket="presigned", Key="one", Body=b"content")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "presigned", "Key": "one"})
    assert ask(url)[0] == 200
    assert ask(url.replace("/one?", "/two?"))[0] == 403


def ask(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port)  # not every machine resolves BUCKET.localhost
    connection.request(method, f"{parts.path}?{parts.query}", body, headers={"Host": parts.netloc, **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("style", ["path", "virtual"])
def test_a_url_that_boto3_presigns_by_default_passes_and_one_that_was_changed_does_not(
    running: Running, style: str
) -> None:
    """By Signature Version 2, which AWS takes: LocalStack's recorded test_presigned_url_signature_authentication[s3-False]."""
    s3 = running.client("s3", config=Config(s3={"addressing_style": style}))
    by_path = running.client("s3", config=Config(s3={"addressing_style": "path"}))
    bucket = f"older-{style}"
    by_path.create_bucket(Bucket=bucket)
    given = {"Bucket": bucket, "Key": "a b", "ContentType": "text/plain", "Metadata": {"of": "mine"}}
    url = s3.generate_presigned_url("put_object", Params=given)
    assert "AWSAccessKeyId=" in url
    headers = {"Content-Type": "text/plain", "x-amz-meta-of": "mine"}
    assert ask(url, "PUT", b"content", **headers)[0] == 200
    assert ask(url, "PUT", b"content", **{**headers, "x-amz-meta-of": "another"})[0] == 403
    assert ask(url, "PUT", b"content", **headers, **{"x-amz-acl": "public-read"})[0] == 403
    assert ask(url, "DELETE", **headers)[0] == 403
    assert by_path.head_object(Bucket=bucket, Key="a b")["Metadata"] == {"of": "mine"}
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b", "ResponseContentType": "a/b"})
    assert ask(url) == (200, b"content")
    assert ask(url.replace("a%20b?", "other?"))[0] == 403
    assert ask(url.replace("a%2Fb", "c%2Fd"))[0] == 403
    status, body = ask(s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b"}, ExpiresIn=-60))
    assert (status, b"Request has expired" in body) == (403, True)


def test_a_session_presigns_urls_of_the_older_kind_which_no_other_service_takes(running: Running) -> None:
    s3 = running.client("s3", config=Config(s3={"addressing_style": "path"}))
    s3.create_bucket(Bucket="of-a-session")
    s3.put_object(Bucket="of-a-session", Key="one", Body=b"content")
    trust = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam = running.client("iam")
    arn = iam.create_role(RoleName="Presigning", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    iam.attach_role_policy(RoleName="Presigning", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
    keys = running.client("sts").assume_role(RoleArn=arn, RoleSessionName="it")["Credentials"]
    session = running.client(
        "s3",
        config=Config(s3={"addressing_style": "path"}),
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    url = session.generate_presigned_url("get_object", Params={"Bucket": "of-a-session", "Key": "one"})
    assert ask(url) == (200, b"content")
    without = "&".join(part for part in url.split("&") if not part.startswith("x-amz-security-token"))
    assert ask(without)[0] == 403
    target = {"X-Amz-Target": "SageMaker.ListTrainingJobs", "Content-Type": "application/x-amz-json-1.1"}
    assert ask(url, "POST", b"{}", **target)[0] == 403


def test_the_account_listens_on_loopback_only(running: Running) -> None:
    session = boto3.Session("AKIA", "secret", region_name="us-east-1")
    assert session.client("sts", endpoint_url=running.account.endpoint_url)
    with open("/proc/net/tcp") as sockets:
        port = f"{urlsplit(running.account.endpoint_url).port:04X}"
        listening = [
            line.split()[1] for line in sockets if line.split()[1].endswith(f":{port}") and line.split()[3] == "0A"
        ]
    assert listening == [f"0100007F:{port}"]


@pytest.mark.parametrize("service", ["ec2", "kms", "logs", "sagemaker"])
def test_the_metadata_of_a_model_are_those_of_botocore(service: str) -> None:
    assert metadata_of(service) == Loader().load_service_model(service, "service-2")["metadata"]
