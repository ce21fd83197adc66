"""Debugger, profiler, TensorBoard, Experiments and MLflow of a request, as expressions."""

from __future__ import annotations

from typing import Any

from training_jobs.adopt.existing import Existing
from training_jobs.adopt.members import Members
from training_jobs.adopt.python_source import Call


def monitoring_of(members: Members, existing: Existing) -> dict[str, Any]:
    """Return the props of the job's monitoring; None for those that it lacks.

    Args:
        members: The request, from which they are taken.
        existing: The resources that the stack imports.
    """
    return {
        "debugger": _debugger(members, existing),
        "profiler": _profiler(members, existing),
        "tensorboard": _tensorboard(members, existing),
        "experiment": _call(
            "Experiment",
            experiment_name=members.take("ExperimentConfig.ExperimentName"),
            trial_name=members.take("ExperimentConfig.TrialName"),
            trial_component_display_name=members.take("ExperimentConfig.TrialComponentDisplayName"),
            run_name=members.take("ExperimentConfig.RunName"),
        ),
        "mlflow": _call(
            "Mlflow",
            resource_arn=members.take("MlflowConfig.MlflowResourceArn"),
            experiment_name=members.take("MlflowConfig.MlflowExperimentName"),
            run_name=members.take("MlflowConfig.MlflowRunName"),
        ),
    }


def _call(function: str, **keywords: Any) -> Call | None:
    given = {name: value for name, value in keywords.items() if value is not None}
    return Call(function, (), given) if given else None


def _debugger(members: Members, existing: Existing) -> Call | None:
    uri = members.take("DebugHookConfig.S3OutputPath")
    if uri is None:
        return None
    collections: dict[str, Any] = {}
    for collection in members.parts("DebugHookConfig.CollectionConfigurations", "CollectionName"):
        name = collection.take("CollectionName")
        if name is not None:
            collections[name] = collection.take("CollectionParameters") or {}
        collection.finish()
    return Call(
        "Debugger",
        (existing.prefix(uri),),
        {
            "collections": collections or None,
            "hook_parameters": members.take("DebugHookConfig.HookParameters") or None,
            "rules": _rules(members, "DebugRuleConfigurations", existing),
            "local_path": members.take("DebugHookConfig.LocalPath"),
        },
    )


def _profiler(members: Members, existing: Existing) -> Call | None:
    disabled, uri = members.take("ProfilerConfig.DisableProfiler"), members.take("ProfilerConfig.S3OutputPath")
    if disabled:
        if uri is not None:
            members.differs("ProfilerConfig.S3OutputPath", uri, "left out, since the profiler is disabled")
        return Call("Profiler", (), {"disable": True})
    interval = members.take("ProfilerConfig.ProfilingIntervalInMilliseconds")
    parameters = members.take("ProfilerConfig.ProfilingParameters") or None
    rules = _rules(members, "ProfilerRuleConfigurations", existing)
    if disabled is None and uri is None and interval is None and parameters is None and rules is None:
        return None
    if uri is None:
        members.differs("ProfilerConfig.S3OutputPath", None, "the job's output, which Profiler sends")
    keywords = {"interval_milliseconds": interval, "parameters": parameters, "rules": rules}
    return Call("Profiler", () if uri is None else (existing.prefix(uri),), keywords)


def _tensorboard(members: Members, existing: Existing) -> Call | None:
    uri = members.take("TensorBoardOutputConfig.S3OutputPath")
    if uri is None:
        return None
    return Call(
        "TensorBoard", (existing.prefix(uri),), {"local_path": members.take("TensorBoardOutputConfig.LocalPath")}
    )


def _rules(members: Members, path: str, existing: Existing) -> list[Call] | None:
    found = []
    for rule in members.parts(path, "RuleConfigurationName"):
        uri = rule.take("S3OutputPath")
        found.append(
            Call(
                "DebuggerRule",
                (rule.take("RuleConfigurationName"), rule.take("RuleEvaluatorImage")),
                {
                    "parameters": rule.take("RuleParameters") or None,
                    "instance_type": rule.take("InstanceType"),
                    "volume_size_gb": rule.take("VolumeSizeInGB"),
                    "output": None if uri is None else existing.prefix(uri),
                    "local_path": rule.take("LocalPath"),
                },
            )
        )
        rule.finish()
    return found or None
