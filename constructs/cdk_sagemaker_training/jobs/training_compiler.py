"""SageMaker Training Compiler, which still runs but has reached its end of life, and its launcher."""

# ran: `TrainingCompiler()` | request: test_training_compiler | no | no | no

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.unlisted import check_listed
from cdk_sagemaker_training.facts.containers import training_compiler_images
from cdk_sagemaker_training.facts.instance_facts import family, instance_facts
from cdk_sagemaker_training.jobs.compilers import StepCompiler
from cdk_sagemaker_training.jobs.kinds import Advice, InstanceGroup, JobRequest
from cdk_sagemaker_training.jobs.launchers import ToolkitLauncher

_FAMILIES = ("p3", "p3dn", "g4dn", "p4d", "g5")
_PYTORCH_XLA = "sagemaker_pytorch_xla_multi_worker_enabled"
_MPI = "sagemaker_mpi_enabled"
_ALL = ("pytorch", "huggingface-pytorch", "huggingface-tensorflow", "tensorflow")
# Hugging Face's containers before PyTorch 1.11 have no xla_spawn (huggingface/training_compiler/config.py of AWS's SDK).
_WITHOUT_XLA_SPAWN = ("huggingface-pytorch-trcomp-training:1.9", "huggingface-pytorch-trcomp-training:1.10")


@dataclass(frozen=True)
class PyTorchXla(ToolkitLauncher):
    """The launcher in the Training Compiler's PyTorch containers: calls the script's ``_mp_fn(index)`` in a process for each GPU.

    Only with ``compiler=TrainingCompiler()``: only AWS's build of PyTorch/XLA contains ``torch_xla.distributed.xla_spawn``.
    """

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        return {_PYTORCH_XLA: "true"}


@dataclass(frozen=True)
class TrainingCompiler(StepCompiler):
    """SageMaker Training Compiler, for existing jobs on its containers; AWS makes no new releases of it.

    The image must be one of ``TrainingImage.from_training_compiler`` or built from one. PyTorch on several GPUs needs
    ``launcher=PyTorchXla()``. Hyperparameters and rules are those of AWS's SDK (training_compiler/config.py of sagemaker
    2.257.7, and its siblings for PyTorch, Hugging Face and TensorFlow), the warnings those of AWS's "Training Compiler Best
    Practices and Considerations".

    Args:
        debug: Whether the compiler writes logs to ``/opt/ml/output/data/compiler/``, which SageMaker uploads in
            ``output.tar.gz``. Slows the job down.
        profiler: Whether SageMaker's profiler stays on, which causes recompilations.
    """

    debug: bool = False
    profiler: bool = False

    def _compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        instance_type = request.resource_config["InstanceType"]
        rule = f"be of a family that TrainingCompiler supports, {', '.join(_FAMILIES)}"
        listed = family(instance_type) in _FAMILIES
        check_listed("compiler-families", instance_type, listed, "instance_type", rule, "'ml.g5.xlarge'")
        return [
            replace(
                request,
                hyperparameters={
                    **request.hyperparameters,
                    "sagemaker_training_compiler_enabled": "true",
                    "sagemaker_training_compiler_debug_mode": json.dumps(self.debug),
                },
                profiler_config={"DisableProfiler": not self.profiler},
                images=_images_for(request),
                alone_because="TrainingCompiler does not support instance groups",
                advice=(*request.advice, _END_OF_LIFE, *self._advice(request)),
            )
        ]

    def _advice(self, request: JobRequest) -> list[Advice]:
        advice = []
        if self.debug:
            advice.append(_DEBUG)
        if self.profiler:
            advice.append(_PROFILER)
        facts = instance_facts(request.resource_config["InstanceType"])
        several = facts is not None and (facts.devices > 1 or request.resource_config["InstanceCount"] != 1)
        if several and not _launching(request):
            advice.append(_ONE_PROCESS)
        return advice


def _launching(request: JobRequest) -> list[str]:
    return [key for key, value in request.hyperparameters.items() if key.endswith("_enabled") and value == "true"]


def _images_for(request: JobRequest) -> tuple[str, ...]:
    """The containers that contain the launcher; raises ``ValueError`` if there is none."""
    launching = _launching(request)
    if not launching:
        return training_compiler_images(_ALL)
    if launching == [_PYTORCH_XLA]:
        images = training_compiler_images(("pytorch", "huggingface-pytorch"))
        return tuple(image for image in images if not image.startswith(_WITHOUT_XLA_SPAWN))
    if launching == [_MPI]:
        return training_compiler_images(("tensorflow", "huggingface-tensorflow"))
    example = "PyTorchXla() for PyTorch or launcher=None"
    raise must("launcher", "be one that TrainingCompiler supports", example, ", ".join(launching))


_END_OF_LIFE = Advice(
    "cdk-sagemaker-training:training-compiler-end-of-life",
    "AWS makes no new releases of the Training Compiler and no patches of its containers; move to TorchCompile() with a current "
    "PyTorch, TensorFlowXla() with a current TensorFlow, or Neuron(...) on Trainium.",
)
_DEBUG = Advice(
    "cdk-sagemaker-training:training-compiler-debug",
    "TrainingCompiler(debug=True) slows the job down; its logs are written to /opt/ml/output/data/compiler/ and come out in "
    "output.tar.gz below the job's output.",
)
_PROFILER = Advice(
    "cdk-sagemaker-training:training-compiler-profiler",
    "TrainingCompiler(profiler=True) leaves SageMaker's profiler on, for which the compiler may compile again and the job runs "
    "slower; leave it out unless you are profiling.",
)
_ONE_PROCESS = Advice(
    "cdk-sagemaker-training:training-compiler-without-launcher",
    "Without a launcher each host runs one process, which trains on one GPU unless the script starts others; "
    "PyTorch's containers have launcher=PyTorchXla().",
)
