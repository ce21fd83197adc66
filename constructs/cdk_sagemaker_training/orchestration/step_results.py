"""Where the steps of a pipeline keep their results, and the states that read an earlier job's metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.props.jsonpath import quoted, result_path
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow

# Of a state with paths: CDK refuses it in a machine in JSONata, which takes them for text.
JSONPATH = sfn.QueryLanguage.JSON_PATH


def job_path(workflow: TrainingWorkflow) -> str:
    """Return the JSONPath of the description of a workflow's job, as from DescribeTrainingJob."""
    return f"{result_path(workflow.node.id)}.Job"


def check_metrics(owner: str, prop: str, workflow: TrainingWorkflow, names: Sequence[str]) -> None:
    """Check that a workflow's job has metrics.

    Raises:
        ValueError: A metric is not in ``metric_definitions``, or has a character that a path does not take.
    """
    defined = workflow.props.get("metric_definitions") or {}
    for name in names:
        if name not in defined or re.search(r"['\\]", name):
            raise must(
                f"{prop} of {owner}",
                "be a name in metric_definitions of its workflow, without quotes and backslashes",
                "{'accuracy': 'accuracy=([0-9.]+)'}",
                f"{name!r} of {sorted(defined)}",
            )


class MetricReader:
    """The states that read the last values of a job's metrics into the result of a step.

    FinalMetricDataList has "the last value emitted" of each metric (API, DescribeTrainingJob), and none of a metric that the job
    never logged. A filter's result is a list, empty where nothing matches, so that `IsPresent` of its first item is false.

    Attributes:
        missing: The state in which an execution ends where a metric has no value.
    """

    def __init__(self, scope: Construct, id: str, workflow: TrainingWorkflow, metrics: Sequence[str]) -> None:
        """Create the states, to which ``to`` adds the next one."""
        self._values = {name: f"{result_path(id)}.Metric{number}[0]" for number, name in enumerate(metrics)}
        found = f"{job_path(workflow)}.FinalMetricDataList"
        self.missing = sfn.Fail(
            scope,
            "Missing",
            state_name=f"{id}MetricMissing",
            error="MetricMissing",
            cause_path=(
                f"States.Format('{{}}: no value of {{}}', {job_path(workflow)}.TrainingJobName, "
                f"{quoted(', '.join(metrics))})"
            ),
        )
        has_metrics = sfn.Choice(scope, "HasMetrics", state_name=f"{id}HasMetrics", query_language=JSONPATH)
        self._has_metrics = has_metrics.otherwise(self.missing)
        self._read = sfn.Pass(
            scope,
            "Read",
            state_name=f"{id}Metrics",
            parameters={
                f"Metric{number}": sfn.JsonPath.list_at(f"{found}[?(@.MetricName=='{name}')].Value")
                for number, name in enumerate(metrics)
            },
            result_path=result_path(id),
        )
        self._has_metrics.when(sfn.Condition.is_present(found), self._read)

    def value(self, metric: str) -> str:
        """Return the JSONPath of a metric's value."""
        return self._values[metric]

    @property
    def present(self) -> sfn.Condition:
        """The condition that all metrics have values."""
        present = [sfn.Condition.is_present(path) for path in self._values.values()]
        return present[0] if len(present) == 1 else sfn.Condition.and_(*present)

    def to(self, following: sfn.State) -> sfn.State:
        """Continue with a state, and return the first one."""
        self._read.next(following)
        return self._has_metrics
