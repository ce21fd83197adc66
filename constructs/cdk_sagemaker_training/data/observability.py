"""Debugger, profiler, TensorBoard, Experiments and MLflow of a job, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cdk_sagemaker_training.core.checks import absolute_path, not_empty
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.unlisted import check_listed
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.props.prop import GRANTED, IN_INPUT, VALUES_IN_INPUT, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

# ProfilerConfig.ProfilingIntervalInMilliseconds, by its documentation: "Available values are ...".
_INTERVALS = (100, 200, 500, 1_000, 5_000, 60_000)
LocalPath = Annotated[str, Prop(known=IN_INPUT, rule=absolute_path, example="'/opt/ml/output'")]
Rules = Annotated["Sequence[DebuggerRule]", Prop(example="[DebuggerRule('LossNotDecreasing', image_uri)]")]


def _interval(prop: str, value: int, example: str) -> None:
    rule = f"be one of {', '.join(map(str, _INTERVALS))}"
    check_listed("profiler-intervals", value, value in _INTERVALS, prop, rule, example)


def _arn_of_mlflow(prop: str, value: str, example: str) -> None:
    if ":mlflow-" not in value:
        raise must(prop, "be of a tracking server or app of MLflow", example, repr(value))


@kind("DebuggerRule('LossNotDecreasing', image_uri)")
@dataclass(frozen=True)
class DebuggerRule(Value):
    """A rule of SageMaker Debugger or of the profiler, evaluated by a processing job while the training job runs.

    Args:
        name: Name of the rule configuration, unique in the job.
        evaluator_image: URI of the image that evaluates the rule.
        parameters: Parameters of the image, such as the rule's name: ``{"rule_to_invoke": "LossNotDecreasing"}``.
        instance_type: Processing instance type of a custom rule, like ``"ml.t3.medium"``; None for AWS's own rules.
        volume_size_gb: Volume size of the processing job of a custom rule, in GB; None for AWS's own rules.
        output: Where the rule's output is stored; None leaves the location to SageMaker.
        local_path: Absolute path of the rule's output in its container; None for SageMaker's default,
            ``/opt/ml/processing/output/rule/``.

    Raises:
        ValueError: ``name`` or ``evaluator_image`` is empty, or ``local_path`` is not absolute.
    """

    name: Annotated[str, Prop(known=IN_INPUT, rule=not_empty, example="'LossNotDecreasing'")]
    evaluator_image: Annotated[
        str,
        Prop(
            known=IN_INPUT,
            rule=not_empty,
            example="'503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules'",
        ),
    ]
    parameters: Annotated[
        Mapping[str, str], Prop(known=IN_INPUT, example="{'rule_to_invoke': 'LossNotDecreasing'}")
    ] = field(default_factory=dict)
    instance_type: Annotated[str | None, Prop(known=IN_INPUT, example="'ml.t3.medium'")] = None
    volume_size_gb: Annotated[int | None, IN_INPUT] = None
    output: S3Prefix | None = None
    local_path: LocalPath | None = None

    def configuration(self) -> dict[str, Any]:
        """Return the request's DebugRuleConfiguration or ProfilerRuleConfiguration, which have the same members."""
        return {
            "RuleConfigurationName": self.name,
            "LocalPath": self.local_path,
            "S3OutputPath": self.output.uri if self.output else None,
            "RuleEvaluatorImage": self.evaluator_image,
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size_gb,
            "RuleParameters": dict(self.parameters),
        }


@kind("Debugger(S3Prefix(bucket, 'tensors/'))")
@dataclass(frozen=True)
class Debugger(Value):
    """SageMaker Debugger: stores tensors of the script in S3 and evaluates rules on them.

    Args:
        output: Where the tensors are stored.
        collections: Parameters of each tensor collection by its name, like ``{"losses": {"save_interval": "100"}}``.
        hook_parameters: Parameters of Debugger's hook.
        rules: The rules.
        local_path: Absolute path to which the hook writes; None for SageMaker's default, ``/opt/ml/output/tensors``.

    Raises:
        ValueError: ``local_path`` is not absolute.
    """

    output: S3Prefix
    collections: Annotated[
        Mapping[str, Mapping[str, str]],
        Prop(known=VALUES_IN_INPUT, example="{'losses': {'save_interval': '100'}}"),
    ] = field(default_factory=dict)
    hook_parameters: Annotated[Mapping[str, str], Prop(known=VALUES_IN_INPUT, example="{'save_interval': '500'}")] = (
        field(default_factory=dict)
    )
    rules: Rules = ()
    local_path: LocalPath | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "rules", tuple(self.rules))

    def hook_config(self) -> dict[str, Any]:
        """Return the request's DebugHookConfig."""
        return {
            "LocalPath": self.local_path,
            "S3OutputPath": self.output.uri,
            "HookParameters": dict(self.hook_parameters),
            "CollectionConfigurations": [
                {"CollectionName": name, "CollectionParameters": dict(parameters)}
                for name, parameters in self.collections.items()
            ],
        }


