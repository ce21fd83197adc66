"""A state machine that runs one training job each time it is started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Unpack

import jsii
from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.data import S3Prefix, seconds_of
from cdk_sagemaker_training.definition import Integration, training_definition
from cdk_sagemaker_training.deletion import stop_jobs_on_deletion
from cdk_sagemaker_training.jsonpath import expression
from cdk_sagemaker_training.launch import Launch
from cdk_sagemaker_training.machine_policies import machine_policies, reserved_capacity
from cdk_sagemaker_training.machines import answer_review, default_logs, make_state_machine
from cdk_sagemaker_training.model_artifacts import MissingModel, model_check
from cdk_sagemaker_training.polling import MOST_SECONDS, Intervals, Poller
from cdk_sagemaker_training.prop_types import checked
from cdk_sagemaker_training.props import TrainingProps
from cdk_sagemaker_training.request_advice import short_time_advice
from cdk_sagemaker_training.stopping import Stopper
from cdk_sagemaker_training.sync import check_sync_takes, sync_takes
from cdk_sagemaker_training.tokens import is_unresolved

if TYPE_CHECKING:
    # Not needed to run, and takes as long to import as making a workflow or more.
    from aws_cdk import aws_cloudwatch as cloudwatch

_MOST_ATTEMPTS = 30  # as many as SageMaker itself retries a job, and as fit into an execution's history
_PENDING_SECONDS = 24 * 3_600  # for machines that nobody said how long to wait for
_LONGEST_SECONDS = 28 * 24 * 3_600  # for a time that is known only when the app is deployed
_UPLOAD_SECONDS = 3_600  # after its last second of training a job uploads what it made


@jsii.implements(iam.IGrantable)
class TrainingWorkflow(Construct):
    """A state machine that runs a training job each time it is started, and survives what training jobs meet.

    An execution's output is the job's description, as from DescribeTrainingJob (its times are milliseconds with ``"sync"``,
    ISO 8601 text with ``"poll"``). It fails with the error ``TrainingJobFailed`` or ``TrainingJobStopped`` and the job's reason
    as its cause, or with the error of the call that failed.

    - ``integration`` is how it waits for the job: ``"sync"`` by Step Functions' own integration, ``"poll"`` by describing
      the job at intervals that grow from 2 seconds to at most 2 minutes; where one execution has too few events for that, in
      executions of a second state machine, which end with the workflow's. None takes ``"sync"`` where that is known to take the
      request, which it is not of instance groups, a warm pool, a training plan and ``max_pending``.
    - A kind that makes several jobs, such as one that compiles ahead of the one that trains, has them run one after the other.
    - ``attempts`` is how often a job that fails is run, 1 to 30. Calls that AWS throttles or answers with an error are
      repeated in any case, and a call whose answer was lost never starts a second job.
    - ``missing_model`` is what becomes of a job that completes and leaves nothing in ``/opt/ml/model``, of which SageMaker
      uploads nothing and says nothing: ``"warn"`` adds ``Warnings``, a list of text, to the execution's output, ``"fail"`` ends
      it with the error ``TrainingJobWithoutModel``, ``"ignore"`` looks for no model, which the others do by listing the output's
      prefix. Of an ``output`` with a ``subfolder`` of the execution's input there is no warning.
    - Each execution has its checkpoints in ``<prefix>/<execution name>/``, for all its attempts. ``resume_from`` names an older
      execution whose checkpoints are used, and continued, instead: a name, or a place in the execution's input, such as
      ``sfn.JsonPath.string_at("$.resume_from")``.
    - ``timeout`` ends an execution, and its job; by default all attempts at their longest fit in, ``max_pending`` (else one day)
      of waiting for machines included. With a training plan there is no time-out by default: a job waits for the start of its
      plan, which no limit counts (service model, StoppingCondition), and Step Functions ends an execution after a year.
      However an execution ends before its job, a rule stops the job.
    - ``logs`` is what is kept of executions: by default their events without their data, for three months, in a group of its own
      that goes with the workflow.
    - When the workflow is deleted or replaced, its executions and jobs are stopped, and CloudFormation waits for their end, up
      to 15 minutes, before it deletes anything that they need. With ``retain_jobs`` they are left alone.

    What the job itself takes is listed, with its defaults, in ``TrainingProps``. Text and numbers take
    CDK's tokens and ``sfn.JsonPath`` of the execution's input, which must be an object without ``Training``, but for those that
    ``execution_input.KNOWN`` (docs/members.md) excludes: these are refused by name. As a grantee the workflow stands for
    its jobs: ``bucket.grant_read(workflow)``. Raises ``ValueError`` with the prop to change.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        resume_from: str | None = None,
        integration: Integration | None = None,
        attempts: int = 1,
        missing_model: MissingModel = "warn",
        timeout: Duration | int | None = None,
        logs: sfn.LogOptions | None = None,
        retain_jobs: bool = False,
        **props: Unpack[TrainingProps],
    ) -> None:
        super().__init__(scope, id)
        _check_attempts(attempts)
        launch = Launch(self, props)
        folder = _folder(resume_from, launch.checkpoints)
        requests = {
            one.name_suffix: launch.request(one, job_name="$.Training.JobName", checkpoint_folder=folder)
            for one in launch.job_requests
        }
        self.integration: Integration = integration or ("sync" if all(map(sync_takes, requests.values())) else "poll")
        if self.integration == "sync":
            for request in requests.values():
                check_sync_takes(request, "integration='poll'", props, integration)
        launch.advise_unlisted(integration)
        launch.advise(short_time_advice("timeout", timeout))
        models = model_check(missing_model, props["output"])
        reserved = reserved_capacity(launch.stack, requests.values())
        jobs = attempts * len(requests)
        longest = jobs * (_longest_seconds(launch) + _UPLOAD_SECONDS)
        timeout_seconds = _timeout_seconds(timeout, None if reserved else longest)
        intervals = Intervals.over(_known(timeout_seconds, longest), jobs)
        log_options = logs or default_logs(self)
        poller = None
        unbounded = timeout_seconds is None or is_unresolved(timeout_seconds)
        if self.integration == "poll" and (unbounded or intervals.longest > MOST_SECONDS):
            poller = Poller(self, "Poller", launch=launch, logs=log_options)
        definition = training_definition(
            requests=requests,
            prefix=launch.prefix,
            integration=self.integration,
            attempts=attempts,
            intervals=intervals,
            poller_arn=None if poller is None else poller.state_machine.state_machine_arn,
            timeout_seconds=timeout_seconds,
            partition=launch.partition,
            models=models,
        )
        self.state_machine = make_state_machine(self, launch.stack.to_json_string(definition), log_options)
        statements = machine_policies(launch, requests.values(), sync=self.integration == "sync")
        for statement in (*statements, *(models.policies() if models else ())):
            self.state_machine.add_to_role_policy(statement)
        self.stopper = Stopper(self, "Stopper", launch=launch, state_machine=self.state_machine, logs=log_options)
        executions = [self.stopper.executions_arn]
        if poller is not None:
            poller.grant_run(self.state_machine)
            executions.append(poller.executions_arn)
        answer_review(self, launch.job_arns, reserved, executions)
        if not retain_jobs:
            made = (self.state_machine, self.stopper, poller, log_options.destination, launch.role, launch.role.role)
            needed = (*made, props)
            stop_jobs_on_deletion(self, launch, self.state_machine, self.stopper.executions_arn, needed)
        self.role = launch.role
        self.network = props.get("network")
        self.image = props["image"]

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        return self.role.grant_principal

    def grant_start_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` start the workflow."""
        return self.state_machine.grant_start_execution(grantee)

    def as_task(self, scope: Construct, id: str, **task_state: Any) -> sfn.TaskStateBase:
        """The workflow as one state of another machine: starts an execution, waits for its end, stops with the other.

        Takes the props of CDK's ``StepFunctionsStartExecution``, such as ``input`` and ``result_path``. The job's description is
        in the result's ``Output``.

        A redrive of the other machine's execution runs the workflow, and a job, once more, which a redrive of the workflow's own
        execution does not: it fails again. With ``resume_from=sfn.JsonPath.string_at("$.checkpoints")`` of the workflow and
        ``input=sfn.TaskInput.from_object({"checkpoints": sfn.JsonPath.execution_name})`` here, its job goes on from the
        checkpoints of the one before.
        """
        # Here and not above, since importing the module takes longer than making a workflow.
        from aws_cdk import aws_stepfunctions_tasks as tasks

        return tasks.StepFunctionsStartExecution(
            scope,
            id,
            state_machine=self.state_machine,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            **task_state,
        )

    @property
    def alarms(self) -> list[cloudwatch.Alarm]:
        """In alarm while a job may run whose execution has ended; give each what it shall do, such as an ``SnsAction``."""
        return self.stopper.alarms

    def metric(self, metric_name: str, **options: Any) -> cloudwatch.Metric:
        """A metric of the workflow's executions, by the name that Step Functions gives it."""
        return self.state_machine.metric(metric_name, **options)

    def metric_started(self, **options: Any) -> cloudwatch.Metric:
        return self.state_machine.metric_started(**options)

    def metric_succeeded(self, **options: Any) -> cloudwatch.Metric:
        return self.state_machine.metric_succeeded(**options)

    def metric_failed(self, **options: Any) -> cloudwatch.Metric:
        return self.state_machine.metric_failed(**options)

    def metric_aborted(self, **options: Any) -> cloudwatch.Metric:
        return self.state_machine.metric_aborted(**options)

    def metric_timed_out(self, **options: Any) -> cloudwatch.Metric:
        return self.state_machine.metric_timed_out(**options)

    def metric_time(self, **options: Any) -> cloudwatch.Metric:
        """How long executions take, in milliseconds."""
        return self.state_machine.metric_time(**options)


def _timeout_seconds(timeout: Duration | int | None, otherwise: int | None) -> int | None:
    return otherwise if timeout is None else seconds_of("timeout", timeout)


def _longest_seconds(launch: Launch) -> int:
    """The most seconds from a job's Create to its end, without its upload and without waiting for a training plan."""
    pending = _known(launch.max_pending_seconds or _PENDING_SECONDS)
    return pending + max(_known(launch.max_runtime_seconds), _known(launch.max_wait_seconds or 0))


def _known(seconds: int | None, otherwise: int = _LONGEST_SECONDS) -> int:
    return otherwise if seconds is None or is_unresolved(seconds) else seconds


def _folder(resume_from: str | None, checkpoints: S3Prefix | None) -> str:
    """The JSONPath expression of the folder of an execution's checkpoints."""
    if resume_from is None:
        return "$$.Execution.Name"
    if checkpoints is None:
        raise ValueError(
            "resume_from must come with checkpoints, like checkpoints=S3Prefix(bucket, 'checkpoints/'), "
            f"got {resume_from!r} without"
        )
    if not is_unresolved(resume_from) and not re.fullmatch(r"[^/\s]{1,80}", resume_from):
        raise ValueError(
            f"resume_from must be the name of an execution, like 'monday' or sfn.JsonPath.string_at('$.resume_from'), "
            f"got {resume_from!r}"
        )
    return expression(resume_from)


def _check_attempts(attempts: int) -> None:
    if not 1 <= attempts <= _MOST_ATTEMPTS:
        raise ValueError(f"attempts must be a whole number from 1 to {_MOST_ATTEMPTS}, like 3, got {attempts!r}")
