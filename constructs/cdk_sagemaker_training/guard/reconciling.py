"""The state machine that stops training jobs which run although their executions have ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdk_sagemaker_training.lifecycle.states import OF_BATCH, OF_SAGEMAKER, STARTED_BY, catch, retry, sdk_task
from cdk_sagemaker_training.request.access import EXECUTION_TAG

_PAGE = 100  # MaxResults of ListTrainingJobs and of ListServiceJobs
_AT_ONCE = 40  # the most of a Map state that is not distributed ("Using Map state in Inline mode")
# In which the stopper, where the event did arrive, has stopped the job.
_SECONDS_FOR_THE_STOPPER = 60
_OF_EXECUTIONS = ("Sfn.SfnException", "Sfn.SdkClientException")
_EXECUTION, _PARENT = "$.Of.Execution", f"$.Whole.Input.{STARTED_BY}"
_MOST_PARENTS = 5  # of which one started the other
# Of an execution that was redriven or can be (service model, ExecutionStatus).
_GOES_ON = ("RUNNING", "PENDING_REDRIVE")
# Of a service job that has not ended (service model of Batch, ServiceJobStatus).
_UNFINISHED = ("SUBMITTED", "PENDING", "RUNNABLE", "SCHEDULED", "STARTING", "RUNNING")


@dataclass(frozen=True)
class _Service:
    """A service that lists, describes and stops jobs.

    Attributes:
        suffix: Of the names of the states of an item.
        list: The operation that lists jobs.
        asked: Its request for an item.
        jobs: The member of its answer.
        selected: What of the item the states of a job need.
        about: The item in errors, as the arguments of `States.Format`.
        tagged: The states that put a job's tags at `$.Tagged` and go on with `IsTagged`, with the first state of a job.
        execution: JSONPath of the execution that the job's tag names.
        name: JSONPath of the job's name.
        id: The member of requests that names the job.
        describe: The operation that describes it.
        status: JSONPath of its status in the answer.
        left: The rules of the states `IsLeft`, and its default.
        stop: The operation that stops it, and the other members of its request.
        errors: Of the service's calls.
    """

    suffix: str
    list: str
    asked: Mapping[str, Any]
    jobs: str
    selected: Mapping[str, str]
    about: str
    tagged: Mapping[str, Any]
    execution: str
    name: str
    id: Mapping[str, str]
    describe: str
    status: str
    left: Mapping[str, Any]
    stop: tuple[str, Mapping[str, str]]
    errors: Sequence[str]


@dataclass(frozen=True)
class _Executions:
    """Executions whose jobs are looked at, and the states that look at an execution.

    Attributes:
        executions: ARN patterns of the executions whose jobs are looked at.
        parents: ARN patterns of the executions that start these and wait for them.
        partition: Partition of ARNs.
    """

    executions: Sequence[str]
    parents: Sequence[str]
    partition: str

    def described(self, name: str, execution: str, following: str, gone: str) -> dict[str, Any]:
        """Return the state that puts the status of an execution at `$.Execution`.

        Args:
            name: The state's name.
            execution: JSONPath of the execution.
            following: The state after it.
            gone: The state after it where the execution was deleted, or ended 90 days ago ("Quotas related to state machine
                executions").
        """
        ended = {**catch(gone, "$.Error"), "ErrorEquals": ["Sfn.ExecutionDoesNotExistException"]}
        asked = {"ExecutionArn.$": execution, "IncludedData": "METADATA_ONLY"}
        task = self._task("describeExecution", asked, "$.Execution", following)
        return {name: {**task, "ResultSelector": {"Status.$": "$.Status"}, "Catch": [ended]}}

    def of_parent(self, execution: str) -> dict[str, Any]:
        """Return the states that stop an execution whose parent has ended, which Step Functions does by best effort.

        Where the parent goes on, its own parent is looked for. Of an input that is too large for a state's result it is not
        known what started it.

        Args:
            execution: JSONPath of the execution.
        """

        def look_at(path: str, parents: Mapping[str, Any]) -> dict[str, Any]:
            parameters = {"Execution.$": path, **parents}
            return {"Type": "Pass", "Parameters": parameters, "ResultPath": "$.Of", "Next": "DescribeWhole"}

        too_large = {**catch("Well", "$.Error"), "ErrorEquals": ["States.DataLimitExceeded"]}
        named = {"ExecutionArn.$": _EXECUTION}
        whole = self._task("describeExecution", named, "$.Whole", "HasParent", too_large)
        # An input that names its own execution is no loop.
        few = {"Variable": "$.Of.Parents", "NumericLessThan": _MOST_PARENTS}
        present = {"Variable": _PARENT, "IsPresent": True}
        ours = [{"And": [few, present, {"Variable": _PARENT, "StringMatches": pattern}]} for pattern in self.parents]
        why = {
            "Error": "ParentExecutionEnded",
            "Cause.$": f"States.Format('{{}} has ended, which started it', {_PARENT})",
        }
        ran_after = f"States.Format('{{}} ran after the end of {{}}', {_EXECUTION}, {_PARENT})"
        return {
            "LookAtIt": look_at(execution, {"Parents": 0}),
            "DescribeWhole": {**whole, "ResultSelector": {"Input.$": "States.StringToJson($.Input)"}},
            "HasParent": {"Type": "Choice", "Choices": [{"Or": ours, "Next": "DescribeParent"}], "Default": "Well"},
            **self.described("DescribeParent", _PARENT, "HasParentEnded", "WaitForCancelling"),
            "HasParentEnded": _goes_on("LookAtParent", "WaitForCancelling"),
            "LookAtParent": look_at(_PARENT, {"Parents.$": "States.MathAdd($.Of.Parents, 1)"}),
            "WaitForCancelling": {"Type": "Wait", "Seconds": _SECONDS_FOR_THE_STOPPER, "Next": "DescribeAgain"},
            **self.described("DescribeAgain", _EXECUTION, "Outlives", "Well"),
            "Outlives": _goes_on("StopExecution", "Well"),
            "StopExecution": self._task("stopExecution", {**named, **why}, "$.Answer", "Outlived"),
            "Outlived": {"Type": "Pass", "Parameters": {"Stopped.$": ran_after}, "End": True},
        }

    def _task(
        self,
        operation: str,
        asked: Mapping[str, Any],
        result: str,
        following: str,
        catcher: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A state that calls Step Functions."""
        retrier = retry(5, *_OF_EXECUTIONS)
        return sdk_task(self.partition, f"sfn:{operation}", asked, result, retrier, following, catcher)


def _goes_on(following: str, otherwise: str) -> dict[str, Any]:
    """The Choice between an execution that goes on and one that has ended."""
    runs = [{"Variable": "$.Execution.Status", "StringEquals": status} for status in _GOES_ON]
    return {"Type": "Choice", "Choices": [{"Or": runs, "Next": following}], "Default": otherwise}


def reconciling_definition(
    words: Iterable[str],
    queues: Iterable[str],
    executions: Iterable[str],
    partition: str,
    parents: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the state machine that stops jobs, and executions with jobs, that run on after what they belong to has ended.

    Args:
        words: The first words of training jobs' names.
        queues: ARNs of the queues of AWS Batch in which jobs wait.
        executions: ARN patterns of the executions whose jobs they are.
        partition: Partition of ARNs.
        parents: ARN patterns of the executions that start these and wait for them, so that none outlives its parent.
    """
    of = _Executions(list(executions), list(parents), partition)
    items = [{"Word": word} for word in words]
    waiting = [{"Queue": queue, "Status": status} for queue in queues for status in _UNFINISHED]
    states = _of_item(_training_jobs(partition), of)
    first = "List"
    if waiting:
        states |= _of_item(_service_jobs(partition), of)
        first = "IsQueue"
        is_queue = [{"Variable": "$.Queue", "IsPresent": True, "Next": "ListQueued"}]
        states[first] = {"Type": "Choice", "Choices": is_queue, "Default": "List"}
    return {
        "Comment": "Stops training jobs that run although their executions have ended",
        "StartAt": "Items",
        "States": {
            "Items": {"Type": "Pass", "Result": {"Items": [*items, *waiting]}, "Next": "OfEach"},
            "OfEach": {
                "Type": "Map",
                "ItemsPath": "$.Items",
                # ListTrainingJobs has 2 calls a second in an account (aws-solutions/deepracer-on-aws 87).
                "MaxConcurrency": 1,
                "ItemProcessor": {"StartAt": first, "States": states},
                "ResultPath": "$.Found",
                "Next": "Gather",
            },
            "Gather": {
                "Type": "Pass",
                "Parameters": {"Acted.$": "$.Found[?(@.Acted == 'yes')].Told"},
                "Next": "HasActed",
            },
            "HasActed": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.Acted[0]", "IsPresent": True, "Next": "Acted"}],
                "Default": "Done",
            },
            "Acted": {
                "Type": "Fail",
                "Error": "TrainingJobGuard",
                "CausePath": "States.JsonToString($.Acted)",
            },
            "Done": {"Type": "Succeed"},
        },
    }


def _training_jobs(partition: str) -> _Service:
    """Training jobs of SageMaker, listed by the first word of their names."""
    tags = sdk_task(
        partition,
        "sagemaker:listTags",
        {"ResourceArn.$": "$.Job.TrainingJobArn"},
        "$.Tagged",
        retry(5),
        "IsTagged",
    )
    return _Service(
        suffix="",
        list="sagemaker:listTrainingJobs",
        asked={"StatusEquals": "InProgress", "NameContains.$": "States.Format('{}-', $.Word)", "MaxResults": _PAGE},
        jobs="TrainingJobSummaries",
        selected={"Word.$": "$.Word"},
        about="'{}: {}: {}', $.Word",
        tagged={
            # A name that contains the word elsewhere is another's, of which not even the tags may be read.
            "FirstWord": {
                "Type": "Pass",
                "Parameters": {"Is.$": "States.ArrayGetItem(States.StringSplit($.Job.TrainingJobName, '-'), 0)"},
                "ResultPath": "$.First",
                "Next": "HasWord",
            },
            "HasWord": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.First.Is", "StringEqualsPath": "$.Word", "Next": "Tags"}],
                "Default": "Well",
            },
            "Tags": {**tags, "ResultSelector": {"Execution.$": f"$.Tags[?(@.Key == '{EXECUTION_TAG}')].Value"}},
        },
        execution="$.Tagged.Execution[0]",
        name="$.Job.TrainingJobName",
        id={"TrainingJobName.$": "$.Job.TrainingJobName"},
        describe="sagemaker:describeTrainingJob",
        status="$.TrainingJobStatus",
        left={
            "Choices": [{"Variable": "$.Now.Status", "StringEquals": "InProgress", "Next": "Stop"}],
            "Default": "Well",
        },
        stop=("sagemaker:stopTrainingJob", {}),
        errors=OF_SAGEMAKER,
    )


def _service_jobs(partition: str) -> _Service:
    """Service jobs of AWS Batch, listed by their queue and status: those before a machine among them."""
    job = {"JobId.$": "$.Job.JobId"}
    describe = "batch:describeServiceJob"
    over = [{"Variable": "$.Now.Status", "StringEquals": status} for status in ("SUCCEEDED", "FAILED")]
    return _Service(
        suffix="Queued",
        list="batch:listServiceJobs",
        asked={"JobQueue.$": "$.Queue", "JobStatus.$": "$.Status", "MaxResults": _PAGE},
        jobs="JobSummaryList",
        selected={},
        about="'{}: {}: {}: {}', $.Queue, $.Status",
        tagged={"Tags": sdk_task(partition, describe, job, "$.Tagged", retry(5, *OF_BATCH), "IsTagged")},
        execution=f"$.Tagged.Tags.{EXECUTION_TAG}",
        name="$.Job.JobName",
        id=job,
        describe=describe,
        status="$.Status",
        left={"Choices": [{"Or": over, "Next": "Well"}], "Default": "Stop"},
        stop=("batch:terminateServiceJob", {"Reason": "its execution has ended"}),
        errors=OF_BATCH,
    )


def _of_item(service: _Service, of: _Executions) -> dict[str, Any]:
    """The states that look at the jobs of an item, page by page, until a job was stopped."""
    suffix, partition = service.suffix, of.partition
    not_looked = {"Catch": [catch(f"NotLooked{suffix}", "$.Error")]}

    def listed(more: Mapping[str, str]) -> dict[str, Any]:
        asked = {**service.asked, **more}
        following = f"OfEachJob{suffix}"
        return {
            **sdk_task(partition, service.list, asked, "$.Page", retry(5, *service.errors), following),
            **not_looked,
        }

    return {
        f"List{suffix}": listed({}),
        f"OfEachJob{suffix}": {
            "Type": "Map",
            "ItemsPath": f"$.Page.{service.jobs}",
            "ItemSelector": {"Job.$": "$$.Map.Item.Value", **service.selected},
            "MaxConcurrency": _AT_ONCE,
            "ItemProcessor": {"StartAt": next(iter(service.tagged)), "States": _of_job(service, of)},
            "ResultPath": "$.Looked",
            **not_looked,
            "Next": f"Stopped{suffix}",
        },
        f"Stopped{suffix}": {
            "Type": "Pass",
            "Parameters": {"Jobs.$": "$.Looked[?(@.Stopped != '')].Stopped"},
            "ResultPath": "$.Stopped",
            "Next": f"IsDone{suffix}",
        },
        f"IsDone{suffix}": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.Stopped.Jobs[0]", "IsPresent": True, "Next": "Tell"},
                {"Variable": "$.Page.NextToken", "IsPresent": True, "Next": f"ListMore{suffix}"},
            ],
            "Default": "Nothing",
        },
        f"ListMore{suffix}": listed({"NextToken.$": "$.Page.NextToken"}),
        f"NotLooked{suffix}": {
            "Type": "Pass",
            "Parameters": {
                "Acted": "yes",
                "Told.$": f"States.Array(States.Format({service.about}, $.Error.Error, $.Error.Cause))",
            },
            "End": True,
        },
        "Tell": {"Type": "Pass", "Parameters": {"Acted": "yes", "Told.$": "$.Stopped.Jobs"}, "End": True},
        "Nothing": {"Type": "Pass", "Result": {"Acted": "no"}, "End": True},
    }


def _of_job(service: _Service, of: _Executions) -> dict[str, Any]:
    """The states that stop a job whose execution has ended, or its execution where what started that has."""
    execution, errors, partition = service.execution, service.errors, of.partition
    stop, why = service.stop
    now = sdk_task(partition, service.describe, service.id, "$.Now", retry(5, *errors), "IsLeft")
    return {
        **service.tagged,
        "IsTagged": {
            "Type": "Choice",
            "Choices": [{"Variable": execution, "IsPresent": True, "Next": "IsOurs"}],
            "Default": "Well",
        },
        "IsOurs": {
            "Type": "Choice",
            "Choices": [
                {"Variable": execution, "StringMatches": pattern, "Next": "DescribeExecution"}
                for pattern in of.executions
            ],
            "Default": "Well",
        },
        **of.described("DescribeExecution", execution, "HasEnded", "WaitForStopper"),
        "HasEnded": _goes_on("LookAtIt" if of.parents else "Well", "WaitForStopper"),
        **(of.of_parent(execution) if of.parents else {}),
        "WaitForStopper": {"Type": "Wait", "Seconds": _SECONDS_FOR_THE_STOPPER, "Next": "DescribeJob"},
        "DescribeJob": {**now, "ResultSelector": {"Status.$": service.status}},
        "IsLeft": {"Type": "Choice", **service.left},
        "Stop": sdk_task(partition, stop, {**service.id, **why}, "$.Answer", retry(5, *errors), "Left"),
        "Left": {
            "Type": "Pass",
            "Parameters": {
                "Stopped.$": f"States.Format('{{}} ran after the end of {{}}', {service.name}, {execution})"
            },
            "End": True,
        },
        "Well": {"Type": "Pass", "Result": {"Stopped": ""}, "End": True},
    }
