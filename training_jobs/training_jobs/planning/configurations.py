"""Every sensible configuration of machines for a training, with its step time and its cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from training_jobs.planning.measurement import Measurement
from training_jobs.planning.step_time import Configuration, Machines, StepTime, seconds_on, step_time

SIMPLER = 1.05  # times the lowest price for a sample: what a configuration of fewer machines may cost
LITTLE = 0.02  # of a step: a data host that shortens it by less is one too many


@dataclass(frozen=True)
class Market:
    """What can be rented.

    Attributes:
        prices: Dollars an hour by instance type; only types with a price are considered.
        spot: What spot machines cost of that, such as 0.4; None leaves spot machines out.
        quotas: Machines that the account may have, by type and by whether they are spot; None if unknown.
        most_training: Machines that train, at most.
        most_data: Data hosts, at most.
    """

    prices: Mapping[str, float]
    spot: float | None = None
    quotas: Mapping[tuple[str, bool], int] | None = None
    most_training: int = 4
    most_data: int = 8

    def __post_init__(self) -> None:
        if self.spot is not None and not 0 < self.spot <= 1:
            raise ValueError(f"spot must be the share of the price that spot machines cost, like 0.4, got {self.spot}")


@dataclass(frozen=True)
class Planned:
    """A configuration with what it takes and costs.

    Attributes:
        configuration: The machines.
        step: Of the training on them.
        step_dollars: Of one step.
        samples_a_second: Over all accelerators.
        global_batch: Samples of one step of all accelerators together.
        refused: Why the account or SageMaker would not run it; empty where it would.
    """

    configuration: Configuration
    step: StepTime
    step_dollars: float
    samples_a_second: float
    global_batch: int
    refused: str = ""

    def dollars(self, samples: float) -> float:
        """Return what so many samples cost.

        Args:
            samples: Their number, such as those of all epochs.
        """
        return math.ceil(samples / self.global_batch) * self.step_dollars

    def hours(self, samples: float) -> float:
        """Return the hours that so many samples take.

        Args:
            samples: Their number, such as those of all epochs.
        """
        return math.ceil(samples / self.global_batch) * self.step.seconds / 3600


@dataclass(frozen=True)
class Plan:
    """All configurations.

    Attributes:
        rows: What can be run, the cheapest sample first.
        front: Those of ``rows`` than which none is both faster and cheaper.
        refused: What the account, SageMaker or the accelerators' memory do not allow.
        unmeasured: Types with a price on whose accelerator no step was measured.
    """

    rows: Sequence[Planned]
    front: Sequence[Planned]
    refused: Sequence[Planned]
    unmeasured: Sequence[str] = ()


def plan(
    measurement: Measurement,
    market: Market,
    *,
    local_share: float = 0.5,
    vcpu_speed: Mapping[str, float] | None = None,
) -> Plan:
    """Predict every sensible configuration.

    Sensible are: 1, 2, 4, ... machines of each type on whose accelerator a step was measured, alone, and with 1, 2, 3, ... data
    hosts of each type without accelerators while each of them still shortens the step. Several machines that train need the
    size of the gradients, which they exchange.

    Args:
        measurement: Of the training.
        market: What can be rented.
        local_share: As of ``step_time``.
        vcpu_speed: As of ``step_time``.

    Raises:
        ValueError: No type with a price can train, or a type is not known.
    """
    types = [Machines(kind) for kind in market.prices]
    training = [one for one in types if _trains(one, measurement)]
    steps = {one.instance_type: seconds_on(measurement, one) for one in training}
    unmeasured = [kind for kind, seconds in steps.items() if seconds is None]
    training = [one for one in training if steps[one.instance_type] is not None]
    if not training:
        raise ValueError(
            "prices must name a type on whose accelerator a step was measured, like "
            f"{_example(measurement)}, got {sorted(market.prices)}"
        )
    data = [one for one in types if one.facts.kind is None and one.instance_type not in steps]
    options = {"local_share": local_share, "vcpu_speed": vcpu_speed}
    found: list[Planned] = []
    for one in training:
        for count in _powers(market.most_training):
            machines = Machines(one.instance_type, count)
            if count > 1 and measurement.gradient_bytes is None:
                break
            for configuration in _around(machines, data, measurement, market, options):
                for spot in (False, True) if market.spot else (False,):
                    rented = Configuration(configuration.train, configuration.data, spot)
                    step = step_time(measurement, rented, **options)  # type: ignore[arg-type]
                    assert step is not None
                    found.append(_planned(rented, step, measurement, market))
    rows = sorted((one for one in found if not one.refused), key=lambda one: one.step_dollars / one.global_batch)
    return Plan(rows, pareto(rows), [one for one in found if one.refused], unmeasured)


def pareto(rows: Sequence[Planned]) -> list[Planned]:
    """Return the rows than which none has a sample both earlier and cheaper, the cheapest first.

    Args:
        rows: What can be run.
    """
    front: list[Planned] = []
    for one in sorted(rows, key=lambda it: (it.step_dollars / it.global_batch, -it.samples_a_second)):
        if not front or one.samples_a_second > front[-1].samples_a_second:
            front.append(one)
    return front


def best(rows: Sequence[Planned], samples: float = 0.0, within_hours: float = math.inf) -> Planned | None:
    """Return the simplest of the cheapest rows: one accelerator before several, one machine before several.

    Args:
        rows: What can be run.
        samples: Of the whole training.
        within_hours: In which it must end.

    Returns:
        Of the rows that cost at most 5 % more than the cheapest, the one with the fewest machines that train, the smallest
        batch and the fewest data hosts; None where none ends in time.
    """
    in_time = [one for one in rows if one.hours(samples) <= within_hours]
    if not in_time:
        return None
    least = min(one.step_dollars / one.global_batch for one in in_time)
    cheap = [one for one in in_time if one.step_dollars / one.global_batch <= SIMPLER * least]
    return min(cheap, key=_simplicity)


def _simplicity(one: Planned) -> tuple[float, ...]:
    train, data = one.configuration.train, one.configuration.data
    return train.count, one.global_batch, 0 if data is None else data.count, one.step_dollars / one.global_batch


def _around(
    train: Machines,
    data: Sequence[Machines],
    measurement: Measurement,
    market: Market,
    options: Mapping[str, object],
) -> Iterator[Configuration]:
    """Machines that train alone, and with data hosts while each of those still shortens the step."""
    alone = Configuration(train)
    before = step_time(measurement, alone, **options)  # type: ignore[arg-type]
    yield alone
    assert before is not None
    if before.bound != "data_cpu":
        return
    for one in data:
        shortest = before.seconds
        for count in range(1, market.most_data + 1):
            configuration = Configuration(train, Machines(one.instance_type, count))
            step = step_time(measurement, configuration, **options)  # type: ignore[arg-type]
            assert step is not None
            if step.seconds > shortest * (1 - LITTLE):
                break
            shortest = step.seconds
            yield configuration


def _planned(configuration: Configuration, step: StepTime, measurement: Measurement, market: Market) -> Planned:
    machines = [one for one in (configuration.train, configuration.data) if one is not None]
    share = (market.spot or 1.0) if configuration.spot else 1.0
    hourly = sum(market.prices[one.instance_type] * one.count for one in machines) * share
    batch = measurement.batch_size * configuration.ranks
    refused = "; ".join(_refusals(configuration, machines, measurement, market))
    return Planned(configuration, step, hourly * step.seconds / 3600, batch / step.seconds, batch, refused)


def _refusals(
    configuration: Configuration, machines: Sequence[Machines], measurement: Measurement, market: Market
) -> Iterator[str]:
    train = configuration.train
    if measurement.peak_memory_gib and train.facts.memory_gib and measurement.peak_memory_gib > train.facts.memory_gib:
        yield (
            f"a step takes {measurement.peak_memory_gib:g} GiB of an accelerator, and one of {train.instance_type} has "
            f"{train.facts.memory_gib:g}"
        )
    if market.quotas is None:
        return
    for one in machines:
        allowed = market.quotas.get((one.instance_type, configuration.spot), 0)
        if allowed < one.count:
            kind = "spot training" if configuration.spot else "training"
            yield f"the quota {one.instance_type} for {kind} job usage is {allowed}, needed {one.count}"


def _trains(one: Machines, measurement: Measurement) -> bool:
    return (
        one.facts.kind is not None
        or one.instance_type in measurement.step_seconds
        or set(measurement.step_seconds) == {"cpu"}
    )


def _powers(most: int) -> Iterator[int]:
    count = 1
    while count <= most:
        yield count
        count *= 2


def _example(measurement: Measurement) -> str:
    return f"one with {next(iter(measurement.step_seconds), 'NVIDIA A10G')}"
