"""A state machine that runs a training workflow for each row of a sweep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import jsii
from aws_cdk import Stack, Stage
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.checks import not_empty
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.lazy import at_synthesis
from cdk_sagemaker_training.core.nag import acknowledge, acknowledge_policies
from cdk_sagemaker_training.data.s3 import S3Prefix, check_no_subfolder
from cdk_sagemaker_training.guard.deletion import stop_executions_on_deletion
from cdk_sagemaker_training.guard.parents import StoppedWithParent
from cdk_sagemaker_training.lifecycle.state_machines import default_logs, make_state_machine
from cdk_sagemaker_training.orchestration.sweep_states import SweepStates
from cdk_sagemaker_training.orchestration.sweep_values import Grid, Objective, Rows, RowsFile, checked_rows, rules_of
from cdk_sagemaker_training.props.prop import LITERAL, Prop
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.resources.handler_function import handler_function
from cdk_sagemaker_training.resources.role import policy_targets
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow

_MOST_AT_ONCE = 10_000  # child executions of a Map Run (Step Functions guide, "MaxConcurrency")
_MEMORY_MIB = 512
# The type of the entry that each place of results has in the metadata of the app.
_TAKEN = "cdk-sagemaker-training:sweep-results"
# Members of CreateTrainingJob. The machines are not among them, so that rows that failed for want of memory may have larger ones.
_MAKES_RESULTS = ("AlgorithmSpecification", "HyperParameters", "Environment", "InputDataConfig")
_WHY = (
    "results are by keys of rows, which a file may have, under a prefix of this sweep's own; an execution's name is chosen "
    "when it starts; log deliveries have no resource"
)


@jsii.implements(iam.IGrantable)
class TrainingSweep(StoppedWithParent, Construct):
    """A state machine that runs a workflow for each row of a sweep, at most so many at once, and writes one table.

    Rows are values for the workflow's ``input_fields``: all of them, and no others. Each is checked before the first job
    starts: at synthesis, or, of a file, when an execution starts, which then fails with the error ``InvalidInput`` and a cause
    that names the row, the field, what is allowed and what came.

    Results are kept by the row's values and the ``version`` under ``results``, for all executions: the next one runs only the
    rows that have not completed, those that failed included. Two executions at once run rows twice. A redrive of one that was
    stopped runs the rows again that ran then, and those that had not begun.

    An execution's output is ``{"Rows", "Completed", "Failed", "NotRun", "Table", "Best"}``: the counts of rows, the URI of
    ``table.csv``, and the table's row with the best objective. The table has a line for each row, with its values, ``Status``,
    ``Metrics.<name>``, ``TrainingJobName``, ``BillableTimeInSeconds``, ``S3ModelArtifacts`` and ``Reason``.

    Attributes:
        state_machine: The state machine.
        workflow: The workflow.
        role: The role of its jobs.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workflow: TrainingWorkflow,
        over: Annotated[Grid | Rows | RowsFile, Prop(example="Grid({'learning_rate': [0.1, 0.01]})")],
        results: Annotated[S3Prefix, Prop(example="S3Prefix(bucket, 'sweeps/rate/')")],
        concurrency: Annotated[int, Prop(known=LITERAL, example="8")],
        objective: Objective | None = None,
        tolerated_failure_count: Annotated[int | None, Prop(known=LITERAL, example="5")] = None,
        tolerated_failure_percentage: Annotated[float | None, Prop(known=LITERAL, example="5")] = None,
        version: Annotated[str | None, Prop(known=LITERAL, rule=not_empty, example="'2'")] = None,
        logs: sfn.LogOptions | None = None,
    ) -> None:
        """Create the state machine, and the function that reads the rows and writes the table.

        Args:
            scope: The construct that the sweep is part of.
            id: Its id among that construct's children.
            workflow: The workflow, with ``input_fields``.
            over: The rows: ``Grid``, ``Rows`` or ``RowsFile``.
            results: Where results are kept, a prefix of this sweep's own that ends with a slash.
            concurrency: How many rows run at once, 1 to 10,000: no more than the quota of the machines' type, or the queue, has
                room for.
            objective: The metric by which the best row is chosen. Default: none is.
            tolerated_failure_count: How many rows of an execution may fail. With one more it ends with the error
                ``TrainingSweepFailed``, and the jobs that run are stopped. Default: none, or what the percentage says.
            tolerated_failure_percentage: How many rows of an execution may fail, in percent of those that it runs. With both,
                the lower counts. Default: none, or what the count says.
            version: Whose results count: a row that completed with another one runs again. Default: a hash of what the job's
                result comes from, its image, code, hyperparameters, environment, channels and metrics, as they are in the
                template; a text of one's own, such as ``"2"``, keeps results when these change.
            logs: What is kept of executions. Default: as of ``TrainingWorkflow``.

        Raises:
            ValueError: For a prop that breaks a rule, with its name.
        """
        super().__init__(scope, id)
        _check(workflow, results, concurrency, objective)
        _reserve(self, results)
        tolerance = _tolerance(tolerated_failure_count, tolerated_failure_percentage)
        rows = checked_rows(over, workflow.input_fields) if not isinstance(over, RowsFile) else None
        stack = Stack.of(self)
        bucket, key = (over.bucket, over.key) if isinstance(over, RowsFile) else self._uploaded(rows or "")
        function, role = handler_function(
            Construct(self, "Function"), "sweep", "Reads the rows of a sweep and writes its table", _MEMORY_MIB
        )
        payload = {
            "Rows": {"Bucket": bucket.bucket_name, "Key": key},
            "Results": {"Bucket": results.bucket.bucket_name, "Prefix": results.prefix},
            "Fields": rules_of(workflow.input_fields),
            "Version": at_synthesis(lambda: _version(workflow)) if version is None else [version],
            **({} if objective is None else {"Objective": {"MetricName": objective.metric, "Type": objective.goal}}),
        }
        states = SweepStates(
            partition=stack.partition,
            function=function.get_att("Arn").to_string(),
            payload=payload,
            workflow=workflow.state_machine.state_machine_arn,
            executions=stack.format_arn(
                service="states", resource=f"execution:{workflow.state_machine.state_machine_name}:"
            ),
            fields=workflow.input_fields,
            bucket=results.bucket.bucket_name,
            prefix=results.prefix,
            concurrency=concurrency,
            tolerance=tolerance,
        )
        self.workflow = workflow
        self.role = workflow.role
        self.state_machine: sfn.StateMachine = make_state_machine(self, states.definition(), logs or default_logs(self))
        stop_executions_on_deletion(self, self.state_machine, [workflow])
        workflow.guard.watching_parent(self.state_machine, workflow.state_machine, of_rows=True)
        self._allow_machine(function.get_att("Arn").to_string(), results)
        reading = [iam.PolicyStatement(actions=["s3:GetObject"], resources=[bucket.arn_for_objects(key)])]
        writing = [*_list(results), *_objects(results, ["s3:GetObject"], "rows/*")]
        writing += [*_objects(results, ["s3:PutObject"], "runs/*"), *_objects(results, ["s3:PutObject"], "table.csv")]
        iam.Policy(self, "FunctionPolicy", roles=[role], statements=[*reading, *writing])
        if bucket.encryption_key is not None:
            bucket.encryption_key.grant(role, "kms:Decrypt")
        if results.bucket.encryption_key is not None:
            for holder in (role, self.state_machine.role):
                results.bucket.encryption_key.grant(holder, "kms:Decrypt", "kms:GenerateDataKey")
        acknowledge_policies(self, _WHY)
        acknowledge(self, {"AwsSolutions-SF2": "an execution waits for jobs, whose hosts do not emit traces"})

    def _uploaded(self, rows: str) -> tuple[Any, str]:
        """The bucket and key of rows that are known at synthesis."""
        file = Path(Stage.of(self).asset_outdir, f"rows-{hashlib.sha256(rows.encode()).hexdigest()}.jsonl")  # type: ignore[union-attr]
        file.write_text(rows)
        asset = s3_assets.Asset(self, "Rows", path=str(file))
        return asset.bucket, asset.s3_object_key

    def _allow_machine(self, function: str, results: S3Prefix) -> None:
        """Grant the state machine what its states call, and a Distributed Map itself.

        That is in a policy of its own, which names the state machine, as CDK's ("IAM policies for using Distributed Map states").
        """
        machine, workflow = self.state_machine, self.workflow.state_machine
        stack = Stack.of(self)
        executions = stack.format_arn(service="states", resource=f"execution:{workflow.state_machine_name}:*")
        rule = stack.format_arn(
            service="events", resource="rule", resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule"
        )
        statements: Mapping[str, list[str]] = {
            function: ["lambda:InvokeFunction"],
            workflow.state_machine_arn: ["states:StartExecution"],
            executions: ["states:DescribeExecution", "states:StopExecution"],
            rule: ["events:DescribeRule", "events:PutRule", "events:PutTargets"],
        }
        for resource, actions in statements.items():
            machine.add_to_role_policy(iam.PolicyStatement(actions=actions, resources=[resource]))
        for statement in (
            *_objects(results, ["s3:PutObject"], "rows/*"),
            *_objects(results, ["s3:GetObject"], "runs/*"),
        ):
            machine.add_to_role_policy(statement)
        executions = stack.format_arn(service="states", resource=f"execution:{machine.state_machine_name}*")
        iam.Policy(
            self,
            "MapPolicy",
            roles=[machine.role],
            statements=[
                iam.PolicyStatement(actions=["states:StartExecution"], resources=[machine.state_machine_arn]),
                iam.PolicyStatement(
                    actions=["states:DescribeExecution", "states:StopExecution"], resources=[executions]
                ),
            ],
        )


