"""One state of a user's own state machine that runs a training job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import Duration, Size
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.data import S3Channel, S3Prefix, Spot, WarmPool
from cdk_sagemaker_training.image import TrainingImage
from cdk_sagemaker_training.jobs import TrainingJob
from cdk_sagemaker_training.jsonpath import expression
from cdk_sagemaker_training.launch import Launch
from cdk_sagemaker_training.role import TrainingRole
from cdk_sagemaker_training.sync import check_sync_takes

if TYPE_CHECKING:
    from cdk_sagemaker_training.network import TrainingNetwork


# CDK's own task for any call renders what all tasks have (result paths, retries, timeouts, credentials). Its base class
# does too, but only where a method is implemented that jsii does not show to Python.
class TrainingTask(tasks.CallAwsService):
    """A Task state, in JSONPath, that runs one training job and waits for its end; its result is the job's description.

    Takes what the optimised integration `createTrainingJob.sync` is known to take; for a job with instance groups, a warm
    pool or ``max_pending`` use ``TrainingWorkflow(...).as_task(...)``, which also asks again where AWS did not answer, and
    stops the job of an execution that ends before it.

    A job's name is ``job_name_prefix`` and a hash of the execution, the state and the number of its retries, so that
    ``add_retry`` starts a new job after a failed one, while a state that AWS runs anew finds its name in use. In a Map, or
    where an execution comes to the state again, ``unique_by`` tells the jobs apart too: a place in the state's input, like
    ``sfn.JsonPath.string_at("$.index")`` where the Map's ``item_selector`` puts the item's index there. Checkpoints lie below
    ``checkpoints`` in a folder of the execution, the state and ``unique_by``, which retries share. Other props are those of
    every task state, such as ``comment`` and ``result_path``. Raises ``ValueError`` with the prop to change.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        job: TrainingJob,
        image: TrainingImage,
        output: S3Prefix,
        channels: Mapping[str, S3Channel] | None = None,
        checkpoints: S3Prefix | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        role: TrainingRole | iam.IRole | None = None,
        network: TrainingNetwork | None = None,
        spot: Spot | None = None,
        warm_pool: WarmPool | None = None,
        max_runtime: Duration | None = None,
        max_pending: Duration | None = None,
        volume_size: Size | None = None,
        metric_definitions: Mapping[str, str] | None = None,
        job_name_prefix: str | None = None,
        unique_by: str | None = None,
        tags: Mapping[str, str] | None = None,
        **task_state: Any,
    ) -> None:
        super().__init__(
            scope,
            id,
            service="sagemaker",
            action="createTrainingJob",
            iam_resources=["*"],  # of policies that are not used: `_task_policies` has narrower ones
            query_language=sfn.QueryLanguage.JSON_PATH,
            **task_state,
        )
        launch = Launch(
            self,
            job=job,
            image=image,
            output=output,
            channels=channels,
            checkpoints=checkpoints,
            hyperparameters=hyperparameters,
            environment=environment,
            role=role,
            network=network,
            spot=spot,
            warm_pool=warm_pool,
            max_runtime=max_runtime,
            max_pending=max_pending,
            volume_size=volume_size,
            metric_definitions=metric_definitions,
            job_name_prefix=job_name_prefix,
            tags=tags,
        )
        if len(launch.job_requests) != 1:
            raise ValueError(
                "job must be one that makes one request, like DataParallelJob(InstanceGroup('ml.g5.xlarge')), "
                f"got {type(job).__name__} with {len(launch.job_requests)}: use TrainingWorkflow(...).as_task(...)"
            )
        self._request = launch.request(
            launch.job_requests[0], job_name=_job_name(launch.prefix, unique_by), checkpoint_folder=_folder(unique_by)
        )
        check_sync_takes(self._request, "TrainingWorkflow(...).as_task(...)")
        self._resource = f"arn:{launch.partition}:states:::sagemaker:createTrainingJob.sync"
        self._policies = [
            launch.job_policy("CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob", "AddTags"),
            launch.pass_role_policy(),
            launch.sync_policy(),
        ]
        self.role = launch.role
        self.network = network
        self.image = image

    @jsii.member(jsii_name="toStateJson")
    def to_state_json(self, top_level_query_language: sfn.QueryLanguage | None = None) -> Mapping[Any, Any]:
        state = super().to_state_json(top_level_query_language)
        return {**state, "Resource": self._resource, "Parameters": self._request}

    @property
    @jsii.member(jsii_name="taskPolicies")
    def _task_policies(self) -> list[iam.PolicyStatement]:
        return self._policies


def _job_name(prefix: str, unique_by: str | None) -> str:
    ids = ["$$.Execution.Id", "$$.State.Name", "$$.State.RetryCount", *_expressions(unique_by)]
    return f"States.Format('{prefix}-{{}}', States.Hash({_joined('-', ids)}, 'MD5'))"


def _folder(unique_by: str | None) -> str:
    return _joined("/", ["$$.Execution.Name", "$$.State.Name", *_expressions(unique_by)])


def _expressions(text: str | None) -> list[str]:
    return [] if text is None else [expression(text)]


def _joined(separator: str, expressions: list[str]) -> str:
    return f"States.Format('{separator.join(['{}'] * len(expressions))}', {', '.join(expressions)})"
