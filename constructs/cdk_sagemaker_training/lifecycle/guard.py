"""What stops the training jobs of a stack's executions that ended before them: at once by an event, and by a schedule.

EventBridge delivers events of AWS's services by best effort, so that in rare cases the stopper does not hear of an execution's
end (EventBridge reference, "Delivery level for AWS service events"): no lost event leaves a job running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from cdk_sagemaker_training.lifecycle.job_set import executions_of, of_executions
from cdk_sagemaker_training.lifecycle.state_machines import REASONS, alarm_of_any, default_logs, make_state_machine
from cdk_sagemaker_training.lifecycle.states import catch, retry, sdk_task
from cdk_sagemaker_training.lifecycle.stopping import stopping_definition
from cdk_sagemaker_training.request.access import EXECUTION_TAG

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.plan import Plan

_ID = "SageMakerTrainingJobsGuard"
_MINUTES = 15
_PAGE = 100  # MaxResults of ListTrainingJobs
_AT_ONCE = 10
# In which the stopper, where the event did arrive, has stopped the job.
_SECONDS_FOR_THE_STOPPER = 60


class Guard(Construct):
    """What stops the jobs of a stack's workflows that run although their executions have ended.

    A rule starts ``stopper`` for each execution that was aborted, timed out or failed. And an execution each quarter of an hour
    of ``reconciler``, an express state machine, lists the workflows' jobs that run, and describes the execution that each job's
    tag names. It fails where it stopped a job or could not look, with the jobs or the errors as its cause.

    Neither its rules nor its permissions grow with the workflows, and they outlast a change of a workflow: executions are known
    by the names of the stack's state machines, jobs by the tag with their execution.

    Attributes:
        stopper: The state machine that stops the jobs of one execution.
        reconciler: The state machine that looks for jobs that run although their execution has ended.
        dead_letter_queue: Events that EventBridge could not deliver, after 24 hours and up to 185 retries ("How EventBridge
            retries delivering events").
        stopper_alarm: In alarm if a job could not be stopped for an hour, so that it may still run.
        dead_letter_alarm: In alarm if the queue has a message.
        alarm: In alarm if the schedule found a job to stop, or could not look.
    """

    def __init__(self, scope: Construct, id: str) -> None:
        """Create the state machines, their rules and alarms.

        Args:
            scope: The stack.
            id: The construct id.
        """
        super().__init__(scope, id)
        self._words: dict[str, None] = {}  # the first words of jobs' names
        self._queued: dict[
            str, tuple[str, str]
        ] = {}  # by the state machine's name, its queue and how its jobs' names begin
        self._stack = stack = Stack.of(self)
        # For the account's own state machines and rules, and no others, as CDK has it of its own roles for state machines.
        self._of_account = {"StringEquals": {"aws:SourceAccount": stack.account}}
        machines = {"ArnLike": {"aws:SourceArn": stack.format_arn(service="states", resource="stateMachine:*")}}
        trusted = iam.ServicePrincipal("states.amazonaws.com", conditions={**self._of_account, **machines})
        self._role = iam.Role(self, "Role", assumed_by=trusted)
        self._suppressions = Suppressions(self)
        self._suppressions.add(REASONS)
        self._tags = iam.PolicyStatement(actions=["sagemaker:ListTags"])
        self._allow()
        logs = default_logs(self)
        # What is in them is complete only once all workflows are there.
        stopping = at_synthesis(lambda: stopping_definition(self._queued, stack.partition))
        self.stopper = make_state_machine(self, stack.to_json_string(stopping), logs, id="Stopper", role=self._role)
        words = at_synthesis(lambda: list(self._words))
        looking = guard_definition(words, f"*:execution:{machines_prefix(stack)}*", stack.partition)
        self.reconciler = make_state_machine(
            self, looking, logs, sfn.StateMachineType.EXPRESS, id="Reconciler", role=self._role
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
            self.reconciler.metric_failed(),
        )
        self._rules()

    @staticmethod
    def of(scope: Construct) -> Guard:
        """Return the guard of a construct's stack; create it where there is none.

        Args:
            scope: The construct.
        """
        stack = Stack.of(scope)
        existing = stack.node.try_find_child(_ID) or Guard(stack, _ID)
        assert isinstance(existing, Guard)
        return existing

    @property
    def alarms(self) -> list[cloudwatch.Alarm]:
        """All alarms."""
        return [self.stopper_alarm, self.dead_letter_alarm, self.alarm]

    def watching(self, plan: Plan, machine_name: str) -> Guard:
        """Watch over a workflow; returns the guard.

        Args:
            plan: The workflow.
            machine_name: The name of its state machine.
        """
        jobs = plan.jobs
        if queue := plan.service.properties.get("JobQueue"):
            if not self._queued:
                self._allow_queues()
            self._queued[machine_name] = (queue, jobs.prefix)
            return self
        # The first word, which by default is the stack's: the jobs of all of its workflows are one list.
        if not self._words:
            self._role.add_to_policy(self._tags)
        for word in dict.fromkeys((jobs.prefix.partition("-")[0], jobs.prefix.partition("-")[0].lower())):
            if word not in self._words:
                similar = self._jobs(f"{word}-*")
                self._tags.add_resources(similar)
                self._suppressions.add_wildcards([similar], OF_THE_STACK)
                self._words[word] = None
        return self

    def _jobs(self, name: str) -> str:
        return self._stack.format_arn(service="sagemaker", resource="training-job", resource_name=name)

    def _allow(self) -> None:
        executions = executions_of(self._stack)
        self._suppressions.add_wildcards([executions, self._jobs("*")], OF_THE_STACK)
        for statement in (
            # ListTrainingJobs has no narrower resource.
            iam.PolicyStatement(actions=["sagemaker:ListTrainingJobs"], resources=["*"]),
            of_executions(self._stack, "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"),
            iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[executions]),
        ):
            self._role.add_to_policy(statement)

    def _allow_queues(self) -> None:
        jobs = self._stack.format_arn(service="batch", resource="service-job/*")
        self._suppressions.add_wildcards([jobs], OF_THE_STACK)
        self._role.add_to_policy(iam.PolicyStatement(actions=["batch:ListServiceJobs"], resources=["*"]))
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


def guard_definition(words: Any, executions: str, partition: str) -> dict[str, Any]:
    """Return the state machine that stops jobs that run although their executions have ended.

    Args:
        words: The first words of jobs' names.
        executions: Pattern of the ARNs of the executions whose jobs they are.
        partition: Partition of ARNs.
    """
    acted = {"Variable": "$.Acted[0]", "IsPresent": True, "Next": "Acted"}
    return {
        "Comment": "Stops training jobs that run although their executions have ended",
        "StartAt": "Words",
        "States": {
            "Words": {"Type": "Pass", "Result": {"Words": words}, "Next": "OfEach"},
            "OfEach": {
                "Type": "Map",
                "ItemsPath": "$.Words",
                "ItemSelector": {"Word.$": "$$.Map.Item.Value"},
                # ListTrainingJobs has 2 calls a second in an account (aws-solutions/deepracer-on-aws 87).
                "MaxConcurrency": 1,
                "ItemProcessor": {"StartAt": "List", "States": _of_word(executions, partition)},
                "ResultPath": "$.Found",
                "Next": "Gather",
            },
            "Gather": {
                "Type": "Pass",
                "Parameters": {"Acted.$": "$.Found[?(@.Acted == 'yes')].Told"},
                "Next": "HasActed",
            },
            "HasActed": {"Type": "Choice", "Choices": [acted], "Default": "Done"},
            "Acted": {
                "Type": "Fail",
                "Error": "TrainingJobGuard",
                "CausePath": "States.JsonToString($.Acted)",
            },
            "Done": {"Type": "Succeed"},
        },
    }


def _called(partition: str, operation: str, parameters: dict[str, Any], result: str, following: str) -> dict[str, Any]:
    errors = ("Sfn.SfnException", "Sfn.SdkClientException") if operation.startswith("sfn:") else ()
    return sdk_task(partition, operation, parameters, f"$.{result}", retry(5, *errors), following)


def _of_word(executions: str, partition: str) -> dict[str, Any]:
    """The states that look at the jobs whose names have a word, page by page, until a job was stopped."""
    asked = {"StatusEquals": "InProgress", "NameContains.$": "States.Format('{}-', $.Word)", "MaxResults": _PAGE}
    not_looked = {"Catch": [catch("NotLooked", "$.Error")]}

    def listed(more: dict[str, str]) -> dict[str, Any]:
        return {
            **_called(partition, "sagemaker:listTrainingJobs", {**asked, **more}, "Page", "OfEachJob"),
            **not_looked,
        }

    return {
        "List": listed({}),
        "OfEachJob": {
            "Type": "Map",
            "ItemsPath": "$.Page.TrainingJobSummaries",
            "ItemSelector": {"Job.$": "$$.Map.Item.Value", "Word.$": "$.Word"},
            "MaxConcurrency": _AT_ONCE,
            "ItemProcessor": {"StartAt": "FirstWord", "States": _of_job(executions, partition)},
            "ResultPath": "$.Looked",
            **not_looked,
            "Next": "Stopped",
        },
        "Stopped": {
            "Type": "Pass",
            "Parameters": {"Jobs.$": "$.Looked[?(@.Stopped != '')].Stopped"},
            "ResultPath": "$.Stopped",
            "Next": "IsDone",
        },
        "IsDone": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.Stopped.Jobs[0]", "IsPresent": True, "Next": "Tell"},
                {"Variable": "$.Page.NextToken", "IsPresent": True, "Next": "ListMore"},
            ],
            "Default": "Nothing",
        },
        "ListMore": listed({"NextToken.$": "$.Page.NextToken"}),
        "Tell": {"Type": "Pass", "Parameters": {"Acted": "yes", "Told.$": "$.Stopped.Jobs"}, "End": True},
        "Nothing": {"Type": "Pass", "Result": {"Acted": "no"}, "End": True},
        "NotLooked": {
            "Type": "Pass",
            "Parameters": {
                "Acted": "yes",
                "Told.$": "States.Array(States.Format('{}: {}: {}', $.Word, $.Error.Error, $.Error.Cause))",
            },
            "End": True,
        },
    }


def _of_job(executions: str, partition: str) -> dict[str, Any]:
    """The states that stop a job whose execution has ended."""
    name = {"TrainingJobName.$": "$.Job.TrainingJobName"}
    execution = "$.Tagged.Execution[0]"
    ended = {"ErrorEquals": ["Sfn.ExecutionDoesNotExistException"], "ResultPath": "$.Error", "Next": "WaitForStopper"}
    runs = [{"Variable": "$.Execution.Status", "StringEquals": status} for status in ("RUNNING", "PENDING_REDRIVE")]
    return {
        # A name that contains the word elsewhere is another's, of which not even the tags may be read.
        "FirstWord": {
            "Type": "Pass",
            "Parameters": {"Is.$": "States.ArrayGetItem(States.StringSplit($.Job.TrainingJobName, '-'), 0)"},
            "ResultPath": "$.First",
            "Next": "HasWord",
        },
        "HasWord": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.First.Is", "StringEqualsPath": "$.Word", "Next": "Tags"}],
            "Default": "Well",
        },
        "Tags": {
            **_called(partition, "sagemaker:listTags", {"ResourceArn.$": "$.Job.TrainingJobArn"}, "Tagged", "IsTagged"),
            "ResultSelector": {"Execution.$": f"$.Tags[?(@.Key == '{EXECUTION_TAG}')].Value"},
        },
        "IsTagged": {
            "Type": "Choice",
            "Choices": [{"Variable": execution, "IsPresent": True, "Next": "IsOurs"}],
            "Default": "Well",
        },
        "IsOurs": {
            "Type": "Choice",
            "Choices": [{"Variable": execution, "StringMatches": executions, "Next": "DescribeExecution"}],
            "Default": "Well",
        },
        "DescribeExecution": {
            **_called(
                partition,
                "sfn:describeExecution",
                {"ExecutionArn.$": execution, "IncludedData": "METADATA_ONLY"},
                "Execution",
                "HasEnded",
            ),
            "ResultSelector": {"Status.$": "$.Status"},
            # It was deleted, or ended 90 days ago ("Quotas related to state machine executions").
            "Catch": [ended],
        },
        "HasEnded": {"Type": "Choice", "Choices": [{"Or": runs, "Next": "Well"}], "Default": "WaitForStopper"},
        "WaitForStopper": {"Type": "Wait", "Seconds": _SECONDS_FOR_THE_STOPPER, "Next": "DescribeJob"},
        "DescribeJob": {
            **_called(partition, "sagemaker:describeTrainingJob", name, "Now", "IsLeft"),
            "ResultSelector": {"Status.$": "$.TrainingJobStatus"},
        },
        "IsLeft": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Now.Status", "StringEquals": "InProgress", "Next": "Stop"}],
            "Default": "Well",
        },
        "Stop": _called(partition, "sagemaker:stopTrainingJob", name, "Answer", "Left"),
        "Left": {
            "Type": "Pass",
            "Parameters": {
                "Stopped.$": f"States.Format('{{}} ran after the end of {{}}', $.Job.TrainingJobName, {execution})"
            },
            "End": True,
        },
        "Well": {"Type": "Pass", "Result": {"Stopped": ""}, "End": True},
    }
