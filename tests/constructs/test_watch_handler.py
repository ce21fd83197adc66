"""When the function of `stop_when` says that a job should be stopped, and what it asks of AWS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from cdk_sagemaker_training import MetricLimit, Plateau, Silence
from cdk_sagemaker_training.features.stop_when import StopRule
from cdk_sagemaker_training.handlers import watch

JOB = "digits-0-1"
NO_LOSS: list[float] = []
SILENT = "no host has logged a line for 7200 seconds"
FLAT = "loss has not improved for 3600 seconds"


def decided(
    rule: StopRule,
    looks: Sequence[tuple[int, Sequence[float] | None]],
) -> list[str]:
    """What each of some looks says, by the seconds before it and what it finds: None is what is not known."""
    state: Mapping[str, Any] = {}
    said = []
    for seconds, found in looks:
        metrics = {} if found is None else {"loss": found}
        times = None if found is None else [int(one) for one in found]
        because, state = watch.decide([rule.rendered()], times, metrics, state, seconds)
        said.append(because)
    return said


SILENCE = Silence(7_200)


@pytest.mark.parametrize(
    ("looks", "stops"),
    [
        ([(60, [1, 2]), (7_200, [1, 2])], True),
        ([(60, [1, 2]), (7_199, [1, 2])], False),
        ([(60, [1, 2]), (3_600, [1, 2]), (3_600, [1, 2])], True),
        ([(60, [1, 2]), (3_600, [1, 2]), (3_600, [1, 3]), (7_199, [1, 3])], False),  # one host logs
        ([(60, []), (7_200, [])], True),
        ([(60, []), (7_200, [1])], False),
        ([(60, [1]), (7_199, [1]), (7_200, None)], False),
        ([(60, [1]), (7_199, [1]), (7_200, None), (1, [1])], True),
        ([(60, None), (7_200, [1])], False),
    ],
)
def test_a_job_is_silent_once_no_host_has_logged_a_line_for_a_time(looks: Any, stops: bool) -> None:
    assert decided(SILENCE, looks) == [""] * (len(looks) - 1) + [SILENT if stops else ""]


@pytest.mark.parametrize(
    ("rule", "found", "because"),
    [
        (MetricLimit("loss", above=10), [10.5], "loss was above 10 in 1 readings"),
        (MetricLimit("loss", above=10), [10.0], ""),
        (MetricLimit("loss", above=10), [9.0, 11.0], ""),  # the newest is first
        (MetricLimit("loss", above=10), NO_LOSS, ""),
        (MetricLimit("loss", above=10), None, ""),
        (MetricLimit("loss", above=10, readings=3), [11.0, 12.0], ""),
        (MetricLimit("loss", above=10, readings=3), [11.0, 12.0, 13.0, 1.0], "loss was above 10 in 3 readings"),
        (MetricLimit("loss", above=10, readings=3), [11.0, 2.0, 13.0], ""),
        (MetricLimit("loss", below=0), [-0.5], "loss was below 0 in 1 readings"),
        (MetricLimit("loss", below=0), [0.5], ""),
        (
            MetricLimit("loss", above=10, below=0, readings=2),
            [11.0, -1.0],
            "loss was above 10 or below 0 in 2 readings",
        ),
    ],
)
def test_a_metric_is_out_of_bounds_only_in_as_many_readings(rule: MetricLimit, found: Any, because: str) -> None:
    assert decided(rule, [(60, found)]) == [because]


LOSS, ACCURACY = Plateau("loss"), Plateau("loss", mode="max")
BY_A_TENTH = Plateau("loss", min_delta=0.1)


@pytest.mark.parametrize(
    ("rule", "looks", "stops"),
    [
        (LOSS, [(60, [2.0]), (3_600, [2.0])], True),
        (LOSS, [(60, [2.0]), (3_599, [2.0])], False),
        (LOSS, [(60, [2.0]), (3_599, [1.9]), (3_599, [1.9])], False),
        (LOSS, [(60, [2.0]), (1_800, [3.0]), (1_800, [2.5])], True),  # better than the last and not than the best
        (LOSS, [(60, [2.0]), (3_600, [2.5, 1.0])], True),  # of the last day's the newest counts
        (LOSS, [(60, NO_LOSS), (3_540, NO_LOSS)], True),  # NaN is no reading
        (LOSS, [(60, [2.0]), (3_600, NO_LOSS)], True),
        (LOSS, [(60, [2.0]), (3_599, [2.0]), (3_600, None)], False),
        (LOSS, [(60, [2.0]), (3_599, [2.0]), (3_600, None), (1, [2.0])], True),
        (ACCURACY, [(60, [0.5]), (3_600, [0.4])], True),
        (ACCURACY, [(60, [0.5]), (3_600, [0.6])], False),
        (BY_A_TENTH, [(60, [2.0]), (3_600, [1.95])], True),
        (BY_A_TENTH, [(60, [2.0]), (3_600, [1.85])], False),
        (BY_A_TENTH, [(60, [2.0]), (1_800, [1.95]), (1_800, [1.85])], False),  # in sum
    ],
)
def test_a_metric_is_flat_once_it_has_not_been_better_than_its_best_for_a_time(
    rule: Plateau, looks: Any, stops: bool
) -> None:
    *before, last = decided(rule, looks)
    assert not any(before)
    assert last == (rule.rendered()["Because"] if stops else "")


def test_the_first_of_several_rules_that_hold_is_what_the_job_is_stopped_for() -> None:
    rules = [rule.rendered() for rule in (MetricLimit("other", above=1), LOSS, MetricLimit("loss", above=1))]
    state = watch.decide(rules, None, {"loss": [2.0], "other": [0.5]}, {}, 60)[1]
    assert watch.decide(rules, None, {"loss": [2.0], "other": [0.5]}, state, 3_600)[0] == FLAT


class Looked:
    """The answers of AWS, which botocore holds against its service models."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        region = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
        clients = {name: boto3.client(name, **region) for name in ("logs", "cloudwatch")}
        self.logs, self.cloudwatch = (Stubber(client) for client in clients.values())
        monkeypatch.setattr("boto3.client", lambda name, config: clients[name])
        for one in (self.logs, self.cloudwatch):
            one.activate()

    def call(self, *rules: StopRule, state: Mapping[str, Any] | None = None, seconds: int = 60) -> dict[str, Any]:
        given = {"JobName": JOB, "Rules": [rule.rendered() for rule in rules], "State": state or {}, "Seconds": seconds}
        answer = watch.handler(given, None)
        self.logs.assert_no_pending_responses()
        self.cloudwatch.assert_no_pending_responses()
        return answer


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(monkeypatch)


