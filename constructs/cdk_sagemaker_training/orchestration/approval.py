"""A step that waits for an approval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.express import check_not_express
from cdk_sagemaker_training.features.notify import check_standard
from cdk_sagemaker_training.orchestration.step_results import JSONPATH
from cdk_sagemaker_training.props.jsonpath import path, result_path
from cdk_sagemaker_training.props.prop_types import checked

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns
    from aws_cdk.aws_stepfunctions import IChainable

_REFUSED = "ApprovalRefused"
_MOST_SECONDS = (
    365 * 86_400
)  # "Maximum execution time" (Step Functions guide, "Quotas related to state machine executions")


class Approval(sfn.StateMachineFragment):
    """Publishes a message to a topic and waits until it is answered, with Step Functions' task token.

    The message is JSON with the task token and the commands of the AWS CLI that approve and refuse, which need
    ``states:SendTaskSuccess`` and ``states:SendTaskFailure`` (``TrainingPipeline.grant_task_response``). An execution that is
    refused fails with the error ``ApprovalRefused`` and the cause that the answer gives, and one that is not answered in time
    with ``States.Timeout``. It is a fragment of a state machine, for ``TrainingPipeline`` or a state machine of your own.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        topic: sns.ITopic,
        message: str = "A training pipeline waits for an approval.",
        timeout: Duration | int = 604_800,
        otherwise: IChainable | None = None,
    ) -> None:
        """Create the state.

        Args:
            scope: The construct that the step is part of.
            id: Its id among that construct's children: letters, digits and underscores. It is the state's name.
            topic: The topic, to which who approves is subscribed.
            message: What it says first.
            timeout: The longest wait, a Duration or in seconds, at most a year. Default: a week.
            otherwise: States with which an execution goes on where it is refused. Default: it fails.

        Raises:
            ValueError: The time-out is out of its range.
        """
        super().__init__(scope, id)
        check_standard("topic", [topic])
        seconds = seconds_of("timeout", timeout)
        if not 1 <= seconds <= _MOST_SECONDS:
            raise must("timeout", "be from 1 second to 365 days", "Duration.days(7)", f"{seconds} seconds")
        success, failure = "aws stepfunctions send-task-success", "aws stepfunctions send-task-failure"
        token = "--task-token {}', $$.Task.Token)"
        text = {
            "Message": message,
            "Execution": path("$$.Execution.Id"),
            "ToApprove": path(f"States.Format('{success} --task-output true {token}"),
            "ToRefuse": path(f"States.Format('{failure} --error {_REFUSED} --cause REASON {token}"),
            "TaskToken": sfn.JsonPath.task_token,
        }
        self._task = _Publish(
            self,
            "Publish",
            state_name=id,
            topic=topic,
            message=sfn.TaskInput.from_object(text),
            integration_pattern=sfn.IntegrationPattern.WAIT_FOR_TASK_TOKEN,
            task_timeout=sfn.Timeout.duration(Duration.seconds(seconds)),
            result_path=result_path(id),
            query_language=JSONPATH,
        )
        check_not_express(self._task)
        if otherwise is not None:
            self._task.add_catch(otherwise, errors=[_REFUSED], result_path=result_path(id))

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        """The state that publishes and waits."""
        return self._task

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        """The state after which a pipeline goes on."""
        return [self._task]


class _Publish(tasks.SnsPublish):
    """CDK's task, which may use the key of an encrypted topic, as who publishes must (CDK's `topic.grant_publish`)."""

    def __init__(self, scope: Construct, id: str, *, topic: sns.ITopic, **props: Any) -> None:
        super().__init__(scope, id, topic=topic, **props)
        self._topic = topic

    @property
    @jsii.member(jsii_name="taskPolicies")
    def _task_policies(self) -> list[iam.PolicyStatement]:
        publish = iam.PolicyStatement(actions=["sns:Publish"], resources=[self._topic.topic_arn])
        key = self._topic.master_key
        if key is None:
            return [publish]
        return [publish, iam.PolicyStatement(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[key.key_arn])]
