"""A state machine that runs one training job each time it is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import jsii
from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.job_names import machine_name
from cdk_sagemaker_training.features.alternatives import Alternative, Alternatives
from cdk_sagemaker_training.features.budget import Budget
from cdk_sagemaker_training.features.input_fields import InputField, InputFields
from cdk_sagemaker_training.features.metrics import JobMetrics
from cdk_sagemaker_training.features.missing_model import MissingModel, model_check
from cdk_sagemaker_training.features.notify import Notify
from cdk_sagemaker_training.features.retries import RetriedFailures, Retries, Retry
from cdk_sagemaker_training.features.stop_when import StopRule, StopWhen
from cdk_sagemaker_training.features.waiting import WaitingLongerThan
from cdk_sagemaker_training.guard.deletion import check_updates, stop_jobs_on_deletion
from cdk_sagemaker_training.guard.guard import Guard
from cdk_sagemaker_training.guard.parents import StoppedWithParent
from cdk_sagemaker_training.guard.updates import BreakingUpdates
from cdk_sagemaker_training.jobs.kinds import TrainingJob
from cdk_sagemaker_training.lifecycle.causes import Cause
from cdk_sagemaker_training.lifecycle.direct import Integration, reserved_capacity
from cdk_sagemaker_training.lifecycle.feature import Feature, Parts
from cdk_sagemaker_training.lifecycle.job_set import JobSet
from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.lifecycle.polling import Poller
from cdk_sagemaker_training.lifecycle.queued import QueuedJobs
from cdk_sagemaker_training.lifecycle.state_machines import default_logs, make_state_machine, suppress_findings
from cdk_sagemaker_training.props.jsonpath import result_path
from cdk_sagemaker_training.props.prop import GRANTED, IN_INPUT, LITERAL, Known, Prop
from cdk_sagemaker_training.props.prop_types import annotations_of, checked
from cdk_sagemaker_training.request.overrides import OVERRIDES
from cdk_sagemaker_training.request.props import TrainingProps, check_props
from cdk_sagemaker_training.resources.queue import ITrainingQueue, QueueShare
from cdk_sagemaker_training.workflow.definition import training_definition
from cdk_sagemaker_training.workflow.imported_workflow import ImportedWorkflow, ITrainingWorkflow
from cdk_sagemaker_training.workflow.job_network import in_vpc
from cdk_sagemaker_training.workflow.planning import planned

if TYPE_CHECKING:
    # Not needed to run, and takes as long to import as making a workflow or more.
    from aws_cdk import aws_cloudwatch as cloudwatch
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_sns as sns

_TIMEOUT = Known("deployment", "since a state machine has one number for all executions")
_STATES = Known("synth", "since the states follow from it")
_ARN = Prop(known=GRANTED, example="'arn:aws:states:us-east-1:123456789012:stateMachine:Training'")


@jsii.implements(iam.IGrantable)
class TrainingWorkflow(ITrainingWorkflow, StoppedWithParent):
    """A state machine that runs a training job each time it is started, and survives what training jobs meet.

    An execution's output is the job's description, as from DescribeTrainingJob (its times are milliseconds with ``"sync"``,
    ISO 8601 text with ``"poll"``). It fails with the error ``TrainingJobFailed`` or ``TrainingJobStopped`` and the job's reason
    as its cause, or with the error of the call that failed. A kind that makes several jobs, such as one that compiles ahead of
    the one that trains, has them run one after the other.

    Calls that AWS throttles or answers with an error are repeated, and a call whose answer was lost never starts a second job.
    However an execution ends before its job, a rule stops the job. Each execution has its checkpoints in
    ``<prefix>/<execution name>/``, for all its attempts.

    Text and numbers take CDK's tokens and ``sfn.JsonPath`` of the execution's input, which must be an object without
    ``Training``, but for those that docs/members.md excludes: these are refused by name. As a grantee the workflow stands for
    its jobs: ``bucket.grant_read(workflow)``.

    Attributes:
        state_machine: The state machine.
        integration: How it waits for the job.
        props: The props of the job.
        requests: The rendered requests of all its jobs.
        role: The jobs' role.
        network: The jobs' network; None for SageMaker's own.
        image: The jobs' image.
        input_fields: The declared fields of an execution's input.
        metric_names: The names of ``metric_definitions``.
        job_metrics: Whether CloudWatch gets metrics of its jobs.
        job_name_prefix: How the jobs' names begin.
        queue: The queue in which jobs wait; None without one.
        guard: What stops jobs of executions that ended before them, of all workflows of the stack.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        resume_from: Annotated[str | None, Prop(known=IN_INPUT, example="'monday'")] = None,
        integration: Annotated[Integration | None, Prop(known=_STATES, example="'poll'")] = None,
        retries: Annotated[Mapping[Cause, Retry] | int | None, Prop(known=_STATES, example="2")] = None,
        alternatives: Annotated[Sequence[TrainingJob | Alternative], _STATES] = (),
        budget: Annotated[Budget | None, _STATES] = None,
        stop_when: Annotated[Sequence[StopRule], _STATES] = (),
        notify: Sequence[sns.ITopic] = (),
        waiting_longer_than: Annotated[Duration | int | None, Prop(known=_STATES, example="Duration.hours(2)")] = None,
        job_metrics: Annotated[bool, _STATES] = False,
        queue: Annotated[ITrainingQueue | QueueShare | None, _STATES] = None,
        input_fields: Annotated[Mapping[str, InputField] | None, _STATES] = None,
        missing_model: Annotated[MissingModel, _STATES] = "warn",
        features: Sequence[Feature] = (),
        timeout: Annotated[Duration | int | None, Prop(known=_TIMEOUT, example="Duration.days(2)")] = None,
        logs: sfn.LogOptions | None = None,
        retain_jobs: bool = False,
        breaking_updates: Annotated[BreakingUpdates, Prop(known=LITERAL, example="'stop'")] = "refuse",
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
        request_overrides: Annotated[Mapping[str, Any] | None, OVERRIDES] = None,
        **props: Unpack[TrainingProps],
    ) -> None:
        """Create the state machine, and what its jobs need.

        Args:
            scope: The construct that the workflow is part of.
            id: Its id among that construct's children.
            resume_from: The name of an older execution whose checkpoints are used, and continued: text, or a place in the
                execution's input, such as ``sfn.JsonPath.string_at("$.resume_from")``. Default: the execution's own checkpoints.
            integration: How it waits for the job: ``"sync"`` by Step Functions' own integration, ``"poll"`` by describing the
                job at intervals that grow from 2 seconds to at most 2 minutes; where one execution has too few events for
                that, in executions of a second state machine, which end with the workflow's. Default: ``"sync"`` where that
                is known to take the request, which it is not of instance groups, a warm pool, a training plan and
                ``max_pending``.
            retries: How often, and after which waits, a job is run again by the cause for which it did not complete, such as
                ``{**default_retries(), Cause.CAPACITY: Retry(first_wait=Duration.minutes(20), until=Duration.days(3))}``. A
                cause that is not in it, and a reason that is not known, is not retried; the execution's cause names it.
                docs/retries.md has the causes and what AWS says of each. A number, 1 to 29, runs a job that fails again so
                often, at once and whatever the cause: a bug in the script is billed as often. Default: never.
            alternatives: Jobs that run in place of ``job`` where AWS has no capacity for it, tried in order and at once, with its
                checkpoints; ``Alternative`` says what else differs. ``retries`` of ``Cause.CAPACITY`` wait once all were tried,
                and begin with ``job`` again; any other retry runs the job that ran. Types on which the job is the same are an
                ``InstanceGroup`` of a list, which SageMaker itself tries in order. Default: none.
            budget: What all attempts of an execution may take together, such as ``Budget(hours=48)``. An attempt runs at most for
                what is left, and none begins with less than an attempt needs: the execution ends with the error
                ``TrainingBudgetUsed``. What is left is in ``Budget`` of its output. Default: no limit.
            stop_when: Rules that stop a job that makes no progress: ``Silence``, once no host has logged a line for a time,
                ``MetricLimit``, once a metric is out of bounds, and ``Plateau``, once one improves no more. The job saves its
                last checkpoint, and the execution ends with the error ``TrainingJobStopped`` and the rule as its cause; a silent
                job is run again where ``retries`` have ``Cause.SILENT``. They need ``integration="poll"``, the default with
                them. Default: none.
            notify: Topics that get an event, as JSON, when an execution starts, succeeds, fails, times out or is aborted, when
                one of ``alarms`` is raised, with ``retries`` or ``alternatives`` for each job that is run again, with its
                cause, and with ``budget`` once that is nearly used. They are events of the default event bus, which other
                rules may match too: docs/retries.md. Default: none.
            waiting_longer_than: A Duration, or seconds, after which the topics of ``notify`` get an event if an execution still
                waits for machines, a quota or its turn in ``queue``: none of its jobs has begun to train since it started, or
                since one that trained was run again by ``retries``. Default: none.
            job_metrics: Whether CloudWatch gets metrics of each job that has ended: its times, and of one that did not complete
                its cause, which ``metric_training_time`` and the like read. CloudWatch bills each as a custom metric. Default:
                executions alone have metrics.
            queue: A ``TrainingQueue``, or a share of one such as ``queue.share("vision", priority=10)``, in which each attempt's
                job waits until there are machines of its capacity. Its training jobs are named by AWS Batch. A job that was
                terminated before it began fails the execution with ``TrainingJobStopped``. Not together with ``alternatives`` and
                ``stop_when``; docs/queue.md. Default: jobs are created at once.
            input_fields: The fields of an execution's input, with what is allowed, such as
                ``{"instance_type": ChoiceField(["ml.g5.xlarge", "ml.g5.2xlarge"])}`` for an ``InstanceGroup`` of
                ``sfn.JsonPath.string_at("$.instance_type")``. They are checked before a job is created: an execution without one
                that has no default, or with another value, ends with the error ``InvalidInput``, whose cause names the field,
                what is allowed, and what came. Other fields are not checked. Default: none.
            missing_model: What becomes of a job that completes and leaves nothing in ``/opt/ml/model``, of which SageMaker
                uploads nothing and says nothing. ``"warn"`` adds ``Warnings``, a list of text, to the execution's output,
                ``"fail"`` ends it with the error ``TrainingJobWithoutModel``, ``"ignore"`` looks for no model, which the
                others do by listing the output's prefix. Of an ``output`` with a ``subfolder`` of the execution's input there
                is no warning. Default: ``"warn"``.
            features: Features of your own: docs/extending.md. Default: none.
            timeout: A Duration, or seconds, after which an execution and its job end. Default: all attempts at their longest
                fit in, ``max_pending`` (else one day) of waiting for machines included; with a training plan there is no
                time-out, since a job waits for the start of its plan, which no limit counts (service model,
                StoppingCondition), and Step Functions ends an execution after a year. Nor is there one with a queue.
            logs: What is kept of executions. Default: their events without their data, for three months, in a log group of
                its own that is deleted with the workflow.
            retain_jobs: Whether executions and jobs go on when the workflow is deleted or replaced. Default: they are
                stopped, and CloudFormation waits for their end, up to 15 minutes, before it deletes anything that they need.
            breaking_updates: What becomes of an update of the stack that takes from executions that run what they need: where
                their jobs write, such as another ``output``, a key, their role, their names or their ``queue``, or the workflow
                itself, which another id renames. ``"refuse"`` ends the update before it changes the workflow, with the
                executions' names; ``"stop"`` stops them and waits for their jobs' end, ``"allow"`` lets it happen, and a
                job's model may be lost. Of a workflow that is removed counts what was deployed. Default: ``"refuse"``.
            vpc: An existing VPC for the jobs' hosts, in place of ``network``. Default: ``network``.
            vpc_subnets: Selects among the subnets of ``vpc``, which need a route to S3. Default: the private ones.
            security_groups: Existing security groups in ``vpc``, 1 to 5, all of which each host has. Default: a new one.
            request_overrides: Members of CreateTrainingJob that are no props yet, by their paths, such as
                ``{"ModelPackageConfig.ModelPackageGroupArn": group_arn}``; of all jobs. They are checked against the service's
                model, but for those whose path is ``unlisted``. Default: none.
            props: The props of the job: see ``TrainingProps``.

        Raises:
            TypeError: For a prop that is not there, and for one that is missing.
            ValueError: For a prop that breaks a rule, with its name.
        """
        super().__init__(scope, id)
        check_props("TrainingWorkflow", props, annotations_of(TrainingWorkflow.__init__))
        props = in_vpc(self, props, vpc, vpc_subnets, security_groups)
        # In the order in which they put their states: those that count or notify of what others do come after them.
        given = (
            InputFields(input_fields) if input_fields else None,
            Alternatives(alternatives) if alternatives else None,
            None if retries is None else RetriedFailures(retries) if isinstance(retries, int) else Retries(retries),
            StopWhen(stop_when) if stop_when else None,
            budget,
            model_check(missing_model, props["output"]),
            *features,
            JobMetrics() if job_metrics else None,
            None if waiting_longer_than is None else WaitingLongerThan(waiting_longer_than),
            Notify(notify) if notify else None,
        )
        features = [feature for feature in given if feature is not None]
        variants = [variant for feature in features for variant in feature.alternatives(props)]
        jobs = JobSet(self, props, variants, request_overrides)
        plan = planned(jobs, features, props, resume_from, queue=queue, integration=integration, timeout=timeout)
        log_options = logs or default_logs(self)
        poller = _poller(self, plan, log_options)
        name, definition = machine_name(self), training_definition(plan)
        self.state_machine: sfn.StateMachine = make_state_machine(self, definition, log_options, name=name)
        self.node.default_child = self.state_machine.node.default_child
        for statement in plan.statements():
            self.state_machine.add_to_role_policy(statement)
        self.guard = Guard.of(self).watching(plan, name)
        for feature in features:
            feature.constructs(self, plan, Parts(self.state_machine, self.alarms, log_options))
        executions = [jobs.stack.format_arn(service="states", resource=f"execution:{name}:*")]
        if poller is not None:
            poller.grant_run(self.state_machine)
            executions.append(poller.executions_arn)
        reserved = reserved_capacity(jobs.stack, plan.all_requests)
        suppress_findings(self, plan.service.arns(jobs), reserved, executions)
        needed = (self.state_machine, self.guard.rule, poller, log_options.destination, jobs.role, jobs.role.role)
        stop_jobs_on_deletion(self, plan, self.state_machine, (*needed, props, *variants), retain=retain_jobs)
        check_updates(plan, name, self.state_machine.role, breaking_updates, retain=retain_jobs)
        self.integration: Integration = "poll" if plan.service.polls else "sync"
        self.props, self.requests = props, plan.all_requests
        self.input_fields: Mapping[str, InputField] = dict(input_fields or {})
        self.job_metrics = job_metrics
        self.job_name_prefix = jobs.prefix
        self.queue = queue.queue if isinstance(queue, QueueShare) else queue
        self.role = jobs.role
        self.network = props.get("network")
        self.image = props["image"]
        self.metric_names = tuple(props.get("metric_definitions") or ())

    @staticmethod
    @checked
    def from_state_machine_arn(scope: Construct, id: str, state_machine_arn: Annotated[str, _ARN]) -> ITrainingWorkflow:
        """Use a workflow that another stack or app defines, whose jobs' role is not known.

        Args:
            scope: The parent construct.
            id: The construct id.
            state_machine_arn: The state machine's ARN.

        Raises:
            ValueError: It is not the ARN of a state machine.
        """
        return TrainingWorkflow.from_training_workflow_attributes(scope, id, state_machine_arn=state_machine_arn)

    @staticmethod
    @checked
    def from_training_workflow_attributes(
        scope: Construct,
        id: str,
        *,
        state_machine_arn: Annotated[str, _ARN],
        role: iam.IRole | None = None,
        job_metrics: bool = False,
    ) -> ITrainingWorkflow:
        """Use a workflow that another stack or app defines.

        Args:
            scope: The parent construct.
            id: The construct id.
            state_machine_arn: The state machine's ARN.
            role: The jobs' role, to which grants to the workflow go. Default: not known, and such a
                grant is an error or a warning of CDK's.
            job_metrics: Whether it was defined with ``job_metrics=True``, so that ``metric_training_time`` and the like work.

        Raises:
            ValueError: The ARN is not that of a state machine.
        """
        return ImportedWorkflow(scope, id, state_machine_arn, role, job_metrics)

    def as_task(self, scope: Construct, id: str, *, keeps_job: bool = False, **task_state: Any) -> sfn.TaskStateBase:
        """One state of another machine that starts an execution, waits for its end, and stops it with its own.

        As of ``ITrainingWorkflow``.

        Args:
            scope: The construct that the state is part of.
            id: Its id among that construct's children, and its name.
            keeps_job: Whether the execution gets the state's whole input, and the state keeps the job's description in
                ``Steps.<id of the workflow>.Job`` of its output, where an ``ArtifactOf``, a ``Gate`` or a ``RegisterModel`` of
                the workflow after it finds that.
            task_state: Props of CDK's ``StepFunctionsStartExecution``, such as ``comment`` and ``task_timeout``.

        Raises:
            ValueError: The id of a workflow whose job is kept has characters that a path does not take, or the state, in JSONata,
                keeps one.
        """
        if keeps_job and task_state.get("query_language") == sfn.QueryLanguage.JSONATA:
            rule = "be False in JSONata, since the states that read what is kept are in JSONPath"
            raise must("keeps_job", rule, "outputs={'job': '{% $states.result.Output %}'}", "True")
        kept = keeping_job(self.node.id) if keeps_job else {}
        return super().as_task(scope, id, **kept, **task_state)

    def metric_stopper_failed(self, **options: Any) -> cloudwatch.Metric:
        """How often a job whose execution had ended could not be stopped for an hour; ``alarms`` has an alarm of it.

        Args:
            options: Those of ``metric``.
        """
        return self.guard.stopper.metric_failed(**options)

    @property
    def alarms(self) -> list[cloudwatch.Alarm]:
        """In alarm while a job may run whose execution has ended; give each what it shall do, such as an ``SnsAction``.

        The stack's workflows share them. The last one is in alarm too once such a job was found by the schedule and stopped.
        """
        return self.guard.alarms


def keeping_job(workflow: str) -> dict[str, Any]:
    """Return the props of a state that runs a workflow and keeps the description of its job for the states after it."""
    return {
        "input": sfn.TaskInput.from_json_path_at("$"),
        "result_selector": {"Job.$": "$.Output"},
        "result_path": result_path(workflow),
    }


def _poller(workflow: Construct, plan: Plan, log_options: sfn.LogOptions) -> Poller | None:
    """The state machine that polls jobs, where an execution of the workflow has too few events for that, or does not poll."""
    watch = next((watch for feature in plan.features if (watch := feature.watch())), None)
    queued = isinstance(plan.service, QueuedJobs)
    if not (watch or queued or (plan.service.polls and plan.limits.outlast_one_history)):
        return None
    poller = Poller(workflow, "Poller", jobs=plan.jobs, service=plan.service, logs=log_options, watch=watch)
    plan.poller_arn = poller.state_machine.state_machine_arn
    return poller
