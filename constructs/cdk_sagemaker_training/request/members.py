"""Members of a request, from the values of props: the functions that the records of `props.TrainingProps` name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aws_cdk import SizeRoundingBehavior

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.file_systems import EfsChannel, FsxLustreChannel
from cdk_sagemaker_training.data.observability import Profiler
from cdk_sagemaker_training.data.s3 import S3Channel
from cdk_sagemaker_training.jobs.hyperparameters import hyperparameters as encoded
from cdk_sagemaker_training.request.checkpoints import local_path_of
from cdk_sagemaker_training.request.context import CodeLocation, RequestContext

if TYPE_CHECKING:
    from aws_cdk import Duration, Size

Channel = S3Channel | FsxLustreChannel | EfsChannel

ONE_DAY = 24 * 3_600  # SageMaker's default (API, StoppingCondition.MaxRuntimeInSeconds)
# The channel of the code of a job without a network (estimator.py of the SageMaker Python SDK, version 2).
CODE_CHANNEL = "code"
_MOST_CHANNELS = 20  # InputDataConfig of the service model
_VOLUME_GIB = 30  # the default of AWS's SDK


def optional(of: Callable[[Any], Any]) -> Callable[[Any, RequestContext], Any]:
    """A member that is left out of the request where its prop is None.

    Args:
        of: Makes the member of the prop's value.
    """
    return lambda value, context: None if value is None else of(value)


def flag(value: bool | None, context: RequestContext) -> bool | None:
    """True, or None to leave out what is False without it."""
    return value or None


def resource_config(job: Any, context: RequestContext) -> Mapping[str, Any]:
    """The machines of the job, as its kind has them."""
    return context.job_request.resource_config


def role_arn(role: Any, context: RequestContext) -> str:
    """The ARN of the jobs' role, passed as a prop or created."""
    return context.role_arn


def job_name(prefix: str | None, context: RequestContext) -> str:
    """The job's name, of which the prop is the beginning."""
    return context.job_name


def environment(variables: Mapping[str, str] | None, context: RequestContext) -> dict[str, str]:
    """The variables of the prop, and those of the job."""
    return {**(variables or {}), **context.job_request.environment}


def hyperparameters(values: Mapping[str, Any] | None, context: RequestContext) -> Mapping[str, str]:
    """The hyperparameters of the prop, those of the job, and where the toolkit finds the code, as text."""
    return encoded(values or {}, context.job_request, _code_hyperparameters(context.code))


def _code_hyperparameters(code: CodeLocation | None) -> dict[str, str]:
    """As the SageMaker Python SDK, version 2, sends them for ``source_dir`` and ``entry_point``."""
    if code is None:
        return {}
    return {
        "sagemaker_program": json.dumps(code.program),
        "sagemaker_submit_directory": json.dumps(code.submit_directory),
    }


def tags(own: Mapping[str, str] | None, context: RequestContext) -> list[dict[str, str]]:
    """The tags of the prop, and the library's."""
    return [{"Key": key, "Value": value} for key, value in {**(own or {}), **context.tags}.items()]


def max_runtime_seconds(max_runtime: Duration | int | None) -> int:
    """The most seconds that a job runs; one day by default."""
    return ONE_DAY if max_runtime is None else seconds_of("max_runtime", max_runtime)


def max_pending_seconds(max_pending: Duration | int | None) -> int | None:
    """The most seconds that a job waits for its machines; None for SageMaker's own limit."""
    return None if max_pending is None else seconds_of("max_pending", max_pending)


def volume_gib(size: Size | None) -> float:
    """The size of a host's volume.

    "When using an ML instance with the EBS-only storage option ... you must define the size" (API, ResourceConfig).

    Args:
        size: The prop ``volume_size``.

    Returns:
        GiB, which the request has as a whole number; 30 without ``size``; a token, which CDK encodes as a float, of one.

    Raises:
        ValueError: For a part of a GiB, and for less than one.
    """
    if size is None:
        return _VOLUME_GIB
    gibibytes: float = size.to_gibibytes(rounding=SizeRoundingBehavior.NONE)
    if is_unresolved(gibibytes):
        return gibibytes
    if gibibytes != int(gibibytes):
        raise ValueError(f"volume_size must be whole GiB, like Size.gibibytes(100), got {gibibytes:g} GiB")
    if gibibytes < 1:
        raise ValueError(f"volume_size must be at least 1 GiB, like Size.gibibytes(30), got {int(gibibytes)} GiB")
    return int(gibibytes)


