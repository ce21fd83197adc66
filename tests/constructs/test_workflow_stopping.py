"""What stops the jobs of a workflow whose execution has ended, or which is deleted."""

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template
from policy_size import policies
from rendered import lint, resolved
from stacks import ENVIRONMENT, RenderedWorkflow, UserStack

from cdk_sagemaker_training import (
    S3Channel,
    TrainingNetwork,
)
from cdk_sagemaker_training.core.job_names import machine_name
from cdk_sagemaker_training.guard.stopping import stopping_definition


def test_executions_of_the_stacks_state_machines_that_end_before_their_jobs_start_the_stopper(
    either: RenderedWorkflow,
) -> None:
    [rule] = either.of_guard("AWS::Events::Rule", "Rule")
    detail = resolved(rule["EventPattern"]["detail"])
    assert detail["status"] == ["ABORTED", "FAILED", "TIMED_OUT"]
    [[(kind, prefix)]] = [list(one.items()) for one in detail["stateMachineArn"]]
    machine = either.template["Resources"][either.logical_id(either.definition)]["Properties"]
    assert (kind, prefix) == ("prefix", "arn:aws:states:us-east-1:123456789012:stateMachine:Stack-86e1c1d7-")
    assert machine["StateMachineName"].startswith(prefix.rpartition(":")[2])
    [target] = rule["Targets"]
    assert (target["Arn"], target["InputPath"]) == ({"Ref": either.logical_id(either.stopper)}, "$.detail")


def test_the_stopper_finds_jobs_by_the_hash_of_their_execution_that_their_names_have(either: RenderedWorkflow) -> None:
    name = either.states["FirstAttempt"]["Parameters"]["JobName.$"]
    for state in ("List", "ListMore"):
        asked = either.stopper["States"][state]["Parameters"]
        assert asked["NameContains.$"].replace("$.executionArn", "$$.Execution.Id") in name
        assert asked["StatusEquals"] == "InProgress"


def test_the_stopper_stops_again_what_could_not_be_stopped_and_gives_up_after_an_hour(
    either: RenderedWorkflow,
) -> None:
    states = either.stopper["States"]
    assert states["AreStopped"]["Choices"] == [
        {"Variable": "$.Refusals.Of[0]", "IsPresent": False, "Next": "HasLookedTwice"},
        {"Variable": "$.Walk.Waited", "NumericGreaterThanEquals": 3_600, "Next": "MayStillRun"},
        {"Variable": "$.Walk.Most", "NumericLessThan": 64, "Next": "WaitLonger"},
    ]
    assert (states["AreStopped"]["Default"], states["Wait"]["Next"]) == ("WaitAsLong", "List")


def test_the_stopper_does_nothing_after_the_workflows_own_errors_and_for_a_redriven_execution(
    either: RenderedWorkflow,
) -> None:
    states = either.stopper["States"]
    [rule] = states["IsOver"]["Choices"]
    errors = [one["StringEquals"] for one in rule["And"][1]["Or"]]
    assert (errors, rule["Next"]) == (["TrainingJobFailed", "TrainingJobStopped"], "Done")
    assert states["WasRedriven"]["Choices"] == [
        {"Variable": "$.Execution.Status", "StringEquals": "RUNNING", "Next": "Done"}
    ]


def test_the_stopper_looks_again_a_minute_later_and_then_ends(either: RenderedWorkflow) -> None:
    states = either.stopper["States"]
    assert states["IsAny"]["Default"] == "HasLookedTwice"
    assert states["HasLookedTwice"]["Default"] == "WaitForLateJobs"
    assert states["WaitForLateJobs"] == {"Type": "Wait", "Seconds": 60, "Next": "DescribeExecution"}


def test_the_stopper_lists_the_jobs_of_a_queue_for_the_workflows_that_have_one() -> None:
    definition = stopping_definition({"Stack-Queued": ("arn:queue", "digits")}, "aws")
    assert lint({"Stopper": definition}) == []
    states = definition["States"]
    [choice] = states["First"]["Choices"]
    assert choice == {"Variable": "$.stateMachineArn", "StringMatches": "*:Stack-Queued", "Next": "Queued0"}
    assert (states["First"]["Default"], states["Begin"]["Next"]) == ("Begin", "List")
    assert states["Queued0"]["Parameters"]["Filters"][0]["Values.$"] == (
        "States.Array(States.Format('digits-{}-*', States.Hash($.executionArn, 'MD5')))"
    )


