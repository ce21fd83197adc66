"""What a plan's rows mean for a training: data or model parallel, how far it scales, and the learning rate of its batch.

The order is that of AWS's page "Scaling training": one accelerator, one machine, several machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from training_jobs.planning.configurations import Plan, Planned
from training_jobs.planning.measurement import Measurement
from training_jobs.planning.step_time import BOUNDS, Machines, gradient_seconds

Optimizer = Literal["sgd", "adam"]
MOST_MACHINES = 1024


@dataclass(frozen=True)
class LearningRate:
    """The learning rate of a larger batch than the measured one, after a warm-up.

    Attributes:
        batch_size: Samples of the measured batch, of one accelerator.
        measured: Its learning rate; None if it is not known.
        optimizer: With ``"sgd"`` it grows with the batch (Goyal et al., "Accurate, Large Minibatch SGD", 2017, which held up to
            8,192 images), with ``"adam"`` with the batch's square root (Malladi et al., "On the SDEs and Scaling Rules for
            Adaptive Gradient Algorithms", 2022).
    """

    batch_size: int
    measured: float | None = None
    optimizer: Optimizer = "sgd"

    def factor(self, global_batch: int) -> float:
        """Return how many times the measured learning rate a batch takes.

        Args:
            global_batch: Samples of a step of all accelerators together.
        """
        times = global_batch / self.batch_size
        return times if self.optimizer == "sgd" else math.sqrt(times)

    def text(self, global_batch: int) -> str:
        """Return the learning rate, or ``x 8`` where the measured one is not known.

        Args:
            global_batch: As of ``factor``.
        """
        factor = self.factor(global_batch)
        return f"x {factor:.4g}" if self.measured is None else f"{self.measured * factor:.4g}"


def network_bound_from(planned: Planned, measurement: Measurement) -> int | None:
    """Return the number of machines of a row's type from which gradients take longer than the rest of its step.

    Args:
        planned: The row. What else its step takes is taken to be the same on more machines.
        measurement: Of the training.

    Returns:
        The machines, at least 2; None if not even 1,024 are bound so, or the size of the gradients is not known.
    """
    limits = planned.step.limits
    rest = max(seconds for bound, seconds in limits.items() if bound != "gradients")
    kind = planned.configuration.train.instance_type
    # Gradients take longer with each machine, so that the first is found by halving.
    low, high = 1, MOST_MACHINES
    if gradient_seconds(measurement, Machines(kind, high)) <= rest:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if gradient_seconds(measurement, Machines(kind, middle)) > rest:
            high = middle
        else:
            low = middle
    return high


def scaling_advice(found: Plan, best: Planned | None, measurement: Measurement, rate: LearningRate) -> list[str]:
    """Return what to do with a plan, a line each.

    Args:
        found: All rows.
        best: The row to take; None if none can be rented in time.
        measurement: Of the training.
        rate: Of its batches.
    """
    too_small = [one for one in found.refused if "GiB of an accelerator" in one.refused]
    if best is None:
        if not too_small or found.rows:
            return []
        return [
            f"model parallel: a step takes {measurement.peak_memory_gib:g} GiB, more than each type's accelerator has: "
            "activation checkpointing, a smaller batch, or a ModelParallelJob, whose layouts `training-jobs fits` predicts"
        ]
    machines, lines = best.configuration.train, []
    if measurement.peak_memory_gib and machines.facts.memory_gib:
        lines.append(
            f"data parallel: a step takes {measurement.peak_memory_gib:g} of an accelerator's {machines.facts.memory_gib:g} GiB, "
            "so that the model needs no sharding"
        )
    lines.append(f"bound by {BOUNDS[best.step.bound]}{_instead(best)}")
    if measurement.gradient_bytes:
        lines.append(_network(best, network_bound_from(best, measurement)))
    if best.global_batch > measurement.batch_size:
        times = best.global_batch / measurement.batch_size
        lines.append(
            f"batches are {times:g} times the measured one: learning rate {rate.text(best.global_batch)} "
            f"({rate.optimizer}), after a warm-up"
        )
    return lines


def _instead(best: Planned) -> str:
    if best.step.bound == "data_cpu":
        return ": a larger type of the family, faster preprocessing, or more data hosts"
    if best.step.bound == "gradients":
        return ": fewer and larger machines, or a larger batch for each accelerator"
    return ""


def _network(best: Planned, machines: int | None) -> str:
    facts, kind = best.configuration.train.facts, best.configuration.train.instance_type
    network = f"{facts.network_gbps:g} Gbit/s{' by EFA' if facts.efa_interfaces else ', without EFA'}"
    if machines is None:
        return f"network: gradients take less than the step on up to {MOST_MACHINES:,} {kind} ({network})"
    return f"network: gradients bound the step from {machines} {kind} on ({network})"
