"""A state machine of several jobs, and what stands between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.nag import Suppressions
from cdk_sagemaker_training.features.notify import Notices
from cdk_sagemaker_training.guard.deletion import stop_executions_on_deletion
from cdk_sagemaker_training.guard.parents import StoppedWithParent
from cdk_sagemaker_training.lifecycle.state_machines import default_logs
from cdk_sagemaker_training.orchestration.approval import Approval
from cdk_sagemaker_training.orchestration.artifact import ArtifactOf
from cdk_sagemaker_training.orchestration.gate import Gate
from cdk_sagemaker_training.orchestration.jobs_principal import JobsPrincipal
from cdk_sagemaker_training.orchestration.register_model import RegisterModel
from cdk_sagemaker_training.orchestration.workflow_step import WorkflowStep
from cdk_sagemaker_training.props.prop_types import Value, check_fields, checked
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow

if TYPE_CHECKING:
    from aws_cdk import aws_sns as sns

_REASONS = {
    "AwsSolutions-IAM5[Resource::*]": "log deliveries have no resource",
    "AwsSolutions-SF2": "an execution waits for executions of workflows, whose jobs do not emit traces",
}
_WHY_EXECUTIONS = (
    "an execution's name is chosen when it starts; the state machine belongs to a workflow of this pipeline"
)
_WHY_OBJECTS = (
    "the folder of a job is named when an execution starts; the prefix is that of a workflow of this pipeline"
)
_WHY_VERSIONS = "a version of a model package has a number of the group's"


@dataclass(frozen=True)
class ParallelSteps(Value):
    """Steps of a pipeline that run at the same time; the pipeline goes on when all have ended.

    Where one fails, the others are stopped and the execution fails, as of a Parallel state.

    Args:
        branches: At least two lists of steps, each of which runs in its order.

    Raises:
        ValueError: There are fewer than two branches, or one is empty.
    """

    branches: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.branches) < 2 or not all(self.branches):
            raise must(
                "branches", "be at least two lists of steps", "[[vision], [language, gate]]", repr(self.branches)
            )


@jsii.implements(iam.IGrantable)
class TrainingPipeline(StoppedWithParent, Construct):
    """A state machine that runs several workflows, with gates, approvals and registrations between them.

    Each step keeps its result in ``Steps`` of the execution's data: of a workflow ``Steps.<id>.Job``, its job's description as
    from DescribeTrainingJob. The executions of its workflows have all of that data as their input, so that a place in the
    pipeline's input, such as ``sfn.JsonPath.string_at("$.dataset")``, is one in theirs. An execution fails with the error of the
    step that failed; its output is its data.

    Step Functions holds 256 KB of data in an execution, of which a job's description takes a few, more with long
    hyperparameters.

    Attributes:
        state_machine: The state machine.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        steps: Sequence[Any],
        notify: Sequence[sns.ITopic] = (),
        timeout: Duration | int | None = None,
        logs: sfn.LogOptions | None = None,
    ) -> None:
        """Create the state machine.

        Args:
            scope: The construct that the pipeline is part of.
            id: Its id among that construct's children.
            steps: What runs, in this order: each a ``TrainingWorkflow``, ``Gate``, ``RegisterModel``, ``Approval``,
                ``ParallelSteps``, or states of your own, which must keep ``Steps`` in their output. The ids of steps are unique.
            notify: Topics that get an event, as JSON, when an execution starts, succeeds, fails, times out or is aborted.
                Default: none.
            timeout: A Duration, or seconds, after which an execution and what it runs end. Default: Step Functions' own, one
                year.
            logs: What is kept of executions. Default: their events without their data, for three months, in a log group of
                its own that is deleted with the pipeline.

        Raises:
            ValueError: There is no step, an id is not unique, or a step needs the result of one that is not before it.
        """
        super().__init__(scope, id)
        if not steps:
            raise must("steps", "be at least one", "[pretraining, finetuning]", repr(steps))
        self._parallels = 0
        self._workflows: list[TrainingWorkflow] = []
        self._resources: dict[str, str] = {}
        chain, _ = self._chain(steps, ())
        self.state_machine: sfn.StateMachine = sfn.StateMachine(
            self,
            "StateMachine",
            definition_body=sfn.DefinitionBody.from_chainable(chain),
            comment="Runs training jobs one after the other",
            timeout=None if timeout is None else Duration.seconds(seconds_of("timeout", timeout)),
            logs=logs or default_logs(self),
        )
        stop_executions_on_deletion(self, self.state_machine, self._workflows)
        for workflow in self._workflows:
            workflow.guard.watching_parent(self.state_machine, workflow.state_machine)
        if notify:
            Notices(self, "Notices", state_machine=self.state_machine, topics=notify)
        suppressions = Suppressions(self)
        suppressions.add(_REASONS)
        for resource, reason in self._resources.items():
            suppressions.add_wildcards([resource], reason)

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """The principal of its jobs, as of a workflow: a grant to the pipeline is one to the role of each of them."""
        jobs = {workflow.role.role_arn: workflow.grant_principal for workflow in self._workflows}
        return JobsPrincipal(list(jobs.values())) if jobs else self.state_machine.grant_principal

    def grant_task_response(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal answer the pipeline's approvals, and those of every state machine, since the actions have no resource.

        Args:
            grantee: Who may approve and refuse.
        """
        # "Actions, resources, and condition keys for AWS Step Functions"; CDK's grant names the state machine.
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["states:SendTaskSuccess", "states:SendTaskFailure"], resource_arns=["*"]
        )

    def _chain(self, steps: Sequence[Any], before: tuple[str, ...]) -> tuple[sfn.Chain, tuple[str, ...]]:
        """The states of steps, and the ids of the steps with results after them."""
        chain: sfn.Chain | None = None
        for step in steps:
            added: tuple[str, ...]
            if isinstance(step, ParallelSteps):
                states, added = self._parallel(step, before)
            else:
                states, added = self._step(step, before)
            for name in added:
                _check_new(name, before)
            before += added
            chain = sfn.Chain.start(states) if chain is None else chain.next(states)
        assert chain is not None
        return chain, before

    def _step(self, step: Any, before: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        if isinstance(step, TrainingWorkflow):
            _check_new(step.node.id, before)
            _check_sources(step, before)
            state = WorkflowStep(self, step.node.id, step)
            self._resources[state.executions_arn] = _WHY_EXECUTIONS
            self._workflows.append(step)
            return state.chain, (step.node.id,)
        if isinstance(step, Gate | RegisterModel):
            _check_before(type(step).__name__, step.workflow, before)
        if isinstance(step, RegisterModel):
            self._resources |= dict.fromkeys(step.written, _WHY_OBJECTS) | dict.fromkeys(step.versions, _WHY_VERSIONS)
        if isinstance(step, Gate | RegisterModel | Approval):
            return step, (step.node.id,)
        if not hasattr(type(step), "start_state"):
            raise must(
                "steps",
                "be workflows, gates, approvals, registrations, ParallelSteps or states",
                "[pretraining, finetuning]",
                repr(step),
            )
        return step, ()

    def _parallel(self, step: ParallelSteps, before: tuple[str, ...]) -> tuple[sfn.State, tuple[str, ...]]:
        self._parallels += 1
        branches = [self._chain(branch, before) for branch in step.branches]
        results = {name: f"$[0].Steps.{name}" for name in before}
        added: list[str] = []
        for number, (_, after) in enumerate(branches):
            ids = after[len(before) :]
            for name in ids:
                _check_new(name, added)
            results |= {name: f"$[{number}].Steps.{name}" for name in ids}
            added += ids
        parallel = sfn.Parallel(
            self,
            f"Parallel{self._parallels}",
            result_selector={f"{name}.$": place for name, place in results.items()},
            result_path="$.Steps",
        )
        return parallel.branch(*(chain for chain, _ in branches)), tuple(added)


def _check_new(name: str, before: Sequence[str]) -> None:
    if name in before:
        raise must("steps", "have ids that are unique", "'Pretraining'", f"{name!r} twice")


def _check_before(owner: str, workflow: TrainingWorkflow, before: Sequence[str]) -> None:
    if workflow.node.id not in before:
        raise must(
            "steps",
            f"have the workflow of {owner} before it",
            "[training, gate]",
            f"{workflow.node.id!r} after {list(before)}",
        )


def _check_sources(workflow: TrainingWorkflow, before: Sequence[str]) -> None:
    for channel in (workflow.props.get("channels") or {}).values():
        if isinstance(channel, ArtifactOf):
            _check_before(f"ArtifactOf in {workflow.node.id}", channel.workflow, before)
