"""Topics that receive the events of executions: the rules, the event of a retry, and the permissions for it."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from rendered import lint
from stacks import RenderedWorkflow, UserStack, message_of

from cdk_sagemaker_training import Approval, Budget, DataParallelJob, InstanceGroup, default_retries

BUS = "arn:aws:events:us-east-1:123456789012:event-bus/default"


@cache
def rendered(*, retried: bool = True) -> RenderedWorkflow:
    stack = UserStack()
    more: dict[str, Any] = {"retries": default_retries()} if retried else {}
    if retried:
        more["alternatives"] = [DataParallelJob(InstanceGroup("ml.g5.2xlarge"))]
    return RenderedWorkflow(stack, notify=[sns.Topic(stack, "Topic")], **more)


def patterns(workflow: RenderedWorkflow) -> list[dict[str, Any]]:
    rules = workflow.resources_of("AWS::Events::Rule")
    return [rule["EventPattern"] for rule in rules if any("Topic" in str(one["Arn"]) for one in rule["Targets"])]


def test_each_change_of_an_execution_each_retry_and_an_alarm_of_the_stopper_go_to_the_topic() -> None:
    machine = {"Ref": rendered().logical_id(rendered().definition)}
    resources = rendered().template["Resources"]
    alarms = [name for name, value in resources.items() if value["Type"] == "AWS::CloudWatch::Alarm"]
    assert len(alarms) == 3  # of the stopper, its queue and the guard
    assert patterns(rendered()) == [
        *(
            {
                "source": ["aws.states"],
                "detail-type": ["Step Functions Execution Status Change"],
                "detail": {"stateMachineArn": [machine], "status": status},
            }
            for status in ([{"anything-but": "FAILED"}], ["FAILED"])
        ),
        {"source": ["cdk-sagemaker-training"], "detail-type": ["Training Job Retried"], "resources": [machine]},
        {
            "source": ["aws.cloudwatch"],
            "detail-type": ["CloudWatch Alarm State Change"],
            "resources": [{"Fn::GetAtt": [name, "Arn"]} for name in alarms],
            "detail": {"state": {"value": ["ALARM"]}},
        },
    ]


def test_each_topic_receives_each_event() -> None:
    stack = UserStack()
    topics = [sns.Topic(stack, name) for name in ("First", "Second")]
    workflow = RenderedWorkflow(stack, notify=topics)
    arns = [stack.resolve(topic.topic_arn) for topic in topics]
    targets = [[one["Arn"] for one in rule["Targets"]] for rule in workflow.resources_of("AWS::Events::Rule")]
    # One rule starts the stopper, one the guard.
    assert sorted(targets, key=len)[-3:] == [arns, arns, arns]


def test_a_message_of_an_execution_has_named_fields_and_neither_its_input_nor_its_output() -> None:
    rules = rendered().resources_of("AWS::Events::Rule")
    of_executions = [rule for rule in rules if "anything-but" in str(rule["EventPattern"]) or "FAILED" in str(rule)]
    told = [
        rule["Targets"][0]["InputTransformer"] for rule in of_executions if "InputTransformer" in rule["Targets"][0]
    ]
    always = {"executionArn", "name", "startDate", "stateMachineArn", "status"}
    assert [{*re.findall(r"\$\.detail\.(\w+)", str(it["InputPathsMap"]))} for it in told] == [
        always,
        always | {"cause", "error"},
    ]


def test_the_key_of_a_topic_lets_eventbridge_use_it() -> None:
    stack = UserStack()
    workflow = RenderedWorkflow(stack, notify=[sns.Topic(stack, "Topic", master_key=kms.Key(stack, "Key"))])
    [key] = workflow.resources_of("AWS::KMS::Key")
    assert {
        "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Resource": "*",
    } in key["KeyPolicy"]["Statement"]


def test_a_retry_is_told_before_its_wait_and_not_waited_for() -> None:
    states = rendered().states
    assert states["RetryCapacity"]["Next"] == "TellCapacity"
    tell = states["TellCapacity"]
    assert tell["Resource"] == "arn:aws:states:::events:putEvents"
    assert tell["Next"] == tell["Catch"][0]["Next"] == "WaitAfterCapacity"
    assert tell["Parameters"]["Entries"][0]["Detail"] == {
        "Execution.$": "$$.Execution.Id",
        "JobName.$": "$.Training.JobName",
        "Attempt.$": "$.Training.Attempt",
        "Cause": "capacity",
        "WaitSeconds.$": "$.Training.Retries.Capacity.Wait",
    }


def test_an_alternative_is_told_of_too() -> None:
    assert rendered().states["TellNextJob"]["Next"] == "NextJob"
    assert "TellNextJob" in [rule["Next"] for rule in rendered().states["WhyFailed"]["Choices"]]


def test_the_state_machine_may_put_events_on_the_default_bus_only() -> None:
    [statement] = [
        one for one in rendered().statements("TrainingStateMachineRole") if one["Action"] == "events:PutEvents"
    ]
    assert statement["Resource"] == BUS


def test_a_workflow_without_retries_puts_no_events_of_its_own() -> None:
    plain = rendered(retried=False)
    assert [one["source"] for one in patterns(plain)] == [["aws.states"], ["aws.states"], ["aws.cloudwatch"]]
    assert not any("PutEvents" in str(one["Action"]) for one in plain.statements("TrainingStateMachineRole"))
    assert not any(name.startswith("Tell") for name in plain.states)


def test_the_machines_pass_the_check_of_amazon_states_language() -> None:
    assert lint(rendered().machines) == []


@pytest.mark.parametrize(
    "notify", ["arn:aws:sns:us-east-1:123456789012:mine", ["arn:aws:sns:us-east-1:123456789012:mine"]]
)
def test_what_is_no_list_of_topics_is_refused(notify: Any) -> None:
    said = message_of(lambda: UserStack().workflow(notify=notify))
    assert said.startswith(("notify must be a list", "notify[0] must be a topic, like sns.Topic("))


def test_a_fifo_topic_is_refused_since_messages_to_it_need_a_group() -> None:
    stack = UserStack()
    topics = [
        sns.Topic(stack, "Fifo", fifo=True),
        sns.Topic.from_topic_arn(stack, "Imported", "arn:aws:sns:us-east-1:123456789012:a.fifo"),
    ]
    for topic in topics:
        said = "must be a standard topic, since a message to a FIFO topic needs a group, like sns.Topic(self, 'Topic'), got "
        for prop, make in {
            "notify": lambda topic=topic: stack.workflow(f"Of{topic.node.id}", notify=[topic]),
            "topic": lambda topic=topic: Approval(stack, f"By{topic.node.id}", topic=topic),
        }.items():
            assert message_of(make) == f"{prop} {said}{topic.node.path}, which is FIFO"


def test_a_workflow_that_notifies_nobody_puts_no_events() -> None:
    plain = RenderedWorkflow(retries=default_retries(), budget=Budget(hours=48))
    assert "events:putEvents" not in json.dumps(plain.definition)
    assert "events:PutEvents" not in json.dumps(plain.statements("TrainingStateMachineRole"))
