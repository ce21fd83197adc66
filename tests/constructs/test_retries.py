"""Retries by cause: what AWS says, the cause that it is a sign of, and what becomes of the job."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker
from rendered import lint
from stacks import RenderedWorkflow, message_of
from state_walk import Walk

from cdk_sagemaker_training import Budget, Cause, DataParallelJob, InstanceGroup, Retry, default_retries
from cdk_sagemaker_training.features.retries import MOST_RETRIES
from cdk_sagemaker_training.lifecycle.causes import SIGNS

DAY = 24 * 3_600
MOST_EVENTS = 25_000  # Step Functions, "Quotas related to state machine executions"
MOST_BYTES = 256 * 1024  # the same page, of a state's input; a definition may have a mebibyte
INTEGRATIONS = ("sync", "poll")
CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
# Of CreateTrainingJob by `.sync` (the form of aws/sagemaker-python-sdk 4711), and by the SDK integration.
REFUSED_SYNC = "{} (Service: AmazonSageMaker; Status Code: {}; Error Code: {}; Request ID: 05f50214-59f0; Proxy: null)"
REFUSED_SDK = "{} (Service: SageMaker, Status Code: {}, Request ID: 05f50214-59f0)"


@cache
def rendered(integration: str = "poll", days: float = 1, **retries: Retry) -> RenderedWorkflow:
    """A workflow with retries by the names of their causes; the default ones where none are given."""
    return RenderedWorkflow(
        job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge")),
        integration=integration,
        max_runtime=cdk.Duration.seconds(int(days * DAY)),
        retries={Cause[name]: retry for name, retry in retries.items()} or default_retries(),
    )


def walk(workflow: RenderedWorkflow, seconds: float = 1, status: str = "Failed", **more: Any) -> Walk:
    [poller] = workflow.pollers.values() or [{}]
    return Walk(workflow.definition, poller, seconds, status, **more).run()


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        (CAPACITY, "FailedCapacity"),
        ("InternalServerError: We encountered an internal error. Please try again.", "FailedHostLost"),
        (
            "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an instance.",
            "FailedOutOfMemory",
        ),
        (
            "AlgorithmError: ExecuteUserScriptError: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "FailedOutOfMemory",
        ),
        ("AlgorithmError: , exit code: 1", "FailedAlgorithmError"),
        ("ClientError: Data download failed:failed to download data. 403 Forbidden", "FailedDataNotFound"),
        ("Something new", "Failed"),
        ("the script printed AlgorithmError", "Failed"),
    ],
)
@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_failed_job_ends_in_the_state_of_its_cause(integration: str, reason: str, end: str) -> None:
    assert walk(rendered(integration), reason=reason).visited[-1] == end


def test_the_execution_names_the_cause_and_how_often_the_job_was_run_again() -> None:
    states = rendered().states
    causes = {name: states[name]["CausePath"] for name in ("FailedCapacity", "FailedOutOfMemory", "Failed")}
    assert causes == {
        "FailedCapacity": "States.Format('{}: capacity, after 49 retries: {}', $.Training.JobName, $.Training.Job.FailureReason)",
        "FailedOutOfMemory": (
            "States.Format('{}: out of memory, not retried: {}', $.Training.JobName, $.Training.Job.FailureReason)"
        ),
        "Failed": (
            "States.Format('{}: unknown cause, not retried: {}', $.Training.JobName, $.Training.Job.FailureReason)"
        ),
    }


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_job_without_capacity_is_run_again_for_a_day(integration: str) -> None:
    walked = walk(rendered(integration), reason=CAPACITY)
    assert len(walked.ends) == 50
    assert 23.5 * 3_600 < walked.now < 24.5 * 3_600


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_failed_script_is_run_once(integration: str) -> None:
    assert len(walk(rendered(integration), reason="AlgorithmError: , exit code: 1").ends) == 1


def test_a_job_whose_host_was_lost_is_run_again_at_once() -> None:
    walked = walk(rendered("sync"), reason="InternalServerError: We encountered an internal error.", seconds=100)
    assert (len(walked.ends), walked.now) == (11, 1_100)


@pytest.mark.parametrize("text", [REFUSED_SYNC, REFUSED_SDK])
@pytest.mark.parametrize(
    ("code", "state"),
    [(str(code), "RetryServiceError") for code in TransientRetryableChecker._TRANSIENT_STATUS_CODES],
)
def test_a_call_that_a_server_failed_to_answer_is_repeated(code: str, state: str, text: str) -> None:
    refusal = ("SageMaker.SageMakerException", text.format("Internal error", code, "InternalFailure"))
    assert state in walk(rendered(), status="Completed", refusal=refusal, refused=3).visited


@pytest.mark.parametrize(
    ("error", "message", "state"),
    [
        (
            "SageMaker.AmazonSageMakerException",
            REFUSED_SYNC.format("Rate exceeded", 400, "ThrottlingException"),
            "RetryThrottled",
        ),
        ("SageMaker.SageMakerException", REFUSED_SDK.format("Rate exceeded", 400), "RetryThrottled"),
        (
            "SageMaker.ResourceLimitExceededException",
            REFUSED_SDK.format("The account-level service limit ...", 400),
            "RetryQuota",
        ),
        ("SageMaker.SdkClientException", "Unable to execute HTTP request: Read timed out", "RetryServiceError"),
    ],
)
@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_refused_call_is_repeated_and_creates_one_job_with_the_same_name(
    integration: str, error: str, message: str, state: str
) -> None:
    walked = walk(rendered(integration), status="Completed", refusal=(error, message), refused=4)
    assert walked.visited.count(state) == 4
    assert (walked.visited[-1], len(walked.ends)) == ("Completed", 1)
    assert "NextAttempt" not in walked.visited


def test_the_code_with_which_sagemaker_throttles_is_one_of_botocores() -> None:
    assert "ThrottlingException" in ThrottledRetryableChecker._THROTTLED_ERROR_CODES


@pytest.mark.parametrize("integration", INTEGRATIONS)
@pytest.mark.parametrize("error", ["SageMaker.SageMakerException", "SageMaker.AmazonSageMakerException"])
def test_a_request_that_breaks_the_services_model_is_not_repeated(integration: str, error: str) -> None:
    text = "1 validation error detected: Value 'ml.g5.3xlarge' at 'resourceConfig.instanceType' failed to satisfy constraint: ..."
    refusal = (error, REFUSED_SDK.format(text, 400))
    visited = walk(rendered(integration), refusal=refusal, refused=99, repeats=True).visited
    assert visited == ["FirstAttempt", "Create", "IsRefused", "WhyRefused", "Stop", "Error"]


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_refusal_that_may_pass_is_repeated_three_times_in_half_a_minute(integration: str) -> None:
    refusal = ("SageMaker.SageMakerException", REFUSED_SDK.format("Could not assume role", 400))
    walked = walk(rendered(integration), refusal=refusal, refused=99, repeats=True)
    assert (walked.visited.count("Create"), walked.now) == (4, 4 + 8 + 16)
    assert walked.visited[-5:] == ["Find", "IsMissing", "WhyRefused", "Stop", "Error"]


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_throttled_call_is_repeated_for_hours_after_waits_that_spread(integration: str) -> None:
    refusal = ("SageMaker.SageMakerException", REFUSED_SDK.format("Rate exceeded", 400))
    walked = walk(rendered(integration), status="Completed", refusal=refusal, refused=59, repeats=True)
    # The walk takes each random wait at its longest.
    assert (walked.visited.count("Create"), walked.ends) == (60, [sum(2**n for n in range(2, 10)) + 51 * 512 + 1])
    assert walked.visited.count("SpreadLonger") == 8
    refused = walk(RenderedWorkflow(integration=integration), refusal=refusal, refused=199, repeats=True)
    assert (refused.visited.count("Create"), refused.visited[-1]) == (60, "Error")
    assert max(refused.histories["workflow"]) < 800


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_job_that_exists_already_is_looked_for_at_once(integration: str) -> None:
    refusal = ("SageMaker.ResourceInUseException", REFUSED_SDK.format("Training job name must be unique", 400))
    walked = walk(rendered(integration), refusal=refusal, refused=1, repeats=True)
    assert walked.visited[:4] == ["FirstAttempt", "Create", "IsRefused", "Find"]


def test_a_full_quota_is_waited_for_a_day_and_then_the_error_is_awss() -> None:
    refusal = ("SageMaker.ResourceLimitExceededException", "The account-level service limit ...")
    walked = walk(rendered(), refusal=refusal, refused=999)
    assert walked.visited[-2:] == ["Stop", "Error"]
    assert 23.5 * 3_600 < walked.now <= DAY


@pytest.mark.parametrize("integration", INTEGRATIONS)
@pytest.mark.parametrize(
    "message",
    [
        # zenml-io/zenml 847, data-science-on-aws/data-science-on-aws 200, aws/amazon-sagemaker-examples 1001
        "The account-level service limit 'ml.p2.xlarge for training job usage' is 0 Instances, with current utilization of "
        "0 Instances and a request delta of 1 Instances. Please contact AWS support to request an increase for this limit.",
        "The account-level service limit 'Number of instances across all processing jobs' is 4 Instances, with current "
        "utilization of 0 Instances and a request delta of 11 Instances.",
        "The requested resource training-job/ml.p2.xlarge is not available in this region",
    ],
)
def test_what_no_wait_brings_is_not_waited_for(integration: str, message: str) -> None:
    refusal = ("SageMaker.ResourceLimitExceededException", REFUSED_SDK.format(message, 400))
    walked = walk(rendered(integration), refusal=refusal, refused=1)
    assert "RetryQuota" not in walked.visited
    assert walked.visited[-2:] == ["Stop", "Error"]
    assert walked.now < 60


def test_a_quota_of_which_others_use_some_is_waited_for() -> None:
    # aws/amazon-sagemaker-examples 1543
    message = (
        "The account-level service limit 'ml.p3.8xlarge for training job usage' is 2 Instances, with current utilization of "
        "3 Instances and a request delta of 1 Instances."
    )
    refusal = ("SageMaker.ResourceLimitExceededException", REFUSED_SDK.format(message, 400))
    walked = walk(rendered(), status="Completed", refusal=refusal, refused=2)
    assert (walked.visited.count("RetryQuota"), walked.visited[-1]) == (2, "Completed")


def test_a_job_that_ran_for_its_whole_time_goes_on_where_that_is_wanted() -> None:
    workflow = rendered("sync", RUNTIME_EXCEEDED=Retry(attempts=2))
    [rule] = [one for one in workflow.states["IsOver"]["Choices"] if one["Next"] == "RetryRuntimeExceeded"]
    assert rule["And"][1] == {"Variable": "$.Training.Job.SecondaryStatus", "StringEquals": "MaxRuntimeExceeded"}
    assert workflow.states["RetryRuntimeExceeded"]["Next"] == "NextAttempt"


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_the_machines_pass_the_check_of_amazon_states_language(integration: str) -> None:
    assert lint(rendered(integration).machines) == []


@pytest.mark.parametrize("integration", INTEGRATIONS)
# The next test has the longest walk, of as many attempts in 28 days each.
@pytest.mark.parametrize("days", [1 / 24, 1, pytest.param(28, marks=pytest.mark.soak)])
def test_a_28_day_job_with_30_attempts_fits_into_the_histories(integration: str, days: float) -> None:
    workflow = rendered(integration, days, HOST_LOST=Retry(attempts=29))
    walked = walk(workflow, (days + 1) * DAY - 1, reason="InternalServerError: We encountered an internal error.")
    assert len(walked.ends) == 30
    assert max([*walked.histories["workflow"], *walked.histories["poller"]]) < MOST_EVENTS


@pytest.mark.soak  # the longest of the histories
@pytest.mark.parametrize("integration", ["sync", "poll"])
def test_a_28_day_job_with_30_attempts_alternatives_and_a_budget_fits_into_the_histories(integration: str) -> None:
    workflow = RenderedWorkflow(
        job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge")),
        integration=integration,
        max_runtime=28 * DAY,
        retries={Cause.HOST_LOST: Retry(attempts=29)},
        alternatives=[DataParallelJob(InstanceGroup("ml.g5.48xlarge"))],
        budget=Budget(hours=24 * 30 * 30),
    )
    walked = walk(workflow, 29 * DAY - 1, reason="InternalServerError: We encountered an internal error.", billed=True)
    assert len(walked.ends) == 30
    assert max([*walked.histories["workflow"], *walked.histories["poller"]]) < MOST_EVENTS


@pytest.mark.parametrize("integration", INTEGRATIONS)
@pytest.mark.parametrize("cause", ["CAPACITY", "QUOTA"])
def test_as_many_retries_as_are_allowed_fit_into_a_history_and_into_a_states_input(
    integration: str, cause: str
) -> None:
    workflow = rendered(integration, 28, **{cause: Retry(attempts=MOST_RETRIES, first_wait=DAY, max_wait=DAY)})
    refusal = ("SageMaker.ResourceLimitExceededException", "The account-level service limit ...")
    walked = walk(workflow, reason=CAPACITY, refusal=refusal, refused=MOST_RETRIES if cause == "QUOTA" else 0)
    assert walked.visited.count(f"Retry{cause.capitalize()}") == MOST_RETRIES
    # Twice over: every call of an attempt may be retried, each time with three more events.
    assert 2 * max([*walked.histories["workflow"], *walked.histories["poller"]]) < MOST_EVENTS
    assert len(json.dumps(workflow.definition)) < MOST_BYTES


def test_the_execution_ends_when_all_retries_and_their_waits_have() -> None:
    day_of_pending, upload = DAY, 3_600
    workflow = rendered("sync", HOST_LOST=Retry(attempts=2), CAPACITY=Retry(attempts=3, first_wait=60, backoff=1))
    assert workflow.definition["TimeoutSeconds"] == 3 * (day_of_pending + DAY + upload) + 3 * day_of_pending + 180


@pytest.mark.parametrize(
    ("retry", "waits"),
    [
        (Retry(attempts=3), [0, 0, 0]),
        (Retry(attempts=4, first_wait=10), [10, 20, 40, 80]),
        (Retry(attempts=4, first_wait=10, backoff=1), [10, 10, 10, 10]),
        (Retry(first_wait=cdk.Duration.minutes(5), max_wait=600, until=cdk.Duration.hours(1)), [300, *[600] * 5]),
    ],
)
def test_the_waits_of_a_retry_grow_to_the_longest_and_end(retry: Retry, waits: list[int]) -> None:
    assert retry.waits() == waits


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({}, "attempts of a Retry must be set unless first_wait and until are, like "),
        ({"until": 60}, "attempts of a Retry must be set unless first_wait and until are, like "),
        ({"attempts": -1}, "attempts of a Retry must be a number of retries from 0 to 300, like 3, got -1"),
        ({"attempts": 301}, "attempts of a Retry must be a number of retries from 0 to 300, like 3, got 301"),
        ({"attempts": 1, "backoff": 0.5}, "backoff must be a factor of at least 1, like 2, got 0.5"),
        ({"attempts": 1, "first_wait": 60, "max_wait": 30}, "first_wait must be at most max_wait, like "),
        ({"first_wait": 60, "until": 30}, "until must be as long as 1 to 300 waits, like "),
        ({"first_wait": 1, "max_wait": 1, "until": 301}, "until must be as long as 1 to 300 waits, like "),
        ({"attempts": 1, "first_wait": "1h"}, "first_wait must be "),
    ],
)
def test_a_retry_that_never_begins_or_ends_is_refused(props: Any, message: str) -> None:
    assert message_of(lambda: Retry(**props)).startswith(message)


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"retries": {Cause.STOPPED: Retry(attempts=1)}},
            "retries must be of causes that pass, like Cause.CAPACITY, got stopped",
        ),
        ({"retries": {Cause.DATA_NOT_FOUND: Retry(attempts=1)}}, "retries must be of causes that pass"),
        (
            {"retries": {cause: Retry(attempts=200) for cause in (Cause.QUOTA, Cause.CAPACITY)}},
            "retries must be at most 300 of all causes together",
        ),
        ({"retries": {"capacity errors": Retry(attempts=1)}}, "retries must be "),
        ({"retries": {Cause.CAPACITY: 3}}, "retries[<Cause.CAPACITY: 'capacity'>] must be a Retry, like Retry("),
    ],
)
def test_retries_that_cannot_be_are_refused(props: Any, message: str) -> None:
    assert message_of(lambda: RenderedWorkflow(**props)).startswith(message)


def test_the_page_of_retries_has_each_sign_with_its_source() -> None:
    page = (Path(__file__).parents[2] / "docs" / "retries.md").read_text()
    table = page.split("<!-- signs -->")[1].split("<!-- end of signs -->")[0]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]
    assert [(cause, text, source) for cause, _, text, source in rows] == [
        (sign.cause, sign.pattern, sign.source) for sign in SIGNS
    ]
