"""What the account's alarms do with the data of their metrics, and whom they tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cdk_stacks import deploy, destroy, ids
from running_account import Running

from sagemaker_local_account.aws.cloudwatch.alarms import Datum, Rule, evaluate

AN_ERROR_RATHER_THAN_A_HANG = 300  # seconds; no fact depends on it
DIMENSIONS = [{"Name": "TrainingJobName", "Value": "mine"}]
ENFORCED = False  # test_delivery_permissions.py has the permissions of deliveries
NAMESPACE = "/aws/sagemaker/TrainingJobs"


def until(found: Callable[[], Any]) -> Any:
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while time.monotonic() < limit:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come to pass")


class Alarms:
    """The alarms of a running account, each with a metric of its own name."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.client = running.client("cloudwatch")

    def put(self, name: str, **said: Any) -> None:
        self.client.put_metric_alarm(
            **{
                "AlarmName": name,
                "Namespace": NAMESPACE,
                "MetricName": name,
                "Dimensions": DIMENSIONS,
                "Statistic": "Maximum",
                "Period": 60,
                "EvaluationPeriods": 1,
                "ComparisonOperator": "GreaterThanThreshold",
                "Threshold": 1.0,
                **said,
            }
        )

    def put_sum(self, name: str, *names: str, expression: str | None = None, **said: Any) -> None:
        """An alarm on the sum of metrics of these names."""
        metrics = [{"Namespace": NAMESPACE, "MetricName": it, "Dimensions": DIMENSIONS} for it in names]
        stats = [
            {"Id": f"m{number}", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}, "ReturnData": False}
            for number, metric in enumerate(metrics)
        ]
        total = expression or " + ".join(str(stat["Id"]) for stat in stats)
        self.client.put_metric_alarm(
            **{
                "AlarmName": name,
                "Metrics": [{"Id": "e1", "Expression": total, "Label": "Both", "ReturnData": True}, *stats],
                "EvaluationPeriods": 1,
                "ComparisonOperator": "GreaterThanThreshold",
                "Threshold": 1.0,
                "TreatMissingData": "notBreaching",
                **said,
            }
        )

    def data(self, name: str, *values: float, seconds_ago: float = 0, dimensions: Any = DIMENSIONS) -> None:
        when = datetime.now(UTC) - timedelta(seconds=seconds_ago)
        data = [{"MetricName": name, "Value": value, "Timestamp": when, "Dimensions": dimensions} for value in values]
        self.client.put_metric_data(Namespace=NAMESPACE, MetricData=data)

    def described(self, name: str) -> dict[str, Any]:
        [alarm] = self.client.describe_alarms(AlarmNames=[name])["MetricAlarms"]
        return dict(alarm)

    def state(self, name: str) -> str:
        return str(self.described(name)["StateValue"])

    def queue(self, name: str) -> tuple[str, Callable[[], dict[str, Any]]]:
        """A queue's ARN, and what takes its next message."""
        client = self.running.client("sqs")
        url = client.create_queue(QueueName=name)["QueueUrl"]
        arn = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

        def take() -> dict[str, Any]:
            messages = until(lambda: client.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages"))
            client.delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
            return dict(json.loads(messages[0]["Body"]))

        return arn, take


@pytest.fixture(scope="module")
def alarms(running: Running) -> Alarms:
    return Alarms(running)


def metric_data(alarms: Alarms, name: str, expression: str) -> dict[str, list[float]]:
    """The values of a metric, and of an expression of it, by the ids "m" and "e"."""
    metric = {"Namespace": NAMESPACE, "MetricName": name, "Dimensions": DIMENSIONS}
    now = datetime.now(UTC)
    found = alarms.client.get_metric_data(
        MetricDataQueries=[
            {"Id": "m", "MetricStat": {"Metric": metric, "Period": 300, "Stat": "Average"}},
            {"Id": "e", "Expression": expression},
        ],
        StartTime=now - timedelta(minutes=5),
        EndTime=now + timedelta(minutes=5),
    )
    return {result["Id"]: result["Values"] for result in found["MetricDataResults"]}


@pytest.mark.parametrize(("expression", "value"), [("m", 2.0), ("m + 0.5", 2.5), ("m-1e-2", 1.99)])
def test_metric_math_adds_a_number_to_a_metric(alarms: Alarms, expression: str, value: float) -> None:
    alarms.data(expression, 1.0, 3.0)
    found = metric_data(alarms, expression, expression)
    assert (found["m"], found["e"]) == ([2.0], [pytest.approx(value)])


def test_data_are_of_the_one_metric_that_is_asked_for_and_named_after_it(alarms: Alarms) -> None:
    """cloudwatch/test_cloudwatch.py: test_get_metric_data_with_dimensions, test_get_metric_data_for_multiple_metrics"""
    more = [*DIMENSIONS, {"Name": "Host", "Value": "algo-1"}]
    alarms.data("asked", 1.0)
    alarms.data("asked", 10.0, dimensions=more)
    alarms.data("asked", 100.0, dimensions=[])
    other = {"MetricName": "asked", "Value": 1000.0, "Dimensions": DIMENSIONS}
    alarms.client.put_metric_data(Namespace="Other", MetricData=[other])
    now = datetime.now(UTC)
    times = {"StartTime": now - timedelta(minutes=5), "EndTime": now + timedelta(minutes=5)}
    for dimensions, value in ((DIMENSIONS, 1.0), (more, 10.0), ([], 100.0)):
        metric = {"Namespace": NAMESPACE, "MetricName": "asked", "Dimensions": dimensions}
        query = {"Id": "m", "MetricStat": {"Metric": metric, "Period": 600, "Stat": "Sum"}}
        [found] = alarms.client.get_metric_data(MetricDataQueries=[query], **times)["MetricDataResults"]
        assert (sum(found["Values"]), found["Label"]) == (value, "asked")
        points = alarms.client.get_metric_statistics(**metric, **times, Period=600, Statistics=["Sum"])["Datapoints"]
        assert sum(point["Sum"] for point in points) == value


def test_labels_have_what_the_queries_differ_in(alarms: Alarms) -> None:
    """cloudwatch/test_cloudwatch.py: test_label_generation"""
    metric = {"Namespace": NAMESPACE, "MetricName": "labels", "Dimensions": DIMENSIONS}
    now = datetime.now(UTC)

    def labels(*stats: tuple[str, int]) -> list[str]:
        queries = [
            {"Id": f"m{number}", "MetricStat": {"Metric": metric, "Stat": stat, "Period": period}}
            for number, (stat, period) in enumerate(stats)
        ]
        found = alarms.client.get_metric_data(
            MetricDataQueries=queries, StartTime=now - timedelta(minutes=1), EndTime=now
        )
        return [result["Label"] for result in found["MetricDataResults"]]

    assert labels(("Sum", 60), ("Minimum", 30)) == ["labels Sum 60", "labels Minimum 30"]
    assert labels(("Sum", 60), ("Minimum", 60)) == ["labels Sum", "labels Minimum"]
    assert labels(("Sum", 60), ("Sum", 30)) == ["labels 60", "labels 30"]
    assert labels(("Sum", 60), ("Sum", 60)) == ["labels", "labels"]


def test_the_tags_of_an_alarm_go_with_it_and_it_says_since_when_it_is_in_its_state(alarms: Alarms) -> None:
    """cloudwatch/test_cloudwatch.py: test_tagging_metric_alarm, test_store_tags"""
    alarms.put("tagged", Tags=[{"Key": "team", "Value": "vision"}])
    described = alarms.described("tagged")
    alarms.put("tagged", Threshold=2.0)
    assert alarms.described("tagged")["StateTransitionedTimestamp"] == described["StateTransitionedTimestamp"]
    alarms.data("tagged", 3.0)
    assert alarms.described("tagged")["StateTransitionedTimestamp"] > described["StateTransitionedTimestamp"]
    alarms.client.delete_alarms(AlarmNames=["tagged"])
    assert alarms.client.list_tags_for_resource(ResourceARN=described["AlarmArn"])["Tags"] == []


def test_metric_math_of_another_kind_is_refused(alarms: Alarms) -> None:
    with pytest.raises(ClientError, match=r"an id, and an id plus or minus a number, like 'm \+ 0.01', got 'MIN\(m\)'"):
        metric_data(alarms, "other-math", "MIN(m)")


@pytest.mark.parametrize(
    ("statistic", "value"),
    [("Average", 2.5), ("Maximum", 7.0), ("Minimum", 1.0), ("SampleCount", 4.0), ("Sum", 10.0)],
)
def test_the_values_of_a_statistic_set_count_each(statistic: str, value: float) -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    data = [Datum(now, total=3.0, minimum=1.0, maximum=1.0, count=3.0), Datum(now, 7.0, 7.0, 7.0, 1.0)]
    rule = Rule(statistic, timedelta(minutes=1), 1, 1, "GreaterThanOrEqualToThreshold", value)
    found = evaluate(rule, [(statistic, data)], now)
    assert found
    assert (found.state, found.data["recentDatapoints"]) == ("ALARM", [value])


def test_a_new_alarm_has_insufficient_data(alarms: Alarms) -> None:
    alarms.put("new")
    assert alarms.state("new") == "INSUFFICIENT_DATA"


def test_data_over_the_threshold_set_an_alarm_off_and_the_reason_names_them(alarms: Alarms) -> None:
    alarms.put("over")
    alarms.data("over", 0.5, 2.0)
    assert alarms.state("over") == "ALARM"
    assert "1 out of the last 1 datapoint [2.0 (" in alarms.described("over")["StateReason"]


def test_data_within_the_threshold_make_an_alarm_ok(alarms: Alarms) -> None:
    alarms.put("within")
    alarms.data("within", 0.5)
    assert alarms.state("within") == "OK"


def test_data_with_other_dimensions_are_of_another_metric(alarms: Alarms) -> None:
    alarms.put("other")
    alarms.data("other", 5.0, dimensions=[*DIMENSIONS, {"Name": "Host", "Value": "algo-1"}])
    assert alarms.state("other") == "INSUFFICIENT_DATA"


def test_an_alarm_whose_data_stay_away_has_insufficient_data_again(alarms: Alarms) -> None:
    alarms.put("away", Period=10)
    alarms.data("away", 5.0, seconds_ago=27)
    assert alarms.state("away") == "ALARM"
    until(lambda: alarms.state("away") == "INSUFFICIENT_DATA")


def test_an_alarm_may_take_missing_data_for_good(alarms: Alarms) -> None:
    alarms.put("good", TreatMissingData="notBreaching")
    assert alarms.state("good") == "OK"
    described = alarms.described("good")
    assert "no datapoints were received for 1 period" in described["StateReason"]
    [evaluated] = json.loads(described["StateReasonData"])["evaluatedDatapoints"]
    assert list(evaluated) == ["timestamp"]


def test_a_changed_alarm_is_judged_by_its_new_threshold(alarms: Alarms) -> None:
    alarms.put("changed")
    alarms.data("changed", 5.0)
    alarms.put("changed", Threshold=10.0)
    assert alarms.state("changed") == "OK"


def test_a_topic_gets_awss_message(alarms: Alarms) -> None:
    arn, take = alarms.queue("alarm-messages")
    topics = alarms.running.client("sns")
    topic = topics.create_topic(Name="alarms")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    alarms.put("told", AlarmActions=[topic], OKActions=[topic], AlarmDescription="loss is high")
    alarms.data("told", 5.0)
    envelope = take()
    assert envelope["Subject"] == 'ALARM: "told" in US East (N. Virginia)'
    message = json.loads(envelope["Message"])
    assert (message["OldStateValue"], message["NewStateValue"]) == ("INSUFFICIENT_DATA", "ALARM")
    assert message["AlarmDescription"] == "loss is high"
    assert message["Trigger"]["Dimensions"] == [{"value": "mine", "name": "TrainingJobName"}]
    assert (message["Trigger"]["Period"], "Metrics" in message["Trigger"]) == (60, False)
    alarms.client.set_alarm_state(AlarmName="told", StateValue="OK", StateReason="by hand")
    assert json.loads(take()["Message"])["NewStateReason"] == "by hand"


def test_the_default_bus_gets_awss_event(alarms: Alarms) -> None:
    arn, take = alarms.queue("alarm-events")
    rules = alarms.running.client("events")
    pattern = {"source": ["aws.cloudwatch"], "detail": {"alarmName": ["announced"], "state": {"value": ["ALARM"]}}}
    rules.put_rule(Name="announced", EventPattern=json.dumps(pattern))
    rules.put_targets(Rule="announced", Targets=[{"Id": "queue", "Arn": arn}])
    alarms.put("announced")
    alarms.data("announced", 5.0)
    event = take()
    assert event["detail-type"] == "CloudWatch Alarm State Change"
    assert event["resources"] == [alarms.described("announced")["AlarmArn"]]
    assert event["detail"]["previousState"]["value"] == "INSUFFICIENT_DATA"
    metric = {"dimensions": {"TrainingJobName": "mine"}, "name": "announced", "namespace": NAMESPACE}
    stat = {"metric": metric, "period": 60, "stat": "Maximum"}
    assert event["detail"]["configuration"]["metrics"] == [{"id": "m1", "metricStat": stat, "returnData": True}]


def test_an_alarm_without_enabled_actions_tells_no_topic(alarms: Alarms) -> None:
    arn, take = alarms.queue("silent")
    topics = alarms.running.client("sns")
    topic = topics.create_topic(Name="silent")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    alarms.put("silent", AlarmActions=[topic], ActionsEnabled=False)
    alarms.data("silent", 5.0)
    topics.publish(TopicArn=topic, Message="the first")
    assert take()["Message"] == "the first"


def test_an_execution_that_fails_sets_an_alarm_off(alarms: Alarms) -> None:
    role = alarms.running.role("Failing", "states.amazonaws.com")
    machines = alarms.running.client("stepfunctions")
    definition = {"StartAt": "Fail", "States": {"Fail": {"Type": "Fail"}}}
    machine = machines.create_state_machine(name="failing", definition=json.dumps(definition), roleArn=role)
    arn = machine["stateMachineArn"]
    dimensions = [{"Name": "StateMachineArn", "Value": arn}]
    alarms.put(
        "failures",
        Namespace="AWS/States",
        MetricName="ExecutionsFailed",
        Dimensions=dimensions,
        Statistic="Sum",
        Threshold=0.0,
        TreatMissingData="notBreaching",
    )
    assert alarms.state("failures") == "OK"
    machines.start_execution(stateMachineArn=arn)
    until(lambda: alarms.state("failures") == "ALARM")
    names = {
        metric["MetricName"]
        for metric in alarms.client.list_metrics(Namespace="AWS/States", Dimensions=dimensions)["Metrics"]
    }
    assert names == {"ExecutionsStarted", "ExecutionsFailed", "ExecutionTime"}


def test_an_alarm_on_a_sum_counts_a_metric_without_data_as_0(alarms: Alarms) -> None:
    alarms.put_sum("sum", "sum-1", "sum-2")
    assert alarms.state("sum") == "OK"
    alarms.data("sum-1", 0.6)
    assert alarms.state("sum") == "OK"
    alarms.data("sum-2", 0.6)
    assert alarms.state("sum") == "ALARM"
    described = alarms.described("sum")
    assert "1 out of the last 1 datapoint [1.2 (" in described["StateReason"]
    assert "statistic" not in json.loads(described["StateReasonData"])
    alarms.put_sum("one-of", "sum-3", "sum-4")
    alarms.data("sum-4", 2.0)
    assert alarms.state("one-of") == "ALARM"


def test_the_message_and_the_event_of_an_alarm_on_a_sum_name_its_metrics(alarms: Alarms) -> None:
    """The event is as "State change for a metric math alarm" has it, the message as arabold/aws-to-slack 98."""
    arn, take = alarms.queue("sum-messages")
    topics, rules = alarms.running.client("sns"), alarms.running.client("events")
    topic = topics.create_topic(Name="sums")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    pattern = {"source": ["aws.cloudwatch"], "detail": {"alarmName": ["sum-told"], "state": {"value": ["ALARM"]}}}
    rules.put_rule(Name="sum-told", EventPattern=json.dumps(pattern))
    rules.put_targets(Rule="sum-told", Targets=[{"Id": "queue", "Arn": arn}])
    alarms.put_sum("sum-told", "told-1", AlarmActions=[topic])
    alarms.data("told-1", 5.0)
    found = [take(), take()]
    [trigger] = [json.loads(it["Message"])["Trigger"] for it in found if "Message" in it]
    [event] = [it["detail"] for it in found if "detail" in it]
    named = {"MetricName": "told-1", "Namespace": NAMESPACE}
    metric = {"Dimensions": [{"value": "mine", "name": "TrainingJobName"}], **named}
    total = {"Id": "e1", "Label": "Both", "Expression": "m0", "ReturnData": True}
    stat = {"Id": "m0", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}, "ReturnData": False}
    assert trigger["Metrics"] == [total, stat]
    assert (trigger["Period"], "MetricName" in trigger) == (60, False)
    of_event = {"dimensions": {"TrainingJobName": "mine"}, "name": "told-1", "namespace": NAMESPACE}
    assert event["configuration"]["metrics"] == [
        {"expression": "m0", "id": "e1", "label": "Both", "returnData": True},
        {"id": "m0", "metricStat": {"metric": of_event, "period": 60, "stat": "Sum"}, "returnData": False},
    ]


