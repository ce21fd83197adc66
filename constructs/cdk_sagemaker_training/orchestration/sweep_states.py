"""The state machine of a TrainingSweep, as one literal in the Amazon States Language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cdk_sagemaker_training.lifecycle.states import (
    FOR_HALF_AN_HOUR,
    OF_STEP_FUNCTIONS,
    STARTED_BY,
    catch,
    retry,
    sdk_task,
)
from cdk_sagemaker_training.props.jsonpath import quoted

# Of Lambda, as CDK's LambdaInvoke retries them, and where it has too many invocations (Step Functions guide, "Handle transient
# Lambda service exceptions"); of S3 as those of the check for a model; of Step Functions' own integration as of
# Batch's (ASFHyP3/hyp3 912), of which a repeated call with the name of an execution starts no other (API, StartExecution).
_OF_LAMBDA = (
    "Lambda.TooManyRequestsException",
    "Lambda.ClientExecutionTimeoutException",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
)
# Of a row's execution: another one where a sweep that was stopped is redriven, and its rows with it ("Redriving Map Runs").
_NAME = "States.Format('{}-{}', $.Key, States.Hash(States.Format('{}-{}', $$.Execution.Id, $$.Execution.RedriveCount), 'MD5'))"
_OF_S3 = ("S3.S3Exception", "S3.SdkClientException")


@dataclass(frozen=True)
class SweepStates:
    """What the states of a sweep refer to.

    Attributes:
        partition: Partition of ARNs.
        function: ARN of the function that reads the rows and writes the table.
        payload: What the function needs besides the operation.
        workflow: ARN of the workflow's state machine.
        executions: How the ARNs of its executions begin.
        fields: Names of the workflow's input fields.
        bucket: The name of the bucket with the results.
        prefix: How the keys of the results begin.
        concurrency: How many rows run at once.
        tolerance: The fields of the Map state that tolerate failures.
    """

    partition: str
    function: str
    payload: Mapping[str, Any]
    workflow: str
    executions: str
    fields: Iterable[str]
    bucket: str
    prefix: str
    concurrency: int
    tolerance: Mapping[str, float]

    def definition(self) -> dict[str, Any]:
        """Return the definition.

        Each row is a child execution of the Distributed Map, with a history of its own. It writes its result itself, by the row's
        key, so that a second execution finds it; ResultWriter's files would be by execution. Its output is empty, since those of
        all rows together may have 256 KB.
        """
        return {
            "Comment": "Runs a training workflow for each row of a sweep",
            "StartAt": "Plan",
            "States": {
                "Plan": self._call("plan", "$.Plan", "AnyLeft"),
                "AnyLeft": {
                    "Type": "Choice",
                    "Choices": [{"Variable": "$.Plan.Payload.Left", "NumericEquals": 0, "Next": "Table"}],
                    "Default": "Rows",
                },
                "Rows": {
                    "Type": "Map",
                    "Label": "Rows",
                    "ItemReader": {
                        "Resource": f"arn:{self.partition}:states:::s3:getObject",
                        "ReaderConfig": {"InputType": "JSON"},
                        "Parameters": {"Bucket": self.bucket, "Key.$": "$.Plan.Payload.Key"},
                    },
                    # A row's execution names the sweep's, as that of the workflow names the row's.
                    "ItemSelector": {
                        **{f"{member}.$": f"$$.Map.Item.Value.{member}" for member in ("Key", "Row")},
                        f"{STARTED_BY}.$": "$$.Execution.Id",
                    },
                    "MaxConcurrency": self.concurrency,
                    **self.tolerance,
                    "ItemProcessor": {
                        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
                        "StartAt": "Train",
                        "States": self._row(),
                    },
                    "ResultPath": "$.Outputs",
                    # No row has begun where they could not be read.
                    "Retry": [retry(5, "States.ItemReaderFailed")],
                    "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Error", "Next": "Table"}],
                    "Next": "Table",
                },
                "Table": self._call("table", "$.Table", "HasFailed"),
                "HasFailed": {
                    "Type": "Choice",
                    "Choices": [{"Variable": "$.Error", "IsPresent": True, "Next": "Failed"}],
                    "Default": "Done",
                },
                "Done": {"Type": "Pass", "InputPath": "$.Table.Payload", "End": True},
                "Failed": {
                    "Type": "Fail",
                    "Error": "TrainingSweepFailed",
                    "CausePath": (
                        "States.Format('{}: {}; of {} rows {} completed and {} failed; the table is {}', "
                        "$.Error.Error, $.Error.Cause, $.Table.Payload.Rows, $.Table.Payload.Completed, "
                        "$.Table.Payload.Failed, $.Table.Payload.Table)"
                    ),
                },
            },
        }

    def _call(self, operation: str, result: str, following: str) -> dict[str, Any]:
        return {
            "Type": "Task",
            "Resource": f"arn:{self.partition}:states:::lambda:invoke",
            "Parameters": {
                "FunctionName": self.function,
                "Payload": {"Operation": operation, "Execution.$": "$$.Execution.Name", **self.payload},
            },
            "ResultSelector": {"Payload.$": "$.Payload"},
            "ResultPath": result,
            "Retry": [retry(5, *_OF_LAMBDA)],
            "Next": following,
        }

    def _row(self) -> dict[str, Any]:
        fields = {f"{name}.$": f"$.Row.{name}" for name in self.fields}
        failed = catch("WriteFailure", "$.Failure")
        not_written = catch("RowFailed", "$.NotWritten")
        return {
            "Train": {
                "Type": "Task",
                "Resource": f"arn:{self.partition}:states:::states:startExecution.sync:2",
                "Parameters": {
                    "StateMachineArn": self.workflow,
                    "Name.$": _NAME,
                    "Input": {**fields, f"{STARTED_BY}.$": "$$.Execution.Id"},
                },
                "ResultSelector": {"ExecutionArn.$": "$.ExecutionArn", "Job.$": "$.Output"},
                "ResultPath": "$.Result",
                # A start whose answer was lost is made again, and waits for the execution of the first.
                "Retry": [retry(FOR_HALF_AN_HOUR, *OF_STEP_FUNCTIONS, "StepFunctions.SdkClientException")],
                "Catch": [
                    {**catch("Find", "$.Started"), "ErrorEquals": ["StepFunctions.ExecutionAlreadyExistsException"]},
                    failed,
                ],
                "Next": "WriteResult",
            },
            # It has ended before it was started again.
            "Find": {
                **sdk_task(
                    self.partition,
                    "sfn:describeExecution",
                    {"ExecutionArn.$": f"States.Format('{self.executions}{{}}', {_NAME})"},
                    "$.Found",
                    retry(FOR_HALF_AN_HOUR, "Sfn.SfnException", "Sfn.SdkClientException"),
                    "HasSucceeded",
                    failed,
                ),
                "ResultSelector": {"Status.$": "$.Status", "Execution.$": "$"},
            },
            "HasSucceeded": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.Found.Status", "StringEquals": "SUCCEEDED", "Next": "Found"}],
                "Default": "HasFailed",
            },
            "Found": {
                "Type": "Pass",
                "Parameters": {"Job.$": "States.StringToJson($.Found.Execution.Output)"},
                "ResultPath": "$.Result",
                "Next": "WriteResult",
            },
            "HasFailed": {
                "Type": "Pass",
                "Parameters": {
                    "Error": "TrainingWorkflowFailed",
                    "Cause.$": "States.JsonToString($.Found.Execution)",
                },
                "ResultPath": "$.Failure",
                "Next": "WriteFailure",
            },
            "WriteResult": {**self._write("completed", {"Row.$": "$.Row", "Job.$": "$.Result.Job"}), "End": True},
            "WriteFailure": {
                **self._write("failed", {"Row.$": "$.Row", "Failure.$": "$.Failure"}),
                "ResultPath": "$.Written",
                "Catch": [not_written],
                "Next": "RowFailed",
            },
            "RowFailed": {"Type": "Fail", "Error": "TrainingSweepRowFailed", "CausePath": "$.Failure.Cause"},
        }

    def _write(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        folder = quoted(f"{self.prefix}rows/")
        return {
            "Type": "Task",
            "Resource": f"arn:{self.partition}:states:::aws-sdk:s3:putObject",
            "Parameters": {
                "Bucket": self.bucket,
                "Key.$": f"States.Format('{{}}{{}}/{name}.json', {folder}, $.Key)",
                "Body": body,
                "ContentType": "application/json",
            },
            "ResultSelector": {},
            "Retry": [retry(FOR_HALF_AN_HOUR, *_OF_S3)],
        }
