"""The notice of an execution that waits longer than declared: what starts it, what it looks at, and its size."""

from __future__ import annotations

from functools import cache
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_sns as sns
from rendered import lint
from stacks import RenderedWorkflow, UserStack, message_of

from cdk_sagemaker_training import Cause, Retry, TrainingQueue, default_retries
from cdk_sagemaker_training.features.waiting import LONGEST

EVENTS_OF_AN_EXECUTION = 25_000  # Step Functions, "Quotas related to state machine executions"
HOST_LOST = {**default_retries(), Cause.HOST_LOST: Retry(attempts=2)}


@cache
def rendered(*, queued: bool = False, seconds: int = 1_200) -> RenderedWorkflow:
    stack = UserStack()
    return RenderedWorkflow(
        stack,
        notify=[sns.Topic(stack, "Topic")],
        waiting_longer_than=cdk.Duration.seconds(seconds),
        retries=HOST_LOST,
        **({"queue": TrainingQueue(stack, "Queue", capacity=4)} if queued else {}),
    )


def waiter(workflow: RenderedWorkflow) -> dict[str, Any]:
    [found] = [one for one in workflow.machines.values() if "HasWaited" in one["States"]]
    return found


def rules(workflow: RenderedWorkflow, target: str) -> list[dict[str, Any]]:
    return [one for one in workflow.resources_of("AWS::Events::Rule") if target in str(one["Targets"][0]["Arn"])]


def test_it_begins_with_an_execution_and_with_a_job_that_trained_and_is_run_again() -> None:
    machine = {"Ref": rendered().logical_id(rendered().definition)}
    started, again = (one["EventPattern"] for one in rules(rendered(), "WaitingStateMachine"))
    assert started["detail"] == {"stateMachineArn": [machine], "status": ["RUNNING"]}
    assert (again["detail-type"], again["resources"]) == (["Training Job Retried"], [machine])
    assert "host lost" in again["detail"]["Cause"]
    assert not {"capacity", "quota", "throttled"} & set(again["detail"]["Cause"])


def test_its_event_goes_to_the_topic() -> None:
    waiting = {"Ref": rendered().logical_id(waiter(rendered()))}
    assert {
        "source": ["cdk-sagemaker-training"],
        "detail-type": ["Training Job Waiting"],
        "resources": [waiting],
    } in [one["EventPattern"] for one in rules(rendered(), "Topic")]
    [entry] = waiter(rendered())["States"]["Tell"]["Parameters"]["Entries"]
    assert entry["Detail"] == {"Execution.$": "$.Execution", "WaitedSeconds": 1_200}


def test_it_looks_for_the_newest_job_of_the_execution_and_whether_that_has_trained() -> None:
    states = waiter(rendered())["States"]
    assert states["List"]["Parameters"] == {
        "NameContains.$": "States.Hash($.Execution, 'MD5')",
        "SortBy": "CreationTime",
        "SortOrder": "Descending",
        "MaxResults": 1,
    }
    [trained] = states["HasTrained"]["Choices"]
    assert trained == {"Variable": "$.Described.TrainingStartTime", "IsPresent": True, "Next": "Done"}


def test_in_a_queue_it_looks_whether_the_newest_service_job_has_started() -> None:
    states = waiter(rendered(queued=True))["States"]
    assert states["List"]["Resource"].endswith(":aws-sdk:batch:listServiceJobs")
    [trained] = states["HasTrained"]["Choices"]
    assert trained == {"Variable": "$.Found.List[0].StartedAt", "IsPresent": True, "Next": "Done"}
    assert "Describe" not in states


def test_it_passes_the_check_of_amazon_states_language() -> None:
    assert lint({name: waiter(rendered(queued=name == "queued")) for name in ("queued", "not queued")}) == []


@pytest.mark.parametrize("seconds", [1, 299, 301, 3_600, 180_000, 28 * 86_400, LONGEST])
def test_the_looks_take_the_declared_time_and_fit_into_an_executions_history(seconds: int) -> None:
    states = waiter(rendered(seconds=seconds))["States"]
    [enough] = states["HasWaited"]["Choices"]
    looks = enough["NumericGreaterThanEquals"]
    assert seconds <= states["Wait"]["Seconds"] * looks < seconds + looks
    # A Task has five events (scheduled and started among them), other states have two.
    each = sum(5 if state["Type"] == "Task" else 2 for name, state in states.items() if name not in ("First", "Tell"))
    assert each * looks < EVENTS_OF_AN_EXECUTION * 0.7  # the rest is for calls that are repeated


def test_a_workflow_without_it_has_no_such_machine() -> None:
    stack = UserStack()
    plain = RenderedWorkflow(stack, notify=[sns.Topic(stack, "Topic")], retries=HOST_LOST)
    assert not [one for one in plain.machines.values() if "HasWaited" in one["States"]]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "waiting_longer_than must be a Duration or whole seconds, at least 1, like "),
        (
            LONGEST + 1,
            "waiting_longer_than must be at most a year, as long as an execution runs, like Duration.hours(2)",
        ),
        (cdk.Token.as_number({"Ref": "Parameter"}), "waiting_longer_than must be known when the app is synthesized, "),
    ],
    ids=["none", "more than a year", "a token"],  # a token has another number in each process
)
def test_a_time_that_nothing_can_wait_for_is_refused(value: Any, said: str) -> None:
    stack = UserStack()
    topic = sns.Topic(stack, "Topic")
    assert message_of(lambda: stack.workflow(notify=[topic], waiting_longer_than=value)).startswith(said)


def test_it_needs_a_topic() -> None:
    said = message_of(lambda: UserStack().workflow(waiting_longer_than=3_600))
    assert said == "notify must have a topic with waiting_longer_than, like notify=[topic], got []"
