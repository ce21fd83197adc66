"""The Distributed Map state: its items, its tolerance of failures, and what its end stops."""

from __future__ import annotations

import json
import time
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


def test_a_selector_without_its_path_fails_the_execution_whatever_is_tolerated(machines: Machines) -> None:
    selector = {"ItemSelector": {"number.$": "$.none"}}
    ended = machines.ended(machines.start(mapped(ToleratedFailurePercentage=100, **selector)))
    inline = mapped(**selector)
    inline["Each"]["ItemProcessor"]["ProcessorConfig"] = {"Mode": "INLINE"}
    del inline["Each"]["ItemReader"]
    expected = machines.ended(machines.start(inline, ITEMS))
    assert (ended["status"], ended["error"]) == (expected["status"], expected["error"]) == ("FAILED", "States.Runtime")
    assert "The JSONPath '$.none' could not be found in the input" in ended["cause"]


def items_of(machines: Machines, execution: str) -> list[dict[str, Any]]:
    """The descriptions of what the Map Run of an execution has started."""
    [run] = machines.client.list_map_runs(executionArn=execution)["mapRuns"]
    listed = machines.client.list_executions(mapRunArn=run["mapRunArn"])["executions"]
    return [machines.client.describe_execution(executionArn=one["executionArn"]) for one in listed]


def test_an_item_has_an_execution_with_an_input_an_end_and_a_history_of_its_own(machines: Machines) -> None:
    """ARNs are those of AWS's example of ResultWriter; "ListExecutions", mapRunArn."""
    own = {
        "Own": {"Type": "Pass", "Parameters": {"Id.$": "$$.Execution.Id", "In.$": "$$.Execution.Input"}, "End": True}
    }
    states = {**FAILS_FOR_ODD, "Number": {**FAILS_FOR_ODD["Number"], "Next": "Own"}, **own}
    del states["Number"]["End"]
    execution = machines.start(mapped(states, ToleratedFailureCount=2, Label="Rows"))
    outputs = json.loads(machines.ended(execution)["output"])
    machine = machines.client.describe_execution(executionArn=execution)["stateMachineArn"]
    found = items_of(machines, execution)
    assert sorted(one["status"] for one in found) == ["FAILED", "FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert {one["stateMachineArn"] for one in found} == {f"{machine}/Rows"}
    prefix = f"{machine.replace(':stateMachine:', ':execution:')}/Rows:"
    assert all(one["executionArn"] == f"{prefix}{one['name']}" for one in found)
    assert sorted(one["Id"] for one in outputs) == sorted(
        one["executionArn"] for one in found if one["status"] == "SUCCEEDED"
    )
    for one in found:
        events = machines.client.get_execution_history(executionArn=one["executionArn"])["events"]
        item = json.loads(one["input"])
        assert events[0]["executionStartedEventDetails"]["input"] == one["input"]
        if item["odd"]:
            assert (one["error"], one["cause"], one["redriveStatus"]) == (
                "Odd",
                "the number is odd",
                "REDRIVABLE_BY_MAP_RUN",
            )
            assert [event["type"] for event in events][-1] == "ExecutionFailed"
        else:
            assert json.loads(one["output"])["In"] == item
            assert events[-1]["executionSucceededEventDetails"]["output"] == one["output"]


def test_an_items_execution_can_be_stopped_and_the_others_go_on(machines: Machines) -> None:
    states = {
        "IsOdd": {**FAILS_FOR_ODD["IsOdd"], "Choices": [{"Variable": "$.odd", "BooleanEquals": True, "Next": "Wait"}]},
        "Number": FAILS_FOR_ODD["Number"],
        "Wait": {"Type": "Wait", "Seconds": 3600, "End": True},
    }
    execution = machines.start(mapped(states))

    def waiting() -> list[str]:
        if not machines.client.list_map_runs(executionArn=execution)["mapRuns"]:
            return []
        found = items_of(machines, execution)
        return [one["executionArn"] for one in found if len(found) == 4 and one["status"] == "RUNNING"]

    while len(arns := waiting()) != 2:
        time.sleep(0.05)
    for arn in arns:
        machines.client.stop_execution(executionArn=arn, error="Mine", cause="by hand")
    assert json.loads(machines.ended(execution)["output"]) == [0, 2]
    stopped = [one for one in items_of(machines, execution) if one["status"] == "ABORTED"]
    assert [(one["error"], one["cause"]) for one in stopped] == [("Mine", "by hand")] * 2
    with pytest.raises(machines.client.exceptions.ExecutionNotRedrivable):
        machines.client.redrive_execution(executionArn=arns[0])
    with pytest.raises(machines.client.exceptions.ExecutionDoesNotExist):
        machines.client.describe_execution(executionArn=f"{arns[0]}1")


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
