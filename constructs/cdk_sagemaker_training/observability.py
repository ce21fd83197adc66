"""What SageMaker watches of a job while it runs, and where it tells, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdk_sagemaker_training.checks import check_choice, check_directory, check_text
from cdk_sagemaker_training.data import S3Prefix
from cdk_sagemaker_training.prop_types import check_fields
from cdk_sagemaker_training.tokens import is_unresolved

# ProfilerConfig.ProfilingIntervalInMilliseconds, by its documentation: "Available values are ...".
_INTERVALS = (100, 200, 500, 1_000, 5_000, 60_000)


@dataclass(frozen=True)
class DebuggerRule:
    """A check that SageMaker Debugger makes beside the job: ``evaluator_image`` with ``parameters``.

    ``parameters`` names the rule to that image, like ``{"rule_to_invoke": "LossNotDecreasing"}``. ``instance_type`` is
    a processing type such as ``ml.t3.medium`` and, with ``volume_size_gb``, for a rule of one's own; AWS's rules run without.
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
        """The request's DebugRuleConfiguration or ProfilerRuleConfiguration, which have the same members."""
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
    """SageMaker Debugger: saves tensors of the running script to ``output``, and has ``rules`` look at them.

    ``collections`` are groups of tensors with their parameters, like ``{"losses": {"save_interval": "100"}}``; the script's
    hook writes them to ``local_path``, by default ``/opt/ml/output/tensors``.
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
        """The request's DebugHookConfig."""
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
    """SageMaker's profiler: the machines' use, and the framework's work, sampled into ``output`` (the job's, unless said).

    ``interval_milliseconds`` is one of 100, 200, 500, 1000, 5000, 60000. ``parameters`` are ``ProfilingParameters``, by key the
    configuration of one kind of profiling. ``Profiler(disable=True)`` turns off what SageMaker does by itself.
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
                "disable must be left out of a profiler that is to do something, "
                f"like Profiler(interval_milliseconds=500), got {self!r}"
            )

    def config(self, job_output: S3Prefix) -> dict[str, Any]:
        """The request's ProfilerConfig."""
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
    """TensorBoard's files: what the script writes to ``local_path`` goes to ``output`` while it runs.

    ``local_path`` is ``/opt/ml/output/tensorboard`` unless said.
    """

    output: S3Prefix
    local_path: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.local_path is not None:
            check_directory("local_path", self.local_path, "/opt/ml/output/tensorboard")

    def output_config(self) -> dict[str, Any]:
        """The request's TensorBoardOutputConfig."""
        return {"LocalPath": self.local_path, "S3OutputPath": self.output.uri}


@dataclass(frozen=True)
class Experiment:
    """Where SageMaker Experiments files the job: names of an experiment and a trial that there are, of a run, or to show."""

    experiment_name: str | None = None
    trial_name: str | None = None
    trial_component_display_name: str | None = None
    run_name: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not any((self.experiment_name, self.trial_name, self.trial_component_display_name, self.run_name)):
            raise ValueError("experiment_name must be given, or another name, like 'digits', got none")

    def config(self) -> dict[str, Any]:
        """The request's ExperimentConfig."""
        return {
            "ExperimentName": self.experiment_name,
            "TrialName": self.trial_name,
            "TrialComponentDisplayName": self.trial_component_display_name,
            "RunName": self.run_name,
        }


@dataclass(frozen=True)
class Mlflow:
    """SageMaker's managed MLflow that the job logs to: the ARN of a tracking server or app, and names of experiment and run."""

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
        """The request's MlflowConfig."""
        return {
            "MlflowResourceArn": self.resource_arn,
            "MlflowExperimentName": self.experiment_name,
            "MlflowRunName": self.run_name,
        }
