"""A step that lets a pipeline go on where a metric is good enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsii
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.orchestration.step_results import MetricReader, check_metrics, job_path
from cdk_sagemaker_training.props.jsonpath import quoted
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow

if TYPE_CHECKING:
    from aws_cdk.aws_stepfunctions import IChainable


class Gate(sfn.StateMachineFragment):
    """Lets a pipeline go on where a metric of an earlier job is within bounds.

    Otherwise the execution fails with the error ``GateNotPassed``, or goes on with ``otherwise``. Where the job logged no value
    of the metric, the execution fails with the error ``MetricMissing``. It is a fragment of a state machine, for
    ``TrainingPipeline``, or for a state machine of your own after ``as_task(keeps_job=True)`` of the workflow.

    Attributes:
        workflow: The workflow whose job has the metric.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        workflow: TrainingWorkflow,
        *,
        metric: str,
        at_least: float | None = None,
        at_most: float | None = None,
        otherwise: IChainable | None = None,
    ) -> None:
        """Create the states.

        Args:
            scope: The construct that the step is part of.
            id: Its id among that construct's children: letters, digits and underscores. Its states' names begin with it.
            workflow: The workflow whose job has the metric.
            metric: A name in ``metric_definitions`` of the workflow; its last value counts (FinalMetricDataList).
            at_least: The least value that passes; None for no such bound.
            at_most: The greatest value that passes; None for no such bound.
            otherwise: States with which an execution goes on where the metric is out of bounds, such as ``sfn.Succeed(...)``.
                Default: it fails.

        Raises:
            ValueError: The metric is not defined, or there is no bound, or no value within both.
        """
        super().__init__(scope, id)
        if at_least is None and at_most is None:
            raise must("at_least", "be set unless at_most is", "0.9", f"{at_least!r} and {at_most!r}")
        if at_least is not None and at_most is not None and at_least > at_most:
            raise must("at_least", "be at most at_most", "0.9 and 1", f"{at_least!r} and {at_most!r}")
        check_metrics("a Gate", "metric", workflow, [metric])
        self.workflow = workflow
        reader = MetricReader(self, id, workflow, [metric])
        value = reader.value(metric)
        bounds = [sfn.Condition.number_greater_than_equals(value, at_least)] if at_least is not None else []
        bounds += [sfn.Condition.number_less_than_equals(value, at_most)] if at_most is not None else []
        limits = [f"at least {at_least:g}"] if at_least is not None else []
        limits += [f"at most {at_most:g}"] if at_most is not None else []
        refused = otherwise or sfn.Fail(
            self,
            "NotPassed",
            state_name=f"{id}NotPassed",
            error="GateNotPassed",
            cause_path=(
                f"States.Format('{{}}: {{}} must be {' and '.join(limits)}, and is {{}}', {job_path(workflow)}.TrainingJobName, "
                f"{quoted(metric)}, {value})"
            ),
        )
        self._passed = sfn.Pass(self, "Passed", state_name=f"{id}Passed")
        decision = (
            sfn.Choice(self, "Decision", state_name=f"{id}Decision")
            .when(sfn.Condition.not_(reader.present), reader.missing)
            .when(bounds[0] if len(bounds) == 1 else sfn.Condition.and_(*bounds), self._passed)
            .otherwise(refused)
        )
        self._first = reader.to(decision)

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        """The first state."""
        return self._first

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        """The state after which a pipeline goes on."""
        return [self._passed]