@pytest.mark.parametrize("expression", ["m0 + m2", "m0", "m0 - m1", "2 * m0 + m1", "SUM(METRICS())", "m0 + m1 + m1"])
def test_an_alarm_on_other_metric_math_is_refused(alarms: Alarms, expression: str) -> None:
    with pytest.raises(ClientError, match="a sum of metrics with one Stat and Period"):
        alarms.put_sum("math", "math-1", "math-2", expression=expression)


LONG_WAIT = {"Type": "Wait", "Seconds": 600, "End": True}


@pytest.mark.parametrize(
    "state",
    [
        LONG_WAIT,
        {"Type": "Parallel", "Branches": [{"StartAt": "Inner", "States": {"Inner": LONG_WAIT}}], "End": True},
    ],
    ids=["Wait", "Parallel"],
)
def test_an_execution_of_an_express_machine_times_out_after_five_minutes(alarms: Alarms, state: dict[str, Any]) -> None:
    """ "Quotas related to state machine executions"; it does not count as failed (aws-solutions-library-samples/
    accelerated-intelligent-document-processing-on-aws 757)."""
    machines = alarms.running.client("stepfunctions")
    definition = {"StartAt": "Long", "States": {"Long": state}}
    arn = machines.create_state_machine(
        name=f"too-long-in-{state['Type']}",
        definition=json.dumps(definition),
        roleArn=alarms.running.role(f"TooLongIn{state['Type']}", "states.amazonaws.com"),
        type="EXPRESS",
    )["stateMachineArn"]

    def counted() -> set[str]:
        found = alarms.client.list_metrics(Dimensions=[{"Name": "StateMachineArn", "Value": arn}])["Metrics"]
        return {metric["MetricName"] for metric in found}

    clock = alarms.running.account.clock
    machines.start_execution(stateMachineArn=arn)
    # Of an advance counts what an execution waits for, which it does once it has come to its wait.
    until(lambda: any(getattr(watcher, "__self__").waits for watcher in clock.watchers))  # noqa: B009
    clock.advance(200)
    assert counted() == {"ExecutionsStarted"}
    clock.advance(101)
    until(lambda: "ExecutionsTimedOut" in counted())
    assert "ExecutionsFailed" not in counted()


