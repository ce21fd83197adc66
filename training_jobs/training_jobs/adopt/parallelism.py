"""SageMaker's model parallelism library (SMP) of a request, as ``SmpV1`` and ``SmpV2``.

Version 1 is started by mpirun, version 2 by torchrun (``_distribution_configuration`` of estimator.py in the SageMaker Python
SDK, version 2). A test compares the tables with the constructs' classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_jobs.adopt.launchers import decoded
from training_jobs.adopt.members import Members
from training_jobs.adopt.python_source import Call
from training_jobs.facts.instance_facts import instance_facts
from training_jobs.facts.smp_v1 import smp_v1_parameters

_PARAMETERS = "mp_parameters"
_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
_OPTIONS = "sagemaker_mpi_custom_mpi_options"
_TYPE = "sagemaker_instance_type"
_SMP = {"sagemaker_distributed_dataparallel_enabled": False}


@dataclass(frozen=True)
class Smp:
    """A version of the library.

    Attributes:
        types: The instance types that it supports.
        parameters: Of version 2 in the order in which the class sends them.
        launched: The hyperparameters of its launcher.
    """

    types: tuple[str, ...]
    parameters: tuple[str, ...]
    launched: Mapping[str, Any]


V1 = Smp(
    ("ml.g4dn.12xlarge", "ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge"),
    tuple(smp_v1_parameters()),
    {"sagemaker_mpi_enabled": True},
)
V2 = Smp(
    ("ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge"),
    (
        "hybrid_shard_degree",
        "sm_activation_offloading",
        "activation_loading_horizon",
        "fsdp_cache_flush_warnings",
        "allow_empty_shards",
        "tensor_parallel_degree",
        "context_parallel_degree",
        "expert_parallel_degree",
        "random_seed",
    ),
    {"sagemaker_torch_distributed_enabled": True},
)
MPI_OPTIONS = "--mca btl_vader_single_copy_mechanism none"  # of SmpV1 by default


def model_parallel_job(
    members: Members, machines: Mapping[str, Any], hyperparameters: dict[str, str], *, alone: bool
) -> Call | None:
    """Return the job of a request with SMP; its hyperparameters are removed. None without it, or where no class sends these.

    Args:
        members: The request, for what its text differs in.
        machines: ``InstanceType`` and ``InstanceCount``.
        hyperparameters: The request's.
        alone: Whether the job has no other instance groups.
    """
    values = {name: decoded(text) for name, text in hyperparameters.items()}
    given, count, type_ = values.get(_PARAMETERS, {}), values.get(_PROCESSES), str(machines["InstanceType"])
    version = next((one for one in (V1, V2) if all(values.get(name) == on for name, on in one.launched.items())), None)
    without = any(name not in values or values[name] != off for name, off in _SMP.items())
    if version is None or without or (_PARAMETERS not in values and version is V1):
        return None
    facts, plain = instance_facts(type_), isinstance(given, dict) and None not in given.values()
    if not plain or facts is None or (version is V2 and not alone) or (version is V1 and type(count) is not int):
        return None
    sent = given if version is V1 else {name: given[name] for name in version.parameters if name in given}
    sent |= {name: value for name, value in given.items() if name not in sent}
    machine = json.dumps(type_)
    for name, text in ((_PARAMETERS, json.dumps(sent)), (_TYPE, machine)):
        if hyperparameters.get(name, text) != text:
            members.differs(f"HyperParameters.{name}", hyperparameters[name], f"sent as {text!r}")
    listed = {name: value for name, value in sent.items() if name in version.parameters}
    more = {Call("unlisted", (name,)): value for name, value in sent.items() if name not in listed}
    options = values.get(_OPTIONS, "")
    if version is V1:
        other = options if options != MPI_OPTIONS else None
        parallelism = Call("SmpV1", ({**listed, **more},), {"custom_mpi_options": other})
    else:
        parallelism = Call("SmpV2", (), {**listed, "more": more or None})
    for name in (_PARAMETERS, _TYPE, _PROCESSES, _OPTIONS, *_SMP, *version.launched):
        hyperparameters.pop(name, None)
    kind: Any = type_ if type_ in version.types else Call("unlisted", (type_,))
    hosts = machines["InstanceCount"]
    group = Call("InstanceGroup", (kind,) if hosts == 1 else (kind, hosts))
    default = version is V1 and type_ in version.types and count == facts.processes
    each = None if default else count
    return Call("ModelParallelJob", (group,), {"parallelism": parallelism, "processes_per_host": each})
