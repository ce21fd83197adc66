"""``CompiledJob``, and compilers of the training step, as values: PyTorch's inductor, open XLA, AWS Neuron."""

# ran: `TorchCompile()` | request: test_compilers | test_compiled | one H100, one H200 | no
# ran: `TorchXla()` | request: test_compilers | test_compiled (soak) | no | no
# ran: `TensorFlowXla()` | request: test_compilers | test_compiled | no | no
# ran: `Neuron()` | request: test_compilers | no | no | no

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

from cdk_sagemaker_training.core.checks import absolute_path
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, unlisted_hint
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.facts.instance_facts import InstanceFacts, family, instance_facts
from cdk_sagemaker_training.jobs.kinds import Advice, Compiler, DataParallelJob, JobRequest
from cdk_sagemaker_training.jobs.launchers import PROCESSES_PER_HOST
from cdk_sagemaker_training.props.prop import SHAPING, Known, Prop
from cdk_sagemaker_training.props.prop_types import Value, check_fields

_CACHE = "/opt/ml/checkpoints/compiler-cache"
_TORCHRUN = "sagemaker_torch_distributed_enabled"
# "torch._logging" and "torch.compile troubleshooting" in PyTorch's documentation; each process writes a file of its own.
_TORCH_DEBUG = {"TORCH_LOGS": "graph_breaks,recompiles", "TORCH_TRACE": "/opt/ml/output/data/compiler"}


class StepCompiler(Value, ABC):
    """A compiler of the training step."""

    def compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        """Return the requests of the compiled job.

        Args:
            request: The request of the job without a compiler.

        Raises:
            ValueError: The compiler does not support the job's machines or launcher.
        """
        return self._compiled(request)

    @abstractmethod
    def _compiled(self, request: JobRequest) -> Sequence[JobRequest]: ...


@dataclass(frozen=True)
class TorchCompile(StepCompiler):
    """``torch.compile`` with inductor, for NVIDIA GPUs and CPUs.

    Sets the environment variables ``TRAINING_COMPILER``, ``TRAINING_COMPILER_MODE`` and ``TRAINING_COMPILER_DYNAMIC`` for the
    script, and ``TORCHINDUCTOR_CACHE_DIR`` for PyTorch ("Compile Time Caching Configuration" in PyTorch's documentation).

    Args:
        mode: ``mode`` of torch.compile.
        dynamic: Whether to compile for changing shapes; False requires that the script keeps shapes fixed.
        cache_directory: Absolute path of the compiled code on the hosts. By default it is among the checkpoints, so that a job
            that restarts from its checkpoints does not compile again.
        debug: Whether PyTorch logs graph breaks and recompilations (``TORCH_LOGS``) in the job's log, and writes the compiler's
            trace (``TORCH_TRACE``), which tlparse shows, to ``/opt/ml/output/data/compiler/``, which SageMaker uploads in
            ``output.tar.gz``. Slows the compilation down.

    Raises:
        ValueError: ``mode`` is unknown, or ``cache_directory`` is not absolute.
    """

    mode: Annotated[
        Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"],
        Prop(known=SHAPING, listed="torch-compile-modes"),
    ] = "default"
    dynamic: bool = False
    cache_directory: Annotated[str, Prop(known=SHAPING, rule=absolute_path, example=repr(_CACHE))] = _CACHE
    debug: bool = False

    def _compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        _refuse_trainium("TorchCompile", request)
        environment = {
            "TRAINING_COMPILER": "inductor",
            "TRAINING_COMPILER_MODE": self.mode,
            "TRAINING_COMPILER_DYNAMIC": json.dumps(self.dynamic),
            "TORCHINDUCTOR_CACHE_DIR": self.cache_directory,
            **(_TORCH_DEBUG if self.debug else {}),
        }
        return [
            replace(
                request,
                environment={**request.environment, **environment},
                kept=(*request.kept, self.cache_directory),
            )
        ]


@dataclass(frozen=True)
class TorchXla(StepCompiler):
    """Open-source PyTorch/XLA, with one process for each device, started by ``Torchrun()`` or by the script itself.

    Sets ``PJRT_DEVICE`` for XLA's client: ``CUDA`` on types with GPUs, else ``CPU``, whose client has no collectives and
    therefore trains in one process on one host. Releases from 2.8 on have no CUDA, so GPUs need torch and torch_xla 2.7 or older
    (README of PyTorch/XLA): an image whose tag or requirements file shows that it has a newer one is refused. For Trainium use
    ``Neuron``.
    """

    def _compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        _refuse_trainium("TorchXla", request)
        facts = instance_facts(request.resource_config["InstanceType"])
        device = "CUDA" if _may_have_gpus(request.resource_config["InstanceType"], facts) else "CPU"
        if device == "CPU":
            _check_one_process(request)
        _check_launcher("TorchXla", request, ("Torchrun()", "launcher=None"))
        environment = {"TRAINING_COMPILER": "xla", "PJRT_DEVICE": device}
        if device == "CUDA" and _TORCHRUN not in request.hyperparameters and facts:
            # torch_xla's own launch() reads the number of processes from it where no launcher started them.
            environment["GPU_NUM_DEVICES"] = str(facts.devices)
        advice = (_XLA_ON_GPUS,) if device == "CUDA" else ()
        return [
            replace(
                request,
                environment={**request.environment, **environment},
                advice=(*request.advice, *advice),
            )
        ]


