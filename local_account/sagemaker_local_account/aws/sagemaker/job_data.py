"""The data of a training job: input channels, configuration files, checkpoints and artifacts of its hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagemaker_local_account.aws.sagemaker.attempt import ml
from sagemaker_local_account.aws.sagemaker.container_spec import CHECKPOINTS, config_files
from sagemaker_local_account.core.safe_paths import JobFolder
from sagemaker_local_account.runtime.devices import write_stand_ins
from sagemaker_local_account.runtime.limit_watch import disk_usage
from sagemaker_local_account.runtime.limits import readable
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec
from sagemaker_local_account.storage.checkpoints import Checkpoints
from sagemaker_local_account.storage.transfer import (
    StorageError,
    channel_objects,
    download,
    holds_files,
    s3_source,
    share_of,
    upload,
)


def write_config(spec: PodSpec, request: Mapping[str, Any]) -> None:
    """Makes each host's folders in /opt/ml, its configuration files, and the stand-ins for its accelerators' commands."""
    for host in spec.hosts:
        for folder in ("input/config", "input/data", "model", "output/data"):
            (ml(host) / folder).mkdir(parents=True, exist_ok=True)
        for name, content in config_files(spec, host, request).items():
            (ml(host) / "input" / "config" / name).write_text(json.dumps(content))
        write_stand_ins(host.folder / "devices", host.instance_type, host.accelerators)


def download_channels(s3: Any, spec: PodSpec, request: Mapping[str, Any]) -> None:
    """Downloads the channels in S3 to the hosts of their instance groups.

    Args:
        s3: a client with the job's role.
        spec: the job's hosts.
        request: CreateTrainingJob's.

    Raises:
        StorageError: S3 rejects a request, or the data do not fit on a host's volume.
    """
    for channel in request.get("InputDataConfig", []):
        source = s3_source(channel)
        if not source:
            continue
        objects = channel_objects(s3, channel)
        hosts = spec.hosts_of(source.get("InstanceGroupNames"))
        for number, host in enumerate(hosts):
            folder = JobFolder(ml(host), f"input/data/{channel['ChannelName']}")
            distribution = source.get("S3DataDistributionType", "FullyReplicated")
            download(s3, share_of(objects, number, len(hosts), distribution), folder)
    for host in spec.hosts:
        _check_space(host)


def restored_checkpoints(s3: Any, spec: PodSpec, request: Mapping[str, Any]) -> Checkpoints | None:
    """Downloads the checkpoints of CheckpointConfig to every host; returns None for a job without it.

    Raises:
        StorageError: S3 rejects a request, or LocalPath is not below /opt/ml.
    """
    config = request.get("CheckpointConfig")
    if not config:
        return None
    path = config.get("LocalPath", CHECKPOINTS)
    if not path.startswith("/opt/ml/"):
        raise StorageError(
            f"ClientError: LocalPath in CheckpointConfig must be below /opt/ml in the local account, got {path}"
        )
    below = path.removeprefix("/opt/ml/").rstrip("/")
    checkpoints = Checkpoints(s3, config["S3Uri"], [JobFolder(ml(host), below) for host in spec.hosts])
    checkpoints.restore()
    return checkpoints


def model_uri(request: Mapping[str, Any]) -> str:
    """Returns S3ModelArtifacts, which is the same whether a model is uploaded (aws/sagemaker-python-sdk 608, 3455) or not."""
    compressed = request["OutputDataConfig"].get("CompressionType", "GZIP") == "GZIP"
    return f"{_output(request)}/{'model.tar.gz' if compressed else 'model/'}"


def upload_artifacts(s3: Any, spec: PodSpec, request: Mapping[str, Any], scratch: Path) -> bool:
    """Uploads the model and the output data of all hosts; empty folders are not uploaded.

    Args:
        s3: a client with the job's role.
        spec: the job's hosts.
        request: CreateTrainingJob's.
        scratch: a folder for the archives.

    Returns:
        Whether there is a model.

    Raises:
        StorageError: S3 rejects a request, or a file cannot be uploaded.
    """
    config = request["OutputDataConfig"]
    compressed = config.get("CompressionType", "GZIP") == "GZIP"
    uploaded = []
    for folder, name in (("model", "model"), ("output/data", "output")):
        folders = [JobFolder(ml(host), folder) for host in spec.hosts]
        if any(map(holds_files, folders)):
            uri = f"{_output(request)}/{name}"
            upload(s3, folders, uri, config.get("KmsKeyId"), compressed=compressed, scratch=scratch)
            uploaded.append(name)
    return "model" in uploaded


def _output(request: Mapping[str, Any]) -> str:
    return f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/output"


def _check_space(host: ContainerSpec) -> None:
    if host.limits is not None and (used := disk_usage(host.folder)) > host.limits.disk:
        # The beginning of the message is the service's (aws/sagemaker-python-sdk 128).
        raise StorageError(
            f"ClientError: Data download failed:Insufficient disk space: {host.name} has {readable(host.limits.disk)}, and its "
            f"channels take {readable(used)}"
        )
