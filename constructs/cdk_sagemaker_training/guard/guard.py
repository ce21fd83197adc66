"""What stops the training jobs of a stack's executions that ended before them: at once by an event, and by a schedule.

EventBridge delivers events of AWS's services by best effort, so that in rare cases the stopper does not hear of an execution's
end (EventBridge reference, "Delivery level for AWS service events"): no lost event leaves a job running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.job_names import machines_prefix
from cdk_sagemaker_training.core.lazy import at_synthesis
from cdk_sagemaker_training.core.nag import OF_THE_STACK, Suppressions
from cdk_sagemaker_training.guard.reconciling import reconciling_definition
from cdk_sagemaker_training.guard.stopping import stopping_definition
from cdk_sagemaker_training.lifecycle.job_set import executions_of, of_executions
from cdk_sagemaker_training.lifecycle.state_machines import REASONS, alarm_of_any, default_logs, make_state_machine
from cdk_sagemaker_training.request.access import EXECUTION_TAG
from cdk_sagemaker_training.resources.queue import ITrainingQueue

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.job_set import JobSet
    from cdk_sagemaker_training.lifecycle.plan import Plan

_ID = "SageMakerTrainingJobsGuard"
_MINUTES = 15


class Guard(Construct):
    """What stops the jobs of a stack's workflows that run although their executions have ended.

    A rule starts ``stopper`` for each execution that was aborted, timed out or failed. And an execution each quarter of an hour
    of ``reconciler``, an express state machine, lists the workflows' jobs that run, and describes the execution that each job's
    tag names, and of one that runs the execution that started it. It fails where it stopped something or could not look, with
    what that was as its cause.

    Neither its rules nor its permissions grow with the workflows, and they outlast a change of a workflow: executions are known
    by the names of the stack's state machines, jobs by the tag with their execution. Of a state machine of a user's own it
    learns by ``TrainingTask.guard``.

    Attributes:
        stopper: The state machine that stops the jobs of one execution.
        reconciler: The state machine that looks for jobs, and executions with jobs, that run on after what they belong to.
        dead_letter_queue: Events that EventBridge could not deliver, after 24 hours and up to 185 retries ("How EventBridge
            retries delivering events").
        stopper_alarm: In alarm if a job could not be stopped for an hour, so that it may still run.
        dead_letter_alarm: In alarm if the queue has a message.
        alarm: In alarm if the schedule found a job to stop, or could not look, or not within five minutes.
    """

    def __init__(self, scope: Construct, id: str) -> None:
        """Create the state machines, their rules and alarms."""
        super().__init__(scope, id)
        self._words: dict[str, None] = {}  # the first words of jobs' names
        self._queued: dict[
            str, tuple[str, str]
        ] = {}  # by the state machine's name, its queue and how its jobs' names begin
        self._queues: dict[str, None] = {}
        self._parents: dict[str, None] = {}  # patterns of the ARNs of executions that start workflows and wait for them
        self._takes_all = False
        self._stack = stack = Stack.of(self)
        # For the account's own state machines and rules, and no others, as CDK has it of its own roles for state machines.
        self._of_account = {"StringEquals": {"aws:SourceAccount": stack.account}}
        machines = {"ArnLike": {"aws:SourceArn": stack.format_arn(service="states", resource="stateMachine:*")}}
        trusted = iam.ServicePrincipal("states.amazonaws.com", conditions={**self._of_account, **machines})
        self._role = iam.Role(self, "Role", assumed_by=trusted)
        self._suppressions = Suppressions(self)
        self._suppressions.add(REASONS)
        self._tags = iam.PolicyStatement(actions=["sagemaker:ListTags"])
        self._executions = [executions_of(stack)]  # patterns of the ARNs of those whose jobs it stops
        self._stopping = of_executions(stack, "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob")
        self._describing = iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[*self._executions])
        self._cancelling = iam.PolicyStatement(actions=["states:StopExecution"], resources=self._executions[:1])
        self._allow()
        logs = default_logs(self)
        # What is in them is complete only once all workflows are there.
        stopping = at_synthesis(lambda: stopping_definition(self._queued, stack.partition))
        self.stopper = make_state_machine(self, stack.to_json_string(stopping), logs, id="Stopper", role=self._role)
        looking = at_synthesis(
            lambda: reconciling_definition(self._words, self._queues, self._executions, stack.partition, self._parents)
        )
        self.reconciler = make_state_machine(
            self, stack.to_json_string(looking), logs, sfn.StateMachineType.EXPRESS, id="Reconciler", role=self._role
        )
        self.dead_letter_queue = sqs.Queue(
            self,
            "DeadLetterQueue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        self.stopper_alarm = alarm_of_any(
            self,
            "StopperAlarm",
            "A training job whose execution has ended may still run: it could not be stopped for an hour",
            self.stopper.metric_failed(),
        )
        self.dead_letter_alarm = alarm_of_any(
            self,
            "DeadLetterAlarm",
            "A training job may still run: the end of its execution was not delivered to what stops the job",
            self.dead_letter_queue.metric_approximate_number_of_messages_visible(),
        )
        self.alarm = alarm_of_any(
            self,
            "Alarm",
            "A training job ran on after its execution had ended and was stopped, or could not be looked for",
            # What takes longer than five minutes did not fail, but timed out ("Metrics that report a count"); where one has no
            # data it is 0 ("Using metric math", Basic arithmetic functions).
            cloudwatch.MathExpression(
                expression="failed + timed_out",
                using_metrics={
                    "failed": self.reconciler.metric_failed(),
                    "timed_out": self.reconciler.metric_timed_out(),
                },
            ),
        )
        self._rules()

    @staticmethod
    def of(scope: Construct) -> Guard:
        """Return the guard of a construct's stack; create it where there is none."""
        stack = Stack.of(scope)
        existing = stack.node.try_find_child(_ID) or Guard(stack, _ID)
        assert isinstance(existing, Guard)
        return existing

    @property
    def alarms(self) -> list[cloudwatch.Alarm]:
        """All alarms."""
        return [self.stopper_alarm, self.dead_letter_alarm, self.alarm]

    def take_events_of_the_stack(self) -> None:
        """Let each rule of the stack send to the dead-letter queue what it could not deliver, whatever their number.

        A rule is named after its stack, as CloudFormation names it ("Name Type": the stack's name, the logical id and a suffix).
        """
        if self._takes_all:
            return
        self._takes_all = True
        rules = self._stack.format_arn(service="events", resource="rule", resource_name=f"{self._stack.stack_name}-*")
        self.dead_letter_queue.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                resources=[self.dead_letter_queue.queue_arn],
                conditions={"ArnLike": {"aws:SourceArn": rules}},
            )
        )

    def watching(self, plan: Plan, machine_name: str) -> Guard:
        """Watch over a workflow; returns the guard."""
        jobs = plan.jobs
        for queue in (child for child in self._stack.node.find_all() if isinstance(child, ITrainingQueue)):
            # Jobs of a workflow that waited in it before an update may still do so.
            self._watch_queue(queue.queue_arn)
        if queue_arn := plan.service.properties.get("JobQueue"):
            self._watch_queue(queue_arn)
            self._queued[machine_name] = (queue_arn, jobs.prefix)
        return self._watching_names(jobs)

    def watching_machine(self, machine: sfn.StateMachine, jobs: JobSet) -> Guard:
        """Watch over a state machine of a user's own, by the schedule alone; returns the guard."""
        executions = self._stack.format_arn(service="states", resource=f"execution:{machine.state_machine_name}:*")
        if executions not in self._executions:
            self._executions.append(executions)
            self._describing.add_resources(executions)
            self._suppressions.add_wildcards([executions], OF_THE_STACK)
            self._stopping.add_condition("StringLike", {f"aws:ResourceTag/{EXECUTION_TAG}": self._executions})
        return self._watching_names(jobs)

    def watching_parent(self, machine: sfn.StateMachine, started: sfn.IStateMachine, *, of_rows: bool = False) -> None:
        """Have no execution with a job outlive one of a pipeline or sweep that started it and waits for it.

        One of another stack, which refers to the workflow, is left out: the stacks would refer to each other.

        Args:
            machine: Its state machine.
            started: The state machine of a workflow.
            of_rows: Whether child executions of the machine start it, whose inputs name the machine's execution.
        """
        if Stack.of(machine) is not self._stack:
            return
        self.watching_parent_named(machine.state_machine_name, started)
        if of_rows:
            self._cancelling.add_resources(self._executions_of(machine.state_machine_name, "/*"))

    def watching_parent_named(self, name: str, started: sfn.IStateMachine) -> None:
        """Have no execution with a job outlive one of a machine that started it and waits for it.

        Step Functions stops it with its parent by best effort ("Run a Job (.sync)"). What started an execution is in its input;
        of a Distributed Map it is a child execution, whose ARN has a slash after the machine's name.

        Args:
            name: The machine's name.
            started: The state machine of a workflow, or of a pipeline or sweep, whose own parent is its machine then.
        """
        if not self._parents:
            self._role.add_to_policy(self._cancelling)
        for rest in (":*", "/*"):
            parents = self._executions_of(name, rest)
            if parents not in self._parents:
                self._parents[parents] = None
                self._describing.add_resources(parents)
                self._suppressions.add_wildcards([parents], OF_THE_STACK)
        if isinstance(started, sfn.StateMachine):
            executions = self._executions_of(started.state_machine_name, ":*")
            if executions in self._parents:
                self._cancelling.add_resources(executions)

    def _executions_of(self, machine_name: str, rest: str) -> str:
        return self._stack.format_arn(service="states", resource=f"execution:{machine_name}{rest}")

    def _watching_names(self, jobs: JobSet) -> Guard:
        """Watch over the training jobs whose names begin with the same words as those of a construct; returns the guard."""
        if not self._words:
            self._role.add_to_policy(self._tags)
        for word in jobs.first_words:
            if word not in self._words:
                similar = self._jobs(f"{word}-*")
                self._tags.add_resources(similar)
                self._suppressions.add_wildcards([similar], OF_THE_STACK)
                self._words[word] = None
        return self

    def _watch_queue(self, queue_arn: str) -> None:
        if not self._queues:
            self._allow_queues()
        self._queues[queue_arn] = None

    def _jobs(self, name: str) -> str:
        return self._stack.format_arn(service="sagemaker", resource="training-job", resource_name=name)

    def _allow(self) -> None:
        self._suppressions.add_wildcards([*self._executions, self._jobs("*")], OF_THE_STACK)
        # ListTrainingJobs has no narrower resource.
        listing = iam.PolicyStatement(actions=["sagemaker:ListTrainingJobs"], resources=["*"])
        for statement in (listing, self._stopping, self._describing):
            self._role.add_to_policy(statement)

    def _allow_queues(self) -> None:
        jobs = self._stack.format_arn(service="batch", resource="service-job/*")
        self._suppressions.add_wildcards([jobs], OF_THE_STACK)
        self._role.add_to_policy(
            iam.PolicyStatement(actions=["batch:DescribeServiceJob", "batch:ListServiceJobs"], resources=["*"])
        )
        self._role.add_to_policy(of_executions(self._stack, "batch:TerminateServiceJob"))

    def _rules(self) -> None:
        machines = [self.stopper, self.reconciler]
        starting = iam.PolicyStatement(
            actions=["states:StartExecution"], resources=[machine.state_machine_arn for machine in machines]
        )
        role = iam.Role(
            self,
            "EventsRole",
            assumed_by=iam.ServicePrincipal("events.amazonaws.com", conditions=self._of_account),
            inline_policies={"Start": iam.PolicyDocument(statements=[starting])},
        ).without_policy_updates()
        prefix = self._stack.format_arn(service="states", resource=f"stateMachine:{machines_prefix(self._stack)}")
        self.rule = events.Rule(
            self,
            "Rule",
            description="Executions that ended before their training jobs may have",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"stateMachineArn": [{"prefix": prefix}], "status": ["ABORTED", "FAILED", "TIMED_OUT"]},
            ),
            targets=[
                targets.SfnStateMachine(
                    self.stopper,
                    input=events.RuleTargetInput.from_event_path("$.detail"),
                    role=role,
                    dead_letter_queue=self.dead_letter_queue,
                )
            ],
        )
        events.Rule(
            self,
            "Schedule",
            description="Looks for training jobs whose executions have ended",
            schedule=events.Schedule.rate(Duration.minutes(_MINUTES)),
            targets=[
                targets.SfnStateMachine(self.reconciler, role=role, dead_letter_queue=self.dead_letter_queue),
            ],
        )
