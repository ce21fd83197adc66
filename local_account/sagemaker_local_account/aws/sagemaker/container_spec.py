"""The specification of a training job's containers: environment, command, limits and configuration files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import random
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_local_account.aws.sagemaker.job_context import JobContext
from sagemaker_local_account.aws.sagemaker.scheduler import groups_of
from sagemaker_local_account.core.image_names import ImageError
from sagemaker_local_account.faults import FullDisk, LateHost
from sagemaker_local_account.images.container_start import renames_host
from sagemaker_local_account.images.image_store import Image
from sagemaker_local_account.images.training_toolkit import unpack_code
from sagemaker_local_account.runtime.devices import DEVICES_PATH, Accelerators, accelerators
from sagemaker_local_account.runtime.spec import ContainerSpec, Fidelity, PodSpec
from sagemaker_local_account.storage.transfer import s3_source, split

# The group's name in resourceconfig.json of a job without instance groups (SageMaker's training toolkit).
ONLY_GROUP = "homogeneousCluster"
NETWORK_INTERFACE = "eth0"
CHECKPOINTS = "/opt/ml/checkpoints"  # the default of CheckpointConfig.LocalPath
# GPUs are listed, and PyTorch does not have them. Hugging Face's Trainer then makes no process group, and each rank silently
# trains a model of its own, unless this variable is set (accelerate 1.15, state.py, PartialState._prepare_backend).
WITHOUT_CUDA = {"ACCELERATE_USE_CPU": "true"}
_log = logging.getLogger(__name__)
_SUBMIT_DIRECTORY = "sagemaker_submit_directory"  # the toolkit's hyperparameter, and in capitals its variable
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def specification(context: JobContext, request: Mapping[str, Any], arn: str) -> PodSpec:
    """Returns the specification of a job's containers, with the account's limits and injected faults.

    Args:
        context: the account's services.
        request: CreateTrainingJob's.
        arn: the job's.

    Raises:
        ImageError: the request has no TrainingImage, or the account has no such image.
    """
    uri = request["AlgorithmSpecification"].get("TrainingImage")
    if uri is None:
        raise ImageError(
            "ClientError: TrainingImage in AlgorithmSpecification must be set in the local account, got none"
        )
    name = request["TrainingJobName"]
    # Containers without a network have no credentials (SageMaker's guide, "Run Training and Inference Containers in Internet-Free
    # Mode").
    isolated = request.get("EnableNetworkIsolation", False)
    endpoint = {"AWS_ENDPOINT_URL": context.endpoint_url}
    spec = pod_spec(
        request,
        image=_image(context, request, arn, uri),
        folder=context.folder / name,
        endpoint_port=None if isolated else int(context.endpoint_url.rpartition(":")[2]),
        environment={
            "AWS_DEFAULT_REGION": context.region,
            "AWS_REGION": context.region,
            "TRAINING_JOB_ARN": arn,
            "TRAINING_JOB_NAME": name,
            # Hosts cannot reach a package index: pip fails at once, without retries.
            "PIP_NO_INDEX": "1",
            **({} if isolated else {**endpoint, **context.credentials(request["RoleArn"], arn)}),
        },
        devices=context.devices,
        fidelity=context.fidelity,
        host_seed=context.host_seed,
    )
    return dataclasses.replace(spec, hosts=tuple(_limited(context, request, spec, host) for host in spec.hosts))


def _image(context: JobContext, request: Mapping[str, Any], arn: str, uri: str) -> Image:
    """The image of a job, whose environment has the requirements.txt of code in S3, which the toolkit installs on AWS.

    Raises:
        ImageError: the account has no such image, or a requirement cannot be installed.
    """

    def note(text: str) -> None:
        _log.info("%s: %s", request["TrainingJobName"], text)

    place = _submit_directory(request)
    if not place.startswith("s3://") or request.get("EnableNetworkIsolation"):
        return context.images.resolve(uri, note=note)
    s3 = context.client("s3", context.credentials(request["RoleArn"], arn))
    bucket, key = split(place)
    with tempfile.TemporaryFile() as archive, tempfile.TemporaryDirectory() as folder:
        try:
            s3.download_fileobj(bucket, key, archive)
            archive.seek(0)
            unpack_code(archive, Path(folder))
        except (BotoCoreError, ClientError, tarfile.TarError, OSError) as error:
            # The toolkit meets the same on the host, and says so in the log as on AWS.
            note(f"{place} cannot be read: {error}")
            return context.images.resolve(uri, note=note)
        return context.images.resolve(uri, Path(folder), note)


def _submit_directory(request: Mapping[str, Any]) -> str:
    """Where a job's code is, as the toolkit finds it: a hyperparameter in JSON or as it is, or a variable."""
    given = request.get("HyperParameters", {}).get(_SUBMIT_DIRECTORY)
    if given is None:
        return str(request.get("Environment", {}).get(_SUBMIT_DIRECTORY.upper(), ""))
    try:
        return str(json.loads(given))
    except ValueError:
        return str(given)


def _limited(context: JobContext, request: Mapping[str, Any], spec: PodSpec, host: ContainerSpec) -> ContainerSpec:
    late = context.faults.consume_first(LateHost, job=spec.name, host=host.name)
    full = context.faults.consume_first(FullDisk, job=spec.name, host=host.name)
    volume = request["ResourceConfig"].get("VolumeSizeInGB")
    return dataclasses.replace(
        host,
        starts_after=late.seconds if late else 0.0,
        disk_mebibytes=full.mebibytes if full else None,
        limits=context.limits.of_host(host.instance_type, volume, len(spec.hosts), context.folder),
    )


