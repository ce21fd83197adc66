"""The accelerators of a training instance type, and stand-ins for the commands that list them.

A job counts its accelerators by `nvidia-smi --list-gpus` or `neuron-ls -j`: SageMaker's toolkit sets `SM_NUM_GPUS` and
`SM_NUM_NEURONS` from their output, and from these torchrun's number of processes.
"""

from __future__ import annotations

import functools
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

# The mount point of the folder of `write_stand_ins`, which comes first on a host's PATH.
DEVICES_PATH = "/opt/devices"
_TYPE = re.compile(r"ml\.[a-z]+\d+[a-z0-9-]*\.(\d*xlarge|large|medium|metal)")


@dataclass(frozen=True)
class Accelerators:
    """The accelerators of one machine of a type.

    Args:
        kind: None without any.
        name: their model; None without any.
        count: the number of GPUs or Neuron devices.
        memory_gib: the memory of each, in GiB.
        cores_per_device: the NeuronCores of each device, for each of which a job starts a process.
        real_count: the type's own number, where ``count`` is less.
    """

    kind: Literal["gpu", "neuron"] | None
    name: str | None
    count: int
    memory_gib: float
    cores_per_device: int
    real_count: int


def accelerators(instance_type: str, override: Mapping[str, int] | None = None) -> Accelerators:
    """Returns the accelerators of an instance type.

    Args:
        instance_type: such as "ml.g5.xlarge".
        override: smaller numbers by instance type. A type that is not in the list has the number given here: of Neuron devices
            with one core for Trainium, else of GPUs.

    Raises:
        ValueError: the type is unknown, or the override is more than it has.
    """
    facts = _facts()
    found = facts["types"].get(instance_type)
    if found is None:
        found = [None, None, 0, 0.0, 0]
        declared = (override or {}).get(instance_type)
        if declared and not _has_none(instance_type) and is_newer(instance_type):
            kind, name = ("neuron", "Trainium") if instance_type.startswith("ml.trn") else ("gpu", "NVIDIA GPU")
            found = [kind, name, declared, 0.0, 1]
        elif not _has_none(instance_type):
            raise ValueError(
                f"instance_type must be one whose accelerators are known, like 'ml.g5.xlarge', got {instance_type!r}"
            )
    kind, name, real_count, memory_gib, cores_per_device = found
    count = (override or {}).get(instance_type, real_count)
    if not 0 <= count <= real_count:
        raise ValueError(f"devices of {instance_type} must be 0 to {real_count}, which is what it has, got {count}")
    return Accelerators(kind, name, count, memory_gib, cores_per_device, real_count)


def is_newer(instance_type: str) -> bool:
    """Whether a name has the form of a training instance type and is not in the list."""
    return bool(_TYPE.fullmatch(instance_type)) and instance_type not in _facts()["types"]


def write_stand_ins(folder: Path, instance_type: str, count: int) -> None:
    """Writes the command that lists `count` accelerators of a type into a folder; none for 0, as on AWS."""
    folder.mkdir(parents=True, exist_ok=True)
    found = accelerators(instance_type, {instance_type: count})
    if count == 0 or found.kind is None:
        return
    if found.kind == "gpu":
        _write_command(folder / "nvidia-smi", "-L | --list-gpus", _list_of_gpus(found, count))
    else:
        _write_command(folder / "neuron-ls", "-j | --json-output", _list_of_neuron_devices(found, count))


def _has_none(instance_type: str) -> bool:
    parts = instance_type.split(".")
    return len(parts) == 3 and parts[0] == "ml" and parts[1] in _facts()["families_without"]


@functools.cache
def _facts() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("devices.json").read_text()
    facts: dict[str, Any] = json.loads(text)
    return facts


def _list_of_gpus(found: Accelerators, count: int) -> str:
    # The same UUIDs on each host and in each run, so that logs are reproducible.
    names = [uuid.uuid5(uuid.NAMESPACE_DNS, f"gpu-{number}") for number in range(count)]
    return "\n".join(f"GPU {number}: {found.name} (UUID: GPU-{name})" for number, name in enumerate(names))


def _list_of_neuron_devices(found: Accelerators, count: int) -> str:
    devices = [
        {
            "neuron_device": number,
            "bdf": f"00:{0x10 + number:02x}.0",
            "connected_to": [],
            "nc_count": found.cores_per_device,
            "memory_size": int(found.memory_gib * 2**30),
            "neuron_processes": [],
        }
        for number in range(count)
    ]
    return json.dumps(devices, indent=4)


def _write_command(path: Path, option: str, output: str) -> None:
    """Writes a command that prints `output` for `option`, and fails for other arguments."""
    script = f"""#!/bin/sh
# A stand-in for the real command, which lists the devices of the job's instance type.
case "$*" in
{option.replace(" | ", "|")})
    cat <<'END'
{output}
END
    ;;
*)
    echo "{path.name}: this stand-in of the local account supports {option} only, got: $*" >&2
    exit 1
    ;;
esac
"""
    path.write_text(script)
    path.chmod(0o755)