@dataclass(frozen=True)
class TensorFlowXla(StepCompiler):
    """TensorFlow's XLA, for GPUs and CPUs: functions with ``jit_compile=True``, also through Keras' ``compile``.

    Sets the environment variable ``TRAINING_COMPILER`` for the script.

    Args:
        auto_clustering: Whether TensorFlow also compiles other clusters of the graph (`TF_XLA_FLAGS`, TensorFlow's page "XLA:
            Optimizing Compiler").
    """

    auto_clustering: bool = False

    def _compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        _refuse_trainium("TensorFlowXla", request)
        if _TORCHRUN in request.hyperparameters:
            example = "launcher=None, which starts the script once on each host"
            raise must("launcher", "be one for TensorFlow", example, "Torchrun() with compiler=TensorFlowXla()")
        environment = {"TRAINING_COMPILER": "xla"}
        if self.auto_clustering:
            environment["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2"
        return [replace(request, environment={**request.environment, **environment})]


@dataclass(frozen=True)
class Neuron(StepCompiler):
    """AWS Neuron's compiler for Trainium, with PyTorch/XLA in the last of AWS's containers that have it.

    Needs ``launcher=Torchrun()``. Sources: AWS Neuron's pages "PyTorch Neuron neuron_parallel_compile CLI" and "Neuron Persistent
    Cache".

    Args:
        cache: Where compiled graphs are stored in S3, for all hosts and later jobs.
        compile_ahead: Whether the workflow first runs a job that only traces the graphs and compiles them in parallel
            (neuron_parallel_compile). Its results are meaningless; it neither reads nor writes checkpoints.
        trial: Hyperparameters of that first job that differ from the training job's, like ``{"steps": 10}``: a few steps are
            enough.

    Raises:
        ValueError: ``trial`` is set without ``compile_ahead``.
    """

    cache: Annotated[S3Prefix, Prop(example="S3Prefix(bucket, 'neuron-cache/')")]
    compile_ahead: bool = True
    trial: Annotated[
        Mapping[str, Any],
        Prop(known=Known("execution", "text of its own, as in hyperparameters"), example="{'steps': 10}"),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "trial", MappingProxyType(dict(self.trial)))
        if self.trial and not self.compile_ahead:
            rule = "be left out without compile_ahead, whose job it configures"
            raise must("trial", rule, "trial={}", repr(dict(self.trial)))

    def _compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        instance_type = request.resource_config["InstanceType"]
        facts = instance_facts(instance_type)
        if facts is not None and facts.kind != "neuron":
            rule = "be one of Trainium for compiler=Neuron(...)"
            check_listed("instance-facts", instance_type, False, "instance_type", rule, "'ml.trn1.32xlarge'")
        _check_launcher("Neuron", request, ("Torchrun()",))
        training = replace(
            request,
            environment={**request.environment, "NEURON_COMPILE_CACHE_URL": self.cache.uri},
            storage=(*request.storage, self.cache),
            advice=(*request.advice, _NEURON_WITH_XLA),
        )
        if not self.compile_ahead:
            return [training]
        compiling = replace(
            training,
            environment={**training.environment, "RUN_NEURON_PARALLEL_COMPILE": "1"},
            overrides=self.trial,
            checkpoints=False,
            name_suffix="compile",
        )
        return [compiling, training]


@dataclass(frozen=True)
class CompiledJob(DataParallelJob):
    """``DataParallelJob`` whose training step is compiled, by ``TorchCompile()`` by default.

    Args:
        group: The machines.
        launcher: What starts several processes on each host; None runs the script once on each host.
        compiler: The compiler; Trainium needs ``Neuron(...)``.

    Raises:
        ValueError: The launcher or the compiler does not support the machines, or each other.
    """

    compiler: Compiler = TorchCompile()


_XLA_ON_GPUS = Advice(
    "cdk-sagemaker-training:xla-on-gpus",
    "PyTorch/XLA has no CUDA in releases from 2.8 on, so this job stays at torch 2.7 or older; "
    "for GPUs, TorchCompile() is the compiler under development.",
)
_NEURON_WITH_XLA = Advice(
    "cdk-sagemaker-training:neuron-with-xla",
    "AWS Neuron trains with PyTorch/XLA up to its release 2.29 and PyTorch 2.9, whose container TrainingImage.from_neuron names; "
    "its successor, torch.compile(backend='neuron'), is in AWS's private beta.",
)


def _refuse_trainium(compiler: str, request: JobRequest) -> None:
    instance_type = request.resource_config["InstanceType"]
    facts = instance_facts(instance_type)
    if facts is not None and facts.kind == "neuron":
        example = f"Neuron(cache=S3Prefix(bucket, 'neuron-cache/')){unlisted_hint(instance_type)}"
        raise must("compiler", "be Neuron(...) on Trainium", example, f"{compiler} with {instance_type!r}")


def _may_have_gpus(instance_type: str, facts: InstanceFacts | None) -> bool:
    """Whether a type has GPUs; decided by its family's first letter if it has no facts."""
    if facts is not None:
        return facts.kind == "gpu"
    return is_unresolved(instance_type) or family(instance_type).startswith(("g", "p"))


def _check_launcher(compiler: str, request: JobRequest, supported: tuple[str, ...]) -> None:
    launching = [key for key, value in request.hyperparameters.items() if key.endswith("_enabled") and value == "true"]
    if launching == [_TORCHRUN] or (not launching and "launcher=None" in supported):
        return
    rule = f"be {' or '.join(supported)} for compiler={compiler}"
    raise must("launcher", rule, supported[0], ", ".join(launching) or "none")


def _check_one_process(request: JobRequest) -> None:
    hosts = request.resource_config["InstanceCount"]
    processes = request.hyperparameters.get(PROCESSES_PER_HOST, "1")
    if not is_unresolved(hosts) and (hosts != 1 or processes != "1"):
        rule = "be one machine with one process for compiler=TorchXla() without GPUs, whose XLA has no collectives"
        got = f"{hosts} x {processes} on {request.resource_config['InstanceType']!r}"
        raise must("group", rule, "InstanceGroup('ml.m5.xlarge', 1)", got)