def _version(workflow: TrainingWorkflow) -> list[str]:
    """What the results of a workflow's jobs come from: a hash, and the images, whose names may be known at deployment only."""
    requests = [{name: request.get(name) for name in _MAKES_RESULTS} for request in workflow.requests]
    images = [request["AlgorithmSpecification"].get("TrainingImage") for request in workflow.requests]
    text = json.dumps(Stack.of(workflow).resolve(requests), sort_keys=True)
    return [hashlib.sha256(text.encode()).hexdigest()[:16], *filter(None, images)]


def _objects(results: S3Prefix, actions: list[str], below: str) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(
            actions=actions,
            resources=[place.arn_for_objects(f"{results.prefix}{below}")],
            conditions=condition or None,
        )
        for place, condition in policy_targets(results.bucket)
    ]


def _list(results: S3Prefix) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(
            actions=["s3:ListBucket"],
            resources=[place.bucket_arn],
            conditions={"StringLike": {"s3:prefix": [f"{results.prefix}rows/*"]}, **condition},
        )
        for place, condition in policy_targets(results.bucket)
    ]


def _check(workflow: TrainingWorkflow, results: S3Prefix, concurrency: int, objective: Objective | None) -> None:
    if not workflow.input_fields:
        raise must(
            "workflow",
            "have input_fields, of which a sweep's rows are values",
            "TrainingWorkflow(..., input_fields={'learning_rate': NumberField(0, 1)})",
            f"none of {workflow.node.path}",
        )
    check_no_subfolder("results", results)
    if not results.prefix.endswith("/"):
        raise must("results", "be a prefix that ends with a slash", "'sweeps/rate/'", repr(results.prefix))
    if not 1 <= concurrency <= _MOST_AT_ONCE:
        raise must("concurrency", f"be 1 to {_MOST_AT_ONCE}", "8", f"{concurrency}")
    if objective is not None and objective.metric not in workflow.metric_names:
        raise must(
            "objective.metric",
            f"be one of the workflow's metric_definitions, {', '.join(workflow.metric_names) or 'none'}",
            "Objective('loss', 'Minimize')",
            repr(objective.metric),
        )


