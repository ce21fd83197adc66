"""A workflow as a step of a pipeline."""

from __future__ import annotations

from typing import Any

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.orchestration.step_results import result_path
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow


class TrainingStep(tasks.StepFunctionsStartExecution):
    """A state that runs a workflow and keeps its job's description for the steps after it.

    The workflow's execution has the state's whole input, with what earlier steps kept in ``Steps``. ``TrainingPipeline`` makes
    one of each workflow; make it yourself in a state machine of your own, before an ``ArtifactOf``, ``Gate`` or
    ``RegisterModel`` of the workflow. It stops the workflow's execution, and so its job, when its own execution is stopped.

    Attributes:
        workflow: The workflow.
        executions_arn: ARN pattern of its executions.
    """

    @checked
    def __init__(self, scope: Construct, id: str, workflow: TrainingWorkflow, **task_state: Any) -> None:
        """Create the state.

        Args:
            scope: The construct that the state is part of.
            id: Its id among that construct's children, and its name.
            workflow: The workflow. Its job's description is ``Steps.<id of the workflow>.Job`` of the state's output.
            task_state: Props of every task state of CDK's, such as ``comment`` and ``task_timeout``.
        """
        super().__init__(
            scope,
            id,
            state_machine=workflow.state_machine,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            input=sfn.TaskInput.from_json_path_at("$"),
            result_selector={"Job.$": "$.Output"},
            result_path=result_path(workflow.node.id),
            **task_state,
        )
        self.workflow = workflow
        name = workflow.state_machine.state_machine_name
        self.executions_arn = Stack.of(workflow).format_arn(service="states", resource=f"execution:{name}:*")
        rule = Stack.of(self).format_arn(
            service="events",
            resource="rule",
            resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule",
        )
        # As of CDK's (Step Functions guide, "IAM policies for Step Functions"), whose pattern of executions cdk-nag's
        # suppressions cannot name.
        self._policies = [
            iam.PolicyStatement(actions=actions, resources=[resource])
            for actions, resource in (
                (["states:StartExecution"], workflow.state_machine.state_machine_arn),
                (["states:DescribeExecution", "states:StopExecution"], self.executions_arn),
                (["events:DescribeRule", "events:PutRule", "events:PutTargets"], rule),
            )
        ]

    @property
    @jsii.member(jsii_name="taskPolicies")
    def _task_policies(self) -> list[iam.PolicyStatement]:
        return self._policies
