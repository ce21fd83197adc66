"""The compiler of a request, as the constructs' value: its hyperparameters and environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from training_jobs.adopt.existing import Existing
from training_jobs.adopt.launchers import decoded
from training_jobs.adopt.python_source import Call
from training_jobs.facts.instance_facts import instance_facts

_ENABLED, _DEBUG = "sagemaker_training_compiler_enabled", "sagemaker_training_compiler_debug_mode"
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# The repositories of the Training Compiler's containers (pytorch-training-compiler.json and its siblings of the SDK).
_IN_IMAGE = re.compile(r"/(?:(?:huggingface-)?(?:pytorch|tensorflow)-trcomp-training|tensorflow-training):")
_CHECKPOINTS = "/opt/ml/checkpoints/"


def compiler_of(
    machines: Mapping[str, Any],
    launcher: str,
    hyperparameters: dict[str, str],
    environment: dict[str, str],
    existing: Existing,
    *,
    image: str,
    profiled: bool,
    alone: bool,
) -> Call | None:
    """Return the compiler, whose hyperparameters and variables are removed; None where no value of the constructs sets these.

    Args:
        machines: ``InstanceType`` and ``InstanceCount``.
        launcher: The launcher's class; empty without one.
        hyperparameters: The request's.
        environment: The request's.
        existing: The resources that the stack imports.
        image: The URI of the image.
        profiled: Whether SageMaker's profiler is on.
        alone: Whether the job has no other instance groups.
    """
    facts = instance_facts(machines["InstanceType"])
    debug = decoded(hyperparameters.get(_DEBUG, "null"))
    if decoded(hyperparameters.get(_ENABLED, "null")) is True and isinstance(debug, bool):
        if not alone or facts is None or not _IN_IMAGE.search(image) or launcher not in ("", "PyTorchXla", "Mpi"):
            return None
        for name in (_ENABLED, _DEBUG):
            del hyperparameters[name]
        return Call("TrainingCompiler", (), {"debug": debug or None, "profiler": profiled or None})
    neuron = facts is not None and facts.kind == "neuron"
    gpus = facts is not None and facts.kind == "gpu"
    found = _neuron(environment, launcher, existing) if neuron else _open(environment, launcher, gpus)
    if found is None:
        return None
    call, names = found
    for name in names:
        del environment[name]
    return call


def _neuron(environment: Mapping[str, str], launcher: str, existing: Existing) -> tuple[Call, tuple[str, ...]] | None:
    cache = environment.get("NEURON_COMPILE_CACHE_URL", "")
    if not cache.startswith("s3://") or launcher != "Torchrun" or "RUN_NEURON_PARALLEL_COMPILE" in environment:
        return None
    call = Call("Neuron", (), {"cache": existing.prefix(cache), "compile_ahead": False})
    return call, ("NEURON_COMPILE_CACHE_URL",)


def _open(environment: Mapping[str, str], launcher: str, gpus: bool) -> tuple[Call, tuple[str, ...]] | None:
    """PyTorch's inductor, PyTorch/XLA or TensorFlow's XLA, as the constructs' own jobs have them."""
    kind, mode = environment.get("TRAINING_COMPILER"), environment.get("TRAINING_COMPILER_MODE")
    dynamic, cache = environment.get("TRAINING_COMPILER_DYNAMIC"), environment.get("TORCHINDUCTOR_CACHE_DIR", "")
    if kind == "inductor" and mode in _MODES and dynamic in ("true", "false") and cache.startswith(_CHECKPOINTS):
        keywords = {
            "mode": None if mode == "default" else mode,
            "dynamic": dynamic == "true" or None,
            "cache_directory": None if cache == f"{_CHECKPOINTS}compiler-cache" else cache,
        }
        names = ("TRAINING_COMPILER", "TRAINING_COMPILER_MODE", "TRAINING_COMPILER_DYNAMIC", "TORCHINDUCTOR_CACHE_DIR")
        return Call("TorchCompile", (), keywords), names
    device = environment.get("PJRT_DEVICE")
    if kind == "xla" and device == "CUDA" and gpus and launcher == "Torchrun":
        return Call("TorchXla"), ("TRAINING_COMPILER", "PJRT_DEVICE")
    if kind == "xla" and device is None and launcher in ("", "MultiWorkerMirrored", "ParameterServer"):
        return Call("TensorFlowXla"), ("TRAINING_COMPILER",)
    return None
