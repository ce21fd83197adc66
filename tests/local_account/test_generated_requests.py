"""Any request that boto3 can make is answered by success or by an error of the caller's: none by a 500, none by nothing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from botocore.config import Config
from generated_requests import SERVICES, Answer, Requests
from running_account import Running

EACH_OF_SOAK = 5
# Those that each workflow calls or is made of.
OF_JOBS = ("cloudformation", "events", "iam", "lambda", "logs", "s3", "sagemaker", "stepfunctions", "sts")


def failed(answers: list[Answer]) -> list[Answer]:
    return [answer for answer in answers if not 200 <= answer.status < 500]


def of_a_role(running: Running, name: str) -> dict[str, str]:
    """The environment with the keys of a role that may do everything: what it sends is authorized, and the root's is not."""
    running.role(f"generated-{name}", "states.amazonaws.com", may_do_all=True)
    arn = f"arn:aws:iam::123456789012:role/generated-{name}"
    trust = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}
    running.client("iam").update_assume_role_policy(
        RoleName=f"generated-{name}", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )
    keys = running.client("sts").assume_role(RoleArn=arn, RoleSessionName="generated")["Credentials"]
    return {
        **running.account.environment(),
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }


@pytest.mark.parametrize(
    "service", [it if it in OF_JOBS else pytest.param(it, marks=pytest.mark.soak) for it in SERVICES]
)
def test_no_request_of_a_service_ends_in_a_500(service: str, running: Running) -> None:
    answers = list(Requests(1, of_a_role(running, service)).answers(service, 1))
    assert failed(answers) == []
    assert len(answers) > 5


def test_a_request_at_which_moto_fails_is_the_callers_error_and_its_trace_is_in_the_log(running: Running) -> None:
    sns = running.client("sns")
    with pytest.raises(sns.exceptions.ClientError) as error:
        sns.list_tags_for_resource(ResourceArn="not an arn")
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 404)


@pytest.mark.parametrize(
    ("service", "call", "given", "refused"),
    [
        ("iam", "attach_role_policy", {"RoleName": "mine"}, "ValidationError.*Value null at 'policyArn'"),
        (
            "s3",
            "put_bucket_notification",
            {"Bucket": "of-no-request", "NotificationConfiguration": {"QueueConfiguration": {}}},
            "MalformedXML",
        ),
    ],
)
def test_a_request_without_a_member_is_the_callers_error(
    running: Running, service: str, call: str, given: dict[str, Any], refused: str
) -> None:
    running.client("s3").create_bucket(Bucket="of-no-request")
    client = running.client(service, config=Config(parameter_validation=False))
    with pytest.raises(client.exceptions.ClientError, match=refused):
        getattr(client, call)(**given)


@pytest.mark.parametrize("policy", ["not JSON", "[]", "{}", '{"Statement": []}', '{"Statement": ["Allow"]}'])
def test_a_bucket_policy_that_is_none_is_refused_and_the_bucket_goes_on(running: Running, policy: str) -> None:
    s3 = running.client("s3")
    s3.create_bucket(Bucket="of-no-policy")
    with pytest.raises(s3.exceptions.ClientError, match="MalformedPolicy"):
        s3.put_bucket_policy(Bucket="of-no-policy", Policy=policy)
    s3.put_object(Bucket="of-no-policy", Key="a", Body=b"b")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 7))
def test_of_fifty_thousand_requests_none_ends_in_a_500(seed: int, running: Running) -> None:
    environment = of_a_role(running, str(seed)) if seed % 2 else running.account.environment()
    requests, found = Requests(seed, environment), Counter[int]()
    bad: list[Answer] = []
    for service in (*SERVICES, "ec2"):
        answers = list(requests.answers(service, EACH_OF_SOAK))
        found.update(answer.status for answer in answers)
        bad += failed(answers)
    print(found)
    assert bad == []
    assert found.total() > 12_000