def queries(*names: str) -> dict[str, Any]:
    """What GetMetricData is asked for the readings of metrics."""
    of_job = [{"Name": "TrainingJobName", "Value": JOB}]
    metrics = [{"Namespace": "/aws/sagemaker/TrainingJobs", "MetricName": name, "Dimensions": of_job} for name in names]
    return {
        "MetricDataQueries": [
            {"Id": f"m{place}", "MetricStat": {"Metric": metric, "Period": 300, "Stat": "Average"}}
            for place, metric in enumerate(metrics)
        ],
        "StartTime": ANY,
        "EndTime": ANY,
        "ScanBy": "TimestampDescending",
    }


def results(*values: tuple[str, list[float], str]) -> dict[str, Any]:
    return {"MetricDataResults": [{"Id": id, "Values": found, "StatusCode": code} for id, found, code in values]}


def test_the_hosts_of_the_job_are_looked_at_by_their_log_streams(looked: Looked) -> None:
    streams = [{"logStreamName": f"{JOB}/algo-1", "lastIngestionTime": 5}, {"logStreamName": f"{JOB}/algo-2"}]
    given = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": f"{JOB}/"}
    looked.logs.add_response("describe_log_streams", {"logStreams": streams}, given)
    assert looked.call(SILENCE) == {"Because": "", "State": {"0": {"Seen": [5, 0], "Seconds": 0}}}


def test_each_metric_of_the_job_is_read_once_for_all_rules(looked: Looked) -> None:
    answer = results(("m1", [11.0], "Complete"), ("m0", [0.5], "PartialData"))
    looked.cloudwatch.add_response("get_metric_data", answer, queries("accuracy", "loss"))
    found = looked.call(LOSS, MetricLimit("accuracy", below=0.1), MetricLimit("loss", above=10))
    assert found == {
        "Because": "loss was above 10 in 1 readings",
        "State": {"0": {"Seen": 11.0, "Seconds": 0}, "1": {}, "2": {}},
    }


def test_readings_of_the_last_day_are_read_in_whole_periods(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    times: dict[str, datetime] = {}

    def read(*, StartTime: datetime, EndTime: datetime, **rest: Any) -> dict[str, Any]:
        times.update(start=StartTime, end=EndTime)
        return results()

    monkeypatch.setattr("boto3.client", lambda name, config: SimpleNamespace(get_metric_data=read))
    looked.call(LOSS)
    assert times["start"].timestamp() % 300 == 0
    assert timedelta(days=1) <= times["end"] - times["start"] < timedelta(days=1, minutes=5)
    assert datetime.now(UTC) - times["end"] < timedelta(minutes=1)


def test_what_cannot_be_looked_at_leaves_its_rules_as_they_were_and_the_others_are_checked(
    looked: Looked, capsys: pytest.CaptureFixture[str]
) -> None:
    looked.logs.add_client_error("describe_log_streams", "ThrottlingException", "Rate exceeded")
    looked.cloudwatch.add_response("get_metric_data", results(("m0", [11.0], "Complete")), queries("loss"))
    before = {"0": {"Seen": [1], "Seconds": 7_199}}
    found = looked.call(SILENCE, MetricLimit("loss", above=10), state=before)
    assert found == {"Because": "loss was above 10 in 1 readings", "State": {**before, "1": {}}}
    assert "Rate exceeded" in capsys.readouterr().out


@pytest.mark.parametrize("code", ["InternalError", "Forbidden"])
def test_a_metric_that_could_not_be_read_is_not_known(looked: Looked, code: str) -> None:
    looked.cloudwatch.add_response("get_metric_data", results(("m0", [], code)), queries("loss"))
    before = {"0": {"Seen": 2.0, "Seconds": 3_599}}
    assert looked.call(LOSS, state=before) == {"Because": "", "State": before}


def test_metrics_that_cannot_be_read_stop_no_job(looked: Looked) -> None:
    looked.cloudwatch.add_client_error("get_metric_data", "InternalServiceFault", "")
    before = {"0": {"Seen": 2.0, "Seconds": 3_599}}
    assert looked.call(LOSS, state=before) == {"Because": "", "State": before}
