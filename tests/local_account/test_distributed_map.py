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


WRITER = {"Resource": "arn:aws:states:::s3:putObject", "Parameters": {"Bucket": "items-of-maps", "Prefix": "results"}}


def written(machines: Machines, output: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A manifest, and the files that it names by the first part of their names."""
    s3 = machines.running.client("s3")

    def body(key: str) -> str:
        return str(s3.get_object(Bucket="items-of-maps", Key=key)["Body"].read().decode())

    details = output["ResultWriterDetails"]
    assert details == {
        "Bucket": "items-of-maps",
        "Key": f"results/{output['MapRunArn'].rpartition(':')[2]}/manifest.json",
    }
    manifest = json.loads(body(details["Key"]))
    files = {kind: body(found[0]["Key"]) for kind, found in manifest["ResultFiles"].items() if found}
    assert {kind: found[0]["Size"] for kind, found in manifest["ResultFiles"].items() if found} == {
        kind: len(text) for kind, text in files.items()
    }
    return manifest, files


def test_a_result_writer_writes_the_results_and_a_manifest_of_them(machines: Machines) -> None:
    """ "ResultWriter (Map)"; sigpwned.com/2023/04/27/aws-step-functions-distributed-map-resultwriter-example has the files."""
    output = machines.output(mapped(ToleratedFailureCount=2, ResultWriter=WRITER, Label="Each"))
    manifest, files = written(machines, output)
    assert manifest["DestinationBucket"] == "items-of-maps"
    assert manifest["MapRunArn"] == output["MapRunArn"]
    assert set(files) == {"SUCCEEDED", "FAILED"}
    succeeded, failed = json.loads(files["SUCCEEDED"]), json.loads(files["FAILED"])
    assert [json.loads(one["Output"]) for one in succeeded] == [0, 2]
    assert [json.loads(one["Input"])["number"] for one in failed] == [1, 3]
    assert {(one["Status"], one["Error"], one["Cause"]) for one in failed} == {("FAILED", "Odd", "the number is odd")}
    assert set(succeeded[0]) == {
        *("ExecutionArn", "Input", "InputDetails", "Name", "Output", "OutputDetails", "RedriveCount"),
        *("RedriveStatus", "RedriveStatusReason", "StartDate", "StateMachineArn", "Status", "StopDate"),
    }
    assert succeeded[0]["InputDetails"] == {"Included": True}
    assert succeeded[0]["StateMachineArn"].endswith("/Each")


LISTS = {
    "List": {
        "Type": "Pass",
        "Parameters": {"list.$": "States.Array($.number, $.number)"},
        "OutputPath": "$.list",
        "End": True,
    }
}


@pytest.mark.parametrize(
    ("config", "name", "results"),
    [
        ({"Transformation": "COMPACT", "OutputType": "JSON"}, "json", [[0, 0], [1, 1], [2, 2], [3, 3]]),
        ({"Transformation": "FLATTEN", "OutputType": "JSON"}, "json", [0, 0, 1, 1, 2, 2, 3, 3]),
        ({"Transformation": "FLATTEN", "OutputType": "JSONL"}, "jsonl", [0, 0, 1, 1, 2, 2, 3, 3]),
    ],
)
def test_a_writer_config_gives_the_results_their_form(
    machines: Machines, config: dict[str, str], name: str, results: list[Any]
) -> None:
    output = machines.output(mapped(LISTS, ResultWriter={**WRITER, "WriterConfig": config}))
    manifest, files = written(machines, output)
    assert manifest["ResultFiles"]["SUCCEEDED"][0]["Key"].endswith(f"SUCCEEDED_0.{name}")
    text = files["SUCCEEDED"]
    assert (json.loads(text) if name == "json" else [json.loads(line) for line in text.split("\n")]) == results
    assert machines.output(mapped(LISTS, ResultWriter={"WriterConfig": config})) == results


def test_a_bucket_that_cannot_be_written_to_fails_the_state(machines: Machines) -> None:
    writer = {**WRITER, "Parameters": {"Bucket": "there-is-no-such-bucket", "Prefix": ""}}
    assert machines.output(mapped(ToleratedFailureCount=2, ResultWriter=writer)) == "States.ResultWriterFailed"


WHOLE = {"Whole": {"Type": "Pass", "End": True}}


def test_items_in_batches_have_one_execution_for_each_batch(machines: Machines) -> None:
    """ "ItemBatcher (Map)": the input of a batch is what BatchInput has, and its items."""
    batcher = {"MaxItemsPerBatch": 3, "BatchInput": {"said": "it", "from.$": "$.name"}}
    selector = {"number.$": "$$.Map.Item.Value.number", "at.$": "$$.Map.Item.Index"}
    states = mapped(WHOLE, ItemBatcher=batcher, ItemSelector=selector)
    described = machines.ended(machines.start(states, {"name": "the input"}))
    common = {"BatchInput": {"said": "it", "from": "the input"}}
    assert json.loads(described["output"]) == [
        {**common, "Items": [{"number": number, "at": number} for number in range(3)]},
        {**common, "Items": [{"number": 3, "at": 3}]},
    ]
    [run] = machines.client.list_map_runs(executionArn=described["executionArn"])["mapRuns"]
    counts = machines.client.describe_map_run(mapRunArn=run["mapRunArn"])
    assert [counts[name]["total"] for name in ("itemCounts", "executionCounts")] == [4, 2]
    assert [counts[name]["succeeded"] for name in ("itemCounts", "executionCounts")] == [4, 2]


def test_batches_are_as_large_as_their_bytes_and_numbers_of_the_input_allow(machines: Machines) -> None:
    items = ["x" * 10] * 7
    states = mapped(
        WHOLE, ItemBatcher={"MaxInputBytesPerBatch": 50, "MaxItemsPerBatchPath": "$.most"}, ItemsPath="$.items"
    )
    del states["Each"]["ItemReader"]
    # Three of them are {"Items":["xxxxxxxxxx","xxxxxxxxxx","xxxxxxxxxx"]}, of 50 bytes.
    sizes = [[3, 3, 1], [2, 2, 2, 1]]
    for most, expected in zip((5, 2), sizes, strict=True):
        found = machines.output(states, {"items": items, "most": most})
        assert [len(batch["Items"]) for batch in found] == expected
        assert all(len(json.dumps(batch, separators=(",", ":"))) <= 50 for batch in found)


def test_batches_in_jsonata(machines: Machines) -> None:
    batcher = {"MaxItemsPerBatch": "{% $states.input.most %}", "BatchInput": {"from": "{% $states.input.name %}"}}
    each = mapped(WHOLE)["Each"]
    state = {name: it for name, it in each.items() if name not in ("ItemReader", "Catch")}
    states = {
        "Each": {**state, "QueryLanguage": "JSONata", "Items": "{% $states.input.items %}", "ItemBatcher": batcher}
    }
    assert machines.output(states, {"items": [1, 2, 3], "most": 2, "name": "it"}) == [
        {"BatchInput": {"from": "it"}, "Items": [1, 2]},
        {"BatchInput": {"from": "it"}, "Items": [3]},
    ]


def test_the_items_of_a_batch_that_fails_have_failed(machines: Machines) -> None:
    fails = {"Fails": {"Type": "Fail", "Error": "Odd"}}
    batcher = {"ItemBatcher": {"MaxItemsPerBatch": 2}, "MaxConcurrency": 1}
    assert machines.output(mapped(fails, **batcher, ToleratedFailureCount=4)) == []
    assert (
        machines.output(mapped(fails, **batcher, ToleratedFailureCount=3)) == "States.ExceedToleratedFailureThreshold"
    )
    assert machines.output(mapped(fails, **batcher, ToleratedFailurePercentage=99)) == (
        "States.ExceedToleratedFailureThreshold"
    )


@pytest.mark.parametrize(
    ("batcher", "why"),
    [
        ({"BatchInput": {}}, "At least one of MaxItemsPerBatch and MaxInputBytesPerBatch must be specified"),
        ({"MaxItemsPerBatch": 2, "MaxItems": 3}, "Field 'MaxItems' is not supported"),
        ([], "ItemBatcher must be an object"),
    ],
)
def test_an_item_batcher_that_is_none_is_refused(machines: Machines, batcher: Any, why: str) -> None:
    with pytest.raises(machines.client.exceptions.InvalidDefinition, match=why):
        machines.create(mapped(WHOLE, ItemBatcher=batcher))


def express(states: dict[str, Any], **fields: Any) -> dict[str, Any]:
    found = mapped(states, **fields)
    found["Each"]["ItemProcessor"]["ProcessorConfig"]["ExecutionType"] = "EXPRESS"
    return found


def test_items_may_be_express_executions_which_end_after_five_minutes(machines: Machines) -> None:
    assert machines.output(express(FAILS_FOR_ODD, ToleratedFailureCount=2)) == [0, 2]
    waits = {"Waits": {"Type": "Wait", "Seconds": 600, "End": True}}
    execution = machines.start(express(waits, ToleratedFailureCount=3))
    clock = machines.running.account.clock
    while not machines.client.list_map_runs(executionArn=execution)["mapRuns"]:
        time.sleep(0.05)
    [run] = machines.client.list_map_runs(executionArn=execution)["mapRuns"]
    while machines.client.describe_map_run(mapRunArn=run["mapRunArn"])["itemCounts"]["running"] < len(ITEMS):
        time.sleep(0.05)
    time.sleep(0.2)  # until their waits are known, of which the account has no event
    clock.advance(301)
    assert json.loads(machines.ended(execution)["output"]) == "States.ExceedToleratedFailureThreshold"


def test_an_express_item_cannot_wait_for_a_job_or_a_token(machines: Machines) -> None:
    task = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution.sync:2", "Parameters": {}, "End": True}
    with pytest.raises(machines.client.exceptions.InvalidDefinition, match="Express state machine does not support"):
        machines.create(
            express({"Task": {**task, "Parameters": {"StateMachineArn": "arn:aws:states:::stateMachine:m"}}})
        )


def test_an_empty_reader_config_is_none(machines: Machines) -> None:
    """aws-samples/step-functions-workflows-collection, sfn-rekognition-video-catalog-workflow."""
    listed = mapped(WHOLE)
    listed["Each"]["ItemReader"] = {
        "Resource": "arn:aws:states:::s3:listObjectsV2",
        "ReaderConfig": {},
        "Parameters": {"Bucket": "items-of-maps", "Prefix": "items"},
    }
    assert [it["Key"] for it in machines.output(listed)] == ["items.json"]
