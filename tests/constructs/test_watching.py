"""Jobs that are stopped by rules: how the poller checks them, and which rules are errors."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import aws_cdk as cdk
import pytest
from rendered import lint
from stacks import RenderedWorkflow, UserStack, message_of
from state_walk import Walk

from cdk_sagemaker_training import Cause, MetricLimit, Plateau, Retry, Silence

HOUR = 3_600
MOST_EVENTS = 25_000  # Step Functions, "Quotas related to state machine executions"
METRICS = {"loss": "loss=([0-9.]+)", "accuracy": "accuracy=([0-9.]+)"}
RULES = (
    Silence(2 * HOUR),
    MetricLimit("loss", above=10.0, readings=3),
    MetricLimit("accuracy", above=1.0, below=0.1),
    Plateau("loss", min_delta=0.01),
    Plateau("accuracy", 2 * HOUR, mode="max"),
)


@cache
def rendered(*, retried: bool = False) -> RenderedWorkflow:
    return RenderedWorkflow(
        metric_definitions=METRICS,
        stop_when=RULES,
        retries={Cause.SILENT: Retry(attempts=2)} if retried else {Cause.HOST_LOST: Retry(attempts=29)},
        max_runtime=28 * 24 * HOUR,
    )


def poller() -> dict[str, Any]:
    [definition] = rendered().pollers.values()
    return dict(definition["States"])


def test_a_poller_asks_how_long_each_host_has_been_silent() -> None:
    states = poller()
    assert states["Listen"]["Resource"] == "arn:aws:states:::aws-sdk:cloudwatchlogs:describeLogStreams"
    assert states["Listen"]["Parameters"]["LogGroupName"] == "/aws/sagemaker/TrainingJobs"
    assert states["Silent"]["Parameters"]["Seconds.$"] == "States.MathAdd($.Silence.Seconds, $.Seconds)"
    [rule] = states["IsTooLong"]["Choices"]
    assert (rule["NumericGreaterThanEquals"], rule["Next"]) == (2 * HOUR, "StopSilent")


def test_only_a_job_that_trains_and_was_not_stopped_yet_is_checked() -> None:
    [rule] = [rule for rule in poller()["IsOver"]["Choices"] if rule["Next"] == "Listen"]
    assert rule["And"] == [
        {"Variable": "$.Job.Secondary", "StringEquals": "Training"},
        {"Variable": "$.Stop.Because", "StringEquals": ""},
    ]


def test_the_time_of_silence_begins_anew_with_each_line() -> None:
    states = poller()
    assert states["WasHeard"] == {
        "Type": "Choice",
        "Choices": [{"Variable": "$.Heard.Times", "StringEqualsPath": "$.Silence.Heard", "Next": "Silent"}],
        "Default": "Heard",
    }
    assert states["Heard"]["Parameters"] == {"Heard.$": "$.Heard.Times", "Seconds": 0}


def test_the_newest_readings_of_the_jobs_own_metric_are_compared() -> None:
    of_job = [{"Name": "TrainingJobName", "Value.$": "$.JobName"}]
    metric = {"Namespace": "/aws/sagemaker/TrainingJobs", "MetricName": "loss", "Dimensions": of_job}
    assert poller()["Read0"]["Parameters"] == {
        "MetricDataQueries": [{"Id": "m", "MetricStat": {"Metric": metric, "Period": 300, "Stat": "Average"}}],
        "StartTime.$": "$$.Execution.StartTime",
        "EndTime.$": "$$.State.EnteredTime",
        "ScanBy": "TimestampDescending",
        "MaxDatapoints": 3,
    }
    assert poller()["ReadBest0"]["Parameters"]["ScanBy"] == "TimestampDescending"


def test_a_metric_is_out_of_bounds_only_in_as_many_readings() -> None:
    [rule] = poller()["IsOut0"]["Choices"]
    assert rule["And"] == [
        {"Variable": "$.Metric0.Results[0].Values[2]", "IsPresent": True},
        *({"Variable": f"$.Metric0.Results[0].Values[{index}]", "NumericGreaterThan": 10.0} for index in range(3)),
    ]
    [either] = poller()["IsOut1"]["Choices"]
    assert either["And"][1]["Or"] == [
        {"Variable": "$.Metric1.Results[0].Values[0]", "NumericGreaterThan": 1.0},
        {"Variable": "$.Metric1.Results[0].Values[0]", "NumericLessThan": 0.1},
    ]


def test_a_metric_has_improved_where_it_is_better_by_min_delta_than_the_best_before() -> None:
    states = poller()
    shifted = [states[f"ReadBest{number}"]["Parameters"]["MetricDataQueries"][1] for number in (0, 1)]
    assert shifted == [{"Id": "e", "Expression": "m + 0.01"}, {"Id": "e", "Expression": "m - 0.0"}]
    falls, rises = (states[f"HasImproved{number}"]["Choices"][0]["And"][1] for number in (0, 1))
    assert falls == {"Variable": "$.Best0.Shifted[0][0]", "NumericLessThanPath": "$.Plateau0.Best"}
    assert rises == {"Variable": "$.Best1.Shifted[0][0]", "NumericGreaterThanPath": "$.Plateau1.Best"}


def test_the_time_without_an_improvement_is_counted_from_one_poll_to_the_next() -> None:
    states = poller()
    assert states["Improved0"]["Parameters"] == {"Best.$": "$.Best0.Value[0][0]", "Seconds": 0}
    assert states["Flat0"]["Parameters"]["Seconds.$"] == "States.MathAdd($.Plateau0.Seconds, $.Seconds)"
    [rule] = states["IsPlateau1"]["Choices"]
    assert (rule["NumericGreaterThanEquals"], rule["Next"]) == (2 * HOUR, "StopFlat1")
    assert states["StopFlat0"]["Result"] == {"Because": "loss has not improved by 0.01 for 3600 seconds"}
    assert {"Plateau0.$", "Plateau1.$"} <= states["Count"]["Parameters"].keys()


def test_a_job_that_was_stopped_is_polled_until_it_has_ended() -> None:
    states = poller()
    assert states["Stop"]["Next"] == "Looked"
    assert {rule["Next"] for rule in states["Looked"]["Choices"]} | {states["Looked"]["Default"]} == {
        "WaitLonger",
        "Count",
    }


def test_a_look_that_fails_stops_no_job() -> None:
    states = poller()
    assert [states[name]["Catch"][0]["Next"] for name in ("Listen", "Read1", "ReadBest1")] == [
        "Read0",
        "ReadBest0",
        "Looked",
    ]


def test_a_rule_that_stopped_the_job_is_the_executions_cause() -> None:
    states = rendered().states
    assert states["StoppedByRule"]["CausePath"] == (
        "States.Format('{}: stopped, since {}', $.Training.JobName, $.Training.Polled.Because)"
    )
    assert "StoppedByRule" in [rule["Next"] for rule in states["IsOver"]["Choices"]]


def test_a_silent_job_is_run_again_where_that_is_wanted() -> None:
    states = rendered(retried=True).states
    [rule] = [rule for rule in states["IsOver"]["Choices"] if rule["Next"] == "RetrySilent"]
    assert {"Variable": "$.Training.Polled.Because", "StringMatches": "no host has logged a line for*"} in rule["And"]
    assert states["RetrySilent"]["Next"] == "NextAttempt"


def test_the_poller_may_look_and_stop_and_the_workflow_may_no_more_than_before() -> None:
    def allowed(role: str) -> dict[str, Any]:
        return {
            action: one["Resource"]
            for one in rendered().statements(role)
            for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
            if not action.startswith("logs:") or action == "logs:DescribeLogStreams"
        }

    found = allowed("TrainingPollerStateMachineRole")
    assert {"sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob", "cloudwatch:GetMetricData"} <= found.keys()
    assert found["logs:DescribeLogStreams"] == (
        "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:log-stream:*"
    )
    of_workflow = allowed("TrainingStateMachineRole").keys()
    assert "sagemaker:CreateTrainingJob" in of_workflow
    assert not {"cloudwatch:GetMetricData", "logs:DescribeLogStreams"} & of_workflow


def test_the_machines_pass_the_check_of_amazon_states_language() -> None:
    assert lint(rendered().machines) == []
    assert lint(rendered(retried=True).machines) == []


@pytest.mark.soak  # 600,000 polls
def test_a_watched_job_of_28_days_with_30_attempts_fits_into_the_histories() -> None:
    [definition] = rendered().pollers.values()
    lost = "InternalServerError: We encountered an internal error."
    walked = Walk(rendered().definition, definition, 28 * 24 * HOUR, "Failed", lost, watched=True).run()
    assert len(walked.ends) == 30
    assert max([*walked.histories["workflow"], *walked.histories["poller"]]) < MOST_EVENTS


def test_a_workflow_without_rules_has_the_poller_it_had() -> None:
    plain = RenderedWorkflow(max_runtime=28 * 24 * HOUR, integration="poll")
    [definition] = plain.pollers.values()
    assert set(definition["States"]) == {"Start", "Wait", "Describe", "IsOver", "WaitLonger", "Count", "Done"}
    assert "Because" not in json.dumps([definition, plain.definition])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Silence(60), "after must be at least 3600 seconds, since CloudWatch Logs may know of a line as late"),
        (lambda: Silence("1h"), "after must be "),  # type: ignore[arg-type]
        (
            lambda: Silence(7 * HOUR),
            "after must be at most 21600 seconds, since each execution of the state machine that",
        ),
        (lambda: Plateau("loss", 60), "patience must be at least 600 seconds, in which there are two readings, like"),
        (
            lambda: Plateau("loss", 7 * HOUR),
            "patience must be at most 21600 seconds, since each execution of the state",
        ),
        (lambda: Plateau("loss", min_delta=-1), "min_delta must be a number of at least 0, like 0.01, got -1"),
        (lambda: Plateau("loss", mode="down"), "mode must be "),  # type: ignore[arg-type]
        (
            lambda: UserStack().workflow(stop_when=[Plateau("loss")]),
            "metric of a Plateau must be a name in metric_definitions, like ",
        ),
        (lambda: MetricLimit("loss"), "above must be set unless below is, like 10.0, got None and None"),
        (lambda: MetricLimit("loss", above=1, readings=11), "readings must be a number from 1 to 10, like 3, got 11"),
        (lambda: MetricLimit("", above=1), "metric must be text"),
        (
            lambda: UserStack().workflow(stop_when=[MetricLimit("loss", above=1.0)]),
            "metric of a MetricLimit must be a name in metric_definitions, like ",
        ),
        (
            lambda: UserStack().workflow(stop_when=[Silence(), Silence()]),
            "stop_when must be at most one Silence and 5 rules of metrics, like ",
        ),
        (
            lambda: UserStack().workflow(stop_when=[Silence(cdk.Duration.hours(1))], integration="sync"),
            "integration must be 'poll' with stop_when",
        ),
        (
            lambda: UserStack().workflow(retries={Cause.SILENT: Retry(attempts=1)}),
            "stop_when must have a Silence where retries have Cause.SILENT",
        ),
    ],
)
def test_rules_that_cannot_be_are_refused(make: Any, message: str) -> None:
    assert message_of(make).startswith(message)
