"""What compiles the step of a training job, as values: PyTorch's inductor, open XLA, and AWS Neuron."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from cdk_sagemaker_training.data import S3Prefix
from cdk_sagemaker_training.instance_facts import InstanceFacts, family, instance_facts
from cdk_sagemaker_training.jobs import Advice, JobRequest
from cdk_sagemaker_training.prop_types import check_fields
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed, way_out

Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]

_TORCHRUN = "sagemaker_torch_distributed_enabled"
_PROCESSES_PER_HOST = "sagemaker_mpi_num_of_processes_per_host"


@dataclass(frozen=True)
class TorchCompile:
    """PyTorch's own compiler, ``torch.compile`` with inductor, for NVIDIA GPUs and CPUs.

    ``mode`` is torch.compile's; ``dynamic`` compiles for shapes that change, and otherwise the script keeps them fixed.
    Compiled code is kept in ``cache_directory``, below the checkpoints unless said otherwise, so that a job that starts again
    with its checkpoints does not compile again. Scripts read ``TRAINING_COMPILER``, ``TRAINING_COMPILER_MODE`` and
    ``TRAINING_COMPILER_DYNAMIC``, PyTorch itself ``TORCHINDUCTOR_CACHE_DIR`` (PyTorch's "Compile Time Caching Configuration").
    """

    mode: Mode = "default"
    dynamic: bool = False
    cache_directory: str = "/opt/ml/checkpoints/compiler-cache"

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.cache_directory.startswith("/"):
            raise ValueError(
                "cache_directory must be an absolute path, like '/opt/ml/checkpoints/compiler-cache', "
                f"got {self.cache_directory!r}"
            )

    def compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        _refuse_trainium("TorchCompile", request)
        environment = {
            "TRAINING_COMPILER": "inductor",
            "TRAINING_COMPILER_MODE": self.mode,
            "TRAINING_COMPILER_DYNAMIC": json.dumps(self.dynamic),
            "TORCHINDUCTOR_CACHE_DIR": self.cache_directory,
        }
        return [
            replace(
                request,
                environment={**request.environment, **environment},
                kept=(*request.kept, self.cache_directory),
            )
        ]


@dataclass(frozen=True)
class TorchXla:
    """The open PyTorch/XLA, one process for each device of a host, started by ``Torchrun()`` or by the script itself.

    XLA's client is told the devices in ``PJRT_DEVICE``: ``CUDA`` where the type has GPUs, else ``CPU``, whose client has no
    collectives and so trains in one process on one host. PyTorch/XLA's README: releases from 2.8 on have no CUDA, so that a
    GPU needs torch and torch_xla 2.7 or older. Trainium's XLA is ``Neuron``.
    """

    def compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        _refuse_trainium("TorchXla", request)
        facts = instance_facts(request.resource_config["InstanceType"])
        device = "CUDA" if _may_have_gpus(request.resource_config["InstanceType"], facts) else "CPU"
        if device == "CPU":
            _check_one_process(request)
        _check_launcher("TorchXla", request, ("Torchrun()", "launcher=None"))
        environment = {"TRAINING_COMPILER": "xla", "PJRT_DEVICE": device}
        if device == "CUDA" and _TORCHRUN not in request.hyperparameters and facts:
            # What torch_xla's own launch() starts processes by where nothing else started them.
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
class TensorFlowXla:
    """XLA as TensorFlow has it, for GPUs and CPUs: functions with ``jit_compile=True``, Keras' ``compile`` among them.

    ``auto_clustering`` has TensorFlow find further parts of the graph to compile (`TF_XLA_FLAGS`, TensorFlow's page "XLA:
    Optimizing Compiler"). Scripts read ``TRAINING_COMPILER``.
    """

    auto_clustering: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        _refuse_trainium("TensorFlowXla", request)
        if _TORCHRUN in request.hyperparameters:
            raise ValueError(
                "launcher must be one for TensorFlow, like launcher=None, which starts the script once on each host, "
                "got Torchrun() with compiler=TensorFlowXla()"
            )
        environment = {"TRAINING_COMPILER": "xla"}
        if self.auto_clustering:
            environment["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2"
        return [replace(request, environment={**request.environment, **environment})]


@dataclass(frozen=True)
class Neuron:
    """AWS Neuron's compiler for Trainium, with PyTorch/XLA in the last containers of AWS's that have it.

    ``cache`` is where compiled graphs are kept in S3, for all hosts and later jobs. ``compile_ahead`` makes the workflow run a
    first job that only finds the graphs and compiles them in parallel; what it computes means nothing, so a few steps will do:
    ``trial`` are the hyperparameters of the first job that differ, like ``{"steps": 10}``. It is neither given the job's
    checkpoints nor writes any. Needs ``launcher=Torchrun()``, the only one for Trainium, where the toolkit starts
    neuron_parallel_compile. (AWS Neuron's "PyTorch Neuron neuron_parallel_compile CLI" and "Neuron Persistent Cache".)
    """

    cache: S3Prefix
    compile_ahead: bool = True
    trial: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "trial", MappingProxyType(dict(self.trial)))
        if self.trial and not self.compile_ahead:
            raise ValueError(
                "trial must be left out without compile_ahead, whose job it is for, like trial={}, "
                f"got {dict(self.trial)!r}"
            )

    def compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        instance_type = request.resource_config["InstanceType"]
        facts = instance_facts(instance_type)
        if facts is not None and facts.kind != "neuron":
            must = "instance_type must be one of Trainium for compiler=Neuron(...), like 'ml.trn1.32xlarge'"
            check_listed("instance-facts", instance_type, False, must)
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


_XLA_ON_GPUS = Advice(
    "cdk-sagemaker-training:xla-on-gpus",
    "PyTorch/XLA has no CUDA in releases from 2.8 on, so this job stays at torch 2.7 or older; "
    "TorchCompile() is what is developed for GPUs.",
)
_NEURON_WITH_XLA = Advice(
    "cdk-sagemaker-training:neuron-with-xla",
    "AWS Neuron trains with PyTorch/XLA up to its release 2.29 and PyTorch 2.9, whose container TrainingImage.from_neuron names; "
    "what follows, torch.compile(backend='neuron'), is in AWS's private beta.",
)


def _refuse_trainium(compiler: str, request: JobRequest) -> None:
    instance_type = request.resource_config["InstanceType"]
    facts = instance_facts(instance_type)
    if facts is not None and facts.kind == "neuron":
        raise ValueError(
            f"compiler must be Neuron(...) on Trainium, like Neuron(cache=S3Prefix(bucket, 'neuron-cache/'))"
            f"{way_out(instance_type)}, got {compiler} with {instance_type!r}"
        )


def _may_have_gpus(instance_type: str, facts: InstanceFacts | None) -> bool:
    """Whether a type has GPUs, by its family's first letter where nothing else is known of it."""
    if facts is not None:
        return facts.kind == "gpu"
    return is_unresolved(instance_type) or family(instance_type).startswith(("g", "p"))


def _check_launcher(compiler: str, request: JobRequest, takes: tuple[str, ...]) -> None:
    launching = [key for key, value in request.hyperparameters.items() if key.endswith("_enabled") and value == "true"]
    if launching == [_TORCHRUN] or (not launching and "launcher=None" in takes):
        return
    raise ValueError(
        f"launcher must be {' or '.join(takes)} for compiler={compiler}, like {takes[0]}, "
        f"got {', '.join(launching) or 'none'}"
    )


def _check_one_process(request: JobRequest) -> None:
    hosts = request.resource_config["InstanceCount"]
    processes = request.hyperparameters.get(_PROCESSES_PER_HOST, "1")
    if not is_unresolved(hosts) and (hosts != 1 or processes != "1"):
        raise ValueError(
            "group must be one machine with one process for compiler=TorchXla() without GPUs, whose XLA has no collectives, "
            f"like InstanceGroup('ml.m5.xlarge', 1), got {hosts} x {processes} on "
            f"{request.resource_config['InstanceType']!r}"
        )