def command(prop: str) -> Callable[[Sequence[str] | None, RequestContext], list[str] | None]:
    """ContainerEntrypoint and ContainerArguments, of which the service takes no empty list (service model).

    Args:
        prop: The prop's name.

    Returns:
        A function that makes the member, and raises ``ValueError`` for an empty list.
    """

    def of(value: Sequence[str] | None, context: RequestContext) -> list[str] | None:
        if value is not None and not value:
            raise ValueError(f"{prop} must not be empty, like ['python', 'train.py'], got {value!r}")
        return None if value is None else list(value)

    return of


def input_data_config(channels: Mapping[str, Channel] | None, context: RequestContext) -> list[dict[str, Any]]:
    """InputDataConfig, with the groups of all channels where one has groups.

    Raises:
        ValueError: For more than 20 channels, that of the code included (service model).
    """
    channels = channels or {}
    uri = None if context.code is None else context.code.channel_uri
    most = _MOST_CHANNELS if uri is None else _MOST_CHANNELS - 1
    if len(channels) > most:
        raise ValueError(f"channels must be at most {most}, like {{'images': S3Channel(...)}}, got {len(channels)}")
    # The service refuses groups on some channels and none on others, so naming them on one names them on all.
    named = any(isinstance(channel, S3Channel) and channel.groups for channel in channels.values())
    fill = context.job_request.group_names if named else None
    configs = [{"ChannelName": name, **channel.channel_config(fill)} for name, channel in channels.items()]
    return configs if uri is None else [*configs, _code_channel(uri, fill)]


def _code_channel(uri: str, groups: Sequence[str] | None) -> dict[str, Any]:
    source: dict[str, Any] = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    if groups:
        source["InstanceGroupNames"] = list(groups)
    return {"ChannelName": CODE_CHANNEL, "DataSource": {"S3DataSource": source}}


def checkpoint_uri(checkpoints: Any, context: RequestContext) -> str | None:
    """The place of the checkpoints in S3; None for a job, or one of its requests, that has none."""
    return context.checkpoint_uri if context.job_request.checkpoints else None


def checkpoint_local_path(path: str | None, context: RequestContext) -> str | None:
    """The directory of the checkpoints on a host; None for SageMaker's default, and where there are none."""
    return None if checkpoint_uri(None, context) is None else local_path_of(context.props)


def max_wait_seconds(spot: Any, context: RequestContext) -> int | None:
    """The most seconds that a spot job takes, waiting for machines included."""
    return None if spot is None else seconds_of("max_wait", spot.max_wait)


def rule_configurations(hook: Any) -> list[dict[str, Any]]:
    """DebugRuleConfigurations of a Debugger, or ProfilerRuleConfigurations of a Profiler."""
    return [rule.configuration() for rule in hook.rules]


def profiler_config(profiler: Profiler | None, context: RequestContext) -> dict[str, Any]:
    """ProfilerConfig: the user's, unless the kind of job has its own."""
    of_job, output = dict(context.job_request.profiler_config), context.props["output"]
    if profiler is not None:
        return profiler.config(output)
    return {**of_job, "S3OutputPath": output.uri} if of_job.get("DisableProfiler") is False else of_job


def metric_definitions(
    definitions: Mapping[str, str | Sequence[str]] | None, context: RequestContext
) -> list[dict[str, Any]]:
    """MetricDefinitions, with the name of a metric once for each of its expressions.

    Raises:
        ValueError: For a metric without an expression, and for an expression without a group around the value.
    """
    found: list[dict[str, Any]] = []
    for name, value in (definitions or {}).items():
        of_name = [value] if isinstance(value, str) else value
        if not of_name:
            raise ValueError(
                f"metric_definitions[{name!r}] must be a regular expression or several, like 'loss=([0-9.]+)', got {value!r}"
            )
        for regex in of_name:
            _check_regex(name, regex)
            found.append({"Name": name, "Regex": regex})
    return found


def _check_regex(name: str, regex: str) -> None:
    try:
        groups = 1 if is_unresolved(regex) else re.compile(regex).groups
    except re.error as error:
        raise ValueError(
            f"metric_definitions[{name!r}] must be a regular expression, like 'loss=([0-9.]+)', got {regex!r}: {error}"
        ) from error
    if not groups:
        raise ValueError(
            f"metric_definitions[{name!r}] must have a group around the value, like 'loss=([0-9.]+)', got {regex!r}"
        )