def test_an_advance_of_the_clock_takes_from_an_express_execution_what_it_waits_for_alone(alarms: Alarms) -> None:
    """As on AWS, where time does not pass at once while it works."""
    machines = alarms.running.client("stepfunctions")
    wait = {"Type": "Wait", "Seconds": 60}
    both = {"StartAt": "Inner", "States": {"Inner": {**wait, "End": True}}}
    states = {
        "First": {**wait, "Next": "Both"},
        "Both": {"Type": "Parallel", "Branches": [both, both], "Next": "Last"},
        "Last": {**wait, "End": True},
    }
    arn = machines.create_state_machine(
        name="in-time",
        definition=json.dumps({"StartAt": "First", "States": states}),
        roleArn=alarms.running.role("InTime", "states.amazonaws.com"),
        type="EXPRESS",
    )["stateMachineArn"]
    machines.start_execution(stateMachineArn=arn)

    def ended() -> set[str]:
        alarms.running.account.clock.advance(250)
        found = alarms.client.list_metrics(Dimensions=[{"Name": "StateMachineArn", "Value": arn}])["Metrics"]
        return {metric["MetricName"] for metric in found} - {"ExecutionsStarted"}

    assert until(ended) == {"ExecutionsSucceeded", "ExecutionTime"}


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"ExtendedStatistic": "p99"}, "ExtendedStatistic"),
        ({"ThresholdMetricId": "band"}, "ThresholdMetricId"),
        ({"Metrics": [{"Id": "m", "Expression": "1"}]}, "Metrics"),
        ({"ComparisonOperator": "GreaterThanUpperThreshold"}, "GreaterThanUpperThreshold"),
        ({"AlarmActions": ["arn:aws:lambda:us-east-1:123456789012:function:f"]}, "function:f"),
        ({"Period": 45}, "45"),
    ],
)
def test_what_is_not_evaluated_is_refused_by_name(alarms: Alarms, said: dict[str, Any], named: str) -> None:
    with pytest.raises(ClientError, match=named):
        alarms.put("refused", **said)
    assert alarms.client.describe_alarms(AlarmNames=["refused"])["MetricAlarms"] == []


