"""What `account.log` has of calls, and of what goes wrong."""

from __future__ import annotations

import logging
import re
import socket
import time
from urllib.parse import urlsplit

import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.iam.responses import IamResponse
from running_account import Running

from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.http.call_names import operation_of

ROOT = "arn:aws:iam::123456789012:root"
AN_ERROR_RATHER_THAN_A_HANG = 30
ONCE = Config(retries={"max_attempts": 0})


def log_of(running: Running) -> str:
    file = running.account.state / "account.log"
    return file.read_text() if file.exists() else ""


def lines_with(running: Running, *words: str) -> list[list[str]]:
    """The fields of calls' lines with these words, once there are some: a line is written when its answer has gone out."""
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while time.monotonic() < limit:
        found = [line.split() for line in log_of(running).splitlines() if set(words) <= set(line.split())]
        if found:
            return found
    raise AssertionError(log_of(running))


def test_a_call_has_a_line_with_its_service_operation_caller_job_status_and_duration(running: Running) -> None:
    with pytest.raises(ClientError):
        running.client("sagemaker").create_training_job(
            TrainingJobName="logged-job",
            AlgorithmSpecification={"TrainingImage": "shell:1", "TrainingInputMode": "File"},
            RoleArn="arn:aws:iam::123456789012:role/Nobody",
            OutputDataConfig={"S3OutputPath": "s3://nowhere/"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )
    [[when, *fields, milliseconds, unit]] = lines_with(running, "logged-job")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", when)
    assert fields == ["sagemaker", "CreateTrainingJob", ROOT, "logged-job", "400/ValidationException"]
    assert int(milliseconds) >= 0
    assert unit == "ms"


def test_a_caller_is_a_roles_session_or_a_user(running: Running) -> None:
    role = running.role("Logged", "sagemaker.amazonaws.com", may_do_all=True)
    keys = running.client("sts").assume_role(RoleArn=role, RoleSessionName="tried")["Credentials"]
    session = {
        "aws_access_key_id": keys["AccessKeyId"],
        "aws_secret_access_key": keys["SecretAccessKey"],
        "aws_session_token": keys["SessionToken"],
    }
    running.client("sqs", **session).list_queues()
    iam = running.client("iam")
    iam.create_user(UserName="person")
    iam.attach_user_policy(UserName="person", PolicyArn="arn:aws:iam::aws:policy/AmazonSNSReadOnlyAccess")
    key = iam.create_access_key(UserName="person")["AccessKey"]
    users = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    running.client("sns", **users).list_topics()
    of_role = "arn:aws:sts::123456789012:assumed-role/Logged/tried"
    assert lines_with(running, "ListQueues", of_role)[0][1:6] == ["sqs", "ListQueues", of_role, "-", "200"]
    of_user = "arn:aws:iam::123456789012:user/person"
    assert lines_with(running, "ListTopics", of_user)[0][1:6] == ["sns", "ListTopics", of_user, "-", "200"]


def test_operations_are_named_whatever_the_protocol(running: Running) -> None:
    running.client("lambda").list_functions()
    running.client("efs").describe_file_systems()
    running.client("cloudwatch").list_metrics()
    for service, operation in (
        ("lambda", "ListFunctions"),
        ("elasticfilesystem", "DescribeFileSystems"),
        ("monitoring", "ListMetrics"),
    ):
        assert lines_with(running, service, operation, ROOT, "200")[0][1:6] == [service, operation, ROOT, "-", "200"]


def test_what_is_not_there_or_not_allowed_is_a_line_and_no_trace(running: Running) -> None:
    before = log_of(running).count("Traceback")
    s3 = running.client("s3")
    s3.create_bucket(Bucket="logged")
    with pytest.raises(ClientError):
        s3.get_object(Bucket="logged", Key="missing")
    with pytest.raises(ClientError):
        s3.head_object(Bucket="logged", Key="missing")
    assert requests.get(running.account.endpoint_url, timeout=AN_ERROR_RATHER_THAN_A_HANG).status_code == 403
    for said in (
        ["s3", "GetObject", ROOT, "-", "404/NoSuchKey"],
        ["s3", "HeadObject", ROOT, "-", "404"],
        ["-", "GET:/", "-", "-", "403/MissingAuthenticationToken"],
    ):
        assert said in [line[1:6] for line in lines_with(running, *said)]
    assert log_of(running).count("Traceback") == before


def test_clients_that_hang_up_and_requests_that_are_no_http_leave_no_trace(
    running: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    before = log_of(running).count("Traceback")
    port = urlsplit(running.account.endpoint_url).port
    put = f"PUT /logged/half HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 100000\r\n\r\nhalf"
    for sent in (put, "no HTTP at all\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(sent.encode())
    running.client("sqs").list_queues()
    lines_with(running, "PUT:/logged/half")
    assert log_of(running).count("Traceback") == before
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_of_the_accounts_own_has_one_trace_and_the_request_id_that_its_client_gets(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: IamResponse) -> None:
        raise RuntimeError("a defect of the account")

    before = log_of(running).count("Traceback")
    monkeypatch.setattr(IamResponse, "list_roles", fail)
    with pytest.raises(ClientError, match="InternalFailure") as error:
        running.client("iam", config=ONCE).list_roles()
    request_id = error.value.response["ResponseMetadata"]["RequestId"]
    assert request_id in str(error.value)
    assert lines_with(running, "500/InternalFailure")[0][1:6] == ["iam", "ListRoles", ROOT, "-", "500/InternalFailure"]
    log = log_of(running)
    assert log.count("Traceback") - before == log.count("RuntimeError: a defect of the account") == 1
    assert f"request {request_id}: iam ListRoles failed\nTraceback" in log


def test_what_a_client_sends_is_no_line_of_its_own_in_the_log() -> None:
    environ = {"HTTP_X_AMZ_TARGET": "SageMaker.List\n2026-01-01T00:00:00Z sagemaker forged", "REQUEST_METHOD": "POST"}
    assert operation_of(environ) == "List_2026-01-01T00:00:00Z_sagemaker_forged"


@pytest.mark.parametrize(
    ("error", "traced"),
    [
        (LookupError("the policy of the topic does not allow events.amazonaws.com the action sns:Publish"), False),
        (requests.ConnectionError("connection refused"), False),
        (ClientError({"Error": {"Code": "NoSuchBucket", "Message": "none"}}, "PutObject"), False),
        (KeyError("arn"), True),
        (RuntimeError("a defect"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_has_a_trace_only_where_it_is_a_defect(
    error: Exception, traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise error
    except Exception as caught:
        log_failure(logging.getLogger("tests"), caught, "rule %s was not delivered", "one")
    [record] = caplog.records
    assert (record.exc_info is not None) is traced
    assert record.getMessage().startswith("rule one was not delivered")
