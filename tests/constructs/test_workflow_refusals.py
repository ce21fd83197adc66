"""Props of a workflow that make no sense, each refused by its name."""

from typing import Any

import aws_cdk as cdk
import pytest
from stacks import UserStack, message_of, reads
from whole_requests import ON_GROUPS

from cdk_sagemaker_training import (
    S3Prefix,
    Spot,
    WarmPool,
)


def refusal_of(**props: Any) -> str:
    return message_of(lambda: UserStack().workflow(**props))


@pytest.mark.parametrize(
    ("props", "prop"),
    [
        ({"job": ON_GROUPS}, "job"),
        ({"warm_pool": WarmPool(cdk.Duration.minutes(30))}, "warm_pool"),
        ({"max_pending": cdk.Duration.hours(1)}, "max_pending"),
    ],
)
def test_sync_is_refused_what_it_is_not_known_to_take(props: dict[str, Any], prop: str) -> None:
    message = refusal_of(integration="sync", **props)
    assert message.startswith(f"{prop} must be what `sagemaker:createTrainingJob.sync` is known to take")
    assert "use integration='poll', or " in message


@pytest.mark.parametrize("retries", [0, 30])
def test_retries_that_are_no_number_from_1_to_29_are_refused(retries: Any) -> None:
    assert reads(
        refusal_of(retries=retries), f"retries must be by cause, or a whole number from 1 to 29 ... got {retries!r}"
    )


def test_an_integration_that_there_is_not_is_refused() -> None:
    assert reads(refusal_of(integration="lambda"), "integration must be one of 'sync', 'poll' ... got 'lambda'")


@pytest.mark.parametrize("prefix", ["", "-digits", "digits_1", "a" * 27])
def test_a_job_name_prefix_that_names_cannot_begin_with_is_refused(prefix: str) -> None:
    message = refusal_of(job_name_prefix=prefix)
    assert message.startswith("job_name_prefix must be 1 to 26 letters, digits and hyphens")
    assert message.endswith(f"got {prefix!r}")


def test_a_job_name_prefix_that_is_known_only_later_is_refused() -> None:
    assert reads(
        refusal_of(job_name_prefix=cdk.Aws.STACK_NAME),
        "job_name_prefix must be known when the app is synthesized, since permissions and names are made of it ... got a token",
    )


def test_checkpoints_beside_those_of_spot_are_refused() -> None:
    bucket = UserStack().bucket
    spot = Spot(S3Prefix(bucket, "spot/"), max_wait=cdk.Duration.days(2))
    assert reads(
        refusal_of(spot=spot, checkpoints=S3Prefix(bucket, "other/")),
        "checkpoints must be left out if spot has checkpoints ... got 'other/' beside 'spot/'",
    )


def test_resuming_without_checkpoints_is_refused() -> None:
    assert reads(refusal_of(resume_from="monday"), "resume_from must come with checkpoints ... got 'monday' without")


@pytest.mark.parametrize("name", ["", "a/b", "x" * 81])
def test_resuming_from_what_is_no_executions_name_is_refused(name: str) -> None:
    message = refusal_of(resume_from=name, checkpoints=UserStack().place())
    assert message.startswith("resume_from must be the name of an execution")
    assert message.endswith(f"got {name!r}")


def test_max_runtime_over_28_days_is_refused() -> None:
    assert refusal_of(max_runtime=cdk.Duration.days(29)).startswith("max_runtime must be between 1 second and 28 days")
