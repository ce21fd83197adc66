"""Who is not a client of the account, and would like to start a job in it all the same."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from running_account import Running

from sagemaker_local_account.account import LocalAccount


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an account that has ended."""
    with LocalAccount(state=tmp_path_factory.mktemp("earlier")) as account:
        return account.environment()


@pytest.fixture(scope="module")
def running(earlier: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Running(account)


def create(running: Running, keys: dict[str, str], method: str = "POST", **headers: str) -> http.client.HTTPResponse:
    """Ask for a job that would run in the account, if it were asked by a client of it."""
    request = {
        "TrainingJobName": "a-job",
        "AlgorithmSpecification": {
            "TrainingImage": "python:3.11",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sleep", "1000"],
        },
        "RoleArn": "arn:aws:iam::123456789012:role/Jobs",
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    place = urlsplit(running.account.endpoint_url)
    target = {"X-Amz-Target": "SageMaker.CreateTrainingJob", "Content-Type": "application/x-amz-json-1.1"}
    signed = AWSRequest(method, running.account.endpoint_url, data=json.dumps(request), headers=target)
    key = Credentials(keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"], keys.get("AWS_SESSION_TOKEN"))
    SigV4Auth(key, "sagemaker", "us-east-1").add_auth(signed)
    connection = http.client.HTTPConnection("127.0.0.1", place.port)
    connection.request(method, "/", signed.data, {"Host": place.netloc, **dict(signed.headers), **headers})
    return connection.getresponse()


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture
def nothing_starts(running: Running) -> Iterator[None]:
    before = children()
    yield
    patient = running.client("sagemaker", config=Config(retries={"mode": "standard", "total_max_attempts": 20}))
    assert patient.list_training_jobs()["TrainingJobSummaries"] == []  # throttled as on AWS
    assert children() == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Host": "rebound.example.com"},
        {"Host": "localhost"},
        {"Host": "127.0.0.1.example.com:80"},
    ],
)
@pytest.mark.usefixtures("nothing_starts")
def test_a_page_of_another_origin_and_a_rebound_name_are_refused(running: Running, headers: dict[str, str]) -> None:
    answer = create(running, running.account.environment(), **headers)
    assert answer.status == 403
    assert answer.headers.get("Access-Control-Allow-Origin") is None


@pytest.mark.usefixtures("nothing_starts")
def test_the_question_that_a_browser_asks_first_is_refused(running: Running) -> None:
    asked = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
    answer = create(running, running.account.environment(), method="OPTIONS", **asked)
    assert answer.status == 403
    assert answer.headers.get("Access-Control-Allow-Origin") is None


@pytest.mark.parametrize("key", ["AKIAUNKNOWN", ""])
@pytest.mark.usefixtures("nothing_starts")
def test_an_unknown_key_is_refused(running: Running, key: str) -> None:
    assert create(running, {**running.account.environment(), "AWS_ACCESS_KEY_ID": key}).status == 403


@pytest.mark.usefixtures("nothing_starts")
def test_a_key_of_an_earlier_start_is_refused(running: Running, earlier: dict[str, str]) -> None:
    answer = create(running, earlier)
    assert answer.status == 403
    assert "was not issued by the running local account" in answer.read().decode()


@pytest.mark.usefixtures("nothing_starts")
def test_a_job_cannot_break_its_account(running: Running) -> None:
    role = running.role("Job", "sagemaker.amazonaws.com", may_do_all=True)
    keys = running.client("sts").assume_role(RoleArn=role, RoleSessionName="job")["Credentials"]
    session = {
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }
    signed = AWSRequest(
        "POST", running.account.endpoint_url, data="{}", headers={"X-Amz-Target": "LocalAccount.ListFaults"}
    )
    credentials = Credentials(
        session["AWS_ACCESS_KEY_ID"], session["AWS_SECRET_ACCESS_KEY"], session["AWS_SESSION_TOKEN"]
    )
    SigV4Auth(credentials, "local-account", "us-east-1").add_auth(signed)
    place = urlsplit(running.account.endpoint_url)
    connection = http.client.HTTPConnection("127.0.0.1", place.port)
    connection.request("POST", "/", "{}", {"Host": place.netloc, **dict(signed.headers)})
    answer = connection.getresponse()
    assert answer.status == 400
    assert "only the account's root may call its own API" in answer.read().decode()


@pytest.mark.parametrize("length", ["-1", "many", "²"])
def test_a_length_that_is_none_is_no_body_and_holds_no_one_up(running: Running, length: str) -> None:
    place = urlsplit(running.account.endpoint_url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        head = f"POST / HTTP/1.1\r\nHost: localhost:{place.port}\r\nContent-Length: {length}\r\n"
        connection.sendall(f"{head}X-Amz-Target: SageMaker.ListTrainingJobs\r\n\r\n".encode("latin-1"))
        assert re.match(rb"HTTP/1.1 4\d\d ", connection.recv(4096))
