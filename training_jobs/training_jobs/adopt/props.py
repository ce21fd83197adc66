"""The props of a TrainingWorkflow that sends a request, as expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_jobs.adopt.channels import channels_of
from training_jobs.adopt.existing import Existing
from training_jobs.adopt.jobs import Script, job_of
from training_jobs.adopt.launchers import decoded
from training_jobs.adopt.members import Members
from training_jobs.adopt.monitoring import monitoring_of
from training_jobs.adopt.python_source import Call, Name
from training_jobs.client.jobs import EXECUTION_TAG

_DAY = 86_400  # what both SageMaker and TrainingWorkflow have without a limit (API, StoppingCondition)
_VOLUME_GIB = 30  # what TrainingWorkflow has without volume_size
# The names of AWS's SDKs end in the time at which they were made.
_TIME = re.compile(r"-(\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-\d{3}|\d{14})$")
_LONGEST_PREFIX = 26


@dataclass(frozen=True)
class Subnets:
    """The VPC of a job's subnets, which its request does not contain.

    Attributes:
        vpc_id: The VPC.
        zones: The zone of each subnet.
    """

    vpc_id: str
    zones: tuple[str, ...]


def name_prefix(job_name: str) -> str:
    """Return how the names of the workflow's jobs begin.

    Args:
        job_name: The name of the job.
    """
    return _TIME.sub("", job_name)[:_LONGEST_PREFIX].strip("-") or "training"


def props_of(members: Members, existing: Existing, subnets: Subnets, code: Call | None = None) -> dict[str, Any]:
    """Return the props as expressions, in the order in which the source has them; None for those that are left out.

    Args:
        members: The request, from which every member is taken; its differences are noted there.
        existing: The resources that the stack imports.
        subnets: Of the job's network.
        code: The folder that the stack uploads; None for none.

    Raises:
        ValueError: There can be no such stack.
    """
    hyperparameters, environment = (dict(members.take(name) or {}) for name in ("HyperParameters", "Environment"))
    image, monitoring = members.take("AlgorithmSpecification.TrainingImage"), monitoring_of(members, existing)
    profiled = (profiler := monitoring["profiler"]) is not None and not profiler.keywords.get("disable")
    name = str(members.take("TrainingJobName") or "training")
    members.differs("TrainingJobName", name, "each execution has a job name of its own, which begins with this")
    groups = members.take("VpcConfig.SecurityGroupIds") or []
    mode = members.take("AlgorithmSpecification.TrainingInputMode") or "File"
    output = members.take("OutputDataConfig.S3OutputPath")
    if re.fullmatch(r"s3://[^/]+", output):
        members.differs("OutputDataConfig.S3OutputPath", output, "sent with a slash after the bucket")
    props = {
        "job": job_of(members, existing, Script(hyperparameters, environment, image, profiled)),
        "image": existing.image(image),
        "private_registry": _registry(members, existing),
        "code": code,
        "container_entrypoint": members.take("AlgorithmSpecification.ContainerEntrypoint") or None,
        "container_arguments": members.take("AlgorithmSpecification.ContainerArguments") or None,
        "hyperparameters": _hyperparameters(members, hyperparameters),
        "environment": environment or None,
        "channels": channels_of(members, existing, groups, mode) or None,
        "output": existing.prefix(output),
        "output_compression": _unless(members.take("OutputDataConfig.CompressionType"), "GZIP"),
        "output_key": _key(members, existing, "OutputDataConfig.KmsKeyId"),
        **_limits_and_checkpoints(members, existing),
        **_machines(members, existing),
        "role": existing.role(members.take("RoleArn")),
        "network": _network(members, existing, groups, subnets),
        "network_isolation": members.take("EnableNetworkIsolation") or None,
        "inter_container_encryption": members.take("EnableInterContainerTrafficEncryption") or None,
        "session_tag_chaining": members.take("SessionChainingConfig.EnableSessionTagChaining") or None,
        "remote_debug": members.take("RemoteDebugConfig.EnableRemoteDebug") or None,
        "metric_definitions": _metrics(members),
        "metrics_time_series": members.take("AlgorithmSpecification.EnableSageMakerMetricsTimeSeries"),
        **monitoring,
        "tags": _tags(members),
        "job_name_prefix": name_prefix(name),
    }
    members.finish()
    return props


def _registry(members: Members, existing: Existing) -> Call | None:
    config = "AlgorithmSpecification.TrainingImageConfig"
    if members.take(f"{config}.TrainingRepositoryAccessMode") != "Vpc":
        return None
    arn = members.take(f"{config}.TrainingRepositoryAuthConfig.TrainingRepositoryCredentialsProviderArn")
    return Call("PrivateRegistry", () if arn is None else (existing.function(arn),))


def _hyperparameters(members: Members, texts: Mapping[str, str]) -> dict[str, Any] | None:
    for name, text in texts.items():
        value = decoded(text)
        sent = value if isinstance(value, str) and decoded(value) == value else json.dumps(value)
        if sent != text:
            members.differs(
                f"HyperParameters.{name}", text, f"sent as {sent!r}, which SageMaker's toolkit reads the same"
            )
    return {name: decoded(text) for name, text in texts.items()} or None


def _limits_and_checkpoints(members: Members, existing: Existing) -> dict[str, Any]:
    runtime = members.take("StoppingCondition.MaxRuntimeInSeconds")
    if runtime is None:
        members.differs("StoppingCondition.MaxRuntimeInSeconds", None, "one day, which is also SageMaker's default")
    uri = members.take("CheckpointConfig.S3Uri")
    if uri is not None:
        members.differs("CheckpointConfig.S3Uri", uri, "each execution has a folder of its own below it")
    spot = None
    if members.take("EnableManagedSpotTraining"):
        wait = members.take("StoppingCondition.MaxWaitTimeInSeconds")
        if wait is None:
            wait = runtime or _DAY
            members.differs("StoppingCondition.MaxWaitTimeInSeconds", None, "the service requires it on spot machines")
        spot = Call("Spot", (), {"max_wait": _duration(wait)})
    return {
        "checkpoints": None if uri is None else existing.prefix(uri),
        "checkpoint_local_path": members.take("CheckpointConfig.LocalPath") if uri is not None else None,
        "spot": spot,
        "max_runtime": _duration(_unless(runtime, _DAY)),
        "max_pending": _duration(members.take("StoppingCondition.MaxPendingTimeInSeconds")),
        "maximum_retry_attempts": members.take("RetryStrategy.MaximumRetryAttempts"),
    }


def _machines(members: Members, existing: Existing) -> dict[str, Any]:
    volume = members.take("ResourceConfig.VolumeSizeInGB")
    if not volume:
        members.differs(
            "ResourceConfig.VolumeSizeInGB", None, f"{_VOLUME_GIB}, which types with disks of their own ignore"
        )
    keep_alive = members.take("ResourceConfig.KeepAlivePeriodInSeconds")
    placement = "ResourceConfig.InstancePlacementConfig"
    shared = members.take(f"{placement}.EnableMultipleJobs")
    specifications = members.take(f"{placement}.PlacementSpecifications") or []
    counts: Any = [it["InstanceCount"] for it in specifications]
    if specifications and all("UltraServerId" in it for it in specifications):
        counts = {it["UltraServerId"]: it["InstanceCount"] for it in specifications}
    return {
        "volume_size": None if volume in (None, 0, _VOLUME_GIB) else Call("cdk.Size.gibibytes", (volume,)),
        "volume_key": _key(members, existing, "ResourceConfig.VolumeKmsKeyId"),
        "warm_pool": Call("WarmPool", (_duration(keep_alive),)) if keep_alive else None,
        "training_plan": members.take("ResourceConfig.TrainingPlanArn"),
        "ultra_servers": Call("UltraServers", (counts,), {"multiple_jobs": shared or None}) if counts else None,
        "infra_check": members.take("InfraCheckConfig.EnableInfraCheck") or None,
    }


def _network(members: Members, existing: Existing, groups: list[str], subnets: Subnets) -> Name | None:
    ids = members.take("VpcConfig.Subnets")
    return existing.network(ids, groups, subnets.vpc_id, list(subnets.zones)) if ids else None


def _metrics(members: Members) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for one in members.take("AlgorithmSpecification.MetricDefinitions") or []:
        found.setdefault(one["Name"], []).append(one["Regex"])
    return {name: regexes if len(regexes) > 1 else regexes[0] for name, regexes in found.items()} or None


def _tags(members: Members) -> dict[str, str] | None:
    tags = {it["Key"]: it["Value"] for it in members.take("Tags") or []}
    members.differs(f"Tags[{EXECUTION_TAG}]", None, "added, with the execution that started the job")
    tags.pop(EXECUTION_TAG, None)
    for key in [key for key in tags if key.lower().startswith("aws:")]:
        members.differs(f"Tags[{key}]", tags.pop(key), "'aws:' is reserved by AWS: left out")
    return tags or None


def _key(members: Members, existing: Existing, member: str) -> Name | None:
    id = members.take(member)
    if not id:
        return None
    key, arn = existing.key(id)
    if arn != id:
        members.differs(member, id, f"sent as its ARN, {arn}")
    return key


def _duration(seconds: int | None) -> Call | None:
    if seconds is None:
        return None
    for unit, length in (("days", _DAY), ("hours", 3600), ("minutes", 60)):
        if seconds and seconds % length == 0:
            return Call(f"cdk.Duration.{unit}", (seconds // length,))
    return Call("cdk.Duration.seconds", (seconds,))


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value
