"""The constructs' launchers as data, which a test compares with the classes: arguments, and the hyperparameters that they set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from training_jobs.adopt.python_source import Call
from training_jobs.facts.instance_facts import InstanceFacts, instance_facts

_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
_MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"
_SMDDP_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
# SMDDP's types by mpirun, and those that need torchrun (fw_utils.py and estimator.py of the SageMaker Python SDK, version 2).
_SMDDP_BY_MPI = ("ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
_SMDDP_BY_TORCHRUN = (*_SMDDP_BY_MPI, "ml.p5.48xlarge")


def decoded(text: str) -> Any:
    """Return a hyperparameter as SageMaker's toolkit reads it.

    Args:
        text: The request's.
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def launcher_of(
    instance_type: str, hyperparameters: Mapping[str, str], *, alone: bool
) -> tuple[Call, Mapping[str, Any]] | None:
    """Return the launcher that sets most of a request's hyperparameters, with those that it sets, as the toolkit reads them.

    Args:
        instance_type: The type of the machines.
        hyperparameters: The request's.
        alone: Whether the job has no other instance groups.

    Returns:
        The launcher, or None where none sets these, or the type has no facts, by which a launcher is checked.
    """
    facts = instance_facts(instance_type)
    if facts is None:
        return None
    values = {name: decoded(text) for name, text in hyperparameters.items()}
    matching = [
        (call, sets)
        for call, sets in _launchers(instance_type, facts, values, alone)
        if all(name in values and values[name] == value for name, value in sets.items())
    ]
    return max(matching, key=lambda one: len(one[1]), default=None)


def _launchers(
    instance_type: str, facts: InstanceFacts, values: Mapping[str, Any], alone: bool
) -> Iterator[tuple[Call, Mapping[str, Any]]]:
    """The launchers that the machines support, with the arguments that the hyperparameters have for each, and what it sets."""
    count, options, smddp_options = values.get(_PROCESSES), values.get(_MPI_OPTIONS, ""), values.get(_SMDDP_OPTIONS, "")
    processes: dict[str, Any] = {} if count is None else {_PROCESSES: count}
    per_host = {} if count is None else {"processes_per_host": count}
    counted = count is None or (type(count) is int and count >= 1)
    one_each = counted and (not facts.devices or (count or 1) <= facts.processes) and facts.kind != "neuron"
    of_type = {"sagemaker_instance_type": instance_type}
    torchrun = {"sagemaker_torch_distributed_enabled": True}
    if counted:
        yield Call("Torchrun", (), per_host), {**torchrun, **processes}
    if one_each and _are_options(options):
        sets = {"sagemaker_mpi_enabled": True, **processes, _MPI_OPTIONS: options}
        yield Call("Mpi", (), {**per_host, **({"custom_mpi_options": options} if options else {})}), sets
    smddp = {"sagemaker_distributed_dataparallel_enabled": True, **of_type, _SMDDP_OPTIONS: smddp_options}
    if instance_type in _SMDDP_BY_MPI and _are_options(smddp_options):
        yield Call("SmDdp", (), {"custom_mpi_options": smddp_options} if smddp_options else {}), smddp
    if instance_type in _SMDDP_BY_TORCHRUN:
        yield Call("SmDdp", (), {"launch_by": "torchrun"}), {**smddp, _SMDDP_OPTIONS: "", **torchrun}
    if one_each:
        yield Call("PyTorchDdp", (), per_host), {"sagemaker_pytorch_ddp_enabled": True, **of_type, **processes}
    if alone and facts.kind == "gpu" and values.get("sagemaker_training_compiler_enabled") is True:
        yield Call("PyTorchXla"), {"sagemaker_pytorch_xla_multi_worker_enabled": True}
    if alone and facts.kind != "neuron":
        yield Call("MultiWorkerMirrored"), {"sagemaker_multi_worker_mirrored_strategy_enabled": True}
        yield Call("ParameterServer"), {"sagemaker_parameter_server_enabled": True}


def _are_options(value: Any) -> bool:
    """Whether a value is options of mpirun without quotes, which the toolkit would split."""
    return isinstance(value, str) and not set(value) & set("'\"\n")
