"""What the account's Step Functions does with state machines, as AWS documents it, over boto3."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.parse import asl_parser
from running_account import Running
from state_machines import AN_ERROR_RATHER_THAN_A_HANG, Machines

from sagemaker_local_account.aws.stepfunctions.sagemaker_tasks import NestedExecution

ENFORCED = False  # test_delivery_permissions.py has the permissions of deliveries
NO_JOB = {"TrainingJobName": "no-such-job"}
DESCRIBE = "arn:aws:states:::aws-sdk:sagemaker:describeTrainingJob"


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running)


def passing(**parameters: Any) -> dict[str, Any]:
    return {"Only": {"Type": "Pass", "Parameters": parameters, "End": True}}


def test_a_hash_is_that_of_the_text(machines: Machines) -> None:
    assert machines.output(passing(**{"it.$": "States.Hash('text', 'MD5')"})) == {
        "it": "1cb251ec0d568de6a929b520c4aed8d1"
    }


def test_a_sum_is_a_number_and_a_format_a_text(machines: Machines) -> None:
    formula = {"sum.$": "States.MathAdd($.one, 2)", "text.$": "States.Format('{}-{}', $.one, 'b')"}
    assert machines.output(passing(**formula), {"one": 1}) == {"sum": 3, "text": "1-b"}


def test_the_context_names_the_execution(machines: Machines) -> None:
    execution = machines.start(passing(**{"id.$": "$$.Execution.Id", "name.$": "$$.Execution.Name"}))
    output = json.loads(machines.ended(execution)["output"])
    assert output == {"id": execution, "name": execution.rpartition(":")[2]}


def test_a_wait_takes_its_seconds_from_the_input(machines: Machines) -> None:
    waiting = {"Only": {"Type": "Wait", "SecondsPath": "$.seconds", "End": True}}
    assert machines.output(waiting, {"seconds": 1}) == {"seconds": 1}


def test_an_error_of_sagemaker_has_the_name_that_it_has_on_aws(machines: Machines) -> None:
    described = machines.ended(
        machines.start({"Only": {"Type": "Task", "Resource": DESCRIBE, "Parameters": NO_JOB, "End": True}})
    )
    assert (described["status"], described["error"]) == ("FAILED", "SageMaker.SageMakerException")


def test_an_error_is_caught_after_its_retries(machines: Machines) -> None:
    output = machines.output(
        {
            "Describe": {
                "Type": "Task",
                "Resource": DESCRIBE,
                "Parameters": NO_JOB,
                "Retry": [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}],
                "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Caught"}],
                "End": True,
            },
            "Caught": {"Type": "Pass", "End": True},
        }
    )
    assert output["error"]["Error"] == "SageMaker.SageMakerException"


def test_a_field_that_sync_is_not_known_to_take_ends_the_execution_uncatchably(machines: Machines) -> None:
    resources = {"VolumeSizeInGB": 1, "InstanceGroups": []}
    described = machines.ended(
        machines.start(
            {
                "Create": {
                    "Type": "Task",
                    "Resource": "arn:aws:states:::sagemaker:createTrainingJob.sync",
                    "Parameters": {"TrainingJobName": "a", "ResourceConfig": resources},
                    "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}],
                    "End": True,
                },
                "Caught": {"Type": "Pass", "End": True},
            }
        )
    )
    assert described["error"] == "States.Runtime"
    assert 'The field "InstanceGroups" is not supported by Step Functions' in described["cause"]


def test_a_state_machine_of_a_tuning_job_is_not_created_and_the_error_names_what_is_not_emulated(
    machines: Machines,
) -> None:
    tune = "arn:aws:states:::sagemaker:createHyperParameterTuningJob.sync"
    with pytest.raises(ClientError) as refused:
        machines.create({"Tune": {"Type": "Task", "Resource": tune, "Parameters": {}, "End": True}})
    assert refused.value.response["Error"]["Code"] == "InvalidDefinition"
    assert f"the local account does not support {tune}; of sagemaker it supports createTrainingJob" in str(
        refused.value
    )


def test_an_execution_over_its_time_times_out(machines: Machines) -> None:
    waiting = {"Only": {"Type": "Wait", "Seconds": 1000, "End": True}}
    assert machines.ended(machines.start(waiting, TimeoutSeconds=1))["status"] == "TIMED_OUT"


def test_an_execution_that_is_stopped_is_aborted_with_error_and_cause(machines: Machines) -> None:
    execution = machines.start({"Only": {"Type": "Wait", "Seconds": 1000, "End": True}})
    machines.client.stop_execution(executionArn=execution, error="Enough", cause="it is late")
    described = machines.ended(execution)
    assert (described["status"], described["error"], described["cause"]) == ("ABORTED", "Enough", "it is late")


def test_a_map_runs_its_states_for_each_item(machines: Machines) -> None:
    mapping = {
        "Each": {
            "Type": "Map",
            "ItemsPath": "$.items",
            "ItemSelector": {"number.$": "$$.Map.Item.Value"},
            "ItemProcessor": {
                "StartAt": "Only",
                "States": passing(**{"twice.$": "States.MathAdd($.number, $.number)"}),
            },
            "End": True,
        }
    }
    assert machines.output(mapping, {"items": [1, 2]}) == [{"twice": 2}, {"twice": 4}]


def test_an_execution_started_as_a_state_gives_its_output(machines: Machines) -> None:
    inner = machines.create(passing(**{"sum.$": "States.MathAdd($.one, 1)"}))
    outer = {
        "Run": {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Parameters": {"StateMachineArn": inner, "Input": {"one": 1}},
            "End": True,
        }
    }
    assert machines.output(outer)["Output"] == {"sum": 2}


@pytest.mark.parametrize("version", ["", ":2"])
def test_an_execution_stopped_before_it_waits_for_the_one_it_started_stops_it(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    start_nested = NestedExecution._eval_service_task

    def start_and_be_stopped(self: NestedExecution, env: Environment, *args: Any, **kwargs: Any) -> None:
        start_nested(self, env, *args, **kwargs)
        execution = env.states.context_object.context_object_data["Execution"]["Id"]
        stop = {"executionArn": execution}  # which waits until the execution has ended
        threading.Thread(target=machines.client.stop_execution, kwargs=stop).start()
        while env.is_running():
            time.sleep(0.01)

    monkeypatch.setattr(NestedExecution, "_eval_service_task", start_and_be_stopped)
    inner = machines.create({"Only": {"Type": "Wait", "Seconds": 3600, "End": True}})
    resource = f"arn:aws:states:::states:startExecution.sync{version}"
    outer = {"Type": "Task", "Resource": resource, "Parameters": {"StateMachineArn": inner}, "End": True}
    assert machines.ended(machines.start({"Run": outer}))["status"] == "ABORTED"
    [started] = machines.client.list_executions(stateMachineArn=inner)["executions"]
    assert machines.ended(started["executionArn"])["status"] == "ABORTED"


def test_a_rule_on_an_executions_end_starts_another_machine_with_its_input(machines: Machines) -> None:
    events = machines.running.client("events")
    watched, started = machines.create(passing()), machines.create(passing(**{"status.$": "$.status"}))
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"stateMachineArn": [watched], "status": ["SUCCEEDED"]},
    }
    events.put_rule(Name="ended", EventPattern=json.dumps(pattern))
    target = {"Id": "1", "Arn": started, "RoleArn": machines.role, "InputPath": "$.detail"}
    events.put_targets(Rule="ended", Targets=[target])
    machines.ended(machines.client.start_execution(stateMachineArn=watched)["executionArn"])
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while not (executions := machines.client.list_executions(stateMachineArn=started)["executions"]):
        assert time.monotonic() < limit, "the rule started nothing"
        time.sleep(0.05)
    assert json.loads(machines.ended(executions[0]["executionArn"])["output"]) == {"status": "SUCCEEDED"}


def reading(parameter: str) -> dict[str, Any]:
    """A state before, and one that succeeds once a parameter is there, and gives how often its execution was redriven."""
    return {
        "Before": {"Type": "Pass", "Parameters": {"before": True}, "Next": "Read"},
        "Read": {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:ssm:getParameter",
            "Parameters": {"Name": parameter},
            "ResultSelector": {"redrives.$": "$$.Execution.RedriveCount"},
            "ResultPath": "$.read",
            "End": True,
        },
    }


def test_an_execution_that_is_redriven_goes_on_from_the_state_that_failed(machines: Machines) -> None:
    execution = machines.start(reading("/redriven"))
    failed = machines.ended(execution)
    assert (failed["status"], failed["redriveCount"], failed["redriveStatus"]) == ("FAILED", 0, "REDRIVABLE")
    machines.running.client("ssm").put_parameter(Name="/redriven", Value="there", Type="String")
    machines.client.redrive_execution(executionArn=execution)
    described = machines.ended(execution)
    assert (described["status"], described["redriveCount"]) == ("SUCCEEDED", 1)
    assert json.loads(described["output"]) == {"before": True, "read": {"redrives": 1}}
    history = machines.client.get_execution_history(executionArn=execution)["events"]
    types = [event["type"] for event in history]
    assert [event["id"] for event in history] == list(range(1, len(history) + 1))
    assert types.count("PassStateEntered") == 1
    assert types[types.index("ExecutionFailed") + 1] == "ExecutionRedriven"


def test_a_fail_state_fails_again_when_its_execution_is_redriven(machines: Machines) -> None:
    execution = machines.start({"Only": {"Type": "Fail", "Error": "Mine", "Cause": "it is so"}})
    machines.ended(execution)
    machines.client.redrive_execution(executionArn=execution)
    described = machines.ended(execution)
    assert (described["status"], described["error"], described["redriveCount"]) == ("FAILED", "Mine", 1)


def test_a_redrive_that_is_sent_twice_happens_once(machines: Machines) -> None:
    execution = machines.start(reading("/never"))
    machines.ended(execution)
    for _ in range(2):
        machines.client.redrive_execution(executionArn=execution, clientToken="mine")
        machines.ended(execution)
    assert machines.ended(execution)["redriveCount"] == 1


def test_an_execution_that_succeeded_cannot_be_redriven(machines: Machines) -> None:
    execution = machines.start(passing())
    assert machines.ended(execution)["redriveStatus"] == "NOT_REDRIVABLE"
    with pytest.raises(ClientError, match="Execution is SUCCEEDED and cannot be redriven") as refused:
        machines.client.redrive_execution(executionArn=execution)
    assert refused.value.response["Error"]["Code"] == "ExecutionNotRedrivable"


def test_definitions_that_are_parsed_at_once_have_query_languages_of_their_own(machines: Machines) -> None:
    one, other = asl_parser.Preprocessor(), asl_parser.Preprocessor()
    one._query_language_per_scope.append(None)
    assert other._query_language_per_scope == []
