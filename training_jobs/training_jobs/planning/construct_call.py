"""A configuration as the construct call that runs it."""

from __future__ import annotations

from training_jobs.planning.step_time import Configuration, Machines

DATA_GROUP, TRAIN_GROUP = "data_group", "dnn_group"


def construct_call(configuration: Configuration, data_group: str = DATA_GROUP, train_group: str = TRAIN_GROUP) -> str:
    """Return the ``job=`` of a TrainingWorkflow, and ``spot=`` where it is on spot machines.

    Args:
        configuration: The machines.
        data_group: Name of the group of data hosts.
        train_group: Name of the group that trains.
    """
    train = f"DataParallelJob({_group(configuration.train)}{_launcher(configuration.train)})"
    if configuration.data is None:
        lines = [f"job={train},"]
    else:
        lines = [
            "job=HeterogeneousJob(",
            f'    groups={{"{data_group}": {_group(configuration.data)}}},',
            f"    train={train},",
            f'    train_group="{train_group}",',
            "),",
        ]
    if configuration.spot:
        lines.append("spot=Spot(max_wait=Duration.hours(24)),")
    return "\n".join(lines)


def _group(machines: Machines) -> str:
    count = "" if machines.count == 1 else f", {machines.count}"
    return f'InstanceGroup("{machines.instance_type}"{count})'


def _launcher(machines: Machines) -> str:
    return ", launcher=Torchrun()" if machines.facts.processes * machines.count > 1 else ""
