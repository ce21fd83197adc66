"""Debugger, profiler, TensorBoard, Experiments and MLflow of a job, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdk_sagemaker_training.core.checks import check_choice, check_directory, check_text
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.props.prop_types import check_fields

# ProfilerConfig.ProfilingIntervalInMilliseconds, by its documentation: "Available values are ...".
_INTERVALS = (100, 200, 500, 1_000, 5_000, 60_000)


@dataclass(frozen=True)
class DebuggerRule:
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

    name: str
    evaluator_image: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    instance_type: str | None = None
    volume_size_gb: int | None = None
    output: S3Prefix | None = None
    local_path: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_text("name", self.name, "LossNotDecreasing")
        check_text(
            "evaluator_image",
            self.evaluator_image,
            "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules",
        )
        if self.local_path is not None:
            check_directory("local_path", self.local_path, "/opt/ml/processing/output/rule")

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


@dataclass(frozen=True)
class Debugger:
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
    collections: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hook_parameters: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[DebuggerRule] = ()
    local_path: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.local_path is not None:
            check_directory("local_path", self.local_path, "/opt/ml/output/tensors")
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


@dataclass(frozen=True)
class Profiler:
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
    interval_milliseconds: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[DebuggerRule] = ()
    disable: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("interval_milliseconds", self.interval_milliseconds, (*_INTERVALS, None), "profiler-intervals")
        object.__setattr__(self, "rules", tuple(self.rules))
        if self.disable and (self.output or self.interval_milliseconds or self.parameters or self.rules):
            raise ValueError(
                "disable must be left out with any other argument, "
                f"like Profiler(interval_milliseconds=500), got {self!r}"
            )

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


@dataclass(frozen=True)
class TensorBoard:
    """Upload of TensorBoard event files to S3 while the job runs.

    Args:
        output: Where the files are stored.
        local_path: Absolute path to which the script writes them; None for SageMaker's default, ``/opt/ml/output/tensorboard``.

    Raises:
        ValueError: ``local_path`` is not absolute.
    """

    output: S3Prefix
    local_path: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.local_path is not None:
            check_directory("local_path", self.local_path, "/opt/ml/output/tensorboard")

    def output_config(self) -> dict[str, Any]:
        """Return the request's TensorBoardOutputConfig."""
        return {"LocalPath": self.local_path, "S3OutputPath": self.output.uri}


@dataclass(frozen=True)
class Experiment:
    """Association of the job with SageMaker Experiments; at least one name is required.

    Args:
        experiment_name: Name of an existing experiment.
        trial_name: Name of an existing trial; without one SageMaker creates a trial.
        trial_component_display_name: Display name of the job's trial component; by default its name.
        run_name: Name of the experiment run.

    Raises:
        ValueError: No name is set.
    """

    experiment_name: str | None = None
    trial_name: str | None = None
    trial_component_display_name: str | None = None
    run_name: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not any((self.experiment_name, self.trial_name, self.trial_component_display_name, self.run_name)):
            raise ValueError("experiment_name or another name must be set, like 'digits', got none")

    def config(self) -> dict[str, Any]:
        """Return the request's ExperimentConfig."""
        return {
            "ExperimentName": self.experiment_name,
            "TrialName": self.trial_name,
            "TrialComponentDisplayName": self.trial_component_display_name,
            "RunName": self.run_name,
        }


@dataclass(frozen=True)
class Mlflow:
    """The MLflow tracking server or app of SageMaker to which the job logs.

    Args:
        resource_arn: ARN of the tracking server or app.
        experiment_name: Name of the MLflow experiment for this job; None sends none.
        run_name: Name of the MLflow run for this job; None sends none.

    Raises:
        ValueError: ``resource_arn`` is not an ARN of MLflow.
    """

    resource_arn: str
    experiment_name: str | None = None
    run_name: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        arn = self.resource_arn
        if not is_unresolved(arn) and ":mlflow-" not in arn:
            raise ValueError(
                "resource_arn must be of a tracking server or app of MLflow, "
                f"like 'arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits', got {arn!r}"
            )

    def config(self) -> dict[str, Any]:
        """Return the request's MlflowConfig."""
        return {
            "MlflowResourceArn": self.resource_arn,
            "MlflowExperimentName": self.experiment_name,
            "MlflowRunName": self.run_name,
        }
