"""The state of a pipeline that runs a workflow."""

from __future__ import annotations

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.lifecycle.state_machine_base import start_retry
from cdk_sagemaker_training.lifecycle.states import OF_STEP_FUNCTIONS
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow, keeping_job


class WorkflowStep(tasks.StepFunctionsStartExecution):
    """``workflow.as_task(keeps_job=True)``, with ARN patterns that cdk-nag's suppressions can name.

    Attributes:
        executions_arn: ARN pattern of the workflow's executions.
    """

    def __init__(self, scope: Construct, id: str, workflow: TrainingWorkflow) -> None:
        """Create the state.

        Args:
            scope: The pipeline.
            id: Its id among that construct's children, and its name.
            workflow: The workflow.
        """
        super().__init__(
            scope,
            id,
            state_machine=workflow.state_machine,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            # The same for each start of this state, so that one whose answer was lost is no second execution. A step is entered
            # once at a time; that it is the time at which the state was entered, and not of a retry, is assumed.
            name=sfn.JsonPath.hash(
                sfn.JsonPath.format("{}{}{}", sfn.JsonPath.execution_id, id, sfn.JsonPath.state_entered_time), "SHA-1"
            ),
            **keeping_job(workflow.node.id),
        )
        self.add_retry(**start_retry(*OF_STEP_FUNCTIONS, "StepFunctions.SdkClientException"))
        name = workflow.state_machine.state_machine_name
        self.executions_arn = Stack.of(workflow).format_arn(service="states", resource=f"execution:{name}:*")
        rule = Stack.of(self).format_arn(
            service="events",
            resource="rule",
            resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule",
        )
        # As of CDK's (Step Functions guide, "IAM policies for Step Functions").
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