def pod_spec(
    request: Mapping[str, Any],
    *,
    image: Any,
    folder: Path,
    endpoint_port: int | None,
    environment: Mapping[str, str],
    devices: Mapping[str, int],
    fidelity: Fidelity = "strict",
    host_seed: int | None = None,
) -> PodSpec:
    """Returns the specification of a job's containers, in the order of its instance groups.

    Args:
        request: CreateTrainingJob's.
        image: the training image: its root folder, Python environment, entry point, variables and working directory.
        folder: the job's folder.
        endpoint_port: the port of the account's endpoint; None isolates the network.
        environment: the platform's variables: region, endpoint, and the role's credentials.
        devices: accelerators per instance type, instead of the type's own.
        host_seed: deals the numbers of hosts to the groups, as the service does ("You need to figure out from the logs which
            nodes are in which group": "Configure a training job with a heterogeneous cluster"); None for the job's name as the
            seed, or with relaxed fidelity for the groups' order.
        fidelity: "strict" sets host names like those of AWS's machines, unless the container's start renames its host.
    """
    name, command = request["TrainingJobName"], _command(request, image)
    renamed = fidelity == "relaxed" or renames_host(command)
    groups = groups_of(request)
    numbers = list(range(1, sum(count for _, _, count in groups) + 1))
    if host_seed is not None or fidelity == "strict":
        random.Random(name if host_seed is None else host_seed).shuffle(numbers)
    machines = [
        (number, group, instance_type, count)
        for group, instance_type, count in groups
        for number in sorted(numbers.pop(0) for _ in range(count))
    ]
    return PodSpec(
        name,
        tuple(
            ContainerSpec(
                name=f"algo-{number}",
                group=group,
                instance_type=instance_type,
                instance_count_of_group=count,
                address=f"10.0.{number // 250}.{number % 250 + 1}",
                accelerators=accelerators(instance_type, devices).count,
                folder=folder / f"algo-{number}",
                root=image.root,
                python=image.python,
                environment=_environment(
                    request, image, {**environment, **_without_cuda(accelerators(instance_type, devices))}
                ),
                command=command,
                working_directory=image.workdir or "/",
                hostname=None if renamed else _unresolved(name, number),
            )
            for number, group, instance_type, count in machines
        ),
        endpoint_port,
        folder,
    )


def _without_cuda(found: Accelerators) -> Mapping[str, str]:
    return WITHOUT_CUDA if found.kind == "gpu" and found.count else {}


def _unresolved(job: str, number: int) -> str:
    """A host name like those of AWS's machines, a function of the job's name and the host's number."""
    return "ip-10-0-{}-{}".format(*hashlib.sha256(f"{job} {number}".encode()).digest()[:2])


def config_files(spec: PodSpec, host: ContainerSpec, request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of the files in ``/opt/ml/input/config`` of a host, by file name."""
    groups: dict[str, dict[str, Any]] = {}
    for peer in spec.hosts:
        group = groups.setdefault(
            peer.group or ONLY_GROUP,
            {"instance_group_name": peer.group or ONLY_GROUP, "instance_type": peer.instance_type, "hosts": []},
        )
        group["hosts"].append(peer.name)
    return {
        "hyperparameters.json": dict(request.get("HyperParameters", {})),
        "inputdataconfig.json": {
            channel["ChannelName"]: _input_data(channel, request)
            for channel in request.get("InputDataConfig", [])
            if host in spec.hosts_of(s3_source(channel).get("InstanceGroupNames"))
        },
        "resourceconfig.json": {
            "current_group_name": host.group or ONLY_GROUP,
            "current_host": host.name,
            "current_instance_type": host.instance_type,
            # The service orders hosts as text: algo-10 comes before algo-2.
            "hosts": sorted(peer.name for peer in spec.hosts),
            "instance_groups": list(groups.values()),
            "network_interface_name": NETWORK_INTERFACE,
        },
    }


def _input_data(channel: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, str]:
    source = s3_source(channel)
    described = {
        "ContentType": channel.get("ContentType"),
        "TrainingInputMode": channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"],
        "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    return {key: value for key, value in described.items() if value is not None}


def _environment(request: Mapping[str, Any], image: Any, platform: Mapping[str, str]) -> dict[str, str]:
    path = image.env.get("PATH", _SYSTEM_PATH)
    return {
        **image.env,
        "HOME": "/root",
        **platform,
        **request.get("Environment", {}),
        "PATH": f"{DEVICES_PATH}:{image.python}/bin:{path}",
    }


def _command(request: Mapping[str, Any], image: Any) -> tuple[str, ...]:
    """``ENTRYPOINT train``, as SageMaker starts an image, unless the request has ContainerEntrypoint or ContainerArguments."""
    algorithm = request["AlgorithmSpecification"]
    entrypoint = algorithm.get("ContainerEntrypoint") or image.entrypoint
    given = algorithm.get("ContainerEntrypoint") or algorithm.get("ContainerArguments")
    arguments = algorithm.get("ContainerArguments", []) if given else ["train"]
    return (*entrypoint, *arguments)