def metrics_of(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics that an alarm watches, of which there are several in a sum."""
    stats = [one["MetricStat"] for one in alarm.get("Metrics", ()) if "MetricStat" in one]
    return [{**one["Metric"], "Statistic": one["Stat"], "Period": one["Period"]} for one in stats] or [alarm]


def test_an_alarm_goes_off_where_a_job_could_not_be_stopped_or_one_was_left(either: RenderedWorkflow) -> None:
    watched = [one for alarm in either.of_guard("AWS::CloudWatch::Alarm") for one in metrics_of(alarm)]
    [reconciler] = [name for name in either.machines if "Reconciler" in name]
    found = {
        (one["MetricName"], one["Dimensions"][0]["Value"].get("Ref"))
        for one in watched
        if one["Namespace"] == "AWS/States"
    }
    assert found == {
        ("ExecutionsFailed", either.logical_id(either.stopper)),
        ("ExecutionsFailed", reconciler),
        ("ExecutionsTimedOut", reconciler),
    }


def test_an_alarm_goes_off_where_the_guard_was_not_started(either: RenderedWorkflow) -> None:
    [queue] = [name for name, one in either.template["Resources"].items() if one["Type"] == "AWS::SQS::Queue"]
    rules = either.of_guard("AWS::Events::Rule")
    arn = {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}
    assert [one["Targets"][0]["DeadLetterConfig"] for one in rules] == [arn, arn]
    alarms = [one for one in either.of_guard("AWS::CloudWatch::Alarm") if one.get("Namespace") == "AWS/SQS"]
    assert [alarm["Dimensions"][0]["Value"] for alarm in alarms] == [{"Fn::GetAtt": [queue, "QueueName"]}]


def test_one_failure_and_one_event_that_was_not_delivered_set_an_alarm_off(either: RenderedWorkflow) -> None:
    alarms = either.of_guard("AWS::CloudWatch::Alarm")
    names = ("ComparisonOperator", "Threshold", "EvaluationPeriods", "TreatMissingData")
    by_metric = {
        metric["MetricName"]: (*(alarm[name] for name in names), metric["Statistic"], metric["Period"])
        for alarm in alarms
        for metric in metrics_of(alarm)
    }
    at_least_one = ("GreaterThanOrEqualToThreshold", 1, 1, "notBreaching")
    assert by_metric == {
        "ExecutionsFailed": (*at_least_one, "Sum", 300),
        "ExecutionsTimedOut": (*at_least_one, "Sum", 300),
        "ApproximateNumberOfMessagesVisible": (*at_least_one, "Maximum", 300),
    }
    [queue] = either.of_guard("AWS::SQS::Queue")
    assert queue["MessageRetentionPeriod"] == 14 * 24 * 3_600


def test_the_alarms_of_a_workflow_take_actions() -> None:
    stack = UserStack()
    topic = sns.Topic(stack, "Topic")
    for alarm in stack.workflow().alarms:
        alarm.add_alarm_action(cloudwatch_actions.SnsAction(topic))
    alarms = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    assert [alarm["Properties"]["AlarmActions"] for alarm in alarms] == [[stack.resolve(topic.topic_arn)]] * 3


def deletion_of(template: dict[str, Any], name: str = "Training") -> dict[str, Any]:
    """The custom resource that stops a workflow's jobs when it is deleted."""
    [found] = [
        one
        for logical_id, one in template["Resources"].items()
        if one["Type"] == "Custom::SageMakerTrainingJobs" and logical_id.startswith(name)
    ]
    return dict(found)


def test_what_stops_jobs_on_deletion_goes_before_all_that_the_workflow_makes(either: RenderedWorkflow) -> None:
    needed = {name for name in either.template["Resources"] if name.startswith("Training")}
    depends_on = set(deletion_of(either.template)["DependsOn"])
    assert {name.rstrip("0123456789ABCDEF") for name in needed - depends_on} == {"TrainingDeletion"}


def test_what_stops_jobs_on_deletion_goes_before_what_the_jobs_are_given_of_its_stack() -> None:
    stack = UserStack()
    bucket, network = s3.Bucket(stack, "Own"), TrainingNetwork(stack, "Network", max_azs=1)
    elsewhere = s3.Bucket(cdk.Stack(cdk.App.of(stack), "Elsewhere", env=ENVIRONMENT), "Other")  # type: ignore[arg-type]
    channels = {"own": S3Channel(bucket, "own/"), "other": S3Channel(elsewhere, "other/")}
    stack.workflow(network=network, channels=channels)
    template = stack.template()
    depends_on = set(deletion_of(template)["DependsOn"])
    needed = {name for name in template["Resources"] if name.startswith(("Own", "Network"))}
    assert len(needed) > 10
    assert needed <= depends_on


def test_the_workflows_of_a_stack_share_the_function_that_stops_jobs_and_what_it_may_do() -> None:
    stack = UserStack()
    stack.workflow("First")
    one = handler_role(stack.template())
    for name in ("Second", "Third"):
        stack.workflow(name)
    template = stack.again()
    assert [one["Type"] for one in template["Resources"].values()].count("AWS::Lambda::Function") == 1
    assert handler_role(template) == one


def handler_role(template: dict[str, Any]) -> dict[str, Any]:
    [role] = [id for id in template["Resources"] if id.startswith("SageMakerTrainingJobsHandlerRole")]
    return dict(template["Resources"][role])


def measured(workflows: int) -> tuple[int, int]:
    """How many resources a stack of so many workflows has, and the size of its largest policy."""
    stack = UserStack()
    for number in range(workflows):
        stack.workflow(f"Workflow{number:02}")
    resources = stack.template()["Resources"]
    return len(resources), max(size for _, size in policies({"Resources": resources}))


def test_seventy_five_workflows_fit_in_one_stack_by_what_one_more_adds() -> None:
    (few, of_few), (more, of_more) = measured(4), measured(8)
    assert (few, more) == (4 * 6 + 16, 8 * 6 + 16)
    assert of_more + (75 - 8) * (of_more - of_few) / 4 < 10_240


@pytest.mark.soak
def test_seventy_five_workflows_fit_in_one_stack() -> None:
    resources, largest = measured(75)
    assert resources == 75 * 6 + 16
    assert largest < 10_240


def test_jobs_that_are_retained_are_stopped_neither_with_their_workflow_nor_by_the_update_that_retains_them() -> None:
    retained = deletion_of(RenderedWorkflow(retain_jobs=True).template)
    stopped = deletion_of(RenderedWorkflow().template)
    assert retained["Properties"].pop("Retain") == "true"
    assert retained == stopped


def test_the_permissions_that_a_running_execution_needs_are_looked_at_before_its_policies_are_updated() -> None:
    stack = UserStack()
    key = kms.Key(stack, "Key")
    stack.workflow(checkpoints=stack.place("checkpoints/"), output_key=key, breaking_updates="stop")
    template = stack.template()
    [(id, updates)] = [
        (id, one) for id, one in template["Resources"].items() if one["Type"] == "Custom::SageMakerTrainingUpdates"
    ]
    [workflow] = resolved(updates["Properties"]["Workflows"])
    assert workflow["BreakingUpdates"] == "stop"
    assert "Retain" not in workflow
    assert workflow["StateMachineArn"].endswith(f":stateMachine:{machine_name(stack.node.find_child('Training'))}")
    places = [f"arn:aws:s3:::bucket/{folder}/*" for folder in ("models", "checkpoints/stack-training-04d490aa")]
    assert workflow["Needs"]["s3:PutObject"] == places
    assert set(workflow["Needs"]) == {
        *("s3:GetObject", "s3:PutObject", "kms:Decrypt", "kms:GenerateDataKey*", "iam:PassRole"),
        "sagemaker:DescribeTrainingJob",
    }
    after = [name for name, one in template["Resources"].items() if id in one.get("DependsOn", [])]
    assert sorted(name[:-8] for name in after) == ["TrainingRoleDefaultPolicy", "TrainingStateMachineRoleDefaultPolicy"]


def test_a_role_of_a_users_own_whose_policy_is_not_the_stacks_is_not_looked_at() -> None:
    stack = UserStack()
    role = iam.Role.from_role_arn(stack, "Own", "arn:aws:iam::123456789012:role/own", mutable=False)
    stack.workflow(role=role)
    template = stack.template()
    [updates] = [one for one in template["Resources"].values() if one["Type"] == "Custom::SageMakerTrainingUpdates"]
    [workflow] = resolved(updates["Properties"]["Workflows"])
    assert "s3:PutObject" not in workflow["Needs"]
