"""The states of a pipeline that run a workflow."""

from __future__ import annotations

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.lifecycle.state_machine_base import naming_parent, start_retry
from cdk_sagemaker_training.lifecycle.states import OF_STEP_FUNCTIONS, retry, sdk_task
from cdk_sagemaker_training.props.jsonpath import result_path
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow, keeping_job


class WorkflowStep(tasks.StepFunctionsStartExecution):
    """``workflow.as_task(keeps_job=True)``, with ARN patterns that cdk-nag's suppressions can name.

    Attributes:
        executions_arn: ARN pattern of the workflow's executions.
        chain: The state, and those that find the execution of a start whose answer was lost and that ended before it was started
            again, which is refused ("If the execution is closed ...", API, StartExecution).
    """

    def __init__(self, scope: Construct, id: str, workflow: TrainingWorkflow) -> None:
        """Create the state.

        Args:
            scope: The pipeline.
            id: Its id among that construct's children, and its name.
            workflow: The workflow.
        """
        # The same for each start of this state, so that one whose answer was lost is no second execution. A step is entered once
        # at a time; that it is the time at which the state was entered, and not of a retry, is assumed.
        name = sfn.JsonPath.hash(
            sfn.JsonPath.format("{}{}{}", sfn.JsonPath.execution_id, id, sfn.JsonPath.state_entered_time), "SHA-1"
        )
        super().__init__(
            scope,
            id,
            state_machine=workflow.state_machine,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            name=name,
            **naming_parent(keeping_job(workflow.node.id)),
        )
        self.add_retry(**start_retry(*OF_STEP_FUNCTIONS, "StepFunctions.SdkClientException"))
        machine = workflow.state_machine.state_machine_name
        self.executions_arn = Stack.of(workflow).format_arn(service="states", resource=f"execution:{machine}:*")
        self.chain = self._chain(id, sfn.JsonPath.format(f"{self.executions_arn[:-1]}{{}}", name))
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

    def _chain(self, id: str, execution_arn: str) -> sfn.Chain:
        result = result_path(id)
        description = f"{result}.Started"
        described = sdk_task(
            Stack.of(self).partition,
            "sfn:describeExecution",
            {"ExecutionArn.$": "$StartedExecution"},
            description,
            retry(10, "Sfn.SfnException", "Sfn.SdkClientException"),
            f"{id}: Has succeeded",
        )
        find = sfn.CustomState(self, f"{id}: Find", state_json=described)
        found = sfn.Pass(
            self,
            f"{id}: Found",
            parameters={"Job": sfn.JsonPath.string_to_json(sfn.JsonPath.string_at(f"{description}.Output"))},
            result_path=result,
        )
        failed = sfn.Fail(
            self,
            f"{id}: Failed",
            error="TrainingWorkflowFailed",
            cause_path=sfn.JsonPath.json_to_string(sfn.JsonPath.object_at(description)),
        )
        succeeded = sfn.Condition.string_equals(f"{description}.Status", "SUCCEEDED")
        find.next(sfn.Choice(self, f"{id}: Has succeeded").when(succeeded, found).otherwise(failed))
        self.add_catch(
            find,
            errors=["StepFunctions.ExecutionAlreadyExistsException"],
            assign={"StartedExecution": execution_arn},
            result_path=sfn.JsonPath.DISCARD,
        )
        return sfn.Chain.custom(self, [self, found], found)

    @property
    @jsii.member(jsii_name="taskPolicies")
    def _task_policies(self) -> list[iam.PolicyStatement]:
        return self._policies
