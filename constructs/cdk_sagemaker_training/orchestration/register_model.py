"""A step that registers a model in SageMaker's model registry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.orchestration.step_results import JSONPATH, MetricReader, check_metrics, job_path
from cdk_sagemaker_training.props.jsonpath import path, quoted, result_path
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.resources.role import policy_targets
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow

ApprovalStatus = Literal["PendingManualApproval", "Approved", "Rejected"]

# The patterns of CreateModelPackage's members in the service model: EntityName, CustomerMetadataKey.
_GROUP = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_KEY = re.compile(r"[\w \t.:/=+\-@]{1,128}")


class RegisterModel(sfn.StateMachineFragment):
    """Registers the model of an earlier job as a version in a model package group, with its metrics and lineage.

    The package has the job's model and its image (InferenceSpecification), the metrics as a file in S3 (ModelMetrics, as
    ``{"training_metrics": {"accuracy": {"value": 0.93}}}``, the form of an evaluation report of SageMaker Pipelines) and as text
    (CustomerMetadataProperties), and the ARN of the job (MetadataProperties.GeneratedBy). A call that is repeated makes no
    second version (ClientToken). Its result is ``Steps.<id>.ModelPackageArn``. It is a fragment of a state machine, for
    ``TrainingPipeline``, or for a state machine of your own after ``as_task(keeps_job=True)`` of the workflow.

    Attributes:
        workflow: The workflow whose job has the model.
        versions: ARN pattern of the group's versions.
        written: ARN patterns of the files with metrics.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        workflow: TrainingWorkflow,
        *,
        group: str,
        metrics: Sequence[str] = (),
        approval_status: ApprovalStatus = "PendingManualApproval",
        inference_image: str | None = None,
        content_types: Sequence[str] = (),
        response_types: Sequence[str] = (),
        description: str | None = None,
    ) -> None:
        """Create the states.

        Args:
            scope: The construct that the step is part of.
            id: Its id among that construct's children: letters, digits and underscores. Its states' names begin with it.
            workflow: The workflow whose job has the model.
            group: Name of the model package group, such as that of a ``sagemaker.CfnModelPackageGroup``.
            metrics: Names in ``metric_definitions`` of the workflow to register. An execution fails with the error
                ``MetricMissing`` where one has no value.
            approval_status: The version's ModelApprovalStatus.
            inference_image: URI of the image that serves the model. Default: the job's image, which has to be able to.
            content_types: MIME types that the model takes.
            response_types: MIME types that it answers with.
            description: Description of the version; None for none.

        Raises:
            ValueError: The group's name is none, or a metric is not defined.
        """
        super().__init__(scope, id)
        if not is_unresolved(group) and not _GROUP.fullmatch(group):
            raise must("group", "be the name of a model package group", "'digits'", repr(group))
        check_metrics("RegisterModel", "metrics", workflow, metrics)
        for name in metrics:
            if not _KEY.fullmatch(name):
                raise must(
                    "metrics of RegisterModel",
                    "be letters, digits, spaces and '_.:/=+-@', at most 128",
                    "['accuracy']",
                    repr(name),
                )
        self.workflow = workflow
        self.versions = _arns(Stack.of(self), group)[1:]
        self.written = [arn for statement in (_writes(workflow) if metrics else []) for arn in statement.resources]
        job = job_path(workflow)
        reader = MetricReader(self, id, workflow, metrics) if metrics else None
        texts = {name: f"States.Format('{{}}', {reader.value(name)})" for name in metrics} if reader else {}
        output = workflow.props["output"]
        folder = output.prefix.rstrip("/")
        key = f"States.Format('{{}}{{}}/output/metrics.json', {quoted(f'{folder}/' if folder else '')}, {job}.TrainingJobName)"
        uri = f"States.Format('s3://{{}}/{{}}', {quoted(output.bucket.bucket_name)}, {key})"
        parameters: dict[str, Any] = {
            "ClientToken": path("States.Hash(States.Format('{}-{}', $$.Execution.Id, $$.State.Name), 'MD5')"),
            "ModelPackageGroupName": group,
            "ModelApprovalStatus": approval_status,
            "InferenceSpecification": _specification(job, inference_image, content_types, response_types),
            "MetadataProperties": {"GeneratedBy": path(f"{job}.TrainingJobArn")},
        }
        if description is not None:
            parameters["ModelPackageDescription"] = description
        if reader:
            parameters["CustomerMetadataProperties"] = {name: path(text) for name, text in texts.items()}
            source = {"ContentType": "application/json", "S3Uri": path(uri)}
            parameters["ModelMetrics"] = {"ModelQuality": {"Statistics": source}}
        self._register = _Call(
            self,
            "Register",
            [iam.PolicyStatement(actions=["sagemaker:CreateModelPackage"], resources=_arns(Stack.of(self), group))],
            state_name=id,
            service="sagemaker",
            action="createModelPackage",
            parameters=parameters,
            result_path=result_path(id),
        )
        self._first: sfn.State = self._register
        if reader:
            report = {name: {"value": sfn.JsonPath.number_at(reader.value(name))} for name in metrics}
            put = _Call(
                self,
                "Write",
                _writes(workflow),
                state_name=f"{id}Write",
                service="s3",
                action="putObject",
                parameters={
                    "Bucket": output.bucket.bucket_name,
                    "Key": path(key),
                    "Body": {"training_metrics": report},
                    "ContentType": "application/json",
                },
                result_path=sfn.JsonPath.DISCARD,
            )
            put.next(self._register)
            decision = sfn.Choice(self, "Decision", state_name=f"{id}HasAll").when(reader.present, put)
            self._first = reader.to(decision.otherwise(reader.missing))

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        """The first state."""
        return self._first

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        """The state after which a pipeline goes on."""
        return [self._register]