@kind("Profiler(interval_milliseconds=500)")
@dataclass(frozen=True)
class Profiler(Value):
    """SageMaker's profiler: samples utilization of the machines and the framework's operations into S3.

    Args:
        output: Where the samples are stored; None for the job's ``output``.
        interval_milliseconds: Sampling interval of system metrics, in milliseconds: 100, 200, 500, 1000, 5000 or 60000 (API,
            ProfilerConfig); None for SageMaker's default, 500.
        parameters: ProfilingParameters of the request: configurations of framework profiling, by their keys.
        rules: The rules.
        disable: True turns off SageMaker's default profiling; excludes all other arguments.

    Raises:
        ValueError: The interval is not one of these, or ``disable`` comes with another argument.
    """

    output: S3Prefix | None = None
    interval_milliseconds: Annotated[int | None, Prop(known=IN_INPUT, rule=_interval, example="500")] = None
    parameters: Annotated[
        Mapping[str, str], Prop(known=VALUES_IN_INPUT, example="{'DataLoaderProfilingConfig': '{}'}")
    ] = field(default_factory=dict)
    rules: Rules = ()
    disable: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "rules", tuple(self.rules))
        if self.disable and (self.output or self.interval_milliseconds or self.parameters or self.rules):
            rule = "be left out with any other argument"
            raise must("disable", rule, "Profiler(interval_milliseconds=500)", repr(self))

    def config(self, job_output: S3Prefix) -> dict[str, Any]:
        """Return the request's ProfilerConfig.

        Args:
            job_output: The job's output, used where the profiler has none.
        """
        if self.disable:
            return {"DisableProfiler": True}
        return {
            "S3OutputPath": (self.output or job_output).uri,
            "ProfilingIntervalInMilliseconds": self.interval_milliseconds,
            "ProfilingParameters": dict(self.parameters),
            "DisableProfiler": False,
        }


@kind("TensorBoard(S3Prefix(bucket, 'tensorboard/'))")
@dataclass(frozen=True)
class TensorBoard(Value):
    """Upload of TensorBoard event files to S3 while the job runs.

    Args:
        output: Where the files are stored.
        local_path: Absolute path to which the script writes them; None for SageMaker's default, ``/opt/ml/output/tensorboard``.

    Raises:
        ValueError: ``local_path`` is not absolute.
    """

    output: S3Prefix
    local_path: LocalPath | None = None

    def output_config(self) -> dict[str, Any]:
        """Return the request's TensorBoardOutputConfig."""
        return {"LocalPath": self.local_path, "S3OutputPath": self.output.uri}


@kind("Experiment('digits')")
@dataclass(frozen=True)
class Experiment(Value):
    """Association of the job with SageMaker Experiments; at least one name is required.

    Args:
        experiment_name: Name of an existing experiment.
        trial_name: Name of an existing trial; without one SageMaker creates a trial.
        trial_component_display_name: Display name of the job's trial component; by default its name.
        run_name: Name of the experiment run.

    Raises:
        ValueError: No name is set.
    """

    experiment_name: Annotated[str | None, Prop(known=IN_INPUT, example="'digits'")] = None
    trial_name: Annotated[str | None, Prop(known=IN_INPUT, example="'first'")] = None
    trial_component_display_name: Annotated[str | None, IN_INPUT] = None
    run_name: Annotated[str | None, Prop(known=IN_INPUT, example="'first'")] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not any((self.experiment_name, self.trial_name, self.trial_component_display_name, self.run_name)):
            raise must("experiment_name or another name", "be set", "'digits'", "none")

    def config(self) -> dict[str, Any]:
        """Return the request's ExperimentConfig."""
        return {
            "ExperimentName": self.experiment_name,
            "TrialName": self.trial_name,
            "TrialComponentDisplayName": self.trial_component_display_name,
            "RunName": self.run_name,
        }


@kind("Mlflow('arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits')")
@dataclass(frozen=True)
class Mlflow(Value):
    """The MLflow tracking server or app of SageMaker to which the job logs.

    Args:
        resource_arn: ARN of the tracking server or app.
        experiment_name: Name of the MLflow experiment for this job; None sends none.
        run_name: Name of the MLflow run for this job; None sends none.

    Raises:
        ValueError: ``resource_arn`` is not an ARN of MLflow.
    """

    resource_arn: Annotated[
        str,
        Prop(
            known=GRANTED,
            rule=_arn_of_mlflow,
            example="'arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits'",
        ),
    ]
    experiment_name: Annotated[str | None, Prop(known=IN_INPUT, example="'digits'")] = None
    run_name: Annotated[str | None, Prop(known=IN_INPUT, example="'first'")] = None

    def config(self) -> dict[str, Any]:
        """Return the request's MlflowConfig."""
        return {
            "MlflowResourceArn": self.resource_arn,
            "MlflowExperimentName": self.experiment_name,
            "MlflowRunName": self.run_name,
        }
