"""The Distributed Map state: its items, its tolerance of failures, and what its end stops."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running_account import Running
from state_machines import Machines

FAILS_FOR_ODD = {
    "IsOdd": {
        "Type": "Choice",
        "Choices": [{"Variable": "$.odd", "BooleanEquals": True, "Next": "Fails"}],
        "Default": "Number",
    },
    "Number": {"Type": "Pass", "InputPath": "$.number", "End": True},
    "Fails": {"Type": "Fail", "Error": "Odd", "Cause": "the number is odd"},
}
ITEMS = [{"number": number, "odd": number % 2 == 1} for number in range(4)]


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    machines = Machines(running, "map")
    s3 = running.client("s3")
    s3.create_bucket(Bucket="items-of-maps")
    s3.put_object(Bucket="items-of-maps", Key="items.json", Body=json.dumps(ITEMS).encode())
    return machines


def mapped(states: dict[str, Any] | None = None, key: str = "items.json", **fields: Any) -> dict[str, Any]:
    """A Map state over the items of an object in S3, whose error is the output."""
    states = FAILS_FOR_ODD if states is None else states
    return {
        "Each": {
            "Type": "Map",
            "ItemReader": {
                "Resource": "arn:aws:states:::s3:getObject",
                "ReaderConfig": {"InputType": "JSON"},
                "Parameters": {"Bucket": "items-of-maps", "Key": key},
            },
            "ItemProcessor": {
                "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
                "StartAt": next(iter(states)),
                "States": states,
            },
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}],
            "End": True,
            **fields,
        },
        "Caught": {"Type": "Pass", "InputPath": "$.Error", "End": True},
    }


def test_the_outputs_of_items_that_succeed_are_in_their_order(machines: Machines) -> None:
    assert machines.output(mapped(ToleratedFailureCount=2)) == [0, 2]


def test_a_percentage_of_the_items_may_fail(machines: Machines) -> None:
    assert machines.output(mapped(ToleratedFailurePercentage=50)) == [0, 2]


@pytest.mark.parametrize(
    "tolerance",
    [
        {},
        {"ToleratedFailureCount": 1},
        {"ToleratedFailurePercentage": 49},
        {"ToleratedFailureCount": 1, "ToleratedFailurePercentage": 100},
        {"ToleratedFailureCount": 4, "ToleratedFailurePercentage": 49},
    ],
    ids=["none", "one failure", "less than half", "one failure beside all", "less than half beside four"],
)
def test_more_failures_than_are_tolerated_fail_the_state(machines: Machines, tolerance: dict[str, Any]) -> None:
    assert machines.output(mapped(**tolerance)) == "States.ExceedToleratedFailureThreshold"


def test_failures_that_are_not_tolerated_stop_the_executions_that_other_items_wait_for(machines: Machines) -> None:
    waiting = machines.create({"Only": {"Type": "Wait", "Seconds": 3600, "End": True}})
    states = {
        **FAILS_FOR_ODD,
        "Number": {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Parameters": {"StateMachineArn": waiting},
            "End": True,
        },
        # Fails once the others wait.
        "Fails": {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:sfn:listExecutions",
            "Parameters": {"StateMachineArn": waiting},
            "Next": "Wait",
        },
        "Wait": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Executions[1]", "IsPresent": True, "Next": "Failed"}],
            "Default": "Again",
        },
        "Again": {"Type": "Wait", "Seconds": 0, "Next": "Fails"},
        "Failed": {"Type": "Fail"},
    }
    assert machines.output(mapped(states)) == "States.ExceedToleratedFailureThreshold"
    started = machines.client.list_executions(stateMachineArn=waiting)["executions"]
    assert [machines.ended(one["executionArn"])["status"] for one in started] == ["ABORTED", "ABORTED"]


def test_an_execution_that_is_stopped_stops_those_that_its_items_wait_for(machines: Machines) -> None:
    waiting = machines.create({"Only": {"Type": "Wait", "Seconds": 3600, "End": True}})
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Parameters": {"StateMachineArn": waiting},
        "End": True,
    }
    execution = machines.start(mapped({"Run": task}))
    started = machines.started(waiting, 4)
    machines.client.stop_execution(executionArn=execution)
    assert machines.ended(execution)["status"] == "ABORTED"
    assert {machines.ended(one)["status"] for one in started} == {"ABORTED"}


def test_no_more_items_run_at_once_than_max_concurrency(machines: Machines) -> None:
    # With one at a time, the first failure is before the third item.
    counting = machines.create({"Only": {"Type": "Pass", "End": True}})
    states = {
        **FAILS_FOR_ODD,
        "Number": {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Parameters": {"StateMachineArn": counting},
            "End": True,
        },
    }
    assert machines.output(mapped(states, MaxConcurrency=1)) == "States.ExceedToleratedFailureThreshold"
    assert len(machines.client.list_executions(stateMachineArn=counting)["executions"]) == 1


def test_items_that_cannot_be_read_are_named(machines: Machines) -> None:
    assert machines.output(mapped(key="missing.json")) == "States.ItemReaderFailed"


def test_a_result_writer_is_refused(machines: Machines) -> None:
    writer = {
        "Resource": "arn:aws:states:::s3:putObject",
        "Parameters": {"Bucket": "items-of-maps", "Prefix": "results"},
    }
    described = machines.ended(machines.start(mapped(ToleratedFailureCount=2, ResultWriter=writer)))
    assert (described["status"], described["error"]) == ("FAILED", "States.Runtime")
    assert "does not support ResultWriter" in described["cause"]
