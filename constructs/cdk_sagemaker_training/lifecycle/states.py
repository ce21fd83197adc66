"""Parts of states in the Amazon States Language: names of jobs, retriers, events, and transitions that lead elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A workflow keeps its execution data beside the execution's input, so that props can refer to the input as `$.something`.
DATA = "$.Training"
# Of the events that state machines put; those of executions are Step Functions' own ("Automating Step Functions event delivery").
SOURCE, RETRIED = "cdk-sagemaker-training", "Training Job Retried"

OF_SAGEMAKER = (
    "SageMaker.AmazonSageMakerException",
    "SageMaker.SageMakerException",
    "SageMaker.SdkClientException",
)
# Of StartExecution by the optimized integration: throttling and errors of the service.
OF_STEP_FUNCTIONS = ("StepFunctions.AWSStepFunctionsException",)
# The member of an execution's input by which the console shows which execution started it ("Start workflow executions from a Task
# state"), and the guard knows it.
STARTED_BY = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"
# Tries of `retry`, for calls that would lose what a job trains, or has trained: its waits are half a minute on average.
FOR_HALF_AN_HOUR = 60
# Beside ClientException, for requests that are wrong (service model of Batch).
OF_BATCH = ("Batch.BatchException", "Batch.ServerException", "Batch.SdkClientException")

# Messages of calls about a job that is not there. The service's model has ResourceNotFound; the actual error is a
# ValidationException (aws/aws-sdk 165, awslabs/benchmark-ai 928; both texts in DIAGNijmegen/grand-challenge,
# amazon_sagemaker_base.py), which the SDK integration reports as SageMaker.SageMakerException, like throttling. So the message
# distinguishes them.
_MISSING = ("*Requested resource not found*", "*Could not find job to update with name*")


def no_such_job(error: str) -> dict[str, Any]:
    """Return the condition that a call failed since its job does not exist."""
    return {
        "Or": [
            {"Variable": f"{error}.Error", "StringEquals": "SageMaker.ResourceNotFoundException"},
            *({"Variable": f"{error}.Cause", "StringMatches": text} for text in _MISSING),
        ]
    }


def forbidden(error: str) -> dict[str, Any]:
    """Return the condition that a call failed since the role lacks its permission: repeating it says no more."""
    return {"Variable": f"{error}.Cause", "StringMatches": "*is not authorized to perform*"}


def retry(times: int, *errors: str) -> dict[str, Any]:
    """Return a retrier for throttling and errors of a service."""
    return {
        "ErrorEquals": list(errors or OF_SAGEMAKER),
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": times,
        "MaxDelaySeconds": 60,
        "JitterStrategy": "FULL",
    }


def sdk_task(
    partition: str,
    operation: str,
    parameters: Mapping[str, Any],
    result_path: str,
    retrier: Mapping[str, Any],
    following: str,
    catcher: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a state that calls an API by Step Functions' integration of AWS's SDK."""
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::aws-sdk:{operation}",
        "Parameters": parameters,
        "ResultPath": result_path,
        "Retry": [retrier],
        **({} if catcher is None else {"Catch": [catcher]}),
        "Next": following,
    }


def catch(next_state: str, result_path: str = f"{DATA}.Error") -> dict[str, Any]:
    """Return a catcher of any error."""
    return {"ErrorEquals": ["States.ALL"], "ResultPath": result_path, "Next": next_state}


def status_is(status: str) -> dict[str, Any]:
    """Return the condition that the described job has a status."""
    return {"Variable": f"{DATA}.Job.TrainingJobStatus", "StringEquals": status}


def fail(error: str, text: str, *paths: str) -> dict[str, Any]:
    """Return a Fail state."""
    members = ", ".join(f"{DATA}.{path}" for path in ("JobName", *paths))
    return {"Type": "Fail", "Error": error, "CausePath": f"States.Format('{text}', {members})"}


def job_name(prefix: str, attempt: str, suffix: str = "", execution: str = "$$.Execution.Id") -> str:
    """Return the intrinsic function that computes a job's name from its execution, before the job is created.

    So a call that is repeated because its response was lost refers to the same job. A redrive does not start another job either:
    an execution whose job failed ends in a Fail state, which "fails again" (Step Functions guide, "Restarting state machine
    executions with redrive"), and one whose job was stopped describes the stopped job.
    """
    return f"States.Format('{prefix}-{{}}-{suffix[:1]}{{}}', {execution_hash(execution)}, {attempt})"


def create_name(number: int) -> str:
    """Return the name of the state that creates a job."""
    return "Create" if not number else f"CreateAlternative{number}"


def execution_hash(execution_arn: str) -> str:
    """Return the intrinsic function of the part that is common to the names of an execution's jobs, and unique to it."""
    return f"States.Hash({execution_arn}, 'MD5')"


def put_event(
    partition: str, detail_type: str, detail: Mapping[str, Any], following: str, result: str, not_put: str
) -> dict[str, Any]:
    """Return the state that puts an event; a failure to do so delays nothing."""
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::events:putEvents",
        "Parameters": {"Entries": [{"Source": SOURCE, "DetailType": detail_type, "Detail": dict(detail)}]},
        "ResultPath": result,
        "Retry": [retry(2, "States.TaskFailed")],
        "Catch": [catch(following, not_put)],
        "Next": following,
    }


def redirected(value: Any, to: Mapping[str, str]) -> Any:
    """Return states, or rules of a Choice, whose transitions lead to other states."""
    if isinstance(value, list):
        return [redirected(item, to) for item in value]
    if not isinstance(value, dict):
        return value
    moved = {key: item if key == "Parameters" else redirected(item, to) for key, item in value.items()}
    return moved | {key: to[moved[key]] for key in ("Next", "Default") if moved.get(key) in to}


def states_of_job(suffix: str, states: Mapping[str, Any]) -> dict[str, Any]:
    """Return states with the suffix of a job before their names; transitions to other states are unchanged."""
    names = {name: state_of_job(suffix, name) for name in states}
    return {names[name]: redirected(state, names) for name, state in states.items()}


def state_of_job(suffix: str, name: str) -> str:
    """Return a state's name with the suffix of a job before it, like `CompileCreate` for `compile`."""
    return f"{suffix.capitalize()}{name}"
