"""`--rates`: calls beyond AWS's rates are throttled, in each protocol, by the account's clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.http import rates
from sagemaker_local_account.http.rates import Bucket, Rate, RateLimits

REFUSED = {
    "TrainingJobName": "of-no-role",
    "AlgorithmSpecification": {"TrainingImage": "none", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/that-is-nowhere",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/"},
    "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAccount]:
    with LocalAccount(state=tmp_path_factory.mktemp("rates"), rates=True, regions=("eu-central-1",)) as account:
        yield account


def client(account: LocalAccount, service: str) -> Any:
    environment = account.environment()
    return botocore.session.get_session().create_client(
        service,
        region_name=environment["AWS_REGION"],
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": 1}),
    )


def errors_of(call: Any, times: int, **request: Any) -> list[str]:
    """The codes of the errors of calls that are made one after the other."""
    codes = []
    for _ in range(times):
        try:
            call(**request)
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    return codes


def test_create_training_job_is_throttled_beyond_one_a_second(account: LocalAccount) -> None:
    account.clock.advance(60)
    create = client(account, "sagemaker").create_training_job
    began = account.clock.now()
    codes = errors_of(create, 20, **REFUSED)  # which nothing takes 20 seconds for
    took = (account.clock.now() - began).total_seconds()
    assert codes[0] != "ThrottlingException"
    assert {*codes} == {codes[0], "ThrottlingException"}
    assert codes.count(codes[0]) <= 1 + took
    account.clock.advance(1)
    assert errors_of(create, 1, **REFUSED) == [codes[0]]


def test_a_burst_is_as_large_as_the_bucket_and_what_follows_is_throttled(account: LocalAccount) -> None:
    account.clock.advance(1_000)
    describe = client(account, "stepfunctions").list_executions
    machine = "arn:aws:states:eu-central-1:123456789012:stateMachine:none"
    codes = errors_of(describe, 130, stateMachineArn=machine)
    assert set(codes[:100]) == {"StateMachineDoesNotExist"}
    assert "ThrottlingException" in codes[100:]


def test_an_account_without_the_option_throttles_lists_of_training_jobs_alone() -> None:
    limits = RateLimits(["us-east-1"], all_rates=False)
    taken = [limits.take("us-east-1", "sagemaker", "ListTrainingJobs") for _ in range(3)]
    others = [limits.take("us-east-1", "sagemaker", "CreateTrainingJob") for _ in range(9)]
    assert (taken, set(others), dict(limits.throttled)) == ([True, True, False], {True}, {"ListTrainingJobs": 1})


def test_a_region_has_buckets_of_its_own() -> None:
    limits = RateLimits(["us-east-1", "eu-central-1"], all_rates=True)
    for region in ("us-east-1", "eu-central-1"):
        taken = [limits.take(region, "sagemaker", "CreateTrainingJob") for _ in range(2)]
        assert taken == [True, False]


def test_a_bucket_gains_its_refill_up_to_its_size() -> None:
    times = [0, 0, 0, 0, 1.9, 2, 2, 100, 100, 100, 100]
    clock = iter([0, *times])
    bucket = Bucket(Rate(bucket=3, refill=0.5), lambda: next(clock))
    taken = [bucket.take() for _ in times]
    assert taken == [True, True, True, False, False, True, False, True, True, True, False]


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1"])
def test_each_rate_is_of_an_operation_of_the_services_model_and_at_least_one_a_bucket(region: str) -> None:
    models = {"sagemaker": "sagemaker", "states": "stepfunctions"}
    for (service, operation), rate in rates.rates(region).items():
        model = botocore.session.get_session().get_service_model(models[service])
        assert operation in model.operation_names
        assert rate.bucket >= 1
        assert 0 < rate.refill <= rate.bucket


def test_the_page_has_the_rates() -> None:
    page = Path(__file__).parents[2] / "docs" / "many-jobs.md"
    listed = re.findall(r"^\| (\w+) \| (\d+), (\d+) \| (\d+), (\d+) \|", page.read_text(), re.MULTILINE)
    ordinary, large = rates.rates("eu-central-1"), rates.rates("us-east-1")
    of = {operation: key for key in ordinary for operation in [key[1]]}
    assert listed
    for operation, *numbers in listed:
        key = of[operation]
        held = [ordinary[key].bucket, ordinary[key].refill, large[key].bucket, large[key].refill]
        assert held == [int(number) for number in numbers]


def test_each_service_names_the_source_of_its_rates() -> None:
    text = Path(rates.__file__).with_suffix(".toml").read_text()
    heads = [index for index, line in enumerate(text.splitlines()) if line.startswith("[")]
    lines = [*text.splitlines(), ""]
    assert all(lines[index + 1].startswith("source = ") for index in heads)
    assert all(second - first > 1 for first, second in pairwise(heads))