def _reserve(sweep: TrainingSweep, results: S3Prefix) -> None:
    """Record a place of results in the metadata of the app; raise ValueError where another sweep has it, or a part of it."""
    # A name that is a token is the same text each time, and another's is another.
    bucket, root = results.bucket.bucket_name, sweep.node.root.node
    for entry in root.metadata:
        if entry.type == _TAKEN and (taken := json.loads(str(entry.data)))["bucket"] == bucket:
            first, second = sorted((taken["prefix"], results.prefix), key=len)
            if second.startswith(first):
                rule = "be a place of this sweep's own, since each writes its table there"
                got = f"{results.prefix!r} beside {taken['prefix']!r} of {taken['path']}"
                raise must("results", rule, f"S3Prefix(bucket, 'sweeps/{sweep.node.id}/')", got)
    root.add_metadata(_TAKEN, json.dumps({"path": sweep.node.path, "bucket": bucket, "prefix": results.prefix}))


def _tolerance(count: int | None, percentage: float | None) -> dict[str, float]:
    if count is not None and count < 0:
        raise must("tolerated_failure_count", "be 0 or more", "5", f"{count}")
    if percentage is not None and not 0 <= percentage <= 100:
        raise must("tolerated_failure_percentage", "be 0 to 100", "5", f"{percentage}")
    given = {"ToleratedFailureCount": count, "ToleratedFailurePercentage": percentage}
    return {name: value for name, value in given.items() if value is not None}
