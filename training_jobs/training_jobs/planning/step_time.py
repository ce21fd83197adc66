"""How long a step takes on a configuration of machines, and which of its resources bounds it.

Preparing batches, sending them, and training on earlier ones go on at the same time, so a step takes as long as the slowest of
them. The limits of the data service are those of benchmarks/simulation.py, its CPU seconds for each GB those that
benchmarks/data_service.py measures (docs/data-service.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from training_jobs.facts.instance_facts import InstanceFacts, family, instance_facts
from training_jobs.planning.measurement import Measurement

# CPU seconds for a GB: of a data host's serving process, of a training process's receiving thread
SERVE, RECEIVE = 0.16, 0.20
LOOK_AHEAD = 8 * 2**30  # bytes that a training machine holds ahead, or a quarter of its memory (data_service.reader)
LEAST_AHEAD = 2  # batches
JITTER = 1.2  # of the slowest batch, which those behind it wait for, to the mean

# What can bound a step; the values are what the commands print.
BOUNDS = {
    "accelerator": "the accelerators",
    "data_cpu": "the vCPUs that prepare data",
    "network": "the network between data hosts and training machines",
    "serving": "the data hosts' serving processes",
    "receiving": "the training processes' receiving threads",
    "look_ahead": "the memory for batches that are held ahead",
    "gradients": "the network between training machines, over which gradients go",
}


@dataclass(frozen=True)
class Machines:
    """So many machines of a type.

    Attributes:
        instance_type: Such as ``"ml.g5.xlarge"``.
        count: How many.
        facts: Of the type.

    Raises:
        ValueError: The type's vCPUs or network are not known, or the count is below 1.
    """

    instance_type: str
    count: int = 1
    facts: InstanceFacts = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be at least 1, like 1, got {self.count}")
        facts = instance_facts(self.instance_type)
        if facts is None or not facts.vcpus or not facts.network_gbps:
            raise ValueError(
                "instance_type must be one whose vCPUs and network EC2 publishes, like 'ml.g5.xlarge', "
                f"got {self.instance_type!r}"
            )
        object.__setattr__(self, "facts", facts)

    @property
    def vcpus(self) -> int:
        """Of all machines."""
        return self.count * (self.facts.vcpus or 0)

    @property
    def network_gbps(self) -> float:
        """Of all machines, in Gbit/s."""
        return self.count * (self.facts.network_gbps or 0.0)


@dataclass(frozen=True)
class Configuration:
    """The machines of a job.

    Attributes:
        train: Those that train.
        data: Those that prepare batches for them; None where those that train do.
        spot: Whether they are spot machines.
    """

    train: Machines
    data: Machines | None = None
    spot: bool = False

    @property
    def ranks(self) -> int:
        """Processes that train: one for each accelerator, one on a machine without."""
        return self.train.count * self.train.facts.processes


@dataclass(frozen=True)
class StepTime:
    """What a step takes.

    Attributes:
        seconds: Of the step.
        bound: What takes so long, a key of ``BOUNDS``.
        limits: Seconds that each resource would take if it alone were there.
    """

    seconds: float
    bound: str
    limits: Mapping[str, float]


def step_time(
    measurement: Measurement,
    configuration: Configuration,
    *,
    local_share: float = 0.5,
    vcpu_speed: Mapping[str, float] | None = None,
) -> StepTime | None:
    """Predict a step with as many samples for each accelerator as were measured.

    Args:
        measurement: Of the training.
        configuration: The machines.
        local_share: Share of the training machines' vCPUs that prepare data where data hosts do as well; half is the data
            service's own (``local_workers``), 1 is AWS's example for TensorFlow, 0 that for PyTorch.
        vcpu_speed: Speed of a vCPU, where that of the measurement is 1, by instance type or family (``"c5"``).

    Returns:
        The step; None where no step was measured on this accelerator.
    """
    train, data = configuration.train, configuration.data
    seconds = seconds_on(measurement, train)
    if seconds is None:
        return None
    samples = measurement.batch_size * configuration.ranks
    here = train.vcpus * (1.0 if data is None else local_share) * _speed(train, vcpu_speed)
    there = 0.0 if data is None else data.vcpus * _speed(data, vcpu_speed)
    limits = {"accelerator": seconds, "data_cpu": _ratio(samples * measurement.preprocess_seconds, here + there)}
    if data is not None:
        gigabytes = samples * measurement.sample_bytes / 1e9 * there / (here + there)
        limits["network"] = gigabytes * 8 / min(data.network_gbps, train.network_gbps)
        limits["serving"] = gigabytes * SERVE / data.count
        limits["receiving"] = gigabytes * RECEIVE / configuration.ranks
        memory = min(LOOK_AHEAD, (train.facts.host_memory_gib or math.inf) * 2**30 / 4)
        ahead = memory / train.facts.processes // (measurement.batch_size * measurement.sample_bytes)
        batch = measurement.batch_size * measurement.preprocess_seconds / _speed(data, vcpu_speed)
        each, slower = measurement.batch_size * measurement.sample_bytes / 1e9, min(data, train, key=_network)
        sending = each * (8 / _network(slower) + SERVE + RECEIVE)
        limits["look_ahead"] = (JITTER * batch + sending) / max(LEAST_AHEAD, ahead)
    if train.count > 1 and measurement.gradient_bytes:
        limits["gradients"] = gradient_seconds(measurement, train)
    bound = max(limits, key=limits.__getitem__)
    return StepTime(limits[bound], bound, limits)


def gradient_seconds(measurement: Measurement, machines: Machines) -> float:
    """Return the seconds of a ring all-reduce of the gradients over the machines' network, which goes on beside the backward.

    Args:
        measurement: Of the training; 0 without the size of its gradients.
        machines: Those that train; inside a machine gradients go over its own links.
    """
    each = 2 * (machines.count - 1) / machines.count * (measurement.gradient_bytes or 0) * 8 / 1e9
    return each / (machines.facts.network_gbps or math.inf)


def seconds_on(measurement: Measurement, machines: Machines) -> float | None:
    """Return the seconds of a step whose batch is there; None if not measured.

    Args:
        measurement: Of the training.
        machines: Those that train.
    """
    steps = measurement.step_seconds
    named = machines.facts.name or "cpu"
    return steps.get(machines.instance_type, steps.get(named))


def _speed(machines: Machines, speeds: Mapping[str, float] | None) -> float:
    speeds = speeds or {}
    return speeds.get(machines.instance_type, speeds.get(family(machines.instance_type), 1.0))


def _network(machines: Machines) -> float:
    """Gbit/s of one of them."""
    return machines.network_gbps / machines.count


def _ratio(work: float, workers: float) -> float:
    if work == 0:
        return 0.0
    return work / workers if workers else math.inf
