"""What starts several processes of one script on each host: the launchers of SageMaker's training toolkit, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from cdk_sagemaker_training.advice import Advice, advice
from cdk_sagemaker_training.instance_facts import instance_facts
from cdk_sagemaker_training.instance_group import InstanceGroup, check_count
from cdk_sagemaker_training.prop_types import check_fields
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed, way_out

# The toolkit's one key for this number (params.py): its torchrun runner reads the key that is named after MPI.
_PROCESSES_PER_HOST = "sagemaker_mpi_num_of_processes_per_host"

# SM_DATAPARALLEL_SUPPORTED_INSTANCE_TYPES of fw_utils.py in the SageMaker Python SDK, version 2.
_SMDDP_BY_MPI = ("ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
# estimator.py of the same takes this type with torch_distributed only.
_SMDDP_BY_TORCHRUN = (*_SMDDP_BY_MPI, "ml.p5.48xlarge")


@dataclass(frozen=True)
class Torchrun:
    """PyTorch's torchrun, one process for each accelerator of a host.

    ``processes_per_host`` says another number: several processes on a host without accelerators, which has one otherwise.
    """

    processes_per_host: int | None = None
    alone_because: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_processes(self.processes_per_host)

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        return {"sagemaker_torch_distributed_enabled": "true", **_processes(self.processes_per_host)}

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        return _processes_advice(group, self.processes_per_host)


@dataclass(frozen=True)
class Mpi:
    """mpirun, as Horovod is started: one process for each accelerator of a host, and SSH between the hosts.

    ``processes_per_host`` says another number, and must be no more than there are accelerators, since each process of Horovod
    takes one of its own. ``custom_mpi_options`` are more options of mpirun, separated by spaces and without quotes, like
    ``"-x HOROVOD_FUSION_THRESHOLD=67108864 --NCCL_DEBUG WARN"``; what Horovod's guide asks for (no binding, mapping by slot,
    TCP without openib, the paths passed on) the toolkit says itself. The image needs Open MPI and an SSH server.

    Sources: mpi.py of the SageMaker training toolkit; "MPI" in Horovod's documentation.
    """

    processes_per_host: int | None = None
    custom_mpi_options: str = ""
    alone_because: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_processes(self.processes_per_host)
        _check_mpi_options(self.custom_mpi_options)

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        _check_group(self, group)
        return {
            "sagemaker_mpi_enabled": "true",
            **_processes(self.processes_per_host),
            "sagemaker_mpi_custom_mpi_options": json.dumps(self.custom_mpi_options),
        }

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        return _processes_advice(group, self.processes_per_host)


@dataclass(frozen=True)
class SmDdp:
    """SageMaker's distributed data parallel library (SMDDP), whose AllReduce is made for the network of P3 and P4 machines.

    ``launch_by`` is ``"mpi"``, the library's own start by mpirun, to which ``custom_mpi_options`` go, or ``"torchrun"``, where
    the script names ``smddp`` as the backend of torch.distributed; ``ml.p5.48xlarge`` takes the second only. The image is one
    that has the library: PyTorch 2.2.0 at the latest, TensorFlow 2.11.

    Sources: fw_utils.py and estimator.py of the SageMaker Python SDK, version 2. Raises ``ValueError`` for other types.
    """

    launch_by: Literal["mpi", "torchrun"] = "mpi"
    custom_mpi_options: str = ""
    alone_because: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_mpi_options(self.custom_mpi_options)
        if self.custom_mpi_options and self.launch_by == "torchrun":
            raise ValueError(
                "custom_mpi_options must be left out where torchrun launches, like SmDdp(launch_by='torchrun'), "
                f"got {self.custom_mpi_options!r}"
            )

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        supported = _SMDDP_BY_MPI if self.launch_by == "mpi" else _SMDDP_BY_TORCHRUN
        check_listed(
            "smddp-types",
            group.instance_type,
            group.instance_type in supported,
            f"launcher must be one that {group.instance_type} takes, like Torchrun()",
            f"SmDdp(launch_by={self.launch_by!r}), which takes {', '.join(supported)}",
        )
        return {
            "sagemaker_distributed_dataparallel_enabled": "true",
            "sagemaker_instance_type": json.dumps(group.instance_type),
            "sagemaker_distributed_dataparallel_custom_mpi_options": json.dumps(self.custom_mpi_options),
            **({"sagemaker_torch_distributed_enabled": "true"} if self.launch_by == "torchrun" else {}),
        }

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        return ()


@dataclass(frozen=True)
class PyTorchDdp:
    """``pytorchddp`` of AWS's Hugging Face containers: mpirun starts PyTorch's own DDP, one process for each GPU.

    ``processes_per_host`` says another number. For scripts that were written for it; ``Torchrun()`` is PyTorch's launcher today.
    The PyTorch estimator of the same SDK turns the word into SMDDP, which is ``SmDdp()`` here.

    Sources: estimator.py for Hugging Face and for PyTorch in the SageMaker Python SDK, version 2; training.py of the PyTorch
    toolkit, which starts it by its runner for SMDDP.
    """

    processes_per_host: int | None = None
    alone_because: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        _check_processes(self.processes_per_host)

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        _check_group(self, group)
        return {
            "sagemaker_pytorch_ddp_enabled": "true",
            "sagemaker_instance_type": json.dumps(group.instance_type),
            **_processes(self.processes_per_host),
        }

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        return _processes_advice(group, self.processes_per_host)


@dataclass(frozen=True)
class MultiWorkerMirrored:
    """TensorFlow's MultiWorkerMirroredStrategy: one process for each host, which copies the model to each of its GPUs.

    The toolkit writes ``TF_CONFIG``, whose workers listen on port 8890. TensorFlow 2.9 and later (estimator.py of the SageMaker
    Python SDK, version 2, which refuses it beside instance groups).
    """

    alone_because: ClassVar[str] = (
        "launches MultiWorkerMirroredStrategy, which SageMaker refuses beside other groups; without a launcher the script may "
        "write TF_CONFIG itself, as training_code/heterogeneous/tensorflow does"
    )

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        _check_not_trainium(self, group)
        return {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        return ()


@dataclass(frozen=True)
class ParameterServer:
    """TensorFlow's parameter servers: one beside the one worker of each host, the variables spread over them.

    The toolkit writes ``TF_CONFIG`` with servers on port 2223 and workers on 2222. One worker uses one GPU, unless the script
    mirrors over them itself, so machines with several are warned of (fw_utils.py of the SageMaker Python SDK, version 2).
    """

    alone_because: ClassVar[str] = (
        "launches parameter servers, which the TensorFlow toolkit fails at beside other groups"
    )

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        _check_not_trainium(self, group)
        return {"sagemaker_parameter_server_enabled": "true"}

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        return _processes_advice(group, 1)


def _check_not_trainium(launcher: object, group: InstanceGroup) -> None:
    # TRAINIUM_SUPPORTED_DISTRIBUTION_STRATEGIES of fw_utils.py in the SageMaker Python SDK, version 2.
    facts = instance_facts(group.instance_type)
    if facts is not None and facts.kind == "neuron":
        raise ValueError(
            f"launcher must be Torchrun() on Trainium, the one that SageMaker has for it, like Torchrun()"
            f"{way_out(group.instance_type)}, got {launcher!r} on {group.instance_type}"
        )


def _check_processes(processes_per_host: int | None) -> None:
    if processes_per_host is not None:
        check_count("processes_per_host", processes_per_host)


def _check_group(launcher: Mpi | PyTorchDdp, group: InstanceGroup) -> None:
    """What holds where each process takes an accelerator of its own. Raises ``ValueError``."""
    _check_not_trainium(launcher, group)
    facts, processes = instance_facts(group.instance_type), launcher.processes_per_host
    if facts is None or not facts.devices or processes is None or is_unresolved(processes):
        return
    if processes > facts.processes:
        raise ValueError(
            f"processes_per_host must be at most the {facts.processes} accelerators of {group.instance_type}, "
            f"like {facts.processes}{way_out(group.instance_type)}, got {processes}"
        )


def _processes(processes_per_host: int | None) -> dict[str, str]:
    return {} if processes_per_host is None else {_PROCESSES_PER_HOST: str(processes_per_host)}


def _processes_advice(group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
    facts = instance_facts(group.instance_type)
    if facts is None or processes_per_host is None or is_unresolved(processes_per_host):
        return ()
    if not facts.devices and facts.vcpus is not None and processes_per_host > facts.vcpus:
        return advice(
            "more-processes-than-vcpus",
            f"{processes_per_host} processes share the {facts.vcpus} vCPUs of {group.instance_type}: they wait for each other; "
            f"start {facts.vcpus} at most, or take a larger machine",
        )
    if processes_per_host >= facts.processes:
        return ()
    return advice(
        "idle-accelerators",
        f"{processes_per_host} of the {facts.processes} accelerators of {group.instance_type} would have a process: the rest "
        "are billed and stand idle, unless the process takes several",
    )


def _check_mpi_options(options: str) -> None:
    # mpi.py of the toolkit splits at blanks and knows no quotes, so a quoted value reaches mpirun in pieces.
    if not is_unresolved(options) and set(options) & set("'\"\n"):
        raise ValueError(
            "custom_mpi_options must be options of mpirun separated by spaces, without quotes, "
            f"like '-x NCCL_DEBUG=WARN', got {options!r}"
        )
