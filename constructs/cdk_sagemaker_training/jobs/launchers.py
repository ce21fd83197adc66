"""Launchers of SageMaker's training toolkit, which start several processes of one script on each host, as values."""

# ran: `Torchrun()` | request: test_launchers | test_training_code | no | no
# ran: `Mpi()` | request: test_launchers | one host: test_model_parallel | no | no
# ran: `SmDdp()` | request: test_launchers | no | no | no
# ran: `MultiWorkerMirrored()`, `ParameterServer()` | request: test_launchers | test_tensorflow_launchers (soak) | no | no
# ran: `PyTorchDdp()` | request: test_model_parallel_requests | no | no | no

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, unlisted_hint
from cdk_sagemaker_training.facts.instance_facts import instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.props.prop import IN_INPUT, IN_JSON, SHAPING, Prop
from cdk_sagemaker_training.props.prop_types import Value, check_fields

_ENABLED = re.compile(r"sagemaker_(?!training_compiler)\w+_enabled")
# The toolkit's one key for this number (params.py): its torchrun runner reads the key that is named after MPI.
PROCESSES_PER_HOST = "sagemaker_mpi_num_of_processes_per_host"

# SM_DATAPARALLEL_SUPPORTED_INSTANCE_TYPES of fw_utils.py in the SageMaker Python SDK, version 2.
_SMDDP_BY_MPI = ("ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
# estimator.py of the same SDK accepts this type with torch_distributed only.
_SMDDP_BY_TORCHRUN = (*_SMDDP_BY_MPI, "ml.p5.48xlarge")

ProcessesPerHost = Annotated[int | None, Prop(known=IN_JSON, rule=at_least(1))]


def _mpi_options(prop: str, value: str, example: str) -> None:
    # mpi.py of the toolkit splits at spaces without regard to quotes, so mpirun would receive a quoted value in pieces.
    if set(value) & set("'\"\n"):
        raise must(prop, "be options of mpirun separated by spaces, without quotes", example, repr(value))


MpiOptions = Annotated[str, Prop(known=IN_INPUT, rule=_mpi_options, example="'-x NCCL_DEBUG=WARN'")]


class ToolkitLauncher(Value, ABC):
    """A launcher that the toolkit in the container starts by hyperparameters."""

    alone_because = ""

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        """Return the hyperparameters that make the toolkit use this launcher.

        Args:
            group: The machines.

        Raises:
            ValueError: The launcher does not support the machines.
        """
        return self._keys(group)

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        """Return warnings about the launcher on these machines.

        Args:
            group: The machines.
        """
        return processes_advice(group, getattr(self, "processes_per_host", None))

    @abstractmethod
    def _keys(self, group: InstanceGroup) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Torchrun(ToolkitLauncher):
    """PyTorch's torchrun.

    Args:
        processes_per_host: Number of processes on each host; None for one for each accelerator, or 1 without accelerators.

    Raises:
        ValueError: ``processes_per_host`` is below 1.
    """

    processes_per_host: ProcessesPerHost = None

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        return {"sagemaker_torch_distributed_enabled": "true", **_processes(self.processes_per_host)}


@dataclass(frozen=True)
class Mpi(ToolkitLauncher):
    """mpirun over SSH, for Horovod; the image needs Open MPI and an SSH server.

    AWS's containers have both, and Horovod with PyTorch up to 2.0 and TensorFlow up to 2.12. Sources: their Dockerfiles; mpi.py
    of the SageMaker training toolkit; "MPI" in Horovod's documentation.

    Args:
        processes_per_host: Number of processes on each host, at most the number of accelerators, because each process of
            Horovod uses one; None for one for each accelerator.
        custom_mpi_options: Additional options of mpirun, separated by spaces and without quotes, like
            ``"-x HOROVOD_FUSION_THRESHOLD=67108864 --NCCL_DEBUG WARN"``. The options in Horovod's guide (no binding, mapping by
            slot, TCP without openib, exported paths) are already set by the toolkit.

    Raises:
        ValueError: ``processes_per_host`` is below 1, or the options contain quotes.
    """

    processes_per_host: ProcessesPerHost = None
    custom_mpi_options: MpiOptions = ""

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        _check_group(self, group)
        return {
            "sagemaker_mpi_enabled": "true",
            **_processes(self.processes_per_host),
            "sagemaker_mpi_custom_mpi_options": json.dumps(self.custom_mpi_options),
        }


@dataclass(frozen=True)
class SmDdp(ToolkitLauncher):
    """SageMaker's distributed data parallel library (SMDDP), with an AllReduce for the network of P3 and P4 machines.

    The image must contain the library: AWS's containers with PyTorch 1.6 to 2.5 and TensorFlow 2.3 to 2.11 do, and those of SMP
    v2. Sources: their Dockerfiles; fw_utils.py and estimator.py of the SageMaker Python SDK, version 2.

    Args:
        launch_by: ``"mpi"``, the library's own launcher, or ``"torchrun"``, with which the script selects the torch.distributed
            backend ``smddp``. ``ml.p5.48xlarge`` supports ``"torchrun"`` only.
        custom_mpi_options: Additional options of mpirun, separated by spaces and without quotes; only with ``"mpi"``.

    Raises:
        ValueError: The options contain quotes, or come with ``"torchrun"``.
    """

    launch_by: Annotated[Literal["mpi", "torchrun"], SHAPING] = "mpi"
    custom_mpi_options: MpiOptions = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.custom_mpi_options and self.launch_by == "torchrun":
            rule = "be left out with launch_by='torchrun'"
            raise must("custom_mpi_options", rule, "SmDdp(launch_by='torchrun')", repr(self.custom_mpi_options))

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        supported = _SMDDP_BY_MPI if self.launch_by == "mpi" else _SMDDP_BY_TORCHRUN
        rule = f"be one that {group.instance_type} supports"
        listed = group.instance_type in supported
        example = "Torchrun()"
        got = f"SmDdp(launch_by={self.launch_by!r}), which supports {', '.join(supported)}"
        check_listed("smddp-types", group.instance_type, listed, "launcher", rule, example, got)
        return {
            "sagemaker_distributed_dataparallel_enabled": "true",
            "sagemaker_instance_type": json.dumps(group.instance_type),
            "sagemaker_distributed_dataparallel_custom_mpi_options": json.dumps(self.custom_mpi_options),
            **({"sagemaker_torch_distributed_enabled": "true"} if self.launch_by == "torchrun" else {}),
        }


@dataclass(frozen=True)
class PyTorchDdp(ToolkitLauncher):
    """``pytorchddp`` of AWS's Hugging Face containers: PyTorch's DDP started by mpirun.

    For existing scripts; ``Torchrun()`` is PyTorch's current launcher. The SDK's PyTorch estimator maps ``pytorchddp`` to SMDDP,
    which is ``SmDdp()`` here. Sources: estimator.py for Hugging Face and for PyTorch in the SageMaker Python SDK, version 2;
    training.py of the PyTorch toolkit, which uses its SMDDP runner for it.

    Args:
        processes_per_host: Number of processes on each host, at most the number of accelerators; None for one for each.

    Raises:
        ValueError: ``processes_per_host`` is below 1.
    """

    processes_per_host: ProcessesPerHost = None

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        _check_group(self, group)
        return {
            "sagemaker_pytorch_ddp_enabled": "true",
            "sagemaker_instance_type": json.dumps(group.instance_type),
            **_processes(self.processes_per_host),
        }


@dataclass(frozen=True)
class MultiWorkerMirrored(ToolkitLauncher):
    """TensorFlow's MultiWorkerMirroredStrategy: one process on each host, which replicates the model to each of its GPUs.

    The toolkit sets ``TF_CONFIG``, with workers on port 8890. Needs TensorFlow 2.9 or later, and excludes instance groups
    (estimator.py of the SageMaker Python SDK, version 2). With Keras 3 (TensorFlow 2.16) a script steps by ``strategy.run()``,
    since ``fit`` ends there with an error (keras-team/keras#20585).
    """

    alone_because = (
        "launches MultiWorkerMirroredStrategy, which SageMaker refuses with other groups; without a launcher the script can "
        "set TF_CONFIG itself, as training_code/heterogeneous/tensorflow does"
    )

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        check_not_trainium(self, group)
        return {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}


@dataclass(frozen=True)
class ParameterServer(ToolkitLauncher):
    """TensorFlow's parameter servers: one worker and one parameter server on each host.

    The toolkit sets ``TF_CONFIG``, with servers on port 2223 and workers on 2222. A worker uses one GPU unless the script mirrors
    over several itself, so synthesis warns of machines with several (fw_utils.py of the SageMaker Python SDK, version 2).
    ``training_code/data_parallel/tensorflow/parameter_server.py`` is an example, for two hosts or more: on one the toolkit starts
    the script alone.
    """

    alone_because = "launches parameter servers, which the TensorFlow toolkit does not support with other groups"
    processes_per_host = 1

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        check_not_trainium(self, group)
        return {"sagemaker_parameter_server_enabled": "true"}


def check_not_trainium(launcher: object, group: InstanceGroup) -> None:
    """Check that the machines of a launcher have no Trainium, which only torchrun supports."""
    # TRAINIUM_SUPPORTED_DISTRIBUTION_STRATEGIES of fw_utils.py in the SageMaker Python SDK, version 2.
    facts = instance_facts(group.instance_type)
    if facts is not None and facts.kind == "neuron":
        rule = "be Torchrun() on Trainium, the only one that SageMaker supports there"
        example = f"Torchrun(){unlisted_hint(group.instance_type)}"
        raise must("launcher", rule, example, f"{launcher!r} on {group.instance_type}")


def _check_group(launcher: Mpi | PyTorchDdp, group: InstanceGroup) -> None:
    """Raise ``ValueError`` on Trainium, and for more processes than accelerators, of which each process uses one."""
    check_not_trainium(launcher, group)
    facts, processes = instance_facts(group.instance_type), launcher.processes_per_host
    if facts is None or not facts.devices or processes is None or is_unresolved(processes):
        return
    if processes > facts.processes:
        rule = f"be at most the {facts.processes} accelerators of {group.instance_type}"
        raise must("processes_per_host", rule, f"{facts.processes}{unlisted_hint(group.instance_type)}", f"{processes}")


def launchers_of(hyperparameters: Mapping[str, str]) -> list[str]:
    """Return the hyperparameters by which the toolkit starts processes; the Training Compiler's starts none.

    Args:
        hyperparameters: Those of a request.
    """
    return [name for name in hyperparameters if _ENABLED.fullmatch(name)]


def _processes(processes_per_host: int | None) -> dict[str, str]:
    return {} if processes_per_host is None else {PROCESSES_PER_HOST: str(processes_per_host)}


def processes_advice(group: InstanceGroup, processes_per_host: int | None) -> tuple[Advice, ...]:
    """Warn of idle accelerators, and of more processes than accelerators or vCPUs.

    "NCCL doesn't allow multi-rank mapped to the same GPU device" (pytorch/pytorch 68666).
    """
    facts = instance_facts(group.instance_type)
    if facts is None or processes_per_host is None or is_unresolved(processes_per_host):
        return ()
    if not facts.devices and facts.vcpus is not None and processes_per_host > facts.vcpus:
        return advice(
            "more-processes-than-vcpus",
            f"{processes_per_host} processes share the {facts.vcpus} vCPUs of {group.instance_type} and slow each other down; "
            f"start {facts.vcpus} at most, or use a larger machine",
        )
    if facts.devices and processes_per_host > facts.processes:
        return advice(
            "more-processes-than-accelerators",
            f"{processes_per_host} processes share the {facts.processes} accelerators of {group.instance_type}, on each of which "
            f"NCCL takes one process alone; start {facts.processes} at most, or use a larger machine",
        )
    if processes_per_host >= facts.processes:
        return ()
    return advice(
        "idle-accelerators",
        f"{processes_per_host} of the {facts.processes} accelerators of {group.instance_type} would have a process: the rest "
        "are billed and idle, unless a process uses several",
    )
