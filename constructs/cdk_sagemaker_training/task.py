"""One state of a user's own state machine that runs a training job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, cast

import jsii
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.jsonpath import expression
from cdk_sagemaker_training.launch import Launch
from cdk_sagemaker_training.machine_policies import machine_policies
from cdk_sagemaker_training.prop_types import checked
from cdk_sagemaker_training.props import PROPS, TrainingProps
from cdk_sagemaker_training.sync import check_sync_takes


class TaskProps(TrainingProps, total=False):
    """The props of a job, and those of every task state of CDK's."""

    comment: str
    state_name: str
    input_path: str
    output_path: str
    result_path: str
    result_selector: Mapping[str, Any]
    assign: Mapping[str, Any]
    task_timeout: sfn.Timeout
    heartbeat_timeout: sfn.Timeout
    credentials: sfn.Credentials


# CDK's own task for any call renders what all tasks have (result paths, retries, timeouts, credentials). Its base class
# does too, but only where a method is implemented that jsii does not show to Python.
class TrainingTask(tasks.CallAwsService):
    """A Task state, in JSONPath, that runs one training job and waits for its end; its result is the job's description.

    Takes, of ``TrainingProps``, what the optimised integration `createTrainingJob.sync` is known to take; for a job with more,
    such as instance groups, a warm pool or ``max_pending``, use ``TrainingWorkflow(...).as_task(...)``, which also asks again
    where AWS did not answer, and stops the job of an execution that ends before it.

    A job's name is ``job_name_prefix`` and a hash of the execution, the state and the numbers of redrives and retries, so that
    ``add_retry`` and a redrive of the execution start a new job after a failed one, while a call whose answer was lost finds its
    name in use. In a Map, or
    where an execution comes to the state again, ``unique_by`` tells the jobs apart too: a place in the state's input, like
    ``sfn.JsonPath.string_at("$.index")`` where the Map's ``item_selector`` puts the item's index there. Checkpoints lie below
    ``checkpoints`` in a folder of the execution, the state and ``unique_by``, which retries share. Other props are those of
    every task state, such as ``comment`` and ``result_path``. Raises ``ValueError`` with the prop to change.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        unique_by: str | None = None,
        **props: Unpack[TaskProps],
    ) -> None:
        given = cast(dict[str, Any], props)
        super().__init__(
            scope,
            id,
            service="sagemaker",
            action="createTrainingJob",
            iam_resources=["*"],  # of policies that are not used: `_task_policies` has narrower ones
            query_language=sfn.QueryLanguage.JSON_PATH,
            **{name: value for name, value in given.items() if name not in PROPS},
        )
        launch = Launch(self, cast(TrainingProps, {name: value for name, value in given.items() if name in PROPS}))
        if len(launch.job_requests) != 1:
            raise ValueError(
                "job must be one that makes one request, like DataParallelJob(InstanceGroup('ml.g5.xlarge')), "
                f"got {type(props['job']).__name__} with {len(launch.job_requests)}: use TrainingWorkflow(...).as_task(...)"
            )
        self._request = launch.request(
            launch.job_requests[0], job_name=_job_name(launch.prefix, unique_by), checkpoint_folder=_folder(unique_by)
        )
        check_sync_takes(self._request, "TrainingWorkflow(...).as_task(...)", props)
        self._resource = f"arn:{launch.partition}:states:::sagemaker:createTrainingJob.sync"
        self._policies = list(machine_policies(launch, [self._request], sync=True))
        self.role = launch.role
        self.network = props.get("network")
        self.image = props["image"]

    @jsii.member(jsii_name="toStateJson")
    def to_state_json(self, top_level_query_language: sfn.QueryLanguage | None = None) -> Mapping[Any, Any]:
        state = super().to_state_json(top_level_query_language)
        return {**state, "Resource": self._resource, "Parameters": self._request}

    @property
    @jsii.member(jsii_name="taskPolicies")
    def _task_policies(self) -> list[iam.PolicyStatement]:
        return self._policies


def _job_name(prefix: str, unique_by: str | None) -> str:
    counts = ["$$.Execution.RedriveCount", "$$.State.RetryCount"]
    ids = ["$$.Execution.Id", "$$.State.Name", *counts, *_expressions(unique_by)]
    return f"States.Format('{prefix}-{{}}', States.Hash({_joined('-', ids)}, 'MD5'))"


def _folder(unique_by: str | None) -> str:
    return _joined("/", ["$$.Execution.Name", "$$.State.Name", *_expressions(unique_by)])


def _expressions(text: str | None) -> list[str]:
    return [] if text is None else [expression(text)]


def _joined(separator: str, expressions: list[str]) -> str:
    return f"States.Format('{separator.join(['{}'] * len(expressions))}', {', '.join(expressions)})"