class _Call(tasks.CallAwsService):
    """A call of an AWS service with its own policy statements."""

    def __init__(self, scope: Construct, id: str, statements: list[iam.PolicyStatement], **props: Any) -> None:
        # Of a policy that is not used: `_task_policies` has narrower ones.
        super().__init__(scope, id, iam_resources=["*"], query_language=JSONPATH, **props)
        self._statements = statements
        self.add_retry(errors=["States.TaskFailed"], max_attempts=5)

    @property
    @jsii.member(jsii_name="taskPolicies")
    def _task_policies(self) -> list[iam.PolicyStatement]:
        return self._statements


def _arns(stack: Stack, group: str) -> list[str]:
    """The group and its versions ("Actions, resources, and condition keys for Amazon SageMaker", CreateModelPackage)."""
    return [
        stack.format_arn(service="sagemaker", resource="model-package-group", resource_name=group),
        stack.format_arn(service="sagemaker", resource="model-package", resource_name=f"{group}/*"),
    ]


def _writes(workflow: TrainingWorkflow) -> list[iam.PolicyStatement]:
    output = workflow.props["output"]
    statements = [
        iam.PolicyStatement(
            actions=["s3:PutObject"],
            resources=[place.arn_for_objects(f"{output.prefix}*")],
            conditions=condition or None,
        )
        for place, condition in policy_targets(output.bucket)
    ]
    if output.bucket.encryption_key is not None:
        statements.append(
            iam.PolicyStatement(actions=["kms:GenerateDataKey"], resources=[output.bucket.encryption_key.key_arn])
        )
    return statements


def _specification(
    job: str, image: str | None, content_types: Sequence[str], response_types: Sequence[str]
) -> dict[str, Any]:
    """The InferenceSpecification of a version whose model is a job's."""
    container = {
        "Image": image or path(f"{job}.AlgorithmSpecification.TrainingImage"),
        "ModelDataUrl": path(f"{job}.ModelArtifacts.S3ModelArtifacts"),
    }
    types = {"SupportedContentTypes": list(content_types), "SupportedResponseMIMETypes": list(response_types)}
    return {"Containers": [container], **{name: value for name, value in types.items() if value}}
