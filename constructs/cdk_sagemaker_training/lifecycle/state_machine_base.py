"""What constructs with a state machine have alike: its grants, the metrics of its executions, and a state that starts one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.express import check_not_express
from cdk_sagemaker_training.lifecycle.states import FOR_HALF_AN_HOUR, OF_STEP_FUNCTIONS, STARTED_BY
from cdk_sagemaker_training.props import jsonata

if TYPE_CHECKING:
    # Takes long to import.
    from aws_cdk import aws_cloudwatch as cloudwatch


def start_retry(*errors: str) -> dict[str, Any]:
    """Return the props of CDK's retrier of a state that starts an execution."""
    return {
        "errors": list(errors),
        "interval": Duration.seconds(1),
        "backoff_rate": 2,
        "max_attempts": FOR_HALF_AN_HOUR,
        "max_delay": Duration.seconds(60),
        "jitter_strategy": sfn.JitterType.FULL,
    }


def naming_parent(props: Mapping[str, Any]) -> dict[str, Any]:
    """Return the props of a state that starts an execution, whose input names the execution that starts it.

    Input that is literal text is left as it is. A state with a JSONPath says so, for CDK to refuse it in a machine in JSONata, in
    which it would send the path as text.
    """
    given = props.get("input")
    in_jsonpath = {"query_language": sfn.QueryLanguage.JSON_PATH, **props}
    if "associate_with_parent" in props:
        return dict(props)
    if given is not None and isinstance(given.value, Mapping):
        named = {**props, "associate_with_parent": True}
        return {**in_jsonpath, **named} if sfn.FieldUtils.find_referenced_paths(dict(given.value)) else named
    if props.get("query_language") == sfn.QueryLanguage.JSONATA:
        expression = jsonata.whole("{% $states.input %}" if given is None else given.value)
        parent = f"{{'{STARTED_BY}': {jsonata.EXECUTION_ID}}}"
        merged = expression and jsonata.path(f"$merge([{expression}, {parent}])")
        return {**props, "input": sfn.TaskInput.from_text(merged)} if merged else dict(props)
    place = "$" if given is None else (sfn.FieldUtils.render_object({"input": given.value}) or {}).get("input.$")
    if place is None:
        return dict(props)
    parent = f'States.Format(\'\\{{"{STARTED_BY}":"{{}}"\\}}\', $$.Execution.Id)'
    merged = f"States.JsonMerge({place}, States.StringToJson({parent}), false)"
    return {**in_jsonpath, "input": sfn.TaskInput.from_json_path_at(merged)}


class StateMachineBase:
    """Members of constructs with a `state_machine`.

    A plain class, before ``Construct`` among the bases. jsii finds its ``grant_principal`` where the construct itself has
    ``@jsii.implements(iam.IGrantable)``, which here would hide from jsii that it is a construct: the decorator sets the class's
    ``__jsii_type__``, and members of interfaces are looked up in all bases before ``Construct`` (jsii, ``_get_overides``).

    Attributes:
        state_machine: The state machine.
    """

    state_machine: sfn.IStateMachine

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """The principal of the role of its jobs; where those are a workflow's, of the state machine's role."""
        jobs: iam.IGrantable = getattr(self, "role", self.state_machine)
        return jobs.grant_principal

    def grant(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        """Allow actions on the state machine.

        Args:
            grantee: Who may do them.
            *actions: The actions, such as ``"states:ListExecutions"``.
        """
        return self.state_machine.grant(grantee, *actions)

    def grant_start_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow starting executions of the state machine.

        Args:
            grantee: Who may start executions.
        """
        return self.state_machine.grant_start_execution(grantee)

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow listing and describing the state machine and its executions.

        Args:
            grantee: Who may read them.
        """
        return self.state_machine.grant_read(grantee)

    def grant_execution(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        """Allow actions on all executions of the state machine.

        Args:
            grantee: Who may do them.
            *actions: The actions, such as ``"states:StopExecution"``.
        """
        return self.state_machine.grant_execution(grantee, *actions)

    def grant_redrive_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow redriving executions of the state machine.

        Args:
            grantee: Who may redrive them.
        """
        return self.state_machine.grant_redrive_execution(grantee)

    def as_task(self, scope: Construct, id: str, **task_state: Any) -> sfn.TaskStateBase:
        """One state of another machine that starts an execution, waits for its end, and stops it with its own.

        A redrive of the other machine's execution runs a workflow, and a job, once more, which a redrive of the workflow's own
        execution does not: it fails again. With ``resume_from=sfn.JsonPath.string_at("$.checkpoints")`` of the workflow and
        ``input=sfn.TaskInput.from_object({"checkpoints": sfn.JsonPath.execution_name})`` here, its job goes on from the
        checkpoints of the one before.

        Args:
            scope: The construct that the state is part of.
            id: Its id among that construct's children, and its name.
            task_state: Props of CDK's ``StepFunctionsStartExecution``, such as ``input`` and ``result_path``, and in a machine in
                JSONata ``query_language=sfn.QueryLanguage.JSONATA``.

        Returns:
            The state, which makes a throttled call again. The execution's output, of a workflow its job's description, is in its
            result's ``Output``. With a ``name``, the same for each call, one whose answer was lost is made again too.
        """
        # Here and not above, since importing the module takes longer than making a workflow.
        from aws_cdk import aws_stepfunctions_tasks as tasks

        task = tasks.StepFunctionsStartExecution(
            scope,
            id,
            state_machine=self.state_machine,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            **naming_parent(task_state),
        )
        lost = ("StepFunctions.SdkClientException",) if "name" in task_state else ()
        task.add_retry(**start_retry(*OF_STEP_FUNCTIONS, *lost))
        check_not_express(task)
        return task

    def metric(self, metric_name: str, **options: Any) -> cloudwatch.Metric:
        """A metric of the executions.

        Args:
            metric_name: The name that Step Functions gives it, such as ``"ExecutionsFailed"``.
            **options: Props of CDK's ``cloudwatch.Metric``, such as ``period`` and ``statistic``.
        """
        return self.state_machine.metric(metric_name, **options)

    def metric_started(self, **options: Any) -> cloudwatch.Metric:
        """How many executions were started.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_started(**options)

    def metric_succeeded(self, **options: Any) -> cloudwatch.Metric:
        """How many executions succeeded.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_succeeded(**options)

    def metric_failed(self, **options: Any) -> cloudwatch.Metric:
        """How many executions failed.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_failed(**options)

    def metric_aborted(self, **options: Any) -> cloudwatch.Metric:
        """How many executions were stopped.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_aborted(**options)

    def metric_timed_out(self, **options: Any) -> cloudwatch.Metric:
        """How many executions ended by the time-out.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_timed_out(**options)

    def metric_time(self, **options: Any) -> cloudwatch.Metric:
        """How long executions take, in milliseconds.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_time(**options)
