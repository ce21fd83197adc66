"""A dashboard of CloudWatch with what a workflow's jobs do and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from aws_cdk import Duration
from constructs import Construct

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.lifecycle.attempt import UNKNOWN
from cdk_sagemaker_training.lifecycle.causes import Cause
from cdk_sagemaker_training.props.prop import LITERAL
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch

_JOBS = '"/aws/sagemaker/TrainingJobs"'
_HALF, _HEIGHT = 12, 6  # of the grid's 24 columns, and its rows
_HOUR = 3_600
_MINUTE = 60  # in which SageMaker publishes the metrics of hosts


class TrainingDashboard(Construct):
    """A dashboard of CloudWatch for one workflow: its executions, attempts, time and cost, hosts and training metrics.

    docs/dashboard.md says for each graph whose metrics it shows. Those of attempts, times and cost need ``job_metrics=True`` of
    the workflow, and are left out without it. Graphs of hosts and of ``metric_definitions`` are found by the beginning of the
    jobs' names; in a queue AWS Batch names them, so that these are left out too.

    Attributes:
        dashboard: The dashboard, to which more can be added: ``dashboard.add_widgets(...)``.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workflow: TrainingWorkflow,
        dollars_per_hour: Annotated[float | None, LITERAL] = None,
        period: Annotated[Duration | int, LITERAL] = 300,
        dashboard_name: Annotated[str | None, LITERAL] = None,
    ) -> None:
        """Create the dashboard.

        Args:
            scope: The construct that the dashboard is part of.
            id: Its id among that construct's children.
            workflow: The workflow.
            dollars_per_hour: What an hour of all machines of one job costs, of AWS's page "Amazon SageMaker AI pricing" for the
                region; where jobs differ in their machines, the dearest. Needs ``job_metrics`` of the workflow. Default: no
                graph of the cost.
            period: Over which metrics of executions and jobs are added up, a Duration or in seconds.
            dashboard_name: Its name. Default: one of CloudFormation.

        Raises:
            ValueError: ``dollars_per_hour`` is not above 0, or is given for a workflow without ``job_metrics``.
        """
        super().__init__(scope, id)
        # Not above, since it takes long to import.
        from aws_cdk import aws_cloudwatch as cloudwatch

        if dollars_per_hour is not None and (dollars_per_hour <= 0 or not workflow.job_metrics):
            rule = "left out of a workflow without job_metrics" if dollars_per_hour > 0 else "a number above 0"
            raise must("dollars_per_hour", f"be {rule}", "25.25", f"{dollars_per_hour}")
        self._cloudwatch = cloudwatch
        self._period = Duration.seconds(seconds_of("period", period))
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=dashboard_name)
        rows = [
            cloudwatch.AlarmStatusWidget(
                title="Jobs that may still run though their execution has ended", alarms=workflow.alarms, width=24
            ),
            *self._executions(workflow),
            *(self._jobs(workflow, dollars_per_hour) if workflow.job_metrics else []),
            *(self._found(workflow) if workflow.queue is None else []),
        ]
        self.dashboard.add_widgets(rows[0])
        for first in range(1, len(rows), 2):
            self.dashboard.add_widgets(*rows[first : first + 2])

    def _executions(self, workflow: TrainingWorkflow) -> list[Any]:
        period = {"period": self._period}
        counts = (
            workflow.metric_started(**period),
            workflow.metric_succeeded(**period),
            workflow.metric_failed(**period),
            workflow.metric_aborted(**period),
            workflow.metric_timed_out(**period),
        )
        times = [workflow.metric_time(**period, statistic=name, label=name) for name in ("Average", "Maximum")]
        return [self._graph("Executions", *counts), self._graph("Duration of executions, ms", *times)]

    def _jobs(self, workflow: TrainingWorkflow, dollars_per_hour: float | None) -> list[Any]:
        period = {"period": self._period}
        causes = [
            workflow.metric_failed_attempts(cause, period=self._period, label=str(cause)) for cause in (*Cause, UNKNOWN)
        ]
        trained = workflow.metric_training_time(**period, label="training")
        billed = workflow.metric_billable_time(**period, label="billed, each machine")
        beside = self._cloudwatch.MathExpression(
            expression="executions / 1000 - training",
            using_metrics={
                "executions": workflow.metric_time(statistic="Sum"),
                "training": workflow.metric_training_time(),
            },
            period=self._period,
            label="not training: waits, machines, downloads, uploads",
        )
        graphs = [
            self._graph("Attempts that did not complete, by cause", *causes, stacked=True),
            self._graph("Seconds of jobs and executions that ended", trained, beside, billed),
            self._graph("Budgets nearly used", workflow.metric_budgets_nearly_used(**period)),
        ]
        if dollars_per_hour is None:
            return graphs
        cost = self._cloudwatch.MathExpression(
            expression=f"billed * {dollars_per_hour / _HOUR!r}",
            using_metrics={"billed": workflow.metric_billable_time()},
            period=self._period,
            label="dollars",
        )
        return [*graphs, self._graph(f"Cost at {dollars_per_hour} dollars an hour", cost)]

    def _found(self, workflow: TrainingWorkflow) -> list[Any]:
        """The graphs of metrics whose dimensions are known only once a job runs."""
        use = [
            self._search(workflow, "Host", name, label)
            for name, label in (("CPUUtilization", "CPU"), ("GPUUtilization", "GPU"))
        ]
        hosts = self._cloudwatch.GraphWidget(
            title="CPU (left) and GPU (right) of each host, percent of one, added up",
            left=use[:1],
            right=use[1:],
            width=_HALF,
            height=_HEIGHT,
        )
        metrics = [
            self._graph(name, self._search(workflow, "TrainingJobName", name, "")) for name in workflow.metric_names
        ]
        return [hosts, *metrics]

    def _search(
        self, workflow: TrainingWorkflow, dimension: str, metric: str, label: str
    ) -> cloudwatch.SearchExpression:
        # A term without quotes matches a part of a value ("CloudWatch search expression syntax").
        words = workflow.job_name_prefix.replace("-", " ")
        return self._cloudwatch.SearchExpression(
            expression=f"SEARCH('{{{_JOBS},{dimension}}} MetricName=\"{metric}\" {words}', 'Average')",
            label=label,
            period=Duration.seconds(_MINUTE),
        )

    def _graph(self, title: str, *metrics: cloudwatch.IMetric, stacked: bool = False) -> Any:
        return self._cloudwatch.GraphWidget(
            title=title, left=list(metrics), stacked=stacked, width=_HALF, height=_HEIGHT
        )
