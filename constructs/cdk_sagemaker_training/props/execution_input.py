"""When each prop must be known: what an execution's input may decide, what a deployment may, and what the app itself must.

A prop that the input may decide takes ``sfn.JsonPath``, whole or within other text. One that a policy is made of must be known
when the stack is deployed, and takes CDK's other tokens. One that shapes the request, or is checked, must be known at synth.
``prop_types`` refuses the rest by the prop's name, and docs/members.md shows this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cdk_sagemaker_training.core.tokens import JSONATA, is_unresolved
from cdk_sagemaker_training.facts.smp_parameters import V1, V2
from cdk_sagemaker_training.props.prop import Known

_TOKEN = re.compile(r"\$\{Token\[[^\]]*\]\}")

_EXECUTION = Known("execution")
_POLICY = Known("deployment", "since permissions are granted on it")
_PLANS = Known("execution", "permissions are then on all training plans of the account and region")
_TEXT_IN_JSON = Known("synth", "since it is written into a JSON string")
_NAME = Known("synth", "since other props name it")
_SHAPE = Known("synth", "since the request's members follow from it")
_LITERAL = Known("synth", "since it is a literal in the state machine")
_ROWS = Known("synth", "since the rows are checked and uploaded")
_LITERAL_OF_QUEUE = Known("deployment", "since the queue is made with it")
_BUILT = Known("synth", "since the image is built, or chosen, from it")
_NETWORK = Known("deployment", "since the network is made with it")
_PREFIX = Known("deployment", "since permissions are granted on it; subfolder may be in the execution's input")


def _of(owner: str, known: Known, *props: str) -> dict[str, Known]:
    return {f"{owner}.{prop}": known for prop in props}


# By "Owner.prop". Each prop of TrainingProps declares this itself, in its record.
KNOWN: Mapping[str, Known] = {
    **_of("TrainingWorkflow", _EXECUTION, "resume_from"),
    **_of("TrainingWorkflow", Known("execution", "values, not paths"), "request_overrides"),
    **_of("TrainingTask", Known("execution", "values, not paths"), "request_overrides"),
    **_of(
        "TrainingWorkflow", Known("deployment", "since a state machine has one number for all executions"), "timeout"
    ),
    **_of(
        "TrainingWorkflow",
        Known("synth", "since the states follow from it"),
        "alternatives",
        "budget",
        "integration",
        "input_fields",
        "job_metrics",
        "missing_model",
        "queue",
        "retries",
        "stop_when",
        "waiting_longer_than",
    ),
    **_of("TrainingWorkflow.from_state_machine_arn", _POLICY, "state_machine_arn"),
    **_of("TrainingWorkflow.from_training_workflow_attributes", _POLICY, "state_machine_arn"),
    **_of("TrainingQueue", _LITERAL_OF_QUEUE, "capacity", "shares", "share_decay"),
    **_of("TrainingQueue.from_queue_arn", _POLICY, "queue_arn"),
    **_of("TrainingQueue.from_queue_attributes", _POLICY, "queue_arn", "quota_share_arns"),
    **_of("TrainingQueue.from_queue_attributes", _LITERAL_OF_QUEUE, "capacity", "shares"),
    **_of("QueueShare", _LITERAL, "name", "priority"),
    **_of("QuotaShare", Known("synth", "since the machines of jobs are compared with it"), "capacity", "borrow_limit"),
    **_of("QuotaShare", Known("synth", "since the queue is made with it"), "sharing", "preempts"),
    **_of("Alternative", Known("execution", "as in hyperparameters"), "hyperparameters"),
    **_of("Alternative", Known("execution", "values, not names"), "environment"),
    **_of("TrainingTask", _EXECUTION, "unique_by"),
    **_of("InstanceGroup", _EXECUTION, "instance_type", "instance_count"),
    **_of("InstancePreference", _EXECUTION, "instance_type", "instance_count"),
    **_of("InstancePreference", _PLANS, "training_plan"),
    **_of("HeterogeneousJob", _NAME, "groups", "train_group", "order"),
    **_of("Torchrun", _TEXT_IN_JSON, "processes_per_host"),
    **_of("Mpi", _TEXT_IN_JSON, "processes_per_host"),
    **_of("Mpi", _EXECUTION, "custom_mpi_options"),
    **_of("PyTorchDdp", _TEXT_IN_JSON, "processes_per_host"),
    **_of("Ray", Known("synth", "since it must be the name of a Python file"), "script"),
    **_of("Ray", _TEXT_IN_JSON, "object_store_memory"),
    **_of("SmDdp", _SHAPE, "launch_by"),
    **_of("SmDdp", _EXECUTION, "custom_mpi_options"),
    **_of("ModelParallelJob", _TEXT_IN_JSON, "processes_per_host"),
    **_of(
        "Model",
        Known("synth", "since it is compared with the accelerators' memory"),
        "parameters",
        "bytes_per_parameter",
    ),
    **_of("NativeParallelism", _TEXT_IN_JSON, "data_shard", "data_replicate", "tensor", "pipeline", "microbatches"),
    **_of("NativeParallelism", _SHAPE, "schedule", "precision"),
    **_of("SmpV1", _EXECUTION, "custom_mpi_options"),
    **_of("SmpV1", _TEXT_IN_JSON, *(name for name, about in V1.items() if not about.is_flag), "more"),
    **_of("SmpV2", _TEXT_IN_JSON, *(name for name, about in V2.items() if not about.is_flag), "more"),
    **_of("TorchCompile", _SHAPE, "mode", "cache_directory"),
    **_of("Neuron", Known("execution", "text of its own, as in hyperparameters"), "trial"),
    **_of("S3Prefix", _PREFIX, "prefix"),
    **_of("S3Prefix", Known("execution", "what comes after prefix, below which permissions are granted"), "subfolder"),
    **_of("S3Channel", _PREFIX, "prefix"),
    **_of("S3Channel", Known("execution", "what comes after prefix, below which permissions are granted"), "subfolder"),
    **_of("S3Channel", _NAME, "groups"),
    **_of("S3Channel", _SHAPE, "data_type"),
    **_of("S3Channel", _EXECUTION, "distribution", "input_mode", "content_type", "attribute_names", "compression"),
    **_of("S3Channel", _EXECUTION, "record_wrapper", "shuffle_seed"),
    **_of("S3AccessPoint", _POLICY, "arn", "alias"),
    **_of("FsxLustreChannel", _EXECUTION, "directory", "mount_name", "content_type"),
    **_of("EfsChannel", _EXECUTION, "directory", "content_type"),
    **_of("Spot", _EXECUTION, "max_wait", "local_path"),
    **_of("WarmPool", _EXECUTION, "keep_alive"),
    **_of("NumberField", _LITERAL, "minimum", "maximum", "default"),
    **_of("ChoiceField", _LITERAL, "values", "default"),
    **_of("TextField", _LITERAL, "pattern", "default"),
    **_of("Grid", _ROWS, "values"),
    **_of("Rows", _ROWS, "values"),
    **_of("RowsFile", Known("deployment", "since permissions are granted on it"), "key"),
    **_of("Objective", _LITERAL, "metric", "goal"),
    **_of("TrainingSweep", _LITERAL, "concurrency", "tolerated_failure_count", "tolerated_failure_percentage"),
    **_of("Silence", _LITERAL, "after"),
    **_of("MetricLimit", _LITERAL, "metric", "above", "below", "readings"),
    **_of("Plateau", _LITERAL, "metric", "patience", "min_delta", "mode"),
    **_of("Budget", _LITERAL, "hours", "dollars", "prices", "least", "nearly_used"),
    **_of("TrainingDashboard", _LITERAL, "dollars_per_hour", "period", "dashboard_name"),
    **_of(
        "Retry",
        Known("synth", "since the waits are listed in the state machine"),
        *("attempts", "first_wait", "backoff", "max_wait", "until"),
    ),
    **_of("UltraServers", Known("synth", "since they are compared with the job's machines"), "counts"),
    **_of("DebuggerRule", _EXECUTION, "name", "evaluator_image", "parameters", "instance_type", "volume_size_gb"),
    **_of("DebuggerRule", _EXECUTION, "local_path"),
    **_of("Debugger", Known("execution", "values, not names"), "collections", "hook_parameters"),
    **_of("Debugger", _EXECUTION, "local_path"),
    **_of("Profiler", _EXECUTION, "interval_milliseconds"),
    **_of("Profiler", Known("execution", "values, not names"), "parameters"),
    **_of("TensorBoard", _EXECUTION, "local_path"),
    **_of("Experiment", _EXECUTION, "experiment_name", "trial_name", "trial_component_display_name", "run_name"),
    **_of("Mlflow", _POLICY, "resource_arn"),
    **_of("Mlflow", _EXECUTION, "experiment_name", "run_name"),
    **_of("TrainingCode", Known("synth", "since the folder is read"), "directory", "entry_point", "exclude"),
    **_of("TrainingImage.from_asset", _BUILT, "directory", "file", "build_args"),
    **_of("TrainingImage.from_codebuild", _BUILT, "directory", "file", "build_args", "max_images"),
    **_of("TrainingImage.from_dlc", _POLICY, "repository", "account_id"),
    **_of("TrainingImage.from_dlc", _EXECUTION, "tag"),
    **_of("TrainingImage.from_ecr_repository", _EXECUTION, "tag"),
    **_of("TrainingImage.from_ecr_repository", _BUILT, "base"),
    **_of(
        "TrainingImage.from_uri", Known("execution", "permissions are on each repository that it may name"), "image_uri"
    ),
    **_of("TrainingImage.from_uri", _BUILT, "base"),
    **_of("TrainingImage.from_training_compiler", _BUILT, "framework", "version"),
    **_of("TrainingNetwork", _NETWORK, "availability_zones", "cidr", "owner_account"),
    **_of("TrainingNetwork", Known("synth", "since subnets and endpoints are made by it"), "max_azs", "endpoints"),
    **_of("TrainingNetwork.from_vpc", _NETWORK, "availability_zones", "owner_account"),
    **_of("TrainingNetwork.from_lookup", _NETWORK, "availability_zones"),
    **_of(
        "LustreFileSystem", Known("deployment", "since the file system is made with it"), "storage_gib", "throughput"
    ),
}


def check_known(prop: str, value: Any, known: Known | None, example: str) -> None:
    """Check that a prop is known as early as it must be.

    Args:
        prop: The prop's name.
        value: Its value.
        known: When it must be known, and why; None where an execution may decide it.
        example: A value, as Python source, for the message.

    Raises:
        ValueError: For a token, or a place in an execution's input, of a prop that must be known before.
    """
    if known is None or known.when == "execution":
        return
    for token in tokens_in(value):
        in_input = is_in_input(token)
        if in_input or known.when == "synth":
            got = "a place in the execution's input" if in_input else "a token"
            by = "is synthesized" if known.when == "synth" else "is deployed"
            raise ValueError(f"{prop} must be known when the app {by}, {known.why}, like {example}, got {got}")


def tokens_in(value: Any) -> Iterator[Any]:
    """Each token in a value.

    Args:
        value: Text, a number, a list, a dict, a ``Duration``, or these in each other.

    Yields:
        Tokens as they are encoded: text like ``${Token[TOKEN.1]}``, a number, or a list; and expressions of JSONata, like
        ``{% $states.input.steps %}``.
    """
    if isinstance(value, str):
        yield from _TOKEN.findall(value)
        yield from (match[0] for match in JSONATA.finditer(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tokens_in(key)
            yield from tokens_in(item)
    elif isinstance(value, list | tuple) and not is_unresolved(value):
        for item in value:
            yield from tokens_in(item)
    elif hasattr(type(value), "to_seconds"):
        yield from tokens_in(value.to_seconds(integral=False))
    elif isinstance(value, int | float | list | tuple) and is_unresolved(value):
        yield value


def is_in_input(token: Any) -> bool:
    """Whether a token is Step Functions', such as a place in an execution's input, and not one of CloudFormation's.

    Args:
        token: Text, a number or a list that holds nothing else than one token.
    """
    return (isinstance(token, str) and JSONATA.fullmatch(token) is not None) or is_jsonpath(token)


def is_jsonpath(token: Any) -> bool:
    """Whether a token is a JSONPath of Step Functions.

    Args:
        token: As of ``is_in_input``.
    """
    return bool(_paths(tuple(token) if isinstance(token, list | tuple) else token))


@cache
def _paths(token: Any) -> tuple[str, ...]:
    # Not imported above, since this takes longer than all else in this module, and who has a token has imported CDK.
    from aws_cdk import aws_stepfunctions as sfn

    return tuple(sfn.FieldUtils.find_referenced_paths({"token": list(token) if isinstance(token, tuple) else token}))


def page(known: Mapping[str, Known]) -> str:
    """The section of docs/members.md on what an execution's input may decide.

    Args:
        known: When props must be known, by ``"Owner.prop"``; the owner of a job's props is ``TrainingProps``.
    """
    rows = [
        f"| `{name.removeprefix('TrainingProps.')}` | {when} | {why.removeprefix('since ')} |"
        for name, (when, why) in sorted(
            known.items(), key=lambda row: (row[1].when != "execution", row[1].when, row[0])
        )
    ]
    return "\n".join([_PAGE, *rows]) + "\n"


_PAGE = """
## When a prop must be known

Text and numbers of the rows with *execution* accept a JSONPath into an execution's input, such as
`sfn.JsonPath.string_at("$.dataset")`, whole or within other text. Those with *deployment* accept CDK's other tokens, such as
a stack's parameters; those with *synth* accept neither. Names in dicts must be known at synth. A value that is known later
than that is an error with the prop's name. A data set for each execution is
`S3Channel(bucket, "datasets/", subfolder=sfn.JsonPath.string_at("$.dataset"))`: the job may read what lies below `datasets/`,
and nothing else, whatever the input is.

| prop | known by | how, or why not later |
|---|---|---|"""