def test_a_composite_alarm_is_refused(alarms: Alarms) -> None:
    with pytest.raises(ClientError, match="PutCompositeAlarm"):
        alarms.client.put_composite_alarm(AlarmName="composite", AlarmRule="ALARM(over)")


def test_a_stack_makes_changes_and_deletes_an_alarm(running: Running, alarms: Alarms) -> None:
    alarm = {
        "Namespace": NAMESPACE,
        "MetricName": "stacked",
        "Dimensions": DIMENSIONS,
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": "1",
        "TreatMissingData": "breaching",
    }
    resources = {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": alarm}}
    outputs = {"Arn": {"Value": {"Fn::GetAtt": ["Alarm", "Arn"]}}}
    arn = deploy(running, "alarm", resources, Outputs=outputs)["Arn"]
    name = ids(running, "alarm")["Alarm"]
    assert (alarms.described(name)["AlarmArn"], alarms.state(name)) == (arn, "ALARM")
    deploy(running, "alarm", {"Alarm": {**resources["Alarm"], "Properties": {**alarm, "TreatMissingData": "ignore"}}})
    assert alarms.described(name)["TreatMissingData"] == "ignore"
    destroy(running, "alarm")
    assert alarms.client.describe_alarms(AlarmNames=[name])["MetricAlarms"] == []


# 0 is within the threshold, X over it, - missing, the newest last; then the states for missing, ignore, breaching and
# notBreaching, with None where the alarm keeps its own.
@pytest.mark.parametrize(
    ("data", "of", "states"),
    [
        ("0-X-X", 3, ("OK", "OK", "OK", "OK")),
        ("0----", 3, ("OK", "OK", "OK", "OK")),
        ("-----", 3, ("INSUFFICIENT_DATA", None, "ALARM", "OK")),
        ("0XX-X", 3, ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("--X--", 3, ("ALARM", None, "ALARM", "OK")),
        ("0-X-X", 2, ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("00X0X", 2, ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("----0", 2, ("OK", "OK", "ALARM", "OK")),
    ],
)
def test_missing_data_are_treated_as_the_alarm_says_and_late_data_count(
    data: str, of: int, states: tuple[str | None, ...]
) -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    period = timedelta(minutes=1)
    values = {"0": 0.0, "X": 2.0}
    found = [
        Datum(now - period * age - period / 2, values[mark], values[mark], values[mark], 1)
        for age, mark in enumerate(reversed(data))
        if mark in values
    ]
    judged = [
        evaluate(Rule("Average", period, 3, of, "GreaterThanThreshold", 1.0, missing), [("Average", found)], now)
        for missing in ("missing", "ignore", "breaching", "notBreaching")
    ]
    assert tuple(effect_of and effect_of.state for effect_of in judged) == states
