"""The plan of a job: which hosts, where, with which environment and command. A pure function of its request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .devices import DEVICES_PATH, accelerators
from .spec import Fidelity, HostPlan, JobPlan

# What DescribeTrainingJob's resourceconfig.json calls the one group of a job without groups, as SageMaker's toolkit does.
ONLY_GROUP = "homogeneousCluster"
NETWORK_INTERFACE = "eth0"
CHECKPOINTS = "/opt/ml/checkpoints"  # CheckpointConfig.LocalPath, unless the request says another
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def plan_job(
    request: Mapping[str, Any],
    *,
    image: Any,
    folder: Path,
    endpoint_port: int | None,
    environment: Mapping[str, str],
    devices: Mapping[str, int],
    fidelity: Fidelity = "default",
) -> JobPlan:
    """The hosts of a CreateTrainingJob request, ``algo-1`` and on, in the order of its groups.

    ``environment`` is what the platform gives every host: the account's region, endpoint, and the role's credentials.
    """
    name = request["TrainingJobName"]
    machines = [
        (group, instance_type, count) for group, instance_type, count in groups_of(request) for _ in range(count)
    ]
    return JobPlan(
        name,
        tuple(
            HostPlan(
                name=f"algo-{number}",
                group=group,
                instance_type=instance_type,
                instance_count_of_group=count,
                address=f"10.0.{number // 250}.{number % 250 + 1}",
                accelerators=accelerators(instance_type, devices).count,
                folder=folder / f"algo-{number}",
                root=image.root,
                python=image.python,
                environment=_environment(request, image, environment),
                command=_command(request, image),
                working_directory=image.workdir or "/",
                hostname=_unresolved(name, number) if fidelity == "strict" else None,
            )
            for number, (group, instance_type, count) in enumerate(machines, start=1)
        ),
        endpoint_port,
        folder,
    )


def _unresolved(job: str, number: int) -> str:
    """A host name like those of AWS's machines, the same in each run of a job's name."""
    return "ip-10-0-{}-{}".format(*hashlib.sha256(f"{job} {number}".encode()).digest()[:2])


def groups_of(request: Mapping[str, Any]) -> list[tuple[str | None, str, int]]:
    """Name, instance type and count of each instance group; one without a name for a job that has none.

    Of a job that may run on one of several types it is the selected one, the first as long as none is.
    """
    resources = request["ResourceConfig"]
    if resources.get("InstanceGroups"):
        return [
            (group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
            for group in resources["InstanceGroups"]
        ]
    if resources.get("InstancePreferences"):
        selected = resources.get("SelectedInstanceType"), resources.get("SelectedInstanceCount")
        return [(None, *(selected if selected[0] else preferences_of(request)[0]))]
    return [(None, resources["InstanceType"], resources["InstanceCount"])]


def preferences_of(request: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Type and count of each of InstancePreferences, in their order; none of a job without."""
    resources = request["ResourceConfig"]
    return [
        (one["InstanceType"], one.get("InstanceCount") or resources.get("InstanceCount"))
        for one in resources.get("InstancePreferences") or []
    ]


def config_files(plan: JobPlan, host: HostPlan, request: Mapping[str, Any]) -> dict[str, Any]:
    """What a host finds under ``/opt/ml/input/config``, by file name."""
    groups: dict[str, dict[str, Any]] = {}
    for peer in plan.hosts:
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
            if host in plan.hosts_of(s3_source(channel).get("InstanceGroupNames"))
        },
        "resourceconfig.json": {
            "current_group_name": host.group or ONLY_GROUP,
            "current_host": host.name,
            "current_instance_type": host.instance_type,
            # The service orders hosts as text: algo-10 comes before algo-2.
            "hosts": sorted(peer.name for peer in plan.hosts),
            "instance_groups": list(groups.values()),
            "network_interface_name": NETWORK_INTERFACE,
        },
    }


def s3_source(channel: Mapping[str, Any]) -> Mapping[str, Any]:
    """A channel's S3DataSource; empty of one that is on a file system, which goes to all groups."""
    return channel["DataSource"].get("S3DataSource") or {}


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
    """What the host runs: SageMaker starts an image as ``docker run IMAGE train``, unless the request says otherwise."""
    algorithm = request["AlgorithmSpecification"]
    entrypoint = algorithm.get("ContainerEntrypoint") or image.entrypoint
    given = algorithm.get("ContainerEntrypoint") or algorithm.get("ContainerArguments")
    arguments = algorithm.get("ContainerArguments", []) if given else ["train"]
    return (*entrypoint, *arguments)
