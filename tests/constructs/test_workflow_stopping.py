"""What stops the jobs of a workflow whose execution has ended, or which is deleted."""

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template
from rendered import lint, resolved
from stacks import ENVIRONMENT, RenderedWorkflow, UserStack

from cdk_sagemaker_training import (
    S3Channel,
    TrainingNetwork,
)
from cdk_sagemaker_training.lifecycle.stopping import stopping_definition, stopping_states


def test_executions_that_end_before_their_jobs_start_the_stopper(either: RenderedWorkflow) -> None:
    [rule] = either.resources_of("AWS::Events::Rule")
    assert resolved(rule["EventPattern"]["detail"])["status"] == ["ABORTED", "FAILED", "TIMED_OUT"]
    machine = either.logical_id(either.definition)
    stopper = either.logical_id(either.stopper)
    assert rule["EventPattern"]["detail"]["stateMachineArn"] == [{"Ref": machine}]
    [target] = rule["Targets"]
    assert (target["Arn"], target["InputPath"]) == ({"Ref": stopper}, "$.detail")


def test_the_stopper_stops_jobs_by_the_names_that_their_execution_gave_them(either: RenderedWorkflow) -> None:
    name = either.states["FirstAttempt"]["Parameters"]["JobName.$"]
    assert either.stopper["States"]["Stop"]["Parameters"] == {
        "TrainingJobName.$": name.replace("$$.Execution.Id", "$.executionArn").replace(", 1)", ", $.Walk.Attempt)")
    }


def test_the_stopper_goes_on_after_a_job_that_is_over_and_gives_up_after_an_hour(either: RenderedWorkflow) -> None:
    over, missing, given_up, longer = either.stopper["States"]["WhyNot"]["Choices"]
    assert over == {
        "Variable": "$.Error.Cause",
        "StringMatches": "*The request was rejected because the training job is in status *",
        "Next": "NextAttempt",
    }
    assert missing["Next"] == "Missing"
    assert given_up == {"Variable": "$.Walk.Waited", "NumericGreaterThanEquals": 3_600, "Next": "MayStillRun"}
    assert longer == {"Variable": "$.Walk.Most", "NumericLessThan": 64, "Next": "WaitLonger"}


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
    assert states["Missing"]["Next"] == "HasLookedTwice"
    assert states["HasLookedTwice"]["Default"] == "WaitForLateJobs"
    assert states["WaitForLateJobs"] == {"Type": "Wait", "Seconds": 60, "Next": "DescribeExecution"}


def test_the_stopper_goes_from_the_jobs_of_one_suffix_to_those_of_the_next() -> None:
    definition = stopping_definition(stopping_states("digits", ["compile", ""], "aws"), "aws")
    assert lint({"Stopper": definition}) == []
    states = definition["States"]
    assert (states["CompileMissing"]["Next"], states["Missing"]["Next"]) == ("First", "HasLookedTwice")
    assert states["WasRedriven"]["Default"] == "CompileFirst"


def test_an_alarm_goes_off_where_a_job_could_not_be_stopped(either: RenderedWorkflow) -> None:
    stopper = either.logical_id(either.stopper)
    alarms = [alarm for alarm in either.resources_of("AWS::CloudWatch::Alarm") if alarm["Namespace"] == "AWS/States"]
    assert [(alarm["MetricName"], alarm["Dimensions"][0]["Value"]) for alarm in alarms] == [
        ("ExecutionsFailed", {"Ref": stopper})
    ]


def test_an_alarm_goes_off_where_an_executions_end_was_not_delivered(either: RenderedWorkflow) -> None:
    [queue] = [name for name, one in either.template["Resources"].items() if one["Type"] == "AWS::SQS::Queue"]
    [rule] = either.resources_of("AWS::Events::Rule")
    assert rule["Targets"][0]["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}
    alarms = [alarm for alarm in either.resources_of("AWS::CloudWatch::Alarm") if alarm["Namespace"] == "AWS/SQS"]
    assert [alarm["Dimensions"][0]["Value"] for alarm in alarms] == [{"Fn::GetAtt": [queue, "QueueName"]}]


def test_one_failure_and_one_event_that_was_not_delivered_set_an_alarm_off(either: RenderedWorkflow) -> None:
    alarms = either.resources_of("AWS::CloudWatch::Alarm")
    names = ("ComparisonOperator", "Threshold", "EvaluationPeriods", "TreatMissingData", "Statistic", "Period")
    by_metric = {alarm["MetricName"]: tuple(alarm[name] for name in names) for alarm in alarms}
    at_least_one = ("GreaterThanOrEqualToThreshold", 1, 1, "notBreaching")
    assert by_metric == {
        "ExecutionsFailed": (*at_least_one, "Sum", 300),
        "ApproximateNumberOfMessagesVisible": (*at_least_one, "Maximum", 300),
    }
    [queue] = either.resources_of("AWS::SQS::Queue")
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


def test_the_workflows_of_a_stack_share_the_function_that_stops_jobs_and_not_what_it_may_do() -> None:
    stack = UserStack()
    for name in ("First", "Second"):
        stack.workflow(name)
    template = stack.template()
    assert [one["Type"] for one in template["Resources"].values()].count("AWS::Lambda::Function") == 1
    for name in ("First", "Second"):
        [policy] = [one for one in template["Resources"] if one.startswith(f"{name}DeletionPolicy")]
        assert policy in deletion_of(template, name)["DependsOn"]


def test_jobs_that_are_retained_are_stopped_by_nothing_when_their_workflow_is_deleted() -> None:
    types = {one["Type"] for one in RenderedWorkflow(retain_jobs=True).template["Resources"].values()}
    assert not types & {"AWS::Lambda::Function", "Custom::SageMakerTrainingJobs"}
